//! Metrics for Prometheus and other systems that read its text format.
//!
//! | file | what |
//! |---|---|
//! | [`names`] | every metric there is; the one place that names them |
//! | `counters` | what is counted while the server runs |
//! | `figures` | what is looked up: sums of the catalog, index, volume; cached for a while |
//! | `scrape` | collects one scrape |
//! | `exposition` | writes its text |
//!
//! The protocols count their calls here (`grpc/count.rs`, `http/metrics.rs`); the latter answers
//! `GET /metrics`.
//!
//! Invariants: no label's value comes from a request that was not authorised, and there are at most
//! `NAMESPACES_MAX` × `JOBS_MAX` of them; however often a scrape comes, looking figures up takes at most a
//! twentieth of the time. A crash loses the counters, which is what counters of a process are for; what must
//! survive is a gauge computed from the catalog.

mod counters;
mod exposition;
mod figures;
pub(crate) mod names;
mod scrape;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_engine::ids::SessionId;
use holdfast_proto::api::DetailRow;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

pub(crate) use crate::metrics::counters::{BackupEnd, Counters};
use crate::metrics::figures::FigureCache;
use crate::net::Traffic;
use crate::repository::{Encryption, Tiers};

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
    /// Creates metrics at zero. `encryption`: of a repository that is encrypted.
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

    /// Counters for the protocols, which count their calls.
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
    pub(crate) fn backup_done(&self, session: SessionId, details: &[DetailRow]) {
        if self.counters.backup_ended(session, BackupEnd::Done) {
            self.counters.backup_cost(&self.labels, details);
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

/// Namespaces with a name of their own.
const NAMESPACES_MAX: usize = 32;

/// Jobs with a name of their own, in each of these. 32 × 32 × 20 series are 20,480 at most.
const JOBS_MAX: usize = 32;

/// The label of all the others.
const OTHER: &str = "other";

/// Labels of a figure about a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
struct JobLabels {
    namespace: String,
    /// Not called `job`: every series gets a label of that name from Prometheus.
    backup_job: String,
}

/// The names that are labels of their own: keeps the number of time series bounded whatever namespaces and jobs are called.
///
/// Names come from people and from agents, and a monitoring system keeps every series it ever saw. So each name that
/// is to be a label's value is looked up here first: the first [`NAMESPACES_MAX`] namespaces and the first
/// [`JOBS_MAX`] jobs of each keep their names, all others share the label [`OTHER`]. Jobs on record get their labels
/// at the first scrape, those that store most first. A name keeps its label until the process ends, so that no
/// series ever changes its meaning.
#[derive(Debug, Default)]
struct LabelTable(Mutex<HashMap<String, HashSet<String>>>);

impl LabelTable {
    /// The label for `namespace`.
    fn namespace(&self, namespace: &str) -> String {
        let mut table = self.0.lock();
        if has_label(&mut table, namespace) { namespace.to_owned() } else { OTHER.to_owned() }
    }

    /// The labels for `job` in `namespace`. The jobs of a namespace without a label of its own have none either.
    fn job(&self, namespace: &str, job: &str) -> JobLabels {
        let mut table = self.0.lock();
        let labels =
            |namespace: &str, job: &str| JobLabels { namespace: namespace.into(), backup_job: job.into() };
        if !has_label(&mut table, namespace) {
            return labels(OTHER, OTHER);
        }
        let Some(jobs) = table.get_mut(namespace) else { return labels(OTHER, OTHER) };
        if jobs.contains(job) {
            return labels(namespace, job);
        }
        if jobs.len() >= JOBS_MAX {
            return labels(namespace, OTHER);
        }
        jobs.insert(job.to_owned());
        labels(namespace, job)
    }
}

fn has_label(table: &mut HashMap<String, HashSet<String>>, namespace: &str) -> bool {
    if table.contains_key(namespace) {
        return true;
    }
    if table.len() >= NAMESPACES_MAX {
        return false;
    }
    table.insert(namespace.to_owned(), HashSet::new());
    true
}

/// Figures of one moment; 0 for what cannot be read: figures about the process must not stand in the way of those
/// about the repository.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct ProcessStats {
    cpu_seconds: f64,
    resident_bytes: u64,
    virtual_bytes: u64,
    threads: u64,
    open_fds: u64,
    max_fds: u64,
    /// Unix time.
    started_seconds: f64,
}

/// Reads them. Costs a few system calls and one more for every few hundred open files.
fn read() -> ProcessStats {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    ProcessStats {
        open_fds: fs::read_dir("/proc/self/fd").map_or(0, |entries| {
            // One of them is the open folder itself.
            (entries.count() as u64).saturating_sub(1)
        }),
        // `None`: unlimited.
        max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        ..parse(&stat, &uptime, now)
    }
}

/// Reads `/proc/self/stat` (see proc_pid_stat(5)) and `/proc/uptime`.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn parse(stat: &str, uptime: &str, now_seconds: f64) -> ProcessStats {
    // The second field is the program's name in parentheses, which may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    // Field 3 (state) is the first here.
    let field = |number: usize| -> u64 {
        number.checked_sub(3).and_then(|at| fields.get(at)).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let ticks = clock_ticks_per_second().max(1) as f64;
    let page_bytes = page_size() as u64;
    let up_seconds: f64 = uptime.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    ProcessStats {
        cpu_seconds: (field(14).saturating_add(field(15))) as f64 / ticks,
        threads: field(20),
        started_seconds: now_seconds - up_seconds + field(22) as f64 / ticks,
        virtual_bytes: field(23),
        resident_bytes: field(24).saturating_mul(page_bytes),
        ..ProcessStats::default()
    }
}
