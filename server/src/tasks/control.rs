//! Control of an attempt: messages between a task's work and the board.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_engine::catalog::{TASK_LINES_MAX, TaskLine, TaskProgress};
use holdfast_engine::clock::Clock;
use holdfast_volume::Timer;
use parking_lot::{Condvar, Mutex};

use crate::jobs::Throttle;

/// Time of work before it waits for its share: short enough that a backup beside it does not notice one, long enough
/// that asking costs nothing.
const SLICE: Duration = Duration::from_millis(20);

/// Bytes that are charged for at once, whatever time they took: an extent.
const SLICE_BYTES: u64 = 4 << 20;

/// A wait is this long at most before the wish is looked at again.
const NAP: Duration = Duration::from_millis(50);

/// Lines that were not written yet, at most: as many as are kept.
const LINES_MAX: usize = TASK_LINES_MAX as usize;

/// The task was told to end its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task was told to end")]
pub(crate) struct Stopped;

/// Work of the engine that is steered from outside, with a control of its own.
pub(crate) trait Steered: Send + Sync + fmt::Debug {
    fn pause(&self, paused: bool);
    /// Stops for good.
    fn stop(&self);
    fn set_throttle(&self, throttle: Throttle);
    fn progress(&self) -> TaskProgress;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Run,
    Pause,
    /// Final.
    Stop,
}

/// Work done since the last wait.
#[derive(Debug)]
struct Slice {
    began: Duration,
    bytes: u64,
}

#[derive(Debug, Default)]
struct Told {
    lines: VecDeque<TaskLine>,
    figures: Option<String>,
    place: Option<String>,
    progress: TaskProgress,
}

/// One attempt's control. The work calls [`Control::charge`] or [`Control::check`] at least every 50 ms of work, from one
/// thread.
#[derive(Debug)]
pub(crate) struct Control {
    clock: Arc<dyn Clock>,
    timer: Arc<dyn Timer>,
    wish: Mutex<Wish>,
    changed: Condvar,
    throttle: Mutex<Throttle>,
    slice: Mutex<Slice>,
    done: AtomicU64,
    told: Mutex<Told>,
    steered: Mutex<Option<Arc<dyn Steered>>>,
}

impl Control {
    pub(super) fn new(clock: Arc<dyn Clock>, timer: Arc<dyn Timer>, throttle: Throttle) -> Self {
        let slice = Mutex::new(Slice { began: timer.now(), bytes: 0 });
        Self {
            clock,
            timer,
            wish: Mutex::new(Wish::Run),
            changed: Condvar::new(),
            throttle: Mutex::new(throttle),
            slice,
            done: AtomicU64::new(0),
            told: Mutex::default(),
            steered: Mutex::default(),
        }
    }

