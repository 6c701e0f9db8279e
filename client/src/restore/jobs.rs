//! Regions being decoded: a pool of threads, and what of one disk is in progress on it.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::bad::{BadRange, BadRanges, OnDamage};
use super::digests::{ExtentBuffers, FalseDigests, WindowDigests};
use super::job::{self, Tools};
use super::target::Target;
use super::window::{CheckedRegion, WindowPlan};
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::progress::{Progress, Step};
use crate::stages::Stages;

/// Regions being decoded or waiting for it, per thread.
const JOBS_PER_THREAD: u16 = 8;

/// A thread decodes some 1 GB/s: more threads than this would wait for the network.
const THREADS_MAX: u16 = 32;

/// Threads that decode, and what they use.
pub(super) struct DecodePool {
    threads: rayon::ThreadPool,
    jobs_max: u16,
    tools: ObjectPool<Tools>,
    extents: ExtentBuffers,
    pub(super) stages: Stages,
}

impl DecodePool {
    /// A pool of `threads` threads; `None`: one per core and one more, as one of them is usually waiting for
    /// the kernel to take what it writes.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started.
    pub(super) fn new(threads: Option<usize>) -> Result<Self, ClientError> {
        let cores = || std::thread::available_parallelism().map_or(2, usize::from);
        let count = threads.unwrap_or_else(|| cores() + 1).clamp(1, usize::from(THREADS_MAX));
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .thread_name(|number| format!("decode-{number}"))
            .build()
            .map_err(|_| ClientError::Internal("the decoding threads could not be started"))?;
        let jobs_max = JOBS_PER_THREAD * u16::try_from(count).unwrap_or(THREADS_MAX);
        let (tools, extents, stages) = (ObjectPool::default(), ObjectPool::default(), Stages::default());
        Ok(Self { threads, jobs_max, tools, extents, stages })
    }
}

/// Regions of one disk in progress.
pub(super) struct Jobs {
    pool: Arc<DecodePool>,
    disk: String,
    target: Arc<dyn Target>,
    on_damage: OnDamage,
    bad: BadRanges,
    permits: Arc<Semaphore>,
    /// The first failure.
    failure: Mutex<Option<ClientError>>,
    written_bytes: AtomicU64,
    false_digests: FalseDigests,
    progress: Arc<dyn Progress>,
}

