//! Regions being decoded and extents being written: a pool of threads, and what of one disk is in progress on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_proto::limits::{EXTENT_BYTES, PASSED_OVER_MAX, WINDOW_EXTENTS};
use holdfast_proto::region::Codec;
use holdfast_proto::region::sealed::Commitment;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::bad::{BadRange, BadRanges, OnDamage};
use super::digests::FalseDigests;
use super::extents::{ExtentBuffers, Proof, SettledExtent, WindowExtents};
use super::job::{self, Tools};
use super::poison::{FalseChunk, FalseChunks, Refused, sealed_as};
use super::target::Target;
use super::window::{CheckedRegion, WindowPlan};
use super::writes::{Turn, Writes};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::progress::{Progress, Step};
use crate::slices::part;
use crate::stages::{Stage, Stages, Stopwatch};

/// Regions being decoded or waiting for it, per thread.
const JOBS_PER_THREAD: u16 = 8;

/// A thread decodes some 1 GB/s: more threads than this would wait for the network.
const THREADS_MAX: u16 = 32;

/// Threads that decode, one that writes, and what they use.
pub(crate) struct DecodePool {
    threads: rayon::ThreadPool,
    writer: rayon::ThreadPool,
    jobs_max: u16,
    tools: ObjectPool<Tools>,
    extents: ExtentBuffers,
    pub(super) stages: Stages,
    /// Naming and protection of chunks.
    pub(crate) cipher: Cipher,
}

impl DecodePool {
    /// A pool of `threads` threads that decode; `None`: one per core.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started.
    pub(crate) fn new(threads: Option<usize>, cipher: Cipher) -> Result<Self, ClientError> {
        let cores = || std::thread::available_parallelism().map_or(2, usize::from);
        let count = threads.unwrap_or_else(cores).clamp(1, usize::from(THREADS_MAX));
        let start = |name: &'static str, count| {
            let named = move |number| format!("{name}-{number}");
            let threads = rayon::ThreadPoolBuilder::new().num_threads(count).thread_name(named).build();
            threads.map_err(|_| ClientError::Internal("the decoding threads could not be started"))
        };
        let (threads, writer) = (start("decode", count)?, start("write", 1)?);
        let jobs_max = JOBS_PER_THREAD * u16::try_from(count).unwrap_or(THREADS_MAX);
        let (tools, extents, stages) = (ObjectPool::default(), ObjectPool::default(), Stages::default());
        Ok(Self { threads, writer, jobs_max, tools, extents, stages, cipher })
    }

    /// Regions that may be decoded or wait for it at a time.
    pub(crate) fn jobs_max(&self) -> usize {
        self.jobs_max.into()
    }

    /// Decodes a region on one of the threads. `sink` gets each chunk that hashes to its fingerprint, once for each of its places;
    /// then `end` gets the ranges of the others.
    pub(crate) fn decode(
        self: &Arc<Self>,
        region: CheckedRegion,
        sink: impl Fn(u64, &[u8]) + Send + 'static,
        end: impl FnOnce(Result<Vec<BadRange>, ClientError>) + Send + 'static,
    ) {
        let pool = Arc::clone(self);
        self.threads.spawn_fifo(move || {
            let tools = (&pool.cipher, &pool.tools);
            let decode = || match job::run(&region, ("", true), tools, &pool.stages, &sink) {
                Err(ClientError::Damaged { .. }) => {
                    job::run_past_damage(&region, tools, &sink).map(|(bad, _)| bad)
                }
                outcome => outcome.map(|_| Vec::new()),
            };
            let panicked = Err(ClientError::Internal("a decoding thread panicked"));
            end(catch_unwind(AssertUnwindSafe(decode)).unwrap_or(panicked));
        });
    }
}

/// A job has failed. [`Jobs::drain`] says why.
pub(super) const STOPPED: ClientError = ClientError::Internal("a restore went on after it had failed");

