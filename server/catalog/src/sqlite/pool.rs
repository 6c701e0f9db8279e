//! Connections that read, in pools of a size each: a caller that finds none free waits. They are never held
//! across calls, so that a slow caller holds up neither others nor the folding of the log.
//!
//! There are two pools, so that reports never keep a token or a commit waiting: reports over a million rows take
//! seconds each, and a browser asks for several at once.

use std::path::PathBuf;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::connection::open_reader;
use crate::Result;

/// Connections for look-ups: single rows found by an index, well under a millisecond each, so four answer more
/// calls than the server takes at a time. Each costs a cache of up to 2 MiB and three file handles.
pub(crate) const LOOK_UPS_MAX: usize = 4;

/// Connections for reports, lists and checks, which may read every row there is.
pub(crate) const REPORTS_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct ReadPool {
    path: PathBuf,
    busy_timeout: Duration,
    /// Connections in use at a time at most.
    size: usize,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    in_use: usize,
}

impl ReadPool {
    pub(crate) fn new(path: PathBuf, busy_timeout: Duration, size: usize) -> Self {
        Self { path, busy_timeout, size, state: Mutex::default(), freed: Condvar::new() }
    }

    /// Runs `read` with a connection. Never to be nested: the inner call could wait for the outer one.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&mut Connection) -> Result<T>) -> Result<T> {
        let mut lease = self.lease();
        let mut connection = match lease.connection.take() {
            Some(connection) => connection,
            None => open_reader(&self.path, self.busy_timeout)?,
        };
        let result = read(&mut connection);
        lease.connection = Some(connection);
        result
    }

    /// Runs `work`, which has a connection of its own, as if it had one of these.
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let _lease = self.lease();
        work()
    }

    fn lease(&self) -> Lease<'_> {
        let mut state = self.state.lock();
        while state.in_use >= self.size {
            self.freed.wait(&mut state);
        }
        state.in_use += 1;
        Lease { pool: self, connection: state.idle.pop() }
    }
}

/// The right to use a connection; gives it back however the use ends.
struct Lease<'a> {
    pool: &'a ReadPool,
    connection: Option<Connection>,
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.in_use -= 1;
        state.idle.extend(self.connection.take());
        drop(state);
        self.pool.freed.notify_one();
    }
}