impl Jobs {
    /// No jobs yet, for the disk `disk`.
    pub(super) fn new(
        pool: Arc<DecodePool>,
        disk: &str,
        target: Arc<dyn Target>,
        on_damage: OnDamage,
        progress: Arc<dyn Progress>,
    ) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.to_owned(),
            target,
            on_damage,
            bad: BadRanges::default(),
            permits: Arc::new(Semaphore::new(usize::from(pool.jobs_max))),
            pool,
            failure: Mutex::new(None),
            written_bytes: AtomicU64::new(0),
            false_digests: FalseDigests::default(),
            progress,
        })
    }

    /// Bytes written so far, without zeros.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// How many extents do not hash to what their backup says, and the first few of them.
    pub(super) fn false_digests(&self) -> (u64, Vec<u64>) {
        self.false_digests.found()
    }

    /// Hands a region to the pool once there is room; fails with the failure of any earlier job. `window`: what its
    /// window's extents should hash to, as [`Jobs::begin_window`] gave it.
    pub(super) async fn submit(
        self: &Arc<Self>,
        region: CheckedRegion,
        window: Option<Arc<WindowDigests>>,
    ) -> Result<(), ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed)?;
        self.check()?;
        let jobs = Arc::clone(self);
        self.pool.threads.spawn_fifo(move || {
            jobs.run(&region, window.as_deref());
            drop(permit);
        });
        Ok(())
    }

    fn run(&self, region: &CheckedRegion, window: Option<&WindowDigests>) {
        let checked = |offset, chunk: &[u8]| {
            if let Some(window) = window {
                window.chunk(offset, chunk, &self.pool.extents, &self.false_digests);
            }
        };
        let work = || {
            let (target, tools) = (&*self.target, &self.pool.tools);
            match job::run(region, &self.disk, target, tools, &self.pool.stages, &checked) {
                Err(ClientError::Damaged { .. }) if self.on_damage.goes_on() => {
                    let (written, bad) = job::run_past_damage(region, target, tools, &checked)?;
                    bad.into_iter().try_for_each(|range| self.give_up(range))?;
                    Ok(written)
                }
                outcome => outcome,
            }
        };
        // A panic must count as a failure: the region may not have been written.
        let panicked = Err(ClientError::Internal("a decoding thread panicked"));
        match catch_unwind(AssertUnwindSafe(work)).unwrap_or(panicked) {
            Ok(bytes) => {
                self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
                self.progress.advance(Step { data_bytes: bytes, ..Step::default() });
            }
            Err(error) => {
                self.failure.lock().get_or_insert(error);
            }
        }
    }

    /// Takes note of a range that cannot be read, and makes it zero if that was asked for.
    fn give_up(&self, range: BadRange) -> Result<(), ClientError> {
        // What goes into a pipe has to be something.
        if self.on_damage == OnDamage::Zero || self.target.needs_order() {
            self.target.zero(range.offset, range.len)?;
        }
        self.bad.add(range);
        Ok(())
    }

    /// As [`Jobs::give_up`] for ranges the server named; away from the async threads.
    pub(super) async fn give_up_all(self: &Arc<Self>, ranges: Vec<BadRange>) -> Result<(), ClientError> {
        let jobs = Arc::clone(self);
        blocking(move || ranges.into_iter().try_for_each(|range| jobs.give_up(range))).await
    }

    /// Forgets the bad ranges that begin in these bytes of the disk: they are read again.
    pub(super) fn forget_bad(&self, bytes: Range<u64>) {
        self.bad.forget(bytes);
    }

    /// What could not be read, in order.
    pub(super) fn bad_ranges(&self) -> Vec<BadRange> {
        self.bad.merged()
    }

    /// Waits until no job is in progress.
    pub(super) async fn drain(&self) -> Result<(), ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        drop(self.permits.acquire_many(u32::from(self.pool.jobs_max)).await.map_err(|_| closed)?);
        self.check()
    }

    fn check(&self) -> Result<(), ClientError> {
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// A window begins: writes its zeros and gives the target a hint, that nearly everything before `reached` is
    /// written; both away from the async threads, as both can wait for the disk. Returns what its extents should
    /// hash to.
    pub(super) async fn begin_window(
        self: &Arc<Self>,
        plan: Arc<WindowPlan>,
        reached: u64,
    ) -> Result<Arc<WindowDigests>, ClientError> {
        let digests = Arc::new(WindowDigests::of(&plan));
        let jobs = Arc::clone(self);
        blocking(move || {
            jobs.target.reached(reached);
            plan.zeros.iter().try_for_each(|&(offset, len)| jobs.target.zero(offset, len))?;
            plan.bad.iter().try_for_each(|range| jobs.give_up(range.clone()))
        })
        .await?;
        Ok(digests)
    }

    /// A window has arrived. If the target needs order, waits until all of it is written and says so.
    pub(super) async fn end_window(&self, plan: &WindowPlan) -> Result<(), ClientError> {
        if !self.target.needs_order() {
            return Ok(());
        }
        self.drain().await?;
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

#[cfg(test)]
mod tests {
    use holdfast_proto::v1::read_disk_response::Kind;

    use super::super::window::Assembler;
    use holdfast_proto::Fingerprint;

    use super::super::window::tests::{sample, serve};
    use super::*;
    use crate::progress::Silent;

    /// Fails as it is told.
    #[derive(Debug)]
    struct BadTarget {
        panics: bool,
    }

    impl Target for BadTarget {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
            assert!(!self.panics, "told to");
            Err(ClientError::Internal("no room"))
        }

        fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
            Ok(())
        }

        fn finish(&self) -> Result<(), ClientError> {
            Ok(())
        }
    }

    async fn restore(target: BadTarget) -> Result<(), ClientError> {
        let disk = [7; 5000];
        let pool = Arc::new(DecodePool::new(Some(1)).unwrap());
        let jobs = Jobs::new(pool, "d", Arc::new(target), OnDamage::End, Arc::new(Silent));
        let mut assembler = Assembler::new(disk.len() as u64, 0);
        for message in serve(&disk, 1) {
            match message {
                Kind::Header(header) => assembler.header(&header)?,
                Kind::Window(window) => drop(assembler.window(&window)?),
                Kind::Regions(batch) => {
                    for region in assembler.regions(batch)? {
                        jobs.submit(region, None).await?;
                    }
                }
                Kind::Damaged(_) => panic!("no damage was asked for"),
                Kind::WindowEnd(_) => drop(assembler.window_end()?),
            }
        }
        jobs.drain().await
    }

    /// Takes everything.
    #[derive(Debug)]
    struct GoodTarget;

    impl Target for GoodTarget {
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
            Ok(())
        }

        fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
            Ok(())
        }

        fn finish(&self) -> Result<(), ClientError> {
            Ok(())
        }
    }

    /// Reads a disk whose extents are said to hash to `digests`; returns those that do not.
    async fn compare(disk: &[u8], digests: &[Vec<u8>]) -> Result<(u64, Vec<u64>), ClientError> {
        let pool = Arc::new(DecodePool::new(Some(3)).unwrap());
        let jobs = Jobs::new(pool, "d", Arc::new(GoodTarget), OnDamage::End, Arc::new(Silent));
        let mut assembler = Assembler::new(disk.len() as u64, 0);
        let mut expected = None;
        for message in serve(disk, 1) {
            match message {
                Kind::Header(header) => assembler.header(&header)?,
                Kind::Window(mut window) => {
                    let first = usize::try_from(window.first_extent).unwrap();
                    for (layout, digest) in window.extents.iter_mut().zip(&digests[first..]) {
                        layout.digest = digest.clone().into();
                    }
                    let plan = assembler.window(&window)?;
                    let reached = plan.start;
                    expected = Some(jobs.begin_window(plan, reached).await?);
                }
                Kind::Regions(batch) => {
                    for region in assembler.regions(batch)? {
                        jobs.submit(region, expected.clone()).await?;
                    }
                }
                Kind::Damaged(_) => panic!("no damage was asked for"),
                Kind::WindowEnd(_) => drop(assembler.window_end()?),
            }
        }
        jobs.drain().await?;
        Ok(jobs.false_digests())
    }

    #[tokio::test]
    async fn extents_that_do_not_hash_to_their_digest_are_found() {
        let disk = sample();
        let extents = disk.chunks(holdfast_proto::limits::EXTENT_BYTES as usize);
        let truth: Vec<Vec<u8>> = extents.map(|e| Fingerprint::of(e).as_bytes().to_vec()).collect();
        assert_eq!(compare(&disk, &truth).await.unwrap(), (0, vec![]));
        for wrong in 0..truth.len() {
            let mut lie = truth.clone();
            lie[wrong] = vec![7; 32];
            assert_eq!(compare(&disk, &lie).await.unwrap(), (1, vec![wrong as u64]), "extent {wrong}");
            // What is unknown is not compared.
            lie[wrong] = Vec::new();
            assert_eq!(compare(&disk, &lie).await.unwrap(), (0, vec![]), "extent {wrong}");
        }
        let mut short = truth;
        short[1].pop();
        assert!(matches!(compare(&disk, &short).await, Err(ClientError::Window(_))));
    }

    #[tokio::test]
    async fn a_job_that_fails_or_panics_fails_the_disk() {
        let failed = restore(BadTarget { panics: false }).await;
        assert!(matches!(failed, Err(ClientError::Internal("no room"))), "{failed:?}");
        let panicked = restore(BadTarget { panics: true }).await;
        assert!(matches!(panicked, Err(ClientError::Internal("a decoding thread panicked"))), "{panicked:?}");
    }
}