/// Regions of one disk in progress.
pub(super) struct Jobs {
    pool: Arc<DecodePool>,
    disk: String,
    /// True if each chunk is compared with its fingerprint, also where its extent's digest would prove it.
    by_chunk: bool,
    target: Arc<dyn Target>,
    on_damage: OnDamage,
    bad: BadRanges,
    permits: Arc<Semaphore>,
    /// Room for extents of windows that have begun.
    room: Arc<Semaphore>,
    /// By where they begin: windows whose regions arrive, then those of which not everything is settled.
    windows: Mutex<BTreeMap<u64, Arc<WindowExtents>>>,
    ended: Mutex<Vec<Arc<WindowExtents>>>,
    writes: Arc<Writes>,
    /// Set once nothing more is to be written.
    stopped: AtomicBool,
    /// The first failure.
    failure: Mutex<Option<ClientError>>,
    written_bytes: AtomicU64,
    false_digests: FalseDigests,
    false_chunks: FalseChunks,
    refused: Refused,
    progress: Arc<dyn Progress>,
}

impl Jobs {
    /// Creates the jobs of the disk `disk`, none yet, with room for `extents_max` extents.
    pub(super) fn new(
        pool: Arc<DecodePool>,
        (disk, by_chunk): (&str, bool),
        target: Arc<dyn Target>,
        on_damage: OnDamage,
        progress: Arc<dyn Progress>,
        extents_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            disk: disk.to_owned(),
            by_chunk,
            target,
            on_damage,
            bad: BadRanges::default(),
            permits: Arc::new(Semaphore::new(usize::from(pool.jobs_max))),
            room: Arc::new(Semaphore::new(extents_max)),
            windows: Mutex::default(),
            ended: Mutex::default(),
            writes: Arc::default(),
            stopped: AtomicBool::new(false),
            pool,
            failure: Mutex::new(None),
            written_bytes: AtomicU64::new(0),
            false_digests: FalseDigests::default(),
            false_chunks: FalseChunks::default(),
            refused: Refused::default(),
            progress,
        })
    }

    /// Bytes written so far, without zeros.
    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of extents that do not hash to what their backup says, and the first few of them.
    pub(super) fn false_digests(&self) -> (u64, Vec<u64>) {
        self.false_digests.found()
    }

    /// Chunks that some agent sealed under names that are not theirs.
    pub(super) fn false_chunks(&self) -> Vec<FalseChunk> {
        self.false_chunks.found()
    }

    /// The extents that are to be read again, because a region that did not open was to bring something of them. Waits until
    /// no job is in progress, and forgets their bad ranges: another copy may be sound.
    pub(super) async fn take_again(&self) -> Result<BTreeSet<u64>, ClientError> {
        self.drain().await?;
        let again = self.refused.take_again();
        for extent in &again {
            let start = extent.saturating_mul(u64::from(EXTENT_BYTES));
            self.forget(&(start..start.saturating_add(u64::from(EXTENT_BYTES))));
        }
        Ok(again)
    }

    /// (N8) Regions that did not open when the next window was read that begins with this extent.
    pub(super) fn passed_over(&self, first_extent: u64) -> BTreeSet<Commitment> {
        self.refused.of(first_extent..first_extent.saturating_add(WINDOW_EXTENTS as u64))
    }

    /// Hands a region to the pool once there is room; fails with [`STOPPED`] after the failure of any earlier job.
    /// `passed_over`: what the server was asked to pass over where it could.
    pub(super) async fn submit(
        self: &Arc<Self>,
        region: CheckedRegion,
        passed_over: &Arc<BTreeSet<Commitment>>,
    ) -> Result<(), ClientError> {
        let permit = self.permit().await?;
        self.check()?;
        let window = self.windows.lock().get(&region.window.start).cloned();
        let window = window.ok_or(ClientError::Internal("a region of a window that has not begun"))?;
        let (jobs, passed_over) = (Arc::clone(self), Arc::clone(passed_over));
        self.pool.threads.spawn_fifo(move || {
            jobs.run(&region, &window, &passed_over);
            jobs.end(permit);
        });
        Ok(())
    }

    /// Takes the permit that a job holds while it is in progress.
    async fn permit(&self) -> Result<OwnedSemaphorePermit, ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed)
    }

    /// A job is done. It lets go of the target first: who waits for the permits counts on that.
    fn end(self: Arc<Self>, permit: OwnedSemaphorePermit) {
        drop(self);
        drop(permit);
    }

    fn run(
        self: &Arc<Self>,
        region: &CheckedRegion,
        window: &WindowExtents,
        passed_over: &BTreeSet<Commitment>,
    ) {
        // Of a chunk that some agent sealed under a false name the region is to be reported, which only now is there.
        let is_checked = self.by_chunk || region.codec == Codec::Sealed;
        let sink = |offset, chunk: &[u8]| {
            let settled = window.chunk(offset, (chunk, is_checked), &self.pool.extents);
            self.complete(window, settled).unwrap_or_else(|error| self.fail(error));
        };
        self.attempt("a decoding thread panicked", || {
            let tools = (&self.pool.cipher, &self.pool.tools);
            let refused = || self.refuses(region, passed_over);
            match job::run(region, (&self.disk, is_checked), tools, &self.pool.stages, &sink) {
                Err(error @ ClientError::Damaged { .. }) if let Some(commitment) = refused() => {
                    tracing::warn!(%error, "a sealed region does not open: another copy is asked for");
                    let (bad, false_chunk) = job::run_past_damage(region, tools, &sink)?;
                    false_chunk.into_iter().for_each(|chunk| self.false_chunks.add(chunk));
                    for range in bad {
                        self.refused.add(range.offset / u64::from(EXTENT_BYTES), commitment);
                        self.complete(window, window.lose(range.offset, range.len))?;
                    }
                    Ok(())
                }
                Err(ClientError::Damaged { .. }) if self.on_damage.goes_on() => {
                    let (bad, false_chunk) = job::run_past_damage(region, tools, &sink)?;
                    false_chunk.into_iter().for_each(|chunk| self.false_chunks.add(chunk));
                    bad.into_iter().try_for_each(|range| self.give_up(range, Some(window)))
                }
                outcome => outcome.map(drop),
            }
        });
    }

    /// (N8) The commitment of a region that does not open, when the server was not asked yet for another copy of its chunks.
    fn refuses(&self, region: &CheckedRegion, passed_over: &BTreeSet<Commitment>) -> Option<Commitment> {
        let commitment = sealed_as(region).filter(|one| !passed_over.contains(one))?;
        let first = region.window.start / u64::from(EXTENT_BYTES);
        (self.passed_over(first).len() < PASSED_OVER_MAX).then_some(commitment)
    }

    /// Queues an extent of which nothing more is to come for the thread that writes, once it has proved to be what it should be.
    fn complete(
        self: &Arc<Self>,
        window: &WindowExtents,
        settled: Option<SettledExtent>,
    ) -> Result<(), ClientError> {
        let Some(settled) = settled else { return Ok(()) };
        let Proof { whole, wrong, is_false } = window.prove(settled, &self.pool.cipher);
        if is_false {
            self.false_digests.add(whole.offset / u64::from(EXTENT_BYTES));
        }
        for (chunk, actual) in wrong {
            if !self.on_damage.goes_on() {
                return Err(job::wrong(&self.disk, chunk, actual));
            }
            job::bad_ranges(chunk).try_for_each(|range| self.give_up(range, None))?;
        }
        self.writes.push(whole);
        let (jobs, writes) = (Arc::clone(self), Arc::clone(&self.writes));
        self.pool.writer.spawn_fifo(move || {
            let Some(mut turn) = writes.next() else { return };
            jobs.write(&mut turn);
            // Before the turn ends: who waits for that counts on the target being let go of.
            drop(jobs);
        });
        Ok(())
    }

    /// Writes the extent whose turn it is.
    fn write(&self, turn: &mut Turn<'_>) {
        let extent = &turn.extent;
        self.attempt("the writing thread panicked", || {
            let mut watch = Stopwatch::start();
            let mut written = 0;
            for &(from, len) in &extent.runs {
                if self.stopped.load(Ordering::Relaxed) {
                    return Ok(());
                }
                self.target.write_at(extent.offset + from as u64, part(&extent.bytes, from, len))?;
                written += len as u64;
            }
            self.pool.stages.add(Stage::Write, watch.lap(), written);
            self.written_bytes.fetch_add(written, Ordering::Relaxed);
            self.progress.advance(Step { data_bytes: written, ..Step::default() });
            Ok(())
        });
        let bytes = std::mem::take(&mut turn.extent.bytes);
        // An extent that is lost has no memory; kept, its place in the pool would be given some.
        if !bytes.is_empty() {
            self.pool.extents.put(bytes);
        }
    }

    /// Runs `work` unless nothing more is to be done, and remembers its failure. A panic must count as one: something
    /// may not have been written.
    fn attempt(&self, panicked: &'static str, work: impl FnOnce() -> Result<(), ClientError>) {
        if self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(work));
        if let Err(error) = outcome.unwrap_or(Err(ClientError::Internal(panicked))) {
            self.fail(error);
        }
    }

    fn fail(&self, error: ClientError) {
        self.failure.lock().get_or_insert(error);
        self.stop();
    }

    /// Stops decoding and writing: the disk has failed, or is not wanted any more.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        // Extents that hold room now are never settled: a window that waits for some must not wait for ever.
        self.room.close();
    }

    /// The streams ended with `error`: stops, waits for jobs in progress, which share the target (it cleans up after
    /// itself when the last of them lets it go), and says what failed first.
    pub(super) async fn ended_by(&self, error: ClientError) -> ClientError {
        self.stop();
        let failure = self.drain().await.err();
        let asked = matches!(error, ClientError::Interrupted);
        failure.filter(|_| !asked).unwrap_or(error)
    }

    /// Takes note of a range that cannot be read, and makes it zero if that was asked for.
    fn give_up(self: &Arc<Self>, range: BadRange, window: Option<&WindowExtents>) -> Result<(), ClientError> {
        // A pipe cannot skip bytes: zeros take their place.
        if self.on_damage == OnDamage::Zero || self.target.needs_order() {
            self.target.zero(range.offset, range.len)?;
        }
        if let Some(window) = window {
            self.complete(window, window.lose(range.offset, range.len))?;
        }
        self.bad.add(range);
        Ok(())
    }

    /// As [`Jobs::give_up`] for ranges the server named; away from the async threads.
    pub(super) async fn give_up_all(self: &Arc<Self>, ranges: Vec<BadRange>) -> Result<(), ClientError> {
        self.run_as_job(move |jobs| {
            ranges.into_iter().try_for_each(|range| {
                jobs.check_stopped()?;
                let window = jobs.window_at(range.offset);
                jobs.give_up(range, window.as_deref())
            })
        })
        .await
    }

    /// Does `work` away from the async threads. It counts as a job, so that it is waited for even when the stream that began
    /// it is gone. It must not wait for another job.
    async fn run_as_job(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<(), ClientError> + Send + 'static,
    ) -> Result<(), ClientError> {
        let permit = self.permit().await?;
        let jobs = Arc::clone(self);
        blocking(move || {
            let outcome = work(&jobs);
            jobs.end(permit);
            outcome
        })
        .await
    }

    /// The window at `offset` of the disk, while it arrives.
    fn window_at(&self, offset: u64) -> Option<Arc<WindowExtents>> {
        let windows = self.windows.lock();
        let (_, window) = windows.range(..=offset).next_back()?;
        window.contains(offset).then(|| Arc::clone(window))
    }

    /// Forgets the bad ranges and windows that begin in these bytes of the disk: they are read again.
    pub(super) fn forget(&self, bytes: &Range<u64>) {
        self.bad.forget(bytes);
        self.windows.lock().retain(|start, _| !bytes.contains(start));
    }

    /// Returns the ranges that could not be read, in order.
    pub(super) fn bad_ranges(&self) -> Vec<BadRange> {
        self.bad.merged()
    }

    /// Waits until no job is in progress, and what is whole is written. Returns the first failure of all, once.
    pub(super) async fn drain(&self) -> Result<(), ClientError> {
        self.settle().await?;
        self.failure.lock().take().map_or(Ok(()), Err)
    }

    /// Waits as `Jobs::drain` does; fails with [`STOPPED`] when there was a failure.
    pub(super) async fn pause(&self) -> Result<(), ClientError> {
        self.settle().await?;
        self.check()
    }

    async fn settle(&self) -> Result<(), ClientError> {
        let closed = ClientError::Internal("the decoding threads ended early");
        drop(self.permits.acquire_many(u32::from(self.pool.jobs_max)).await.map_err(|_| closed)?);
        self.writes.idle().await;
        Ok(())
    }

    /// As [`Jobs::drain`] at the end of a disk.
    ///
    /// # Errors
    /// Also when something arrived that was not written.
    pub(super) async fn finish(&self) -> Result<(), ClientError> {
        self.drain().await?;
        let is_written = self.windows.lock().is_empty() && self.ended.lock().iter().all(|w| w.is_settled());
        is_written.then_some(()).ok_or(ClientError::Internal("part of the disk arrived and was not written"))
    }

    /// Several streams may ask; the failure itself is for [`Jobs::drain`].
    fn check(&self) -> Result<(), ClientError> {
        if self.failure.lock().is_some() { Err(STOPPED) } else { Ok(()) }
    }

    /// Fails once jobs are stopped, also when the disk is not wanted any more.
    fn check_stopped(&self) -> Result<(), ClientError> {
        if self.stopped.load(Ordering::Relaxed) { Err(STOPPED) } else { Ok(()) }
    }

    /// A window begins: waits for room for its extents, then writes its zeros and gives the target a hint; both away
    /// from the async threads, as both can wait for the disk. Several windows may be in progress.
    pub(super) async fn begin_window(self: &Arc<Self>, plan: Arc<WindowPlan>) -> Result<(), ClientError> {
        let begun = WindowExtents::begin(&plan, &self.room).await;
        self.check()?;
        let reached = {
            let mut windows = self.windows.lock();
            windows.insert(plan.start, Arc::new(begun?));
            // Those before the lowest that arrives are complete.
            windows.first_key_value().map_or(plan.start, |(start, _)| *start)
        };
        self.run_as_job(move |jobs| {
            jobs.target.reached(reached);
            for &(offset, len) in &plan.zeros {
                jobs.check_stopped()?;
                jobs.target.zero(offset, len)?;
            }
            plan.bad.iter().try_for_each(|range| {
                jobs.check_stopped()?;
                jobs.give_up(range.clone(), None)
            })
        })
        .await
    }

    fn note_ended(&self, window: Option<Arc<WindowExtents>>) {
        let mut ended = self.ended.lock();
        ended.retain(|window| !window.is_settled());
        ended.extend(window);
    }

    /// A window has arrived. If the target needs order, waits until all of it is written and says so; `false`: part of it is to
    /// be read again first.
    pub(super) async fn end_window(&self, plan: &WindowPlan) -> Result<bool, ClientError> {
        // Jobs of it may be in progress; they hold it themselves.
        let arrived = self.windows.lock().remove(&plan.start);
        self.note_ended(arrived);
        if !self.target.needs_order() {
            return Ok(true);
        }
        self.pause().await?;
        if !self.refused.take_again().is_empty() {
            return Ok(false);
        }
        let (target, start, end) = (Arc::clone(&self.target), plan.start, plan.end);
        // No job: who reads the pipe may never go on, and an interrupted restore must end all the same.
        blocking(move || target.window_done(start, end)).await.map(|()| true)
    }
}

async fn blocking(
    work: impl FnOnce() -> Result<(), ClientError> + Send + 'static,
) -> Result<(), ClientError> {
    let cut_short = ClientError::Internal("writing to the target was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)?
}

#[cfg(test)]
mod tests;