    /// Waits while the task is paused.
    ///
    /// # Errors
    /// [`Stopped`]: end now.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        let mut wish = self.wish.lock();
        if *wish == Wish::Pause {
            while *wish == Wish::Pause {
                self.changed.wait(&mut wish);
            }
            *self.slice.lock() = Slice { began: self.timer.now(), bytes: 0 };
        }
        if *wish == Wish::Stop { Err(Stopped) } else { Ok(()) }
    }

    /// Says what was read or written since the last call, and waits as long as the throttle asks.
    ///
    /// # Errors
    /// As [`Control::check`].
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Stopped> {
        self.take_turns(bytes, || self.check())
    }

    /// The same for work that holds what others wait for: it gives that back during a pause. `false`: call [`Control::check`],
    /// then begin it again.
    pub(crate) fn goes_on(&self, bytes: u64) -> bool {
        let check = || if *self.wish.lock() == Wish::Run { Ok(()) } else { Err(Stopped) };
        self.take_turns(bytes, check).is_ok()
    }

    fn take_turns(&self, bytes: u64, check: impl Fn() -> Result<(), Stopped>) -> Result<(), Stopped> {
        let (took, moved) = {
            let mut slice = self.slice.lock();
            slice.bytes = slice.bytes.saturating_add(bytes);
            (self.timer.now().saturating_sub(slice.began), slice.bytes)
        };
        if took >= SLICE || moved >= SLICE_BYTES {
            let mut waited = Duration::ZERO;
            // Looked at again after each nap: a backup may have begun, or ended.
            loop {
                let left = self.throttle.lock().wait(took, moved).saturating_sub(waited);
                if left.is_zero() {
                    break;
                }
                let nap = left.min(NAP);
                self.timer.sleep(nap);
                waited += nap;
                check()?;
            }
            *self.slice.lock() = Slice { began: self.timer.now(), bytes: 0 };
        }
        check()
    }

    /// Waits for something far away that takes so long.
    ///
    /// # Errors
    /// As [`Control::check`].
    pub(crate) fn rest(&self, time: Duration) -> Result<(), Stopped> {
        let mut left = time;
        while !left.is_zero() {
            self.check()?;
            let nap = left.min(NAP);
            self.timer.sleep(nap);
            left -= nap;
        }
        self.check()
    }

    /// Sets the total of `unit` to be done; 0: not known.
    pub(crate) fn expect(&self, total: u64, unit: &'static str) {
        self.told.lock().progress = TaskProgress { done: 0, total, unit: unit.to_owned() };
    }

    /// Counts units done since the last call.
    pub(crate) fn advance(&self, by: u64) {
        self.done.fetch_add(by, Ordering::Relaxed);
    }

    /// Sets the progress, for work that does not count by itself.
    pub(crate) fn set_progress(&self, done: u64, total: u64, unit: &'static str) {
        self.expect(total, unit);
        self.done.store(done, Ordering::Relaxed);
    }

    /// Adds a line to the task's log.
    pub(crate) fn log(&self, text: impl Into<String>) {
        let line = TaskLine { number: 0, at_ms: self.clock.now_ms(), text: text.into() };
        let mut told = self.told.lock();
        if told.lines.len() >= LINES_MAX {
            told.lines.pop_front();
        }
        told.lines.push_back(line);
    }

    /// Sets the figures of the task so far, as JSON.
    pub(crate) fn set_figures(&self, figures: &impl serde::Serialize) {
        match serde_json::to_string(figures) {
            Ok(text) => self.told.lock().figures = Some(text),
            Err(error) => tracing::error!(%error, "the figures of a task have no JSON form"),
        }
    }

    /// Sets the point where a later attempt goes on: all before it is done.
    pub(crate) fn set_place(&self, place: impl Into<String>) {
        self.told.lock().place = Some(place.into());
    }

    /// Steers `work` as this control is steered, from now on.
    pub(crate) fn steer(&self, work: Arc<dyn Steered>) {
        work.set_throttle(*self.throttle.lock());
        let wish = self.wish.lock();
        match *wish {
            Wish::Run => {}
            Wish::Pause => work.pause(true),
            Wish::Stop => work.stop(),
        }
        // Under the wish's lock: none is missed.
        *self.steered.lock() = Some(work);
    }

    pub(super) fn pause(&self, paused: bool) {
        let mut wish = self.wish.lock();
        if *wish != Wish::Stop {
            *wish = if paused { Wish::Pause } else { Wish::Run };
            if let Some(work) = &*self.steered.lock() {
                work.pause(paused);
            }
            self.changed.notify_all();
        }
    }

    pub(super) fn stop(&self) {
        let mut wish = self.wish.lock();
        *wish = Wish::Stop;
        if let Some(work) = &*self.steered.lock() {
            work.stop();
        }
        self.changed.notify_all();
    }

    pub(super) fn set_throttle(&self, throttle: Throttle) {
        *self.throttle.lock() = throttle;
        if let Some(work) = &*self.steered.lock() {
            work.set_throttle(throttle);
        }
    }

    pub(super) fn progress(&self) -> TaskProgress {
        if let Some(work) = &*self.steered.lock() {
            return work.progress();
        }
        let progress = self.told.lock().progress.clone();
        TaskProgress { done: self.done.load(Ordering::Relaxed), ..progress }
    }

    /// Lines since the last call, and figures and place if they were set since then.
    pub(super) fn take_told(&self) -> (Vec<TaskLine>, Option<String>, Option<String>) {
        let mut told = self.told.lock();
        (told.lines.drain(..).collect(), told.figures.take(), told.place.take())
    }
}
