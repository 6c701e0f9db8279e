//! The heart of a stream: puts scan results in order, asks the server which chunks it lacks, and packs those.
//!
//! Every extent of the disk passes here once and in order; a gap ends the backup. After the disk's end the server may
//! ask for chunks again that another backup was to bring: then the extents that have them pass once more, read as they
//! were the first time, until the server confirms that the disk is finished.

use std::sync::Arc;

use holdfast_proto::limits::extent_count;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use tokio::sync::mpsc;

use super::pass::Pass;
use super::transport::{Item, Reply};
use crate::backup::Pipeline;
use crate::backup::again::{Absent, AgainRequests};
use crate::backup::message_builder::Output;
use crate::backup::packer::Packer;
use crate::backup::parent::ParentDigests;
use crate::backup::scan::{ScanResult, Scanned};
use crate::backup::stream::lanes::{Wire, hand_over};
use crate::error::ClientError;
use crate::progress::{Notice, Step};
use crate::source::walk::ExtentWalk;
use crate::source::{Source, SourceError, WriteTimes, extent_bytes};
use crate::stages::{Stage, Stages};

/// Wall time of the agent's threads so far, in milliseconds.
struct StageTimes {
    reading_ms: u64,
    compressing_ms: u64,
    waiting_ms: u64,
}

impl StageTimes {
    fn of(stages: &Stages) -> Self {
        Self {
            reading_ms: stages.wall_ms(Stage::Read),
            compressing_ms: stages.wall_ms(Stage::Compress) + stages.wall_ms(Stage::Seal),
            waiting_ms: stages.wall_ms(Stage::SendWait),
        }
    }
}

/// State of the loop that serves one stream.
pub(super) struct QueryLoop<'a> {
    pipeline: &'a Pipeline,
    disk: &'a Arc<dyn Source>,
    /// Time of the disk's last write before it was read.
    written_before: Option<WriteTimes>,
    wire: Wire,
    items: mpsc::Sender<Item>,
    packer: Packer,
    requests: AgainRequests,
    /// True if extents are being read again.
    reading_again: bool,
    /// Read from the disk by passes that ended.
    read_bytes: u64,
    /// Times of stages before this disk.
    before: StageTimes,
}

impl<'a> QueryLoop<'a> {
    /// Queries go to `wire` at once, everything else to `items`, in order.
    pub(super) fn new(
        pipeline: &'a Pipeline,
        disk: &'a Arc<dyn Source>,
        written_before: Option<WriteTimes>,
        wire: Wire,
        items: mpsc::Sender<Item>,
    ) -> Self {
        let packer = Packer::new(Arc::clone(&pipeline.region_buffers));
        let requests = AgainRequests::new(disk.size_bytes());
        let (reading_again, read_bytes, before) = (false, 0, StageTimes::of(&pipeline.stages));
        Self {
            pipeline,
            disk,
            written_before,
            wire,
            items,
            packer,
            requests,
            reading_again,
            read_bytes,
            before,
        }
    }

    /// Works until the server confirms that it has the whole disk.
    pub(super) async fn run(
        mut self,
        pass: Pass,
        mut replies: mpsc::Receiver<Reply>,
    ) -> Result<(), ClientError> {
        self.hand_over_all(pass, &mut replies).await?;
        loop {
            match replies.recv().await {
                // The receiving half is gone; its error ends the stream.
                None => return std::future::pending().await,
                Some(Reply::Finished) => return Ok(()),
                Some(Reply::Need(_)) => {
                    return Err(ClientError::Protocol("it answered after the last query".to_owned()));
                }
                Some(Reply::Again(again)) => {
                    let pass = self.read_again(&again)?;
                    self.hand_over_all(pass, &mut replies).await?;
                }
            }
        }
    }

    /// Hands over everything that `pass` brings, and Finish.
    async fn hand_over_all(
        &mut self,
        mut pass: Pass,
        replies: &mut mpsc::Receiver<Reply>,
    ) -> Result<(), ClientError> {
        while pass.is_scanning() || !self.packer.is_idle() {
            self.pass_on().await;
            if let Some(scanned) = self.next_result(&mut pass, replies).await? {
                pass.put(scanned)?;
                while let Some(result) = pass.take()? {
                    self.add(result)?;
                }
            }
            while let Ok(reply) = replies.try_recv() {
                self.answer(reply)?;
            }
        }
        self.finish(pass).await
    }

