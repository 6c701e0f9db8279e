//! Where a disk changed, compared with its own past: the basis of the explanation of a large backup.
//!
//! Recipes are Merkle trees, so what did not change is known to be equal without being read: only pages (of
//! 512 extents) that differ are fetched, and of the past only as far as the page changed at all. Extents are
//! compared by the names of their nodes, which are hashes of what the extents are made of.

use std::sync::Arc;

use holdfast_catalog::{BackupRecord, DiskRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, PAGE_EXTENTS};
use crate::recipe::TreeReader;
use crate::store::{Domain, NodeReader};

/// Earlier restore points compared at most.
pub const HISTORY_DEPTH_MAX: usize = 16;

/// Pages fetched for one answer at most: 2,048 × 34 KiB are 70 MB read and never held together. A quarter of them, each
/// with the page before it, is a terabyte of changed disk; of more, pages are drawn evenly from all of the disk. The
/// other half looks further back, first where most was overwritten.
pub(crate) const PAGE_READS_MAX: usize = 2048;

/// Comparison of a disk's extents with its earlier restore points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtentHistory {
    /// Extents of the disk.
    pub total: u64,
    /// Extents that were compared: all of them, unless so much changed that it would take too long.
    pub compared: u64,
    /// Compared extents that are not as in the restore point before.
    pub changed: u64,
    /// Changed extents that were zero, or beyond the disk's end, in the restore point before.
    pub newly_written: u64,
    /// Changed extents that had held data and were compared with all earlier restore points: all of them, unless there
    /// are too many.
    pub traced: u64,
    /// Traced extents that were the same in all earlier restore points.
    pub changed_first_time: u64,
    /// Earlier restore points compared.
    pub compared_backups: u64,
    /// Start of the backup before, in ms since 1970 UTC.
    pub before_ms: i64,
}

type Tree = TreeReader<NodeReader>;

/// See [`Engine::extent_history`](crate::Engine::extent_history). At most `reads` pages are fetched, but for two.
pub(crate) fn history(
    core: &Arc<Core>,
    (namespace, backup): (NamespaceId, BackupId),
    disk: &str,
    depth: usize,
    reads: usize,
) -> Result<Option<ExtentHistory>, EngineError> {
    let gone = || EngineError::NotFound { what: "backup", name: backup.to_string() };
    let found = core.catalog.backup(backup)?.filter(|found| found.namespace == namespace).ok_or_else(gone)?;
    let current =
        disk_of(&found, disk).ok_or_else(|| EngineError::NotFound { what: "disk", name: disk.to_owned() })?;
    let depth = u32::try_from(depth.min(HISTORY_DEPTH_MAX))
        .map_err(|_| EngineError::Internal(format!("a history of {depth} restore points")))?;
    let mut earlier = core.catalog.backups_before(backup, depth)?;
    earlier.retain(|earlier| disk_of(earlier, disk).is_some());
    let Some(before) = earlier.first() else { return Ok(None) };
    let before_ms = before.started_ms;
    let domain = core.store.domain(namespace);
    let current = open(core, &domain, current)?;
    let past: Vec<Tree> = earlier
        .iter()
        .filter_map(|earlier| disk_of(earlier, disk))
        .map(|disk| open(core, &domain, disk))
        .collect::<Result<_, _>>()?;
    let history = Comparison::new(&current, &past, reads).run()?;
    Ok(Some(ExtentHistory { before_ms, ..history }))
}

fn disk_of<'a>(backup: &'a BackupRecord, name: &str) -> Option<&'a DiskRecord> {
    backup.disks.iter().find(|disk| disk.name == name)
}

fn open(core: &Arc<Core>, domain: &Domain, disk: &DiskRecord) -> Result<Tree, EngineError> {
    let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
    Ok(TreeReader::open(nodes, disk.root, disk.size_bytes)?)
}

struct Comparison<'a> {
    current: &'a Tree,
    /// Newest first, at least one.
    past: &'a [Tree],
    reads_left: usize,
    history: ExtentHistory,
}

