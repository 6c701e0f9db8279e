//! Books that an administrator would keep by hand: a list of runs, a list of restore points, and a sheet for each evening.

use std::collections::{BTreeMap, BTreeSet};

use super::agent::{Disk, Sent, bytes_of};

/// A row of the report.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) vm: usize,
    pub(super) job: &'static str,
    pub(super) sent: Sent,
    /// New bytes of the attempts before it that failed, where it did not.
    pub(super) retried: u64,
    pub(super) point: Option<usize>,
    pub(super) day: i64,
}

#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) id: String,
    pub(super) vm: usize,
    pub(super) job: &'static str,
    pub(super) disk: Disk,
    pub(super) is_partial: bool,
    pub(super) is_held: bool,
    /// When it was deleted, and by whom.
    pub(super) gone: Option<(i64, String)>,
}

impl Point {
    pub(super) fn bytes(&self) -> u64 {
        bytes_of(self.disk.iter().filter(|number| **number > 0).count())
    }

    pub(super) fn blocks(&self) -> BTreeSet<u64> {
        self.disk.iter().copied().filter(|number| *number > 0).collect()
    }
}

#[derive(Debug, Clone)]
pub(super) struct Vm {
    pub(super) name: String,
    pub(super) job: &'static str,
    pub(super) disk: Disk,
    pub(super) is_removed: bool,
}

/// The sheet of an evening.
#[derive(Debug, Clone, Default)]
pub(super) struct Evening {
    pub(super) day: i64,
    /// Bytes protected of each VM.
    pub(super) protected: Vec<u64>,
    /// Bytes protected by each job: of each VM the newest restore point that the job made.
    pub(super) by_job: BTreeMap<&'static str, u64>,
    /// Bytes of all files of containers.
    pub(super) files: u64,
}

/// Bounds of the bytes that the last reclaim found of a VM or a job, uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) only_here: u64,
    pub(super) all: u64,
    pub(super) points: usize,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) vms: Vec<Vm>,
    pub(super) runs: Vec<Run>,
    pub(super) points: Vec<Point>,
    pub(super) evenings: Vec<Evening>,
    /// The last reclaim, by VM and by job.
    pub(super) reclaimed: Option<(i64, Vec<Taken>, BTreeMap<&'static str, Taken>)>,
}

impl Model {
    /// Places of the restore points of a VM that are there, oldest first.
    pub(super) fn there(&self, vm: usize) -> Vec<usize> {
        let places = self.points.iter().enumerate();
        places.filter(|(_, point)| point.vm == vm && point.gone.is_none()).map(|(place, _)| place).collect()
    }

    pub(super) fn protected(&self, vm: usize) -> u64 {
        self.there(vm).last().map_or(0, |place| self.points[*place].bytes())
    }

    pub(super) fn jobs(&self) -> BTreeSet<&'static str> {
        self.runs.iter().map(|run| run.job).collect()
    }

    /// Writes the sheet of the evening.
    pub(super) fn evening(&mut self, day: i64, files: u64) {
        let protected = (0..self.vms.len()).map(|vm| self.protected(vm)).collect();
        let mut by_job = BTreeMap::new();
        for job in self.jobs() {
            let newest = |vm: usize| {
                let made = self.there(vm).into_iter().rfind(|place| self.points[*place].job == job);
                made.map_or(0, |place| self.points[place].bytes())
            };
            by_job.insert(job, (0..self.vms.len()).map(newest).sum());
        }
        self.evenings.push(Evening { day, protected, by_job, files });
    }

    /// Counts what a reclaim at this time finds.
    pub(super) fn reclaim(&mut self, at_ms: i64) {
        let taken = |is_of: &dyn Fn(&Point) -> bool| {
            let there = || self.points.iter().filter(|point| point.gone.is_none());
            let blocks = |own: bool| -> BTreeSet<u64> {
                there().filter(|point| is_of(point) == own).flat_map(Point::blocks).collect()
            };
            let (own, others) = (blocks(true), blocks(false));
            Taken {
                only_here: bytes_of(own.difference(&others).count()),
                all: bytes_of(own.len()),
                points: there().filter(|point| is_of(point)).count(),
            }
        };
        let vms = (0..self.vms.len()).map(|vm| taken(&|point| point.vm == vm)).collect();
        let jobs = self.jobs().into_iter().map(|job| (job, taken(&|point| point.job == job))).collect();
        self.reclaimed = Some((at_ms, vms, jobs));
    }
}
