//! What reading damaged containers found, kept for a while.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::container::OpenContainer;

/// Damaged containers of which is kept what was found: a directory of some 20 KiB each, of 168 KiB at most, so 21 MiB.
pub(super) const KEPT_MAX: usize = 128;

/// Of these, containers that parity made again: 32 MiB each.
pub(super) const WHOLE_MAX: usize = 2;

/// What reading damaged containers found, the last one first.
#[derive(Debug, Default)]
pub(super) struct SalvageCache {
    pub(super) kept: Mutex<VecDeque<Kept>>,
    /// The region that was tried last, and whether it can be read: chunks that follow each other are asked about in turn.
    pub(super) read_last: Mutex<Option<(Arc<OpenContainer>, u16, bool)>>,
}

/// What is left of a container, and whether that is all there was; `None`: nothing can be had of it.
pub(super) type Left = Option<(Arc<OpenContainer>, bool)>;

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) container: ContainerId,
    pub(super) found: Left,
    pub(super) looked_ms: i64,
    /// It was made again by parity, so that all its bytes are in memory.
    pub(super) in_memory: bool,
}
