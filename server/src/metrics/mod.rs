//! Metrics for Prometheus and other systems that read its text format.
//!
//! | file | what |
//! |---|---|
//! | [`names`] | every metric there is; the one place that names them |
//! | `counters` | what is counted while the server runs |
//! | `figures` | what is looked up: sums of the catalog, index, volume; cached for a while |
//! | `process` | what the operating system says about this process |
//! | `labels` | keeps the number of time series bounded |
//! | `scrape` | collects one scrape |
//! | `exposition` | writes its text |
//!
//! The protocols count their calls here (`grpc/count.rs`, `http/count.rs`), and `http/metrics.rs` answers
//! `GET /metrics`.
//!
//! Invariants: no label's value comes from a request that was not authorised, and there are at most
//! `NAMESPACES_MAX` × `JOBS_MAX` of them; however often a scrape comes, looking figures up takes at most a
//! twentieth of the time. A crash loses the counters, which is what counters of a process are for; what must
//! survive is a gauge computed from the catalog.

mod counters;
mod exposition;
mod figures;
mod labels;
pub(crate) mod names;
mod process;
mod scrape;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::v1;
use parking_lot::Mutex;

use crate::net::Traffic;
use crate::repository::{Encryption, Tiers};
pub(crate) use counters::{BackupEnd, Counters};
use figures::FigureCache;
use labels::LabelTable;

/// Everything that is counted, and what a scrape needs besides.
#[derive(Debug)]
pub struct Metrics {
    counters: Arc<Counters>,
    labels: LabelTable,
    listeners: Mutex<Vec<(&'static str, Arc<Traffic>)>>,
    tiers: Mutex<Option<Arc<Tiers>>>,
    cache: Mutex<FigureCache>,
    encryption: Option<Arc<Encryption>>,
}

impl Metrics {
    /// All at zero. `encryption`: of a repository that is encrypted.
    pub(crate) fn new(encryption: Option<Arc<Encryption>>) -> Self {
        Self {
            counters: Arc::new(Counters::new()),
            labels: LabelTable::default(),
            listeners: Mutex::default(),
            tiers: Mutex::default(),
            cache: Mutex::default(),
            encryption,
        }
    }

    /// For the protocols, which count their calls.
    pub(crate) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Includes the traffic of a listener from now on.
    pub(crate) fn watch(&self, listener: &'static str, traffic: Arc<Traffic>) {
        self.listeners.lock().push((listener, traffic));
    }

    /// Includes the copies in a bucket from now on.
    pub(crate) fn watch_tiers(&self, tiers: Arc<Tiers>) {
        *self.tiers.lock() = Some(tiers);
    }

    /// A backup began.
    pub(crate) fn backup_started(&self, session: SessionId, namespace: &str, job: &str) {
        self.counters.backup_started(session, self.labels.job(namespace, job));
    }

    /// A backup was committed. A repeated commit does not count.
    pub(crate) fn backup_done(&self, session: SessionId, commit: &v1::CommitResponse) {
        if self.counters.backup_ended(session, BackupEnd::Done) {
            self.counters.backup_cost(&self.labels, &commit.details);
        }
    }

    /// A backup ended without a restore point.
    pub(crate) fn backup_ended(&self, session: SessionId, end: BackupEnd) {
        self.counters.backup_ended(session, end);
    }

    /// Counts backups whose session is gone as expired.
    pub(crate) fn forget_sessions(&self, is_gone: impl Fn(SessionId) -> bool) {
        for session in self.counters.sessions().into_iter().filter(|session| is_gone(*session)) {
            self.counters.backup_ended(session, BackupEnd::Expired);
        }
    }

    /// A client verified a backup.
    pub(crate) fn verified(&self, ok: bool) {
        self.counters.verified(if ok { "sound" } else { "damaged" });
    }

    /// Data went to a client: so many bytes when decompressed.
    pub(crate) fn restored(&self, bytes: u64) {
        self.counters.restored(bytes);
    }
}
