//! One stream of a restore: asks for a span of extents and deals with each message of the answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::limits::{EXTENT_BYTES, extent_count};
use holdfast_proto::region::sealed::Commitment;
use holdfast_proto::v1;
use holdfast_proto::v1::read_disk_response::Kind;
use holdfast_proto::v1::restore_client::RestoreClient;

use super::DiskOfBackup;
use super::jobs::{DecodePool, Jobs};
use super::spans::{Span, Spans};
use super::window::Assembler;
use crate::connect::AuthedChannel;
use crate::error::ClientError;
use crate::progress::{Progress, Step};
use crate::stages::Stage;
use crate::turn::Turn;

/// Bytes received over all connections, and how long they had nothing to give, since it was last asked for.
#[derive(Debug, Default)]
pub(super) struct Flow {
    wire_bytes: AtomicU64,
    waited_nanos: AtomicU64,
}

impl Flow {
    /// Bytes, and the time waited summed over all streams, since the last call.
    pub(super) fn take(&self) -> (u64, Duration) {
        let waited = Duration::from_nanos(self.waited_nanos.swap(0, Ordering::Relaxed));
        (self.wire_bytes.swap(0, Ordering::Relaxed), waited)
    }
}

/// A disk being read, by one stream or several.
pub(super) struct DiskStreams {
    pub(super) disk: DiskOfBackup,
    pub(super) jobs: Arc<Jobs>,
    pub(super) pool: Arc<DecodePool>,
    pub(super) progress: Arc<dyn Progress>,
    pub(super) report_damage: bool,
    pub(super) from_volume: bool,
    /// True when some of it is read once more.
    pub(super) is_again: bool,
    pub(super) spans: Spans,
    pub(super) flow: Flow,
}

impl DiskStreams {
    /// Reads a span to its end, when its `turn` has come; with `may_refuse` the server need not let it wait for one. `false`:
    /// it ended before, because part of it is to be read again, out of other copies. `span.first` follows what is complete, also when it fails.
    pub(super) async fn follow(
        &self,
        mut client: RestoreClient<AuthedChannel>,
        span: &mut Span,
        turn: &mut Turn<'_>,
        may_refuse: bool,
    ) -> Result<bool, ClientError> {
        let passed_over = Arc::new(self.jobs.passed_over(span.first));
        let to_the_end = span.end == extent_count(self.disk.size_bytes);
        let request = v1::ReadDiskRequest {
            backup_id: self.disk.backup_id.clone(),
            disk: self.disk.disk.clone(),
            first_extent: span.first,
            extent_count: if to_the_end { 0 } else { span.end - span.first },
            report_damage: self.report_damage,
            takes_queued: true,
            may_refuse,
            from_volume: self.from_volume,
            passed_over: passed_over.iter().map(|region| region.to_vec().into()).collect(),
        };
        let assembler = Assembler::new(self.disk.size_bytes, span.first).until(span.end);
        let mut assembler = assembler.past_damage(self.report_damage);
        let mut stream = client.read_disk(request).await?.into_inner();
        loop {
            let begun = Instant::now();
            let message = stream.message().await?;
            let waited = begun.elapsed();
            self.pool.stages.waited(Stage::ReceiveWait, waited, 0);
            let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            self.flow.waited_nanos.fetch_add(nanos, Ordering::Relaxed);
            match message.map(|message| message.kind) {
                None if assembler.is_complete() => return Ok(true),
                None => return Err(ClientError::Lost("the server ended a restore stream early".to_owned())),
                Some(None) => {
                    return Err(ClientError::Protocol("a restore message of an unknown kind".to_owned()));
                }
                Some(Some(Kind::Queued(queued))) => turn.queued(queued),
                Some(Some(kind)) => {
                    turn.came();
                    if !self.accept(kind, &mut assembler, span, &passed_over).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }

    /// Takes one message of a stream.
    async fn accept(
        &self,
        kind: Kind,
        assembler: &mut Assembler,
        span: &mut Span,
        passed_over: &Arc<BTreeSet<Commitment>>,
    ) -> Result<bool, ClientError> {
        match kind {
            Kind::Header(header) => {
                let what = format!("disk {:?} of backup {}", self.disk.disk, self.disk.backup_id);
                self.pool.cipher.check(&header.key_id, &what)?;
                assembler.header(&header)?;
            }
            Kind::Window(window) => {
                let plan = assembler.window(&window)?;
                self.jobs.begin_window(plan).await?;
            }
            Kind::Regions(batch) => {
                let wire_bytes = batch.regions.iter().map(|region| region.payload.len() as u64).sum();
                self.flow.wire_bytes.fetch_add(wire_bytes, Ordering::Relaxed);
                self.progress.advance(Step { wire_bytes, ..Step::default() });
                for region in assembler.regions(batch)? {
                    self.jobs.submit(region, passed_over).await?;
                }
            }
            Kind::Queued(_) => {}
            Kind::Damaged(damaged) => self.jobs.give_up_all(assembler.damaged(&damaged)?).await?,
            Kind::WindowEnd(_) => {
                let plan = assembler.window_end()?;
                if !self.jobs.end_window(&plan).await? {
                    return Ok(false);
                }
                self.spans.advance(span, assembler.next_extent());
                // Extents read again are counted already.
                let done_bytes = if self.is_again { 0 } else { plan.end - plan.start };
                self.progress.advance(Step { done_bytes, ..Step::default() });
            }
        }
        Ok(true)
    }

    /// A stream ended before its span did: what it began of the rest is finished and forgotten, then others may
    /// have it.
    pub(super) async fn give_back(&self, span: Span) -> Result<(), ClientError> {
        self.jobs.pause().await?;
        let bytes = |extent: u64| extent.saturating_mul(u64::from(EXTENT_BYTES));
        self.jobs.forget(&(bytes(span.first)..bytes(span.end)));
        self.spans.give_back(span);
        Ok(())
    }
}
