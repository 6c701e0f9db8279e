//! Control of long work by people: watch it, slow it down, pause it, stop it.
//!
//! Workers ask a [`Pacer`] of their own at least every 50 ms of work. A worker that is told to stop ends with
//! [`EngineError::Stopped`] and leaves nothing half done that the next round would mind.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_volume::{SystemTimer, Timer};
use parking_lot::{Condvar, Mutex};

use crate::error::EngineError;

/// A worker that keeps to a share of time rests after so much work: short enough that callers do not notice a rest.
const STRETCH: Duration = Duration::from_millis(20);

/// The longest rest in one piece: how long a stop waits for it.
const REST_MAX: Duration = Duration::from_millis(50);

/// The present phase of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Phase {
    /// Idle: not begun, or finished.
    #[default]
    Idle,
    /// Finding live chunks and nodes.
    Marking,
    /// Finding whose the live bytes are.
    Attributing,
    /// Writing live chunks of sparse containers anew.
    Copying,
    /// Deleting containers.
    Deleting,
    /// Compressing old containers anew.
    Squeezing,
    /// Giving up local copies of containers.
    Moving,
    /// Looking up where the data of restore points lies.
    Placing,
}

/// Progress of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ControlProgress {
    pub phase: Phase,
    /// Units of the phase done, and all there are (0: not known); never more done than there are.
    pub done: u64,
    pub total: u64,
    /// References to chunks followed.
    pub references: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub freed_bytes: u64,
}

/// Speed, pause, stop and progress of long work. Shared between the worker and those who watch it.
pub struct Control {
    timer: Arc<dyn Timer>,
    stop: AtomicBool,
    paused: Mutex<bool>,
    resumed: Condvar,
    /// 0: as fast as it goes.
    bytes_per_sec: AtomicU64,
    /// Percent of each worker's time: 1 to 100.
    share_pct: AtomicU32,
    /// Time at which all bytes read and written so far would have been done at that speed.
    paid_until: Mutex<Duration>,
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    references: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    freed_bytes: AtomicU64,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new(Arc::new(SystemTimer::new()))
    }
}

impl Control {
    /// Creates a control without limits.
    pub fn new(timer: Arc<dyn Timer>) -> Self {
        Self {
            timer,
            stop: AtomicBool::new(false),
            paused: Mutex::new(false),
            resumed: Condvar::new(),
            bytes_per_sec: AtomicU64::new(0),
            share_pct: AtomicU32::new(100),
            paid_until: Mutex::default(),
            phase: AtomicU8::new(Phase::Idle as u8),
            done: AtomicU64::new(0),
            total: AtomicU64::new(0),
            references: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            freed_bytes: AtomicU64::new(0),
        }
    }

    /// Ends the work, for good, also while it is paused.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        let _paused = self.paused.lock();
        self.resumed.notify_all();
    }

    /// Returns true once it was stopped.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Holds the work, or lets it go on.
    pub fn set_paused(&self, paused: bool) {
        *self.paused.lock() = paused;
        self.resumed.notify_all();
    }

    /// Bytes read and written a second at most, by all workers together; 0: as many as it goes.
    pub fn set_bytes_per_sec(&self, bytes: u64) {
        self.bytes_per_sec.store(bytes, Ordering::Relaxed);
    }

    /// The share of its time that each worker works, in percent: 1 to 100.
    pub fn set_share_pct(&self, percent: u32) {
        self.share_pct.store(percent.clamp(1, 100), Ordering::Relaxed);
    }

    /// Progress of the work.
    pub fn progress(&self) -> ControlProgress {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let phases = [
            Phase::Marking,
            Phase::Attributing,
            Phase::Copying,
            Phase::Deleting,
            Phase::Squeezing,
            Phase::Moving,
            Phase::Placing,
        ];
        let phase = self.phase.load(Ordering::Relaxed);
        let total = get(&self.total);
        ControlProgress {
            phase: phases.into_iter().find(|one| *one as u8 == phase).unwrap_or_default(),
            done: if total == 0 { get(&self.done) } else { get(&self.done).min(total) },
            total,
            references: get(&self.references),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            freed_bytes: get(&self.freed_bytes),
        }
    }

    /// A phase of so many units begins.
    pub(crate) fn begin(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Adds to the units done.
    pub(crate) fn add_done(&self, units: u64) {
        self.done.fetch_add(units, Ordering::Relaxed);
    }

    pub(crate) fn add_references(&self, references: u64) {
        self.references.fetch_add(references, Ordering::Relaxed);
    }

    pub(crate) fn add_freed(&self, bytes: u64) {
        self.freed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits while the work is paused.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub(crate) fn check(&self) -> Result<(), EngineError> {
        if self.is_stopped() {
            return Err(EngineError::Stopped);
        }
        let mut paused = self.paused.lock();
        while *paused && !self.is_stopped() {
            self.resumed.wait(&mut paused);
        }
        drop(paused);
        if self.is_stopped() { Err(EngineError::Stopped) } else { Ok(()) }
    }

    /// Creates a pacer for one worker, from now on.
    pub(crate) fn pacer(&self) -> Pacer<'_> {
        Pacer { control: self, since: self.timer.now() }
    }

    /// Time to wait at the present limit, after `bytes` more were moved.
    fn pay(&self, bytes: u64, now: Duration) -> Duration {
        let rate = self.bytes_per_sec.load(Ordering::Relaxed);
        if rate == 0 || bytes == 0 {
            return Duration::ZERO;
        }
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let cost = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut paid = self.paid_until.lock();
        // Unused bandwidth does not add up.
        *paid = (*paid).max(now).saturating_add(cost);
        paid.saturating_sub(now)
    }
}

