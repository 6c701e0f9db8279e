//! Roots, which are the recipes of all restore points, and their pages.
//!
//! The walk over restore points goes by their ids, which never change, so that no renaming or deleting beside it hides
//! one. What is committed after the walk began may be missing: its session holds everything it refers to.
//!
//! Pages are handed to threads: those of one number of a disk's roots together, oldest root first, so that each is compared
//! with the one before.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use holdfast_catalog::BackupRecord;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};
use parking_lot::Mutex;

use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::PAGE_EXTENTS;
use crate::recipe::{NodeSource, TreeReader, WalkError};

/// The recipe of one disk of a restore point: 128 bytes, so that 10⁶ of them take 128 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) namespace: NamespaceId,
    pub(crate) vm: VmId,
    pub(crate) backup: BackupId,
    /// The disk's name, one text for all roots of that name.
    pub(crate) disk: Arc<str>,
    pub(crate) size_bytes: u64,
    /// Fingerprint of the root node; all zero for a disk without data.
    pub(crate) fingerprint: Fingerprint,
    /// Time when the restore point was committed, by the clock. Only speed, and which of two is called the older,
    /// depend on it.
    pub(crate) committed_ms: i64,
}

impl Root {
    fn order(&self) -> (NamespaceId, VmId, &str, i64, BackupId) {
        (self.namespace, self.vm, &self.disk, self.committed_ms, self.backup)
    }

    fn is_same_disk(&self, other: &Self) -> bool {
        (self.namespace, self.vm, &self.disk) == (other.namespace, other.vm, &other.disk)
    }
}

/// All roots by namespace, VM, disk and age, so that neighbours are worth comparing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots(Vec<Root>);

impl Roots {
    /// Roots of every restore point there is.
    ///
    /// # Errors
    /// The catalog's; that of a start that could not enter all restore points (S8).
    pub(crate) fn load(core: &Core) -> Result<Self, EngineError> {
        // (S8) A restore point with a point and no row yet refers to containers, too.
        core.unrecorded.check()?;
        let mut names = HashMap::new();
        let mut roots = Vec::new();
        for id in core.catalog.all_backup_ids() {
            // Deleted since: then it counts no more. If its row is lost, its point tells (G9).
            let Some(backup) = core.catalog.backup(id?)? else { continue };
            roots.extend(of_backup(&backup, &mut names));
        }
        Ok(roots.into_iter().collect())
    }

    /// Roots of these restore points; one that does not exist has none.
    ///
    /// # Errors
    /// The catalog's.
    #[cfg(test)]
    pub(crate) fn of(core: &Core, backups: &[BackupId]) -> Result<Self, EngineError> {
        let mut names = HashMap::new();
        let mut roots = Vec::new();
        for id in backups {
            if let Some(backup) = core.catalog.backup(*id)? {
                roots.extend(of_backup(&backup, &mut names));
            }
        }
        Ok(roots.into_iter().collect())
    }

    /// Joins these roots and those of `more`; each counts once.
    #[must_use]
    pub(crate) fn and(mut self, more: Self) -> Self {
        // In place: all of them are hundreds of MiB of a repository with millions of disks.
        self.0.extend(more.0);
        self.0.into_iter().collect()
    }

    /// The restore points they are of, by id.
    pub(crate) fn restore_points(&self) -> Vec<BackupId> {
        let mut ids: Vec<BackupId> = self.0.iter().map(|root| root.backup).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Splits the roots into those for which `first` returns true, and the others.
    pub(crate) fn split(self, first: impl Fn(&Root) -> bool) -> (Self, Self) {
        let (yes, no) = self.0.into_iter().partition(first);
        (Self(yes), Self(no))
    }

    /// The roots of one disk of a VM after the other, oldest first.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &[Root]> {
        self.0.chunk_by(Root::is_same_disk)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.0.iter()
    }
}

impl FromIterator<Root> for Roots {
    fn from_iter<I: IntoIterator<Item = Root>>(roots: I) -> Self {
        let mut roots: Vec<Root> = roots.into_iter().collect();
        roots.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        roots.dedup();
        Self(roots)
    }
}

