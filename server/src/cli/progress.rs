//! Progress of a command that takes long, on standard error.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use holdfast_engine::Progress;
use parking_lot::Mutex;

use super::out;

/// Shows progress: one line rewritten on a terminal, a line every few seconds in a log.
pub(super) struct Ticker {
    terminal: bool,
    shown: Mutex<Option<(Instant, &'static str)>>,
}

impl Ticker {
    pub(super) fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: Mutex::new(None) }
    }

    /// Ends the line that was rewritten.
    pub(super) fn end(&self) {
        if self.terminal && self.shown.lock().is_some() {
            out::note("");
        }
    }
}

impl Progress for Ticker {
    fn step(&self, phase: &'static str, done: u64, total: u64) {
        let every = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let mut shown = self.shown.lock();
        if shown.is_some_and(|(at, last)| last == phase && at.elapsed() < every) {
            return;
        }
        *shown = Some((Instant::now(), phase));
        if self.terminal {
            let mut terminal = io::stderr().lock();
            // A terminal that went away is not a failure.
            let _ = write!(terminal, "\r{phase}: {done} of {total}\x1b[K").and_then(|()| terminal.flush());
        } else {
            out::note(format_args!("{phase}: {done} of {total}"));
        }
    }
}
