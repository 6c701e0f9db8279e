//! Hands the pages of all roots to threads: those of one number of a disk's roots together, oldest root first, so that
//! each is compared with the one before.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;
use parking_lot::Mutex;

use super::roots::{Root, Roots};
use crate::error::EngineError;
use crate::format::recipe::PAGE_EXTENTS;
use crate::recipe::{NodeSource, TreeReader, WalkError};

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

/// See the module's text.
pub(super) struct Pages<'a> {
    next: Mutex<Next<'a>>,
    ended: AtomicBool,
}

struct Next<'a> {
    batches: Box<dyn Iterator<Item = &'a [Root]> + Send + 'a>,
    ready: VecDeque<PageTask<'a>>,
    /// Roots of which nothing can be followed, and why.
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

    /// No more are handed out.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Roots of which nothing could be followed, and why.
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
        let loses = |error: &WalkError<EngineError>| is_damage(error).then(|| error.to_string());
        match TreeReader::open_past(source, root.fingerprint, root.size_bytes, loses) {
            Ok(tree) => trees.push((root, tree.with_source(NoNodes))),
            Err(error) if is_damage(&error) => lost.push((root, error.to_string())),
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

fn is_damage(error: &WalkError<EngineError>) -> bool {
    !matches!(error, WalkError::Source(source) if !matches!(source, EngineError::Damaged(_)))
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