/// Keeps one worker to the limits of a [`Control`].
#[derive(Debug)]
pub(crate) struct Pacer<'a> {
    control: &'a Control,
    /// Time of its last rest.
    since: Duration,
}

impl Pacer<'_> {
    /// Charges the bytes moved since the last call. Waits as long as the limits and a pause ask for; to be called at
    /// least every 50 ms of work.
    ///
    /// # Errors
    /// [`EngineError::Stopped`].
    pub(crate) fn charge(&mut self, read_bytes: u64, written_bytes: u64) -> Result<(), EngineError> {
        let control = self.control;
        control.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        control.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        control.check()?;
        let now = control.timer.now();
        let mut rest = control.pay(read_bytes.saturating_add(written_bytes), now);
        let worked = now.saturating_sub(self.since);
        let share = control.share_pct.load(Ordering::Relaxed);
        if worked >= STRETCH {
            rest = rest.max(worked * 100u32.saturating_sub(share) / share.max(1));
        } else if rest.is_zero() {
            return Ok(());
        }
        self.rest(rest)?;
        self.since = control.timer.now();
        Ok(())
    }

    fn rest(&self, mut time: Duration) -> Result<(), EngineError> {
        while !time.is_zero() {
            let piece = time.min(REST_MAX);
            self.control.timer.sleep(piece);
            time -= piece;
            self.control.check()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use holdfast_volume::testing::ManualTimer;

    use super::*;

    fn control() -> (Control, Arc<ManualTimer>) {
        let timer = Arc::new(ManualTimer::default());
        (Control::new(Arc::<ManualTimer>::clone(&timer)), timer)
    }

    fn slept(timer: &ManualTimer) -> Duration {
        timer.take_sleeps().into_iter().sum()
    }

    #[test]
    fn bytes_a_second_are_those_of_all_workers() {
        let (control, timer) = control();
        let (mut one, mut other) = (control.pacer(), control.pacer());
        one.charge(1 << 30, 0).unwrap();
        assert_eq!(slept(&timer), Duration::ZERO, "no limit");
        control.set_bytes_per_sec(1000);
        one.charge(300, 200).unwrap();
        assert_eq!(slept(&timer), Duration::from_millis(500));
        other.charge(0, 2000).unwrap();
        assert_eq!(slept(&timer), Duration::from_secs(2));
        let progress = control.progress();
        assert_eq!((progress.read_bytes, progress.written_bytes), ((1 << 30) + 300, 2200));
        // Time that passed without work is not saved up.
        timer.advance(Duration::from_secs(100));
        one.charge(1000, 0).unwrap();
        assert_eq!(slept(&timer), Duration::from_secs(1));
    }

    #[test]
    fn a_share_of_time_is_what_each_worker_keeps_to() {
        let (control, timer) = control();
        control.set_share_pct(25);
        let mut pacer = control.pacer();
        timer.advance(Duration::from_millis(10));
        pacer.charge(0, 0).unwrap();
        assert_eq!(slept(&timer), Duration::ZERO, "not yet worth a rest");
        timer.advance(Duration::from_millis(30));
        pacer.charge(0, 0).unwrap();
        assert_eq!(slept(&timer), Duration::from_millis(120), "three times the 40 ms of work");
        control.set_share_pct(0);
        timer.advance(Duration::from_millis(20));
        pacer.charge(0, 0).unwrap();
        assert_eq!(slept(&timer), Duration::from_millis(20 * 99), "never less than one percent");
    }

    #[test]
    fn a_stop_ends_work_and_pauses() {
        let (control, _) = control();
        control.set_paused(true);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| control.pacer().charge(0, 0));
            control.stop();
            assert!(matches!(waiting.join().unwrap(), Err(EngineError::Stopped)));
        });
        assert!(control.is_stopped());
        assert!(matches!(control.check(), Err(EngineError::Stopped)));
    }

    #[test]
    fn a_pause_holds_work_until_it_is_lifted() {
        let (control, _) = control();
        control.set_paused(true);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| control.check());
            control.set_paused(false);
            waiting.join().unwrap().unwrap();
        });
        control.begin(Phase::Copying, 3);
        control.add_done(5);
        let progress = control.progress();
        assert_eq!((progress.phase, progress.done, progress.total), (Phase::Copying, 3, 3));
    }
}