fn of_backup<'a>(
    backup: &'a BackupRecord,
    names: &'a mut HashMap<String, Arc<str>>,
) -> impl Iterator<Item = Root> + 'a {
    backup.disks.iter().map(|disk| {
        let name = names.entry(disk.name.clone()).or_insert_with(|| disk.name.as_str().into());
        Root {
            namespace: backup.namespace,
            vm: backup.vm_id,
            backup: backup.id,
            disk: Arc::clone(name),
            size_bytes: disk.size_bytes,
            fingerprint: disk.root,
            committed_ms: backup.finished_ms,
        }
    })
}

/// Pages handed out at a time: of each root 16 GiB of disk.
const PAGES_AT_A_TIME: u64 = 8;

/// Names of pages held for the roots of one disk at most, at 64 bytes each: 16 MiB. A disk with more roots is followed
/// in several batches, each of which compares with the last root of the one before.
const NAMES_MAX: u64 = 1 << 18;

/// Roots of one batch at least: fewer could not be compared.
const ROOTS_MIN: usize = 2;

/// Reads, and marks, a node above the pages.
pub(super) type ReadUpper<'a> = dyn FnMut(&Root, &Fingerprint) -> Result<Bytes, EngineError> + 'a;

type Tree = TreeReader<NoNodes>;

/// Pages are read by who walks them.
#[derive(Debug)]
pub(super) struct NoNodes;

impl NodeSource for NoNodes {
    type Error = EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, EngineError> {
        Err(EngineError::Internal(format!("node {fingerprint} was asked of a tree that has none")))
    }
}

/// Hands the pages of all roots to threads: those of one number of a disk's roots together, oldest root first, so that
/// each is compared with the one before.
pub(super) struct Pages<'a> {
    next: Mutex<Next<'a>>,
    ended: AtomicBool,
}

struct Next<'a> {
    batches: Box<dyn Iterator<Item = &'a [Root]> + Send + 'a>,
    ready: VecDeque<PageTask<'a>>,
    /// Roots that cannot be followed at all, and why.
    lost: Vec<(&'a Root, String)>,
}

