//! One pass over a disk, or over those of its extents that are needed again: threads that read, and their results in
//! disk order. Its memory is given back when it is dropped.

use std::sync::Arc;

use holdfast_proto::limits::{EXTENT_BYTES, extent_count};
use tokio::sync::mpsc;

use crate::backup::Pipeline;
use crate::backup::parent::ParentDigests;
use crate::backup::scan::{ReorderBuffer, ScanResult, Scanned, Scanner};
use crate::error::ClientError;
use crate::pool::BufferPool;
use crate::source::Source;
use crate::source::walk::ExtentWalk;

/// One pass over a disk: its scanner and the results in order.
pub(super) struct Pass {
    scanner: Scanner,
    results: mpsc::Receiver<Scanned>,
    order: ReorderBuffer,
    /// Extents before this one were taken.
    next_extent: u64,
    /// True if more results may come.
    scanning: bool,
}

impl Pass {
    /// Starts reading what `walk` yields.
    pub(super) fn start(
        pipeline: &Pipeline,
        disk: &Arc<dyn Source>,
        walk: ExtentWalk,
        parent: ParentDigests,
    ) -> Result<Self, ClientError> {
        let pool = BufferPool::new(pipeline.limits.buffers, EXTENT_BYTES as usize);
        let threads = pipeline.limits.scan_threads;
        let how = (pipeline.cipher.clone(), Arc::clone(&pipeline.stages));
        let (scanner, results) = Scanner::start(Arc::clone(disk), walk, parent, pool, threads, how)?;
        Ok(Self::of(scanner, results))
    }

    /// The pass whose results are these.
    pub(super) fn of(scanner: Scanner, results: mpsc::Receiver<Scanned>) -> Self {
        Self { scanner, results, order: ReorderBuffer::default(), next_extent: 0, scanning: true }
    }

    /// Returns true if more results may come.
    pub(super) const fn is_scanning(&self) -> bool {
        self.scanning
    }

    /// A result that is there; notes when no more will come.
    pub(super) fn try_next(&mut self) -> Option<Scanned> {
        match self.results.try_recv() {
            Ok(scanned) => return Some(scanned),
            Err(mpsc::error::TryRecvError::Disconnected) => self.scanning = false,
            Err(mpsc::error::TryRecvError::Empty) => {}
        }
        None
    }

    /// Waits for a result; `None` when no more will come.
    pub(super) async fn next(&mut self) -> Option<Scanned> {
        self.results.recv().await
    }

    /// Takes in a result, in whatever order they come.
    pub(super) fn put(&mut self, scanned: Scanned) -> Result<(), ClientError> {
        let (sequence, result) = scanned?;
        self.order.put(sequence, result);
        Ok(())
    }

    /// The next result in disk order, if it has come.
    pub(super) fn take(&mut self) -> Result<Option<ScanResult>, ClientError> {
        let Some(result) = self.order.take() else {
            self.scanner.delivered(self.order.taken());
            return Ok(None);
        };
        let (first, count) = result.extents();
        if first != self.next_extent {
            return Err(ClientError::Internal("scanning skipped or repeated an extent"));
        }
        self.next_extent = first + count;
        Ok(Some(result))
    }

    /// Ends a pass over all of a disk of `size_bytes`; returns how many bytes were read.
    pub(super) fn end(self, size_bytes: u64) -> Result<u64, ClientError> {
        if !self.order.is_empty() || self.next_extent != extent_count(size_bytes) {
            return Err(ClientError::Internal("scanning ended before the disk's end"));
        }
        Ok(self.scanner.read_bytes())
    }
}
