//! Collects one scrape.

use holdfast_engine::Engine;
use holdfast_proto::ErrorCode;

use super::exposition::{Samples, render};
use super::{Metrics, figures, names as n};
use crate::activity::Activity;
use crate::error::ServiceError;
use crate::metrics;
use crate::readiness::{self, Reason};
use crate::repository::Tiers;
use holdfast_tiers::RecordError;

/// Kinds of blobs that lie in a bucket.
const BLOB_KINDS: [&str; 5] = ["containers", "points", "snapshots", "keys", "repository"];

impl Metrics {
    /// The text of one scrape. Blocks.
    ///
    /// # Errors
    /// Never in practice: figures that cannot be looked up are counted as such and left out.
    pub(crate) fn text(
        &self,
        engine: &Engine,
        activity: &Activity,
        not_ready: &[Reason],
        memory_limit_bytes: u64,
        now_ms: i64,
    ) -> Result<String, ServiceError> {
        let mut samples = Samples::default();
        samples.whole(&n::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
        add_process(&mut samples);
        samples.whole(&n::MEMORY_LIMIT, &[], memory_limit_bytes);
        for word in readiness::words() {
            let holds = not_ready.iter().any(|reason| reason.word == word);
            samples.whole(&n::NOT_READY, &[word], holds.into());
        }
        self.add_activity(engine, activity, &mut samples);
        self.add_encryption(&mut samples);
        if let Some(tiers) = &*self.tiers.lock() {
            add_tiers(tiers, now_ms, &mut samples);
        }
        figures::add(self, engine, now_ms, &mut samples);
        render(&self.counters, samples)
            .map_err(|error| ServiceError::new(ErrorCode::Internal, format!("cannot write metrics: {error}")))
    }

    fn add_encryption(&self, samples: &mut Samples) {
        let Some(encryption) = &self.encryption else { return };
        samples.whole(&n::KIT_MISSING, &[], encryption.reminder().is_some().into());
        let figures = encryption.conversion().figures();
        samples.whole(&n::CONVERSION_DONE, &[], figures.done.into());
        for (what, blobs) in [
            ("total", figures.total),
            ("looked_at", figures.looked_at),
            ("left", figures.left),
            ("elsewhere", figures.elsewhere),
        ] {
            samples.whole(&n::CONVERSION, &[what], blobs);
        }
        samples.whole(&n::CONVERTED, &[], figures.converted_bytes);
    }

    /// Adds the metrics that cost nothing to look up.
    fn add_activity(&self, engine: &Engine, activity: &Activity, samples: &mut Samples) {
        samples.whole(&n::READ_ONLY, &[], engine.read_only_reason().is_some().into());
        samples.whole(&n::SESSIONS, &[], self.counters.sessions().len() as u64);
        for (kind, streams) in activity.streams.counts() {
            samples.whole(&n::STREAMS, &[kind], streams as u64);
        }
        for (kind, waiting, waited) in activity.streams.queues() {
            samples.whole(&n::STREAMS_WAITING, &[kind], waiting as u64);
            samples.whole(&n::STREAM_WAITS, &[kind], waited.streams);
            samples.float(&n::STREAM_WAIT_TIME, &[kind], waited.time.as_secs_f64());
        }
        for (listener, traffic) in &*self.listeners.lock() {
            samples.whole(&n::CONNECTIONS, &[listener], traffic.open());
            samples.whole(&n::NETWORK_RECEIVED, &[listener], traffic.received_bytes());
            samples.whole(&n::NETWORK_SENT, &[listener], traffic.sent_bytes());
        }
    }
}

fn add_tiers(tiers: &Tiers, now_ms: i64, samples: &mut Samples) {
    let (status, requests) = (tiers.copies.status(), tiers.requests());
    samples.whole(&n::BUCKET_WAITING, &[], status.waiting_blobs);
    samples.whole(&n::BUCKET_WAITING_BYTES, &[], status.waiting_bytes);
    if let Some(up_to_ms) = status.copied_up_to_ms {
        let behind_ms = u64::try_from(now_ms.saturating_sub(up_to_ms)).unwrap_or(0);
        samples.float(&n::BUCKET_LAG, &[], std::time::Duration::from_millis(behind_ms).as_secs_f64());
    }
    samples.whole(&n::BUCKET_FAILING, &[], status.failure.is_some().into());
    samples.whole(&n::BUCKET_REMOVALS, &[], status.removals);
    // A record that cannot be read is told by the copies.
    if let Ok(flawed) = tiers.copies.record().flaws_count() {
        samples.whole(&n::BUCKET_FLAWED, &[], flawed);
    }
    if let Ok(retention) = tiers.retention(now_ms) {
        samples.whole(&n::BUCKET_RETAINED, &[], retention.objects);
        samples.whole(&n::BUCKET_RETENTION_BEHIND, &[], retention.behind);
    }
    samples.whole(&n::BUCKET_RETENTION_FAILING, &[], tiers.retention_failure().is_some().into());
    samples.whole(&n::BUCKET_COPIED, &[], status.copied_blobs);
    samples.whole(&n::BUCKET_COPIED_BYTES, &[], status.copied_bytes);
    for (kind, made) in requests.by_kind() {
        samples.whole(&n::BUCKET_REQUESTS, &[kind], made);
    }
    samples.whole(&n::BUCKET_REQUEST_FAILURES, &[], requests.failed);
    samples.whole(&n::BUCKET_SENT, &[], requests.sent_bytes);
    samples.whole(&n::BUCKET_RECEIVED, &[], requests.received_bytes);
    if let Err(error) = add_stored(tiers, now_ms, samples) {
        tracing::warn!(%error, "cannot look up what lies in the bucket for /metrics");
    }
}

fn add_stored(tiers: &Tiers, now_ms: i64, samples: &mut Samples) -> Result<(), RecordError> {
    let totals = tiers.totals(now_ms)?;
    for kind in totals.kinds {
        // Foreign objects have no label of their own.
        let Some(known) = BLOB_KINDS.iter().find(|known| **known == kind.folder) else { continue };
        samples.whole(&n::BUCKET_STORED, &[known], kind.blobs);
        samples.whole(&n::BUCKET_STORED_BYTES, &[known], kind.bytes);
    }
    for class in &totals.classes {
        samples.whole(&n::BUCKET_CLASS, &[&class.class], class.blobs);
        samples.whole(&n::BUCKET_CLASS_BYTES, &[&class.class], class.bytes);
    }
    let (objects, bytes) = tiers.archive.asked().thaws.values().fold((0, 0), |(objects, bytes), asked| {
        (asked.objects.saturating_add(objects), asked.bytes.saturating_add(bytes))
    });
    samples.whole(&n::BUCKET_THAWED, &[], objects);
    samples.whole(&n::BUCKET_THAWED_BYTES, &[], bytes);
    let Some(cost) = tiers.month_cost(now_ms)? else { return Ok(()) };
    samples.float(&n::BUCKET_COST, &["month"], cost.so_far.sum().as_f64());
    samples.float(&n::BUCKET_COST, &["thawing"], cost.so_far.thawing.as_f64());
    samples.float(&n::BUCKET_COST, &["keeping"], cost.keeping.as_f64());
    if let Some(by_end) = cost.by_end {
        samples.float(&n::BUCKET_COST, &["forecast"], by_end.sum().as_f64());
    }
    Ok(())
}

fn add_process(samples: &mut Samples) {
    let read = metrics::read();
    samples.float(&n::PROCESS_CPU, &[], read.cpu_seconds);
    samples.whole(&n::PROCESS_MEMORY, &[], read.resident_bytes);
    samples.whole(&n::PROCESS_VIRTUAL, &[], read.virtual_bytes);
    samples.whole(&n::PROCESS_THREADS, &[], read.threads);
    samples.whole(&n::PROCESS_FDS, &[], read.open_fds);
    samples.whole(&n::PROCESS_FDS_MAX, &[], read.max_fds);
    samples.float(&n::PROCESS_START, &[], read.started_seconds);
}
