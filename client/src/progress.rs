//! Progress reports of the library. It never prints: the caller decides what to show.

use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;

/// Receives what happens, from any thread. Calls must be cheap.
pub trait Progress: Send + Sync {
    /// Work on a disk begins, or begins again after a loss. `before_bytes` is the size of the disks before
    /// it, which are done.
    fn disk(&self, name: &str, before_bytes: u64);
    /// More was done on the current disk.
    fn advance(&self, step: Step);
    /// The server has begun a session: from now on it knows of the attempt.
    fn session(&self) {}
    /// Reports the number of connections that carry the current disk's data.
    fn connections(&self, _count: u32) {}
    /// The server makes the current disk wait for its turn, behind `ahead` others; `None`: it no longer waits.
    fn waits(&self, ahead: Option<u32>);
    /// Reports a notice to the user. Work goes on.
    fn notice(&self, notice: &Notice);
}

/// A delta of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes of the disk dealt with, holes and zeros included.
    pub done_bytes: u64,
    /// Bytes of these that are neither holes nor zeros.
    pub data_bytes: u64,
    /// Plain bytes of new chunks.
    pub new_bytes: u64,
    /// Region payload bytes sent or received.
    pub wire_bytes: u64,
}

/// Notices for the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The connection is lost; the agent tries to reconnect.
    Reconnecting { reason: String, delay: Duration },
    /// The server refused because of a limit; the agent tries again after the delay.
    Waiting { reason: String, delay: Duration },
    /// The connection is back.
    Reconnected { disk: String, accepted_extents: u64 },
    /// The session was lost: data the server has need not be sent again, but the backup starts over.
    SessionRestarted { reason: String },
    /// The VM has no backup to compare with.
    FirstBackup { vm: String },
    /// Another backup was to bring data that this one has, too, and did not.
    ReadingAgain { disk: String, extents: usize },
    /// A disk is left out of the backup; the others go on.
    DiskFailed { error: String },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reconnecting { reason, delay } => {
                write!(f, "{reason}; retrying in {:.1} s", delay.as_secs_f64())
            }
            Self::Waiting { reason, delay } => {
                write!(f, "{reason}; waiting {:.1} s", delay.as_secs_f64())
            }
            Self::Reconnected { disk, accepted_extents } => {
                write!(f, "reconnected; the server already has {accepted_extents} extents of disk {disk}")
            }
            Self::SessionRestarted { reason } => write!(
                f,
                "the session was lost ({reason}); starting over, without sending again what the server already has"
            ),
            Self::DiskFailed { error } => write!(
                f,
                "{error}; starting over without this disk, without sending again what the server already has"
            ),
            Self::ReadingAgain { disk, extents } => write!(
                f,
                "another backup was to send data that disk {disk} has as well, and did not; extents read again: {extents}"
            ),
            Self::FirstBackup { vm } => {
                write!(
                    f,
                    "there is no earlier backup of {vm} with these disks; all of their data is read and chunked"
                )
            }
        }
    }
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn disk(&self, _: &str, _: u64) {}
    fn advance(&self, _: Step) {}
    fn waits(&self, _: Option<u32>) {}
    fn notice(&self, _: &Notice) {}
}

/// Adds up what happened, for a display that looks at it from time to time.
#[derive(Debug, Default)]
pub struct Tally {
    state: Mutex<Snapshot>,
    notices: Mutex<Vec<Notice>>,
}

/// Sums at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The current disk; empty before the first.
    pub disk: String,
    /// Number of connections that carry its data; 0 before that is known.
    pub connections: u32,
    /// Sums of all steps; `done_bytes` of a disk begun again counts from its start.
    pub done: Step,
    /// While the disk waits for its turn at the server: how many get theirs before.
    pub ahead: Option<u32>,
}

impl Tally {
    /// Sums so far.
    pub fn snapshot(&self) -> Snapshot {
        self.state.lock().clone()
    }

    /// Notices since the last call.
    pub fn take_notices(&self) -> Vec<Notice> {
        std::mem::take(&mut self.notices.lock())
    }
}

impl Progress for Tally {
    fn disk(&self, name: &str, before_bytes: u64) {
        let mut state = self.state.lock();
        name.clone_into(&mut state.disk);
        state.done.done_bytes = before_bytes;
    }

    fn advance(&self, step: Step) {
        let mut state = self.state.lock();
        state.done.done_bytes += step.done_bytes;
        state.done.data_bytes += step.data_bytes;
        state.done.new_bytes += step.new_bytes;
        state.done.wire_bytes += step.wire_bytes;
    }

    fn connections(&self, count: u32) {
        self.state.lock().connections = count;
    }

    fn waits(&self, ahead: Option<u32>) {
        self.state.lock().ahead = ahead;
    }

    fn notice(&self, notice: &Notice) {
        // Bounded: a connection that comes and goes all day must not fill memory.
        const NOTICES_MAX: usize = 1000;
        let mut notices = self.notices.lock();
        if notices.len() < NOTICES_MAX {
            notices.push(notice.clone());
        }
    }
}
