//! Counters of this process. Every process starts at zero.

use std::collections::HashMap;
use std::time::Duration;

use holdfast_engine::catalog::TaskKind;
use holdfast_engine::ids::SessionId;
use holdfast_proto::api::DetailRow;
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::names::{self, Definition};
use crate::metrics::{JobLabels, LabelTable};

/// Buckets from a catalog look-up to a stream that lasts all night; each about three times the one before.
const CALL_BUCKETS_SECONDS: [f64; 11] = [0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 60.0, 600.0, 3600.0];

/// Buckets from an unchanged disk to a first full of many terabytes.
const BACKUP_BUCKETS_SECONDS: [f64; 10] =
    [1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 4.0 * 3600.0, 12.0 * 3600.0];

/// A histogram for calls.
fn call_histogram() -> Histogram {
    Histogram::new(CALL_BUCKETS_SECONDS)
}

type CallHistograms<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackupLabels {
    namespace: String,
    backup_job: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    method: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    /// The router's own text, never the request's.
    route: String,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    route: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    protocol: &'static str,
    reason: &'static str,
}

/// Outcome of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BackupEnd {
    Done,
    /// Ended by the agent.
    Aborted,
    /// Ended by the server: its lease expired, or another backup took over.
    Expired,
}

impl BackupEnd {
    const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Aborted => "aborted",
            Self::Expired => "expired",
        }
    }
}