/// Some pages of a batch of roots.
pub(super) struct PageTask<'a> {
    trees: Arc<[(&'a Root, Tree)]>,
    numbers: Range<u64>,
}

impl<'a> PageTask<'a> {
    pub(super) fn numbers(&self) -> Range<u64> {
        self.numbers.clone()
    }

    /// Oldest first.
    pub(super) fn trees(&self) -> impl Iterator<Item = (&'a Root, &Tree)> {
        self.trees.iter().map(|(root, tree)| (*root, tree))
    }

    /// Pages it counts for.
    pub(super) fn len(&self) -> u64 {
        (self.numbers.end - self.numbers.start) * self.trees.len() as u64
    }
}

fn page_count(root: &Root) -> u64 {
    extent_count(root.size_bytes).div_ceil(PAGE_EXTENTS as u64)
}

/// The roots of one disk in batches that can be held; each but the first begins with the last root of the one before.
fn batches(roots: &[Root]) -> impl Iterator<Item = &[Root]> {
    let pages = roots.iter().map(page_count).max().unwrap_or(0).max(1);
    let most = usize::try_from(NAMES_MAX / pages).unwrap_or(usize::MAX).max(ROOTS_MIN);
    let mut rest = roots;
    std::iter::from_fn(move || {
        let batch = rest.get(..most.min(rest.len())).filter(|batch| !batch.is_empty())?;
        let is_last = batch.len() == rest.len();
        rest = if is_last { &[] } else { rest.get(batch.len() - 1..).unwrap_or_default() };
        Some(batch)
    })
}

impl<'a> Pages<'a> {
    pub(super) fn new(roots: &'a Roots) -> Self {
        let batches = Box::new(roots.disks().flat_map(batches));
        Self {
            next: Mutex::new(Next { batches, ready: VecDeque::new(), lost: Vec::new() }),
            ended: AtomicBool::new(false),
        }
    }

    /// Pages to walk, as far as progress is concerned.
    pub(super) fn count(roots: &Roots) -> u64 {
        roots.disks().flat_map(batches).flatten().map(page_count).sum()
    }

    /// Ends the walk: no more pages are handed out.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Roots that could not be followed at all, and why.
    pub(super) fn into_lost(self) -> Vec<(&'a Root, String)> {
        self.next.into_inner().lost
    }

    /// The next pages. Nodes above them are read by `upper`, under the lock; one that is damaged leaves out what it
    /// describes.
    pub(super) fn next(&self, upper: &mut ReadUpper<'_>) -> Result<Option<PageTask<'a>>, EngineError> {
        let mut next = self.next.lock();
        loop {
            if self.ended.load(Ordering::Acquire) {
                return Ok(None);
            }
            if let Some(task) = next.ready.pop_front() {
                return Ok(Some(task));
            }
            let Some(batch) = next.batches.next() else { return Ok(None) };
            let Next { ready, lost, .. } = &mut *next;
            *ready = open(batch, upper, lost)?;
        }
    }
}

fn open<'a>(
    roots: &'a [Root],
    upper: &mut ReadUpper<'_>,
    lost: &mut Vec<(&'a Root, String)>,
) -> Result<VecDeque<PageTask<'a>>, EngineError> {
    let mut trees = Vec::with_capacity(roots.len());
    let upper = Mutex::new(|root: &Root, node: &Fingerprint| upper(root, node));
    for root in roots {
        let source = Upper { root, read: &upper };
        let loses = |error: &WalkError<EngineError>| error.is_damage().then(|| error.to_string());
        match TreeReader::open_past(source, root.fingerprint, root.size_bytes, loses) {
            Ok(tree) => trees.push((root, tree.with_source(NoNodes))),
            Err(error) if error.is_damage() => lost.push((root, error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    let pages = roots.iter().map(page_count).max().unwrap_or(0);
    let trees: Arc<[_]> = trees.into();
    let starts = (0..pages).step_by(usize::try_from(PAGES_AT_A_TIME).unwrap_or(1));
    let task =
        |start| PageTask { trees: Arc::clone(&trees), numbers: start..pages.min(start + PAGES_AT_A_TIME) };
    Ok(starts.map(task).collect())
}

/// Reads the nodes above the pages of one root.
struct Upper<'r, 'f, F> {
    root: &'r Root,
    read: &'f Mutex<F>,
}

impl<F: FnMut(&Root, &Fingerprint) -> Result<Bytes, EngineError>> NodeSource for Upper<'_, '_, F> {
    type Error = EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, EngineError> {
        let mut read = self.read.lock();
        (*read)(self.root, fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn root(vm: u128, disk: &str, committed_ms: i64) -> Root {
        Root {
            namespace: NamespaceId(Ulid(1)),
            vm: VmId(Ulid(vm)),
            backup: BackupId(Ulid(vm * 1000 + u128::try_from(committed_ms).unwrap())),
            disk: disk.into(),
            size_bytes: 1,
            fingerprint: Fingerprint::of(disk.as_bytes()),
            committed_ms,
        }
    }

    #[test]
    fn roots_of_one_disk_are_neighbours_by_age_and_count_once() {
        let roots: Roots =
            [root(2, "a", 3), root(1, "b", 2), root(1, "a", 2), root(1, "b", 1)].into_iter().collect();
        let roots = roots.and([root(1, "a", 2), root(1, "a", 1)].into_iter().collect());
        let disks: Vec<Vec<Root>> = roots.disks().map(<[Root]>::to_vec).collect();
        assert_eq!(
            disks,
            [
                vec![root(1, "a", 1), root(1, "a", 2)],
                vec![root(1, "b", 1), root(1, "b", 2)],
                vec![root(2, "a", 3)]
            ]
        );
        let (of_two, others) = roots.split(|root| root.vm == VmId(Ulid(2)));
        assert_eq!((of_two.0.len(), others.0.len()), (1, 4));
    }
}
