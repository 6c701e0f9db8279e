//! Getting a disk back: windows of chunks come in, are decoded and checked on a pool of threads, and go to
//! a target. Nothing unchecked is ever written.
//!
//! Start with [`Reader::read_disk`]; `window` says what a stream must look like, `job` what is done with a region,
//! `target` where it goes. A lost connection is made again and reading goes on with the first extent that
//! is not complete.
//!
//! Memory: transport windows of 16 MiB, and `JOBS_PER_THREAD` regions of 2 × 256 KiB a thread; a pipe needs
//! one window of 64 MiB besides.

mod job;
pub mod target;
pub mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::v1;
use holdfast_proto::v1::read_disk_response::Kind;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::connect::{Connection, Settings};
use crate::error::ClientError;
use crate::pool::Stock;
use crate::progress::{Notice, Progress, Step};
use crate::stages::{Stage, StageTotal, Stages};
use target::Target;
use window::{Assembler, CheckedRegion, WindowPlan};

/// Regions being decoded or waiting for it, a thread.
const JOBS_PER_THREAD: u32 = 8;

/// Reads disks of backups.
pub struct Reader {
    settings: Settings,
    connection: Connection,
    progress: Arc<dyn Progress>,
    threads: rayon::ThreadPool,
    jobs_max: u32,
    retry_for: Duration,
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Shared {
    tools: Stock<job::Tools>,
    stages: Stages,
}

/// One disk of one backup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskOfBackup {
    pub backup_id: String,
    pub disk: String,
    pub size_bytes: u64,
}

/// What reading a disk took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadSummary {
    /// The disk's size.
    pub size_bytes: u64,
    /// Bytes decoded, checked and written, without zeros.
    pub data_bytes: u64,
    pub seconds: f64,
}

impl Reader {
    /// A reader that decodes on `threads` threads (`None`: one a core and one more, as one of them is usually
    /// waiting for the kernel to take what it writes).
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
        let cores = || std::thread::available_parallelism().map_or(2, usize::from);
        let count = threads.unwrap_or_else(|| cores() + 1).clamp(1, 32);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|number| format!("decode-{number}"))
            .build()
            .map_err(|_| ClientError::Internal("the decoding threads could not be started"))?;
        let jobs_max = JOBS_PER_THREAD * u32::try_from(count).unwrap_or(1);
        let shared = Arc::default();
        Ok(Self { settings, connection, progress, threads, jobs_max, retry_for, shared })
    }

    /// Time spent so far, by stage.
    pub fn stages(&self) -> BTreeMap<&'static str, StageTotal> {
        self.shared.stages.totals()
    }

    /// Reads a whole disk into `target` and finishes it. `before_bytes` is the size of disks read before,
    /// for the progress.
    ///
    /// # Errors
    /// Any [`ClientError`]; [`ClientError::Damaged`] when the data is not what was backed up.
    pub async fn read_disk(
        &mut self,
        disk: &DiskOfBackup,
        target: Arc<dyn Target>,
        before_bytes: u64,
        cancel: &Cancel,
    ) -> Result<ReadSummary, ClientError> {
        let begun = Instant::now();
        self.progress.disk(&disk.disk, before_bytes);
        let jobs = Jobs::new(disk, &target, self);
        let reading = self.read_with_retries(disk, &jobs);
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ClientError::Interrupted),
            outcome = reading => outcome,
        };
        // Jobs still at work hold the target, which cleans up after itself once nobody does.
        outcome.and(jobs.drain().await)?;
        tokio::task::spawn_blocking(move || target.finish())
            .await
            .map_err(|_| ClientError::Internal("finishing the target was cut short"))??;
        Ok(ReadSummary {
            size_bytes: disk.size_bytes,
            data_bytes: jobs.written.load(Ordering::Relaxed),
            seconds: begun.elapsed().as_secs_f64(),
        })
    }

    async fn read_with_retries(&mut self, disk: &DiskOfBackup, jobs: &Arc<Jobs>) -> Result<(), ClientError> {
        let epoch = Instant::now();
        let mut backoff = Backoff::new(self.retry_for);
        let mut next_extent = 0;
        loop {
            let mut assembler = Assembler::new(disk.size_bytes, next_extent);
            let outcome = self.follow(disk, &mut assembler, jobs).await;
            jobs.drain().await?;
            let Err(error) = outcome else { return Ok(()) };
            if assembler.next_extent() > next_extent {
                backoff.progressed();
                next_extent = assembler.next_extent();
            }
            if !error.is_connection_loss() {
                return Err(error);
            }
            let mut lost = error;
            loop {
                let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(lost) };
                self.progress.notice(&Notice::Reconnecting { reason: lost.to_string(), delay });
                tokio::time::sleep(delay).await;
                match Connection::open(&self.settings).await {
                    Ok(connection) => break self.connection = connection,
                    Err(error) if error.is_connection_loss() => lost = error,
                    Err(error) => return Err(error),
                }
            }
        }
    }

    /// Follows one stream to its end.
    async fn follow(
        &self,
        disk: &DiskOfBackup,
        assembler: &mut Assembler,
        jobs: &Arc<Jobs>,
    ) -> Result<(), ClientError> {
        let request = v1::ReadDiskRequest {
            backup_id: disk.backup_id.clone(),
            disk: disk.disk.clone(),
            first_extent: assembler.next_extent(),
            extent_count: 0,
        };
        let mut stream = self.connection.restore().read_disk(request).await?.into_inner();
        loop {
            let begun = Instant::now();
            let message = stream.message().await?;
            self.shared.stages.waited(Stage::ReceiveWait, begun.elapsed(), 0);
            match message.map(|message| message.kind) {
                None if assembler.is_complete() => return Ok(()),
                None => return Err(ClientError::Lost("the server ended a restore stream early".to_owned())),
                Some(None) => {
                    return Err(ClientError::Protocol("a restore message of no known kind".to_owned()));
                }
                Some(Some(Kind::Header(header))) => assembler.header(&header)?,
                Some(Some(Kind::Window(window))) => {
                    let plan = assembler.window(&window)?;
                    jobs.begin_window(plan).await?;
                }
                Some(Some(Kind::Regions(batch))) => {
                    let wire_bytes = batch.regions.iter().map(|region| region.payload.len() as u64).sum();
                    self.progress.advance(Step { wire_bytes, ..Step::default() });
                    for region in assembler.regions(batch)? {
                        jobs.submit(self, region).await?;
                    }
                }
                Some(Some(Kind::WindowEnd(_))) => {
                    let plan = assembler.window_end()?;
                    if jobs.target.needs_order() {
                        jobs.drain().await?;
                        jobs.window_done(&plan).await?;
                    }
                    let done_bytes = plan.end - plan.start;
                    self.progress.advance(Step { done_bytes, ..Step::default() });
                }
            }
        }
    }
}

