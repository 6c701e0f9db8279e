//! Lookups: newest first, memtables then sorted runs.
//!
//! A batch asks one level of runs about many keys before it reads pages: the filter accesses of different
//! keys are independent, so that their cache misses overlap.

use holdfast_types::ids::Location;

use super::Index;
use super::IndexKey;
use super::error::IndexError;
use super::sorted_run::SortedRun;
use super::state::View;

/// Keys whose filter accesses are in flight together; as many as [`Mask`] has bits.
const GROUP: usize = u32::BITS as usize;

impl Index {
    /// The first location of a key, newest first, that `accept` accepts. Holds no lock while it asks.
    ///
    /// # Errors
    /// A damaged page, when no other has an answer; the volume's. Never a silent miss.
    pub fn get(
        &self,
        key: &IndexKey,
        mut accept: impl FnMut(Location) -> bool,
    ) -> Result<Option<Location>, IndexError> {
        let mut answer = None;
        self.get_batch(std::slice::from_ref(key), |_, location| accept(location), |_, found| answer = found)?;
        Ok(answer)
    }

    /// Looks up many keys, as [`Index::get`]: `accept` gets the key's position in `keys`, `answer` is called once for
    /// each key, in order within every 32.
    ///
    /// # Errors
    /// As [`Index::get`]; keys not answered yet stay so.
    pub fn get_batch(
        &self,
        keys: &[IndexKey],
        mut accept: impl FnMut(usize, Location) -> bool,
        mut answer: impl FnMut(usize, Option<Location>),
    ) -> Result<(), IndexError> {
        let view = self.shared.view();
        for (group, keys) in keys.chunks(GROUP).enumerate() {
            let first = group * GROUP;
            let mut lookup = Lookup::new(keys);
            lookup.search(&view, &mut |at, location| accept(first + at, location))?;
            for error in lookup.bad.drain(..) {
                self.shared.note(&error.1);
                // (I4) A miss in a page that cannot be read is no answer.
                if lookup.open.has(error.0) {
                    return Err(error.1);
                }
            }
            for (at, found) in lookup.answers.iter().enumerate().take(keys.len()) {
                answer(first + at, *found);
            }
        }
        Ok(())
    }
}

type Accept<'a> = dyn FnMut(usize, Location) -> bool + 'a;

/// A group of keys on their way through the levels.
struct Lookup<'k> {
    keys: &'k [IndexKey],
    answers: [Option<Location>; GROUP],
    /// A bit for each key not answered yet.
    open: Mask,
    /// Bad pages met, by the key they were asked about.
    bad: Vec<(usize, IndexError)>,
}

/// Positions in a group, as bits.
#[derive(Clone, Copy)]
struct Mask(u32);

impl Mask {
    fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let at = usize::try_from(rest.trailing_zeros()).ok().filter(|&at| at < GROUP)?;
            rest &= rest - 1;
            Some(at)
        })
    }

    fn has(self, at: usize) -> bool {
        self.0 >> (at % GROUP) & 1 == 1
    }

    fn set(&mut self, at: usize, on: bool) {
        let bit = 1 << (at % GROUP);
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }
}

impl<'k> Lookup<'k> {
    fn new(keys: &'k [IndexKey]) -> Self {
        let open = Mask(u32::MAX.unbounded_shr(u32::BITS.saturating_sub(count(keys))));
        Self { keys, answers: [None; GROUP], open, bad: Vec::new() }
    }

    fn search(&mut self, view: &View, accept: &mut Accept<'_>) -> Result<(), IndexError> {
        for table in std::iter::once(&view.active).chain(&view.frozen) {
            if table.len() > 0 {
                let mut found = Vec::new();
                self.step(self.open, accept, |key, accept| {
                    found.clear();
                    table.locations(key, &mut found);
                    Ok(found.iter().copied().find(|&location| accept(location)))
                })?;
            }
        }
        for run in &view.runs.wide {
            self.level(accept, |_| Some(run.as_ref()))?;
        }
        for depth in 0..view.runs.shard_depth() {
            self.level(accept, |key| view.runs.shard(key.shard()).get(depth).map(AsRef::as_ref))?;
        }
        Ok(())
    }

    /// Asks one sorted run for each open key: first all filters, then the pages of the keys that passed.
    fn level<'r>(
        &mut self,
        accept: &mut Accept<'_>,
        run_of: impl Fn(&IndexKey) -> Option<&'r SortedRun>,
    ) -> Result<(), IndexError> {
        let mut passed = Mask(0);
        for at in self.open.iter() {
            let run = self.keys.get(at).and_then(|key| Some((key, run_of(key)?)));
            passed.set(at, run.is_some_and(|(key, run)| run.may_contain(key.prefix())));
        }
        self.step(passed, accept, |key, accept| run_of(key).map_or(Ok(None), |run| run.find(key, accept)))
    }

    /// Asks for a candidate for each of these keys and closes those of which one is accepted.
    fn step(
        &mut self,
        keys: Mask,
        accept: &mut Accept<'_>,
        mut find: impl FnMut(&IndexKey, &mut dyn FnMut(u64) -> bool) -> Result<Option<u64>, IndexError>,
    ) -> Result<(), IndexError> {
        for at in keys.iter() {
            let (Some(key), Some(answer)) = (self.keys.get(at), self.answers.get_mut(at)) else { continue };
            match find(key, &mut |packed| accept(at, Location::unpack(packed))) {
                // Other runs may have the answer, or the rest of it.
                Err(error) if error.bad_page().is_some() => self.bad.push((at, error)),
                done => *answer = done?.map(Location::unpack),
            }
            self.open.set(at, answer.is_none());
        }
        Ok(())
    }
}

/// Keys of a group.
fn count(keys: &[IndexKey]) -> u32 {
    u32::try_from(keys.len().min(GROUP)).unwrap_or(u32::BITS)
}
