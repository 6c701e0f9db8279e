//! Merges sorted runs into one, in order, with bounded memory: 256 KiB of pages per input and one filter's keys.
//! Exact duplicates and entries of containers that are no longer live are dropped. Inputs stay untouched.

use std::sync::Arc;

use holdfast_types::ids::{ContainerId, Location};

use super::error::IndexError;
use super::sorted_run::SortedRun;
use super::sorted_run::SortedRunWriter;
use crate::format::sorted_run::{Entry, PAGE_BYTES, PAGE_ENTRIES, ShardRange};

/// Pages a cursor reads at once.
const READ_AHEAD_PAGES: usize = 64;

/// Walks the entries of one sorted run that are in given shards.
#[derive(Debug)]
struct Cursor {
    run: Arc<SortedRun>,
    last_prefix: u64,
    next_page: usize,
    raw: Vec<u8>,
    /// Offset in `raw` of the page after the current.
    raw_at: usize,
    entries: Vec<Entry>,
    at: usize,
    current: Option<(Entry, Rank)>,
}

type Rank = (u64, u32, u64);

impl Cursor {
    /// At the first entry.
    fn new(run: Arc<SortedRun>, shards: ShardRange) -> Result<Self, IndexError> {
        let (first, last_prefix) = shards.prefixes();
        let next_page = run.first_page_of(shards);
        let mut cursor = Self {
            run,
            last_prefix,
            next_page,
            raw: Vec::new(),
            raw_at: 0,
            entries: Vec::with_capacity(PAGE_ENTRIES),
            at: 0,
            current: None,
        };
        cursor.advance()?;
        while cursor.current.is_some_and(|(entry, _)| entry.prefix() < first) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    fn advance(&mut self) -> Result<(), IndexError> {
        if self.at == self.entries.len() && !self.load_page()? {
            self.current = None;
            return Ok(());
        }
        let entry = self.entries.get(self.at).filter(|entry| entry.prefix() <= self.last_prefix);
        self.current = entry.map(|entry| (*entry, entry.order()));
        self.at += 1;
        Ok(())
    }

    /// `false` at the end of the run.
    fn load_page(&mut self) -> Result<bool, IndexError> {
        if self.raw_at == self.raw.len() {
            let pages = READ_AHEAD_PAGES.min(self.run.pages() - self.next_page);
            self.raw.resize(pages * PAGE_BYTES, 0);
            self.raw_at = 0;
            self.run.read_raw(self.next_page, &mut self.raw)?;
        }
        let Some(page) = self.raw.get(self.raw_at..).and_then(|rest| rest.first_chunk::<PAGE_BYTES>()) else {
            return Ok(false);
        };
        let number = u32::try_from(self.next_page).unwrap_or(u32::MAX);
        self.entries.clear();
        self.entries.extend_from_slice(self.run.decode(number, page)?);
        self.at = 0;
        self.raw_at += PAGE_BYTES;
        self.next_page += 1;
        Ok(true)
    }
}

/// Merges `inputs` within `shards` into `output`. `tick` is called after every page's worth of entries and
/// may end the merge.
///
/// # Errors
/// A damaged page, the volume's, or what `tick` returns; the output is then to be dropped.
pub(super) fn merge(
    inputs: &[Arc<SortedRun>],
    shards: ShardRange,
    live: &dyn Fn(ContainerId) -> bool,
    output: &mut SortedRunWriter,
    tick: &mut dyn FnMut() -> Result<(), IndexError>,
) -> Result<(), IndexError> {
    let open = |run: &Arc<SortedRun>| Cursor::new(Arc::clone(run), shards);
    let mut cursors = inputs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let mut previous: Option<Rank> = None;
    let mut verdicts = Verdicts::new(live);
    let mut since_tick = 0;
    loop {
        let next = cursors
            .iter_mut()
            .filter_map(|cursor| cursor.current.map(|(entry, rank)| (rank, entry, cursor)))
            .min_by_key(|(rank, ..)| *rank);
        let Some((rank, entry, cursor)) = next else { return Ok(()) };
        cursor.advance()?;
        since_tick += 1;
        if since_tick == PAGE_ENTRIES {
            since_tick = 0;
            tick()?;
        }
        if previous == Some(rank) || !verdicts.is_live(Location::unpack(entry.location.get()).container) {
            continue;
        }
        previous = Some(rank);
        output.push(&entry)?;
    }
}

/// Remembers the answers of `live`: it may be slow, and a merge asks about few containers many times.
struct Verdicts<'a> {
    live: &'a dyn Fn(ContainerId) -> bool,
    known: std::collections::HashMap<ContainerId, bool>,
}

/// Containers a merge remembers at most: 16 MiB of table at most.
const VERDICTS_MAX: usize = 1 << 19;

impl<'a> Verdicts<'a> {
    fn new(live: &'a dyn Fn(ContainerId) -> bool) -> Self {
        Self { live, known: std::collections::HashMap::new() }
    }

    fn is_live(&mut self, container: ContainerId) -> bool {
        if let Some(&verdict) = self.known.get(&container) {
            return verdict;
        }
        if self.known.len() >= VERDICTS_MAX {
            self.known.clear();
        }
        let verdict = (self.live)(container);
        self.known.insert(container, verdict);
        verdict
    }
}
