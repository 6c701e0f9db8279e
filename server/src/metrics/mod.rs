//! `/metrics`: figures for Prometheus and whatever else reads its text.
//!
//! | file | what |
//! |---|---|
//! | [`names`] | every metric there is, the one place that names them |
//! | `live` | what is counted while the server runs |
//! | `figures` | what is looked up: sums of the catalog, index, volume; kept for a while |
//! | `process` | what the operating system says |
//! | `labels` | keeps the number of time series bounded |
//! | `grpc`, `web` | count calls and requests |
//! | `exposition` | the text |
//! | `scrape` | who may have it |
//!
//! Invariants: no label's value comes from a request that was not authorised, and there are at most
//! `NAMESPACES_MAX` × `JOBS_MAX` of them; a scrape blocks no thread of the runtime; however often it is asked
//! for, looking figures up takes at most a twentieth of the time. A crash loses the counters, which is what
//! counters of a process are for; what must survive is a gauge made of the catalog.

mod exposition;
mod figures;
mod grpc;
mod labels;
mod live;
pub(crate) mod names;
mod process;
mod scrape;
#[cfg(test)]
pub(crate) mod tests;
mod web;

use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::v1;
use parking_lot::Mutex;

use crate::net::Traffic;
use figures::Kept;
use labels::LabelTable;
use live::{Live, OutcomeLabels};

pub(crate) use grpc::CountCalls;
pub(crate) use live::BackupEnd;
pub(crate) use scrape::scrape;
pub(crate) use web::count_request;

/// Everything that is counted, and what a scrape needs besides.
#[derive(Debug)]
pub struct Metrics {
    live: Arc<Live>,
    labels: LabelTable,
    /// Whether anybody may read them.
    open: bool,
    listeners: Mutex<Vec<(&'static str, Arc<Traffic>)>>,
    kept: Mutex<Kept>,
    /// One scrape after the other: together they would only look the same figures up twice.
    turn: tokio::sync::Mutex<()>,
}

impl Metrics {
    /// All at zero. `open`: anybody who reaches the server may read them.
    pub(crate) fn new(open: bool) -> Self {
        Self {
            live: Arc::new(Live::new()),
            labels: LabelTable::default(),
            open,
            listeners: Mutex::default(),
            kept: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Counts gRPC calls when put around their services.
    pub(crate) fn count_calls(&self) -> CountCalls {
        CountCalls(Arc::clone(&self.live))
    }

    /// Shows the traffic of a listener from now on.
    pub(crate) fn watch(&self, listener: &'static str, traffic: Arc<Traffic>) {
        self.listeners.lock().push((listener, traffic));
    }

    /// A backup began.
    pub(crate) fn backup_started(&self, session: SessionId, namespace: &str, job: &str) {
        self.live.backup_started(session, self.labels.job(namespace, job));
    }

    /// A backup was committed; repetitions do not count.
    pub(crate) fn backup_done(&self, session: SessionId, commit: &v1::CommitResponse) {
        if self.live.backup_ended(session, BackupEnd::Done) {
            self.live.backup_cost(&self.labels, &commit.details);
        }
    }

    /// A backup came to nothing.
    pub(crate) fn backup_ended(&self, session: SessionId, end: BackupEnd) {
        self.live.backup_ended(session, end);
    }

    /// Counts backups as expired that are no more.
    pub(crate) fn forget_sessions(&self, is_gone: impl Fn(SessionId) -> bool) {
        for session in self.live.sessions().into_iter().filter(|session| is_gone(*session)) {
            self.live.backup_ended(session, BackupEnd::Expired);
        }
    }

    /// A client verified a backup.
    pub(crate) fn verified(&self, ok: bool) {
        let outcome = if ok { "sound" } else { "damaged" };
        self.live.verifications.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Data went to a client, this many bytes when decompressed.
    pub(crate) fn restored(&self, bytes: u64) {
        self.live.restored.inc_by(bytes);
    }
}