/// Extents of a page that held data and changed.
struct Overwritten {
    page: u64,
    slots: Vec<u16>,
}

impl<'a> Comparison<'a> {
    fn new(current: &'a Tree, past: &'a [Tree], reads_left: usize) -> Self {
        let history = ExtentHistory {
            total: current.extent_count(),
            compared_backups: past.len() as u64,
            ..ExtentHistory::default()
        };
        Self { current, past, reads_left, history }
    }

    fn run(mut self) -> Result<ExtentHistory, EngineError> {
        let mut overwritten = self.compare()?;
        // Much that was overwritten at once is what one wants to know about.
        overwritten.sort_by_key(|page| std::cmp::Reverse(page.slots.len()));
        for page in overwritten {
            if self.reads_left < self.past.len() && self.history.traced > 0 {
                break;
            }
            self.trace(page)?;
        }
        Ok(self.history)
    }

    /// Compares the disk with the restore point before: pages drawn evenly, if there are too many that differ.
    fn compare(&mut self) -> Result<Vec<Overwritten>, EngineError> {
        let Some(before) = self.past.first() else { return Ok(Vec::new()) };
        let current = self.current;
        let total = self.history.total;
        let pages = total.div_ceil(PAGE_EXTENTS as u64);
        let extents = |page: u64| (PAGE_EXTENTS as u64).min(total - page * PAGE_EXTENTS as u64);
        let differs = |page: &u64| current.page_name(*page) != before.page_name(*page);
        let differing: Vec<u64> = (0..pages).filter(differs).collect();
        let same = total - differing.iter().map(|page| extents(*page)).sum::<u64>();
        let step = differing.len().div_ceil((self.reads_left / 4).max(1)).max(1);
        // The same share of what is as it was.
        self.history.compared = same / step as u64;
        let mut overwritten = Vec::new();
        for page in differing.into_iter().step_by(step) {
            self.history.compared += extents(page);
            overwritten.extend(self.page(page, before)?);
        }
        Ok(overwritten)
    }

    /// Compares a page that differs from the one before it.
    fn page(&mut self, page: u64, before: &Tree) -> Result<Option<Overwritten>, EngineError> {
        let now = self.fetch(self.current, page)?;
        let then = self.fetch(before, page)?;
        assert!(now.len() <= PAGE_EXTENTS, "page {page} has {} extents", now.len());
        let mut slots = Vec::new();
        for slot in (0u16..).take(now.len()) {
            let was = node(&then, slot);
            if node(&now, slot) == was {
                continue;
            }
            self.history.changed += 1;
            if was.is_zero() {
                self.history.newly_written += 1;
            } else {
                slots.push(slot);
            }
        }
        Ok((!slots.is_empty()).then_some(Overwritten { page, slots }))
    }

    /// Looks through the past for those of the extents that had changed before.
    fn trace(&mut self, Overwritten { page, slots: mut first_time }: Overwritten) -> Result<(), EngineError> {
        self.history.traced += first_time.len() as u64;
        let mut newer = None;
        for pair in self.past.windows(2) {
            let [younger, elder] = pair else { continue };
            if first_time.is_empty() {
                break;
            }
            if younger.page_name(page) == elder.page_name(page) {
                continue;
            }
            let after = match newer.take() {
                Some(after) => after,
                None => self.fetch(younger, page)?,
            };
            let older = self.fetch(elder, page)?;
            first_time.retain(|&slot| node(&after, slot) == node(&older, slot));
            newer = Some(older);
        }
        self.history.changed_first_time += first_time.len() as u64;
        Ok(())
    }

    fn fetch(&mut self, tree: &Tree, page: u64) -> Result<Vec<ExtentEntry>, EngineError> {
        self.reads_left = self.reads_left.saturating_sub(1);
        Ok(tree.page_entries(page)?)
    }
}

/// The node of an extent of a page; zero past the disk's end.
fn node(entries: &[ExtentEntry], slot: u16) -> Fingerprint {
    entries.get(usize::from(slot)).map_or(Fingerprint::ZERO, |entry| entry.node)
}
