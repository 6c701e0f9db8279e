//! The heart of a stream: puts scan results in order, asks the server which chunks it lacks, and packs those.
//!
//! Every extent of the disk passes here once and in order; a gap ends the backup.

use std::sync::Arc;

use holdfast_proto::limits::extent_count;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use tokio::sync::mpsc;

use super::transport::{Item, Wire, hand_over};
use crate::backup::message_builder::Output;
use crate::backup::packer::Packer;
use crate::backup::pipeline::Pipeline;
use crate::backup::scan::{ReorderBuffer, ScanResult, Scanned, Scanner};
use crate::error::ClientError;
use crate::progress::Step;
use crate::source::{Source, extent_bytes};
use crate::stages::Stage;

/// See the module.
pub(super) struct QueryLoop<'a> {
    pipeline: &'a Pipeline,
    disk: &'a dyn Source,
    scanner: &'a Scanner,
    wire: Wire,
    items: mpsc::Sender<Item>,
    packer: Packer,
    order: ReorderBuffer,
    /// Extents before this one were given to the packer.
    next_extent: u64,
    /// Whether more results may come.
    scanning: bool,
}

impl<'a> QueryLoop<'a> {
    /// Queries go to `wire` at once, everything else to `items`, in order.
    pub(super) fn new(
        pipeline: &'a Pipeline,
        disk: &'a dyn Source,
        scanner: &'a Scanner,
        wire: Wire,
        items: mpsc::Sender<Item>,
    ) -> Self {
        let packer = Packer::new(Arc::clone(&pipeline.region_buffers));
        let order = ReorderBuffer::default();
        Self { pipeline, disk, scanner, wire, items, packer, order, next_extent: 0, scanning: true }
    }

    /// Works until the whole disk has been handed over, its finish included.
    pub(super) async fn run(
        mut self,
        mut results: mpsc::Receiver<Scanned>,
        mut needs: mpsc::Receiver<v1::Need>,
    ) -> Result<(), ClientError> {
        while self.scanning || !self.packer.is_idle() {
            self.pass_on().await;
            if let Some(scanned) = self.next_result(&mut results, &mut needs).await? {
                let (sequence, result) = scanned?;
                self.order.put(sequence, result);
                self.add_ordered()?;
            }
            while let Ok(need) = needs.try_recv() {
                self.answer(&need)?;
            }
        }
        self.finish().await
    }

    /// The next result of a thread; `None` when an answer came first, or when neither is to come.
    async fn next_result(
        &mut self,
        results: &mut mpsc::Receiver<Scanned>,
        needs: &mut mpsc::Receiver<v1::Need>,
    ) -> Result<Option<Scanned>, ClientError> {
        match results.try_recv() {
            Ok(scanned) => return Ok(Some(scanned)),
            Err(mpsc::error::TryRecvError::Disconnected) => self.scanning = false,
            Err(mpsc::error::TryRecvError::Empty) => {}
        }
        // Send incomplete queries before waiting: the extents that wait for them may hold all the buffers.
        self.query(true).await;
        tokio::select! {
            biased;
            need = needs.recv(), if !self.packer.is_idle() => {
                // The receiving half is gone; its error ends the stream.
                let Some(need) = need else { return std::future::pending().await };
                self.answer(&need)?;
                Ok(None)
            }
            scanned = results.recv(), if self.scanning => Ok(scanned),
            else => Ok(None),
        }
    }

    /// Packs all results that are next in disk order.
    fn add_ordered(&mut self) -> Result<(), ClientError> {
        while let Some(result) = self.order.take() {
            let (first, count) = result.extents();
            if first != self.next_extent {
                return Err(ClientError::Internal("scanning skipped or repeated an extent"));
            }
            self.next_extent = first + count;
            self.pipeline.progress.advance(step_of(self.disk.size_bytes(), &result));
            self.packer.add(result);
        }
        self.scanner.delivered(self.order.taken());
        Ok(())
    }

    fn answer(&mut self, need: &v1::Need) -> Result<(), ClientError> {
        self.pipeline.stages.measure(Stage::Pack, 0, || self.packer.answer(need))
    }

    async fn finish(mut self) -> Result<(), ClientError> {
        if !self.order.is_empty() || self.next_extent != extent_count(self.disk.size_bytes()) {
            return Err(ClientError::Internal("scanning ended before the disk's end"));
        }
        if self.disk.can_change() {
            self.disk.check_unchanged(self.disk.size_bytes())?;
        }
        self.packer.finish();
        self.pass_on().await;
        let read_bytes = self.scanner.read_bytes();
        self.put(Item::Message(Kind::Finish(v1::FinishStream { read_bytes }))).await;
        Ok(())
    }

    /// Sends full queries and packed output.
    async fn pass_on(&mut self) {
        self.query(false).await;
        while let Some(output) = self.packer.take_output() {
            match output {
                Output::Region(region) => {
                    let new_bytes = region.plain.len() as u64;
                    self.pipeline.progress.advance(Step { new_bytes, ..Step::default() });
                    self.put(Item::Region(self.pipeline.compressor.submit(region))).await;
                }
                Output::Extents(extents) => self.put(Item::Message(Kind::Extents(extents))).await,
            }
        }
    }

    /// Sends full queries, or with `flush` all.
    async fn query(&mut self, flush: bool) {
        while let Some(query) = self.packer.take_query(flush) {
            hand_over(&self.wire, Kind::Query(query)).await;
        }
    }

    /// Waits for ever when sending has ended, as [`hand_over`] does.
    async fn put(&self, item: Item) {
        if self.items.send(item).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// The progress that a result of a disk of `size_bytes` stands for.
fn step_of(size_bytes: u64, result: &ScanResult) -> Step {
    let (first, count) = result.extents();
    let extents = extent_bytes(size_bytes, first, count);
    let done_bytes = extents.end - extents.start;
    let data_bytes = match result {
        ScanResult::Zero { .. } | ScanResult::Accepted { .. } => 0,
        ScanResult::Unchanged { .. } => done_bytes,
        ScanResult::Changed(changed) => {
            changed.pieces.iter().filter(|piece| !piece.zero).map(|piece| u64::from(piece.len)).sum()
        }
    };
    Step { done_bytes, data_bytes, ..Step::default() }
}

#[cfg(test)]
mod tests;