/// All counters.
#[derive(Debug)]
pub(crate) struct Counters {
    backups: Family<BackupLabels, Counter>,
    pre_comp: Family<JobLabels, Counter>,
    new: Family<JobLabels, Counter>,
    post_lc: Family<JobLabels, Counter>,
    meta: Family<JobLabels, Counter>,
    wire: Family<JobLabels, Counter>,
    backup_duration: Histogram,
    restores: Family<OutcomeLabels, Counter>,
    restored: Counter,
    skipped: Family<KindLabels, Counter>,
    restore_sent: Counter,
    verifications: Family<OutcomeLabels, Counter>,
    grpc_requests: Family<CallLabels, Counter>,
    grpc_duration: CallHistograms<MethodLabels>,
    http_requests: Family<RequestLabels, Counter>,
    http_duration: CallHistograms<RouteLabels>,
    refusals: Family<RefusalLabels, Counter>,
    pub(super) refresh_failures: Counter,
    /// Backups in progress, to be counted when they end. As many as the engine has sessions, and for a moment those
    /// it has just given up.
    sessions: Mutex<HashMap<SessionId, JobLabels>>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        let counters = Self {
            backups: Family::default(),
            pre_comp: Family::default(),
            new: Family::default(),
            post_lc: Family::default(),
            meta: Family::default(),
            wire: Family::default(),
            backup_duration: Histogram::new(BACKUP_BUCKETS_SECONDS),
            restores: Family::default(),
            restored: Counter::default(),
            skipped: Family::default(),
            restore_sent: Counter::default(),
            verifications: Family::default(),
            grpc_requests: Family::default(),
            grpc_duration: Family::new_with_constructor(call_histogram as fn() -> Histogram),
            http_requests: Family::default(),
            http_duration: Family::new_with_constructor(call_histogram as fn() -> Histogram),
            refusals: Family::default(),
            refresh_failures: Counter::default(),
            sessions: Mutex::default(),
        };
        // Series that alerts are based on exist from the beginning: a rate needs a first value.
        for outcome in ["done", "failed", "cancelled"] {
            counters.restores.get_or_create_owned(&OutcomeLabels { outcome });
        }
        for outcome in ["sound", "damaged"] {
            counters.verifications.get_or_create_owned(&OutcomeLabels { outcome });
        }
        for kind in TaskKind::ALL {
            counters.skipped.get_or_create_owned(&KindLabels { kind: kind.word() });
        }
        for protocol in ["grpc", "http"] {
            for reason in ["unauthenticated", "forbidden"] {
                counters.refusals.get_or_create_owned(&RefusalLabels { protocol, reason });
            }
        }
        counters
    }

    /// All of them, for the exposition.
    pub(super) fn metrics(&self) -> [(&'static Definition, &dyn EncodeMetric); 18] {
        [
            (&names::BACKUPS, &self.backups),
            (&names::BACKUP_PRE_COMP, &self.pre_comp),
            (&names::BACKUP_NEW, &self.new),
            (&names::BACKUP_POST_LC, &self.post_lc),
            (&names::BACKUP_META, &self.meta),
            (&names::BACKUP_WIRE, &self.wire),
            (&names::BACKUP_DURATION, &self.backup_duration),
            (&names::RESTORES, &self.restores),
            (&names::RESTORED, &self.restored),
            (&names::RESTORE_SENT, &self.restore_sent),
            (&names::VERIFICATIONS, &self.verifications),
            (&names::SCHEDULES_SKIPPED, &self.skipped),
            (&names::GRPC_REQUESTS, &self.grpc_requests),
            (&names::GRPC_DURATION, &self.grpc_duration),
            (&names::HTTP_REQUESTS, &self.http_requests),
            (&names::HTTP_DURATION, &self.http_duration),
            (&names::AUTH_FAILURES, &self.refusals),
            (&names::REFRESH_FAILURES, &self.refresh_failures),
        ]
    }

    pub(super) fn backup_started(&self, session: SessionId, labels: JobLabels) {
        for end in [BackupEnd::Done, BackupEnd::Aborted, BackupEnd::Expired] {
            self.backups.get_or_create_owned(&backup_labels(&labels, end));
        }
        self.job_seen(&labels);
        self.sessions.lock().insert(session, labels);
    }

    /// Makes the series of a job, at 0 where they are new: what its first backup brings is an increase then.
    pub(super) fn job_seen(&self, labels: &JobLabels) {
        for family in [&self.pre_comp, &self.new, &self.post_lc, &self.meta, &self.wire] {
            family.get_or_create_owned(labels);
        }
    }

    /// Counts a backup's end. Returns whether it was counted: only the first end is.
    pub(super) fn backup_ended(&self, session: SessionId, end: BackupEnd) -> bool {
        let Some(labels) = self.sessions.lock().remove(&session) else { return false };
        self.backups.get_or_create(&backup_labels(&labels, end)).inc();
        true
    }

    /// Counts what a backup cost.
    pub(super) fn backup_cost(&self, table: &LabelTable, details: &[DetailRow]) {
        for row in details {
            let labels = table.job(&row.namespace, &row.job);
            for (family, bytes) in [
                (&self.pre_comp, row.bytes),
                (&self.new, row.new_bytes.saturating_add(row.retried_new_bytes)),
                (&self.post_lc, row.post_lc.saturating_add(row.retried_post_lc)),
                (&self.meta, row.meta_bytes),
                (&self.wire, row.wire_bytes),
            ] {
                family.get_or_create(&labels).inc_by(bytes);
            }
        }
        // A backup's disks follow each other: it took from the start of the first to the end of the last.
        let started = details.iter().map(|row| row.started_ms).min();
        let finished = details.iter().map(|row| row.finished_ms).max();
        if let (Some(started), Some(finished)) = (started, finished) {
            // 0 when the clock was set back.
            let took_ms = u64::try_from(finished.saturating_sub(started)).unwrap_or(0);
            self.backup_duration.observe(Duration::from_millis(took_ms).as_secs_f64());
        }
    }

    /// Backups in progress.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.sessions.lock().keys().copied().collect()
    }

    /// A call was refused for want of a valid token or of the right one.
    pub(crate) fn refused(&self, protocol: &'static str, reason: &'static str) {
        self.refusals.get_or_create(&RefusalLabels { protocol, reason }).inc();
    }

    /// A gRPC call ended.
    pub(crate) fn grpc_call(&self, method: &'static str, code: &'static str, took: Duration) {
        self.grpc_requests.get_or_create(&CallLabels { method, code }).inc();
        self.grpc_duration.get_or_create(&MethodLabels { method }).observe(took.as_secs_f64());
    }

    /// Counts a task of this kind that its schedule left out.
    pub(crate) fn schedule_skipped(&self, kind: &'static str) {
        self.skipped.get_or_create(&KindLabels { kind }).inc();
    }

    /// Counts calls of [`Counters::schedule_skipped`].
    #[cfg(test)]
    pub(crate) fn skipped(&self, kind: &'static str) -> u64 {
        self.skipped.get_or_create(&KindLabels { kind }).get()
    }

    /// A client verified a backup.
    pub(super) fn verified(&self, outcome: &'static str) {
        self.verifications.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Data went to a client: so many bytes when decompressed.
    pub(super) fn restored(&self, bytes: u64) {
        self.restored.inc_by(bytes);
    }

    /// A call that reads a disk back ended.
    pub(crate) fn restore_ended(&self, outcome: &'static str) {
        self.restores.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Bytes of an answer went to a client that reads a disk back.
    pub(crate) fn restore_sent(&self, bytes: u64) {
        self.restore_sent.inc_by(bytes);
    }

    /// An HTTPS request was answered. `route` is the router's own text, never the request's.
    pub(crate) fn http_request(&self, method: &'static str, route: &str, code: u16, took: Duration) {
        let labels = RouteLabels { route: route.to_owned() };
        self.http_duration.get_or_create(&labels).observe(took.as_secs_f64());
        self.http_requests.get_or_create(&RequestLabels { method, route: labels.route, code }).inc();
    }
}

fn backup_labels(labels: &JobLabels, end: BackupEnd) -> BackupLabels {
    BackupLabels {
        namespace: labels.namespace.clone(),
        backup_job: labels.backup_job.clone(),
        outcome: end.word(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_backup_of_a_job_is_an_increase() {
        let (counters, table) = (Counters::new(), LabelTable::default());
        let labels = table.job("n", "j");
        let bytes = |family: &Family<JobLabels, Counter>| family.get(&labels).map(|counter| counter.get());
        assert_eq!(bytes(&counters.post_lc), None);
        counters.backup_started(SessionId::from_bytes([7; 16]), labels.clone());
        for family in [&counters.pre_comp, &counters.new, &counters.post_lc, &counters.meta, &counters.wire] {
            assert_eq!(bytes(family), Some(0), "before anything was stored");
        }
        counters.job_seen(&labels);
        counters.post_lc.get_or_create(&labels).inc_by(5);
        counters.job_seen(&labels);
        assert_eq!(bytes(&counters.post_lc), Some(5));
    }

    #[test]
    fn a_backup_counts_once_however_often_its_commit_is_repeated() {
        let (counters, table) = (Counters::new(), LabelTable::default());
        let session = SessionId::from_bytes([7; 16]);
        let labels = table.job("n", "j");
        counters.backup_started(session, labels.clone());
        assert!(counters.backup_ended(session, BackupEnd::Done));
        assert!(!counters.backup_ended(session, BackupEnd::Done));
        assert!(!counters.backup_ended(session, BackupEnd::Expired));
        let count = |end| counters.backups.get_or_create(&backup_labels(&labels, end)).get();
        assert_eq!((count(BackupEnd::Done), count(BackupEnd::Expired)), (1, 0));
        assert!(counters.sessions().is_empty());
    }
}
