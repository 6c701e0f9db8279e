//! Lookups: newest first, memtables then runs.
//!
//! A batch asks one level of runs about many keys before it reads pages: the filter accesses of different
//! keys are independent, so that their cache misses overlap.

use super::Index;
use super::error::IndexError;
use super::key::IndexKey;
use super::run::Run;
use super::runs::RunSet;
use super::state::View;
use crate::ids::Location;

/// Keys whose filter accesses are in flight together.
const GROUP: usize = 32;

impl Index {
    /// The first location of a key, newest first, that `accept` accepts. Runs no lock while it asks.
    ///
    /// # Errors
    /// A damaged page, or the volume's; never a silent miss.
    pub fn get(
        &self,
        key: &IndexKey,
        mut accept: impl FnMut(Location) -> bool,
    ) -> Result<Option<Location>, IndexError> {
        let mut answer = None;
        self.get_batch(std::slice::from_ref(key), |_, location| accept(location), |_, found| answer = found)?;
        Ok(answer)
    }

    /// As [`Index::get`] for many keys: `accept` gets the key's position in `keys`, `answer` is called once
    /// for each key, in order within every 32.
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
            lookup
                .run(&view, &mut |at, location| accept(first + at, location))
                .inspect_err(|error| self.shared.note(error))?;
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
    /// Positions not answered yet.
    open: Vec<usize>,
    /// Candidates of one key; kept for its memory.
    found: Vec<u64>,
    passed: [bool; GROUP],
}

impl<'k> Lookup<'k> {
    fn new(keys: &'k [IndexKey]) -> Self {
        Self {
            keys,
            answers: [None; GROUP],
            open: (0..keys.len()).collect(),
            found: Vec::new(),
            passed: [false; GROUP],
        }
    }

    fn run(&mut self, view: &View, accept: &mut Accept<'_>) -> Result<(), IndexError> {
        for table in std::iter::once(&view.active).chain(&view.frozen) {
            if table.len() > 0 {
                self.step(accept, |_, key, found| {
                    table.locations(key, found);
                    Ok(())
                })?;
            }
        }
        for run in &view.runs.wide {
            self.level(accept, |_| Some(run.as_ref()))?;
        }
        for depth in 0..view.runs.shard_depth() {
            self.level(accept, |key| shard_run(&view.runs, key, depth))?;
        }
        Ok(())
    }

    /// Asks one run for each open key: first all filters, then the pages of the keys that passed.
    fn level<'r>(
        &mut self,
        accept: &mut Accept<'_>,
        run_of: impl Fn(&IndexKey) -> Option<&'r Run>,
    ) -> Result<(), IndexError> {
        let mut any = false;
        for &at in &self.open {
            if let (Some(key), Some(passed)) = (self.keys.get(at), self.passed.get_mut(at)) {
                *passed = run_of(key).is_some_and(|run| run.may_contain(key.prefix()));
                any |= *passed;
            }
        }
        if !any {
            return Ok(());
        }
        let passed = self.passed;
        self.step(accept, |at, key, found| match run_of(key) {
            Some(run) if passed.get(at) == Some(&true) => run.locations(key, found),
            _ => Ok(()),
        })
    }

    /// Collects candidates for each open key and keeps open those of which none is accepted.
    fn step(
        &mut self,
        accept: &mut Accept<'_>,
        mut collect: impl FnMut(usize, &IndexKey, &mut Vec<u64>) -> Result<(), IndexError>,
    ) -> Result<(), IndexError> {
        let mut failure = None;
        let Self { keys, answers, open, found, .. } = self;
        open.retain(|&at| {
            let (Some(key), Some(answer)) = (keys.get(at), answers.get_mut(at)) else { return false };
            if failure.is_some() {
                return true;
            }
            found.clear();
            if let Err(error) = collect(at, key, found) {
                failure = Some(error);
                return true;
            }
            *answer = found.iter().map(|&packed| Location::unpack(packed)).find(|&at_| accept(at, at_));
            answer.is_none()
        });
        failure.map_or(Ok(()), Err)
    }
}

fn shard_run<'r>(runs: &'r RunSet, key: &IndexKey, depth: usize) -> Option<&'r Run> {
    runs.shard(key.shard()).get(depth).map(AsRef::as_ref)
}