/// Regions at work for one disk.
struct Jobs {
    disk: String,
    target: Arc<dyn Target>,
    permits: Arc<Semaphore>,
    jobs_max: u32,
    /// The first failure.
    failure: Mutex<Option<ClientError>>,
    written: AtomicU64,
    progress: Arc<dyn Progress>,
    shared: Arc<Shared>,
}

impl Jobs {
    fn new(disk: &DiskOfBackup, target: &Arc<dyn Target>, reader: &Reader) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.disk.clone(),
            target: Arc::clone(target),
            permits: Arc::new(Semaphore::new(usize::try_from(reader.jobs_max).unwrap_or(1))),
            jobs_max: reader.jobs_max,
            failure: Mutex::new(None),
            written: AtomicU64::new(0),
            progress: Arc::clone(&reader.progress),
            shared: Arc::clone(&reader.shared),
        })
    }

    /// Hands a region to the pool once there is room; fails with the failure of any job before.
    async fn submit(self: &Arc<Self>, reader: &Reader, region: CheckedRegion) -> Result<(), ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed)?;
        self.check()?;
        let jobs = Arc::clone(self);
        reader.threads.spawn_fifo(move || {
            let shared = &jobs.shared;
            match job::run(&region, &jobs.disk, &*jobs.target, &shared.tools, &shared.stages) {
                Ok(bytes) => {
                    jobs.written.fetch_add(bytes, Ordering::Relaxed);
                    jobs.progress.advance(Step { data_bytes: bytes, ..Step::default() });
                }
                Err(error) => {
                    jobs.failure.lock().get_or_insert(error);
                }
            }
            drop(permit);
        });
        Ok(())
    }

    /// Waits until no job is at work.
    async fn drain(&self) -> Result<(), ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        drop(self.permits.acquire_many(self.jobs_max).await.map_err(|_| closed)?);
        self.check()
    }

    fn check(&self) -> Result<(), ClientError> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// A window begins: its zeros, and a hint to the target; both away from the async threads, as both can
    /// wait for the disk.
    async fn begin_window(&self, plan: Arc<WindowPlan>) -> Result<(), ClientError> {
        let target = Arc::clone(&self.target);
        blocking(move || {
            target.reached(plan.start);
            plan.zeros.iter().try_for_each(|&(offset, len)| target.zero(offset, len))
        })
        .await
    }

    async fn window_done(&self, plan: &WindowPlan) -> Result<(), ClientError> {
        let (target, start, end) = (Arc::clone(&self.target), plan.start, plan.end);
        blocking(move || target.window_done(start, end)).await
    }
}

async fn blocking(
    work: impl FnOnce() -> Result<(), ClientError> + Send + 'static,
) -> Result<(), ClientError> {
    let cut_short = ClientError::Internal("writing to the target was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)?
}