    /// The next result of a thread; `None` when an answer came first, or when neither is to come.
    async fn next_result(
        &mut self,
        pass: &mut Pass,
        replies: &mut mpsc::Receiver<Reply>,
    ) -> Result<Option<Scanned>, ClientError> {
        if let Some(scanned) = pass.try_next() {
            return Ok(Some(scanned));
        }
        // Send incomplete queries before waiting: the extents that wait for them may hold all the buffers.
        self.query(true).await;
        let scanning = pass.is_scanning();
        tokio::select! {
            biased;
            reply = replies.recv(), if !self.packer.is_idle() => {
                // The receiving half is gone; its error ends the stream.
                let Some(reply) = reply else { return std::future::pending().await };
                self.answer(reply)?;
                Ok(None)
            }
            scanned = pass.next(), if scanning => Ok(scanned),
            else => Ok(None),
        }
    }

    /// Packs the result that is next in disk order.
    fn add(&mut self, result: ScanResult) -> Result<(), ClientError> {
        if self.reading_again {
            return match self.packer.add_again(&result) {
                Ok(()) => Ok(()),
                Err(absent) => Err(self.no_longer_there(absent)?),
            };
        }
        self.pipeline.progress.advance(step_of(self.disk.size_bytes(), &result));
        self.packer.add(result);
        Ok(())
    }

    fn answer(&mut self, reply: Reply) -> Result<(), ClientError> {
        let early =
            |what: &str| Err(ClientError::Protocol(format!("{what} before all of the disk was sent")));
        match reply {
            Reply::Need(need) => self.pipeline.stages.measure(Stage::Pack, 0, || self.packer.answer(&need)),
            Reply::Again(_) => early("it asked for extents again"),
            Reply::Finished => early("it said that a disk is finished"),
        }
    }

    async fn finish(&mut self, pass: Pass) -> Result<(), ClientError> {
        self.read_bytes += pass.end(self.disk.size_bytes())?;
        if self.disk.can_change() {
            self.disk.check_unchanged(self.disk.size_bytes())?;
        }
        self.packer.finish();
        self.pass_on().await;
        let times = StageTimes::of(&self.pipeline.stages);
        let since = |time: fn(&StageTimes) -> u64| time(&times).saturating_sub(time(&self.before));
        let finish = v1::FinishStream {
            read_bytes: self.read_bytes,
            reading_ms: since(|times| times.reading_ms),
            compressing_ms: since(|times| times.compressing_ms),
            waiting_ms: since(|times| times.waiting_ms),
        };
        self.put(Item::Message(Kind::Finish(finish))).await;
        Ok(())
    }

    /// Starts to read what the server asks for again.
    fn read_again(&mut self, wire: &v1::Again) -> Result<Pass, ClientError> {
        let again = self.requests.check(wire)?;
        let (disk, extents) = (self.disk.name(), again.extents());
        tracing::info!(disk, extents, "reading again what another backup was to bring");
        self.pipeline.progress.notice(&Notice::ReadingAgain { disk: disk.to_owned(), extents });
        let walk = ExtentWalk::new(&**self.disk, again.others(extent_count(self.disk.size_bytes())), None)
            .map_err(ClientError::Protocol)?;
        self.packer.begin_again(again);
        self.reading_again = true;
        Pass::start(self.pipeline, self.disk, walk, ParentDigests::none())
    }

    /// Why an extent does not have a chunk that the server asks for: the disk was written to, or else the server
    /// asks for what it was never told of.
    fn no_longer_there(&self, absent: Absent) -> Result<ClientError, SourceError> {
        let written = match (self.written_before, self.disk.write_times()?) {
            (Some(before), Some(now)) => before != now,
            _ => self.disk.can_change(),
        };
        let Absent { extent, chunk } = absent;
        if written {
            let offset = extent_bytes(self.disk.size_bytes(), extent, 1).start;
            return Ok(SourceError::written(&**self.disk, offset).into());
        }
        let (chunk, disk) = (chunk.short(), self.disk.name());
        Ok(ClientError::Protocol(format!(
            "it asked again for chunk {chunk}, which extent {extent} of disk {disk} does not have"
        )))
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
