//! Reads disks back: streams, retries, and what happens with each message.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;
use holdfast_proto::v1::read_disk_response::Kind;

use super::jobs::{DecodePool, Jobs};
use super::target::Target;
use super::window::Assembler;
use super::{BadRange, DiskOfBackup, ReadSummary, Salvage, bad_map};
use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::connect::{Connection, Settings};
use crate::error::ClientError;
use crate::progress::{Notice, Progress, Step};
use crate::stages::{Stage, StageTotal};
use crate::turn::Turn;

/// Reads disks of backups.
pub struct Reader {
    settings: Settings,
    connection: Connection,
    progress: Arc<dyn Progress>,
    pool: Arc<DecodePool>,
    retry_for: Duration,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader that decodes on `threads` threads (`None`: one per core and one more). `retry_for`: how long
    /// an outage may last.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started.
    pub fn new(
        settings: Settings,
        connection: Connection,
        progress: Arc<dyn Progress>,
        threads: Option<usize>,
        retry_for: Duration,
    ) -> Result<Self, ClientError> {
        let pool = Arc::new(DecodePool::new(threads)?);
        Ok(Self { settings, connection, progress, pool, retry_for })
    }

    /// Time spent so far, by stage.
    pub fn stages(&self) -> BTreeMap<&'static str, StageTotal> {
        self.pool.stages.totals()
    }

    /// Reads a whole disk into `target` and finishes it. `before_bytes` is the size of disks read before,
    /// for the progress. What cannot be read ends it, or is named in the summary, as `salvage` says.
    ///
    /// # Errors
    /// Any [`ClientError`]; [`ClientError::Damaged`] when the data is not what was backed up.
    pub async fn read_disk(
        &mut self,
        disk: &DiskOfBackup,
        target: Arc<dyn Target>,
        salvage: &Salvage,
        before_bytes: u64,
        cancel: &Cancel,
    ) -> Result<ReadSummary, ClientError> {
        let begun = Instant::now();
        self.progress.disk(&disk.disk, before_bytes);
        let pool = Arc::clone(&self.pool);
        let jobs =
            Jobs::new(pool, &disk.disk, Arc::clone(&target), salvage.on_damage, Arc::clone(&self.progress));
        let reading = self.read_with_retries(disk, &jobs, salvage.on_damage.goes_on());
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ClientError::Interrupted),
            outcome = reading => outcome,
        };
        if let Err(error) = outcome {
            jobs.stop();
            // Jobs in progress share the target, which cleans up after itself when the last of them lets it go.
            drop(jobs.drain().await);
            return Err(error);
        }
        jobs.finish().await?;
        let bad = jobs.bad_ranges();
        complete(disk, target, salvage.map.clone(), bad.clone()).await?;
        // Only now: what is there is all there is, and may be better than nothing.
        let (count, extents) = jobs.false_digests();
        if count > 0 {
            let error = ClientError::FalseDigests { disk: disk.disk.clone(), count, extents };
            if bad.is_empty() {
                return Err(error);
            }
            // What cannot be read at all is worse, and is what the caller is told; the exit code is the same.
            tracing::error!(%error, "extents that can be read are not what their backup recorded");
        }
        Ok(ReadSummary {
            size_bytes: disk.size_bytes,
            data_bytes: jobs.written_bytes(),
            seconds: begun.elapsed().as_secs_f64(),
            bad,
        })
    }

    /// Reads all of a disk, over as many connections as it takes.
    async fn read_with_retries(
        &mut self,
        disk: &DiskOfBackup,
        jobs: &Arc<Jobs>,
        past_damage: bool,
    ) -> Result<(), ClientError> {
        let epoch = Instant::now();
        let mut backoff = Backoff::new(self.retry_for);
        let mut next_extent = 0;
        loop {
            let mut assembler = Assembler::new(disk.size_bytes, next_extent).past_damage(past_damage);
            let mut turn = Turn::new(&*self.progress);
            let outcome = self.follow(disk, &mut assembler, jobs, past_damage, &mut turn).await;
            let has_waited = turn.has_waited();
            drop(turn);
            jobs.drain().await?;
            let Err(error) = outcome else { return Ok(()) };
            if has_waited {
                // The server was there: a loss after that begins a new outage.
                backoff.progressed();
            }
            if assembler.next_extent() > next_extent {
                backoff.progressed();
                next_extent = assembler.next_extent();
            }
            if error.is_limit() {
                self.wait_for_turn(error, &mut backoff, epoch).await?;
            } else if error.is_connection_loss() {
                self.reconnect(error, &mut backoff, epoch).await?;
            } else {
                return Err(error);
            }
            jobs.forget_from(next_extent * u64::from(EXTENT_BYTES));
        }
    }

    /// Waits, for as long as an outage may last, because the server has as much to do as it allows.
    async fn wait_for_turn(
        &self,
        refused: ClientError,
        backoff: &mut Backoff,
        epoch: Instant,
    ) -> Result<(), ClientError> {
        let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(refused) };
        self.progress.notice(&Notice::Waiting { reason: refused.to_string(), delay });
        tokio::time::sleep(delay).await;
        Ok(())
    }

    /// Tries to connect again, for as long as an outage may last.
    async fn reconnect(
        &mut self,
        lost: ClientError,
        backoff: &mut Backoff,
        epoch: Instant,
    ) -> Result<(), ClientError> {
        let mut lost = lost;
        loop {
            let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(lost) };
            self.progress.notice(&Notice::Reconnecting { reason: lost.to_string(), delay });
            tokio::time::sleep(delay).await;
            match Connection::open(&self.settings).await {
                Ok(connection) => {
                    self.connection = connection;
                    return Ok(());
                }
                Err(error) if error.is_connection_loss() => lost = error,
                Err(error) => return Err(error),
            }
        }
    }

    /// Follows one stream to its end.
    async fn follow(
        &self,
        disk: &DiskOfBackup,
        assembler: &mut Assembler,
        jobs: &Arc<Jobs>,
        report_damage: bool,
        turn: &mut Turn<'_>,
    ) -> Result<(), ClientError> {
        let request = v1::ReadDiskRequest {
            backup_id: disk.backup_id.clone(),
            disk: disk.disk.clone(),
            first_extent: assembler.next_extent(),
            extent_count: 0,
            report_damage,
            takes_queued: true,
            may_refuse: false,
        };
        let mut stream = self.connection.restore().read_disk(request).await?.into_inner();
        loop {
            let begun = Instant::now();
            let message = stream.message().await?;
            self.pool.stages.waited(Stage::ReceiveWait, begun.elapsed(), 0);
            match message.map(|message| message.kind) {
                None if assembler.is_complete() => return Ok(()),
                None => return Err(ClientError::Lost("the server ended a restore stream early".to_owned())),
                Some(None) => {
                    return Err(ClientError::Protocol("a restore message of an unknown kind".to_owned()));
                }
                Some(Some(Kind::Queued(queued))) => turn.queued(queued),
                Some(Some(kind)) => {
                    turn.came();
                    self.accept(kind, assembler, jobs).await?;
                }
            }
        }
    }

    /// Takes one message of a stream.
    async fn accept(
        &self,
        kind: Kind,
        assembler: &mut Assembler,
        jobs: &Arc<Jobs>,
    ) -> Result<(), ClientError> {
        match kind {
            Kind::Header(header) => assembler.header(&header)?,
            Kind::Window(window) => {
                let plan = assembler.window(&window)?;
                jobs.begin_window(plan).await?;
            }
            Kind::Regions(batch) => {
                let wire_bytes = batch.regions.iter().map(|region| region.payload.len() as u64).sum();
                self.progress.advance(Step { wire_bytes, ..Step::default() });
                for region in assembler.regions(batch)? {
                    jobs.submit(region).await?;
                }
            }
            Kind::Queued(_) => {}
            Kind::Damaged(damaged) => jobs.give_up_all(assembler.damaged(&damaged)?).await?,
            Kind::WindowEnd(_) => {
                let plan = assembler.window_end()?;
                jobs.end_window(&plan).await?;
                let done_bytes = plan.end - plan.start;
                self.progress.advance(Step { done_bytes, ..Step::default() });
            }
        }
        Ok(())
    }
}

/// Writes the map of bad ranges, then finishes the target: one that lacks data must not get its name without the map.
async fn complete(
    disk: &DiskOfBackup,
    target: Arc<dyn Target>,
    map: Option<PathBuf>,
    bad: Vec<BadRange>,
) -> Result<(), ClientError> {
    let disk = disk.clone();
    let work = move || {
        map.map_or(Ok(()), |path| bad_map::write(&path, &disk, &bad))?;
        target.finish()
    };
    let cut_short = ClientError::Internal("finishing the target was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)?
}
