//! Readiness: whether backups are accepted now, every reason why not, and what else is not as it should be.
//!
//! The engine knows of its volume, index and catalog ([`Engine::not_ready`]); the server adds its certificate. What was
//! found is kept for a second: anyone may ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::tls::Certificate;
use holdfast_engine::clock::Clock;
use holdfast_engine::{Engine, Obstacle};
use parking_lot::Mutex;

/// Time for which an answer is good.
const KEEP: Duration = Duration::from_secs(1);

/// The word for a certificate that has expired.
const CERTIFICATE: &str = "certificate";

/// All words for reasons, for the metric.
pub(crate) fn words() -> impl Iterator<Item = &'static str> {
    Obstacle::ALL.map(Obstacle::as_str).into_iter().chain([CERTIFICATE])
}

/// A reason why backups are not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    /// Word for programs; see [`words`].
    pub(crate) word: &'static str,
    /// Text for anyone who asks: names no paths.
    pub(crate) told: &'static str,
    /// Set if backups are accepted all the same: something is worse than it should be, and is being repaired.
    pub(crate) backups_go_on: bool,
    /// Detail for the log.
    detail: String,
}

impl Reason {
    /// The reason for an obstacle of the engine. `detail` is for the log.
    pub(crate) fn of(obstacle: Obstacle, detail: String) -> Self {
        let backups_go_on = matches!(obstacle, Obstacle::IndexDamaged | Obstacle::PointsUnread);
        Self { word: obstacle.as_str(), told: told(obstacle), backups_go_on, detail }
    }
}

/// Readiness for backups, kept for a second.
#[derive(Debug)]
pub(crate) struct Readiness {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    certificate: Arc<Certificate>,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    looked: Option<Instant>,
    reasons: Vec<Reason>,
}

impl Readiness {
    pub(crate) fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>, certificate: Arc<Certificate>) -> Self {
        Self { engine, clock, certificate, last: Mutex::default() }
    }

    /// All reasons; none: backups are accepted. Blocks.
    pub(crate) fn look(&self) -> Vec<Reason> {
        let mut last = self.last.lock();
        if last.looked.is_none_or(|looked| looked.elapsed() >= KEEP) {
            let reasons = self.gather();
            log_change(&last.reasons, &reasons);
            *last = Last { looked: Some(Instant::now()), reasons };
        }
        last.reasons.clone()
    }

    fn gather(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = Vec::new();
        for found in self.engine.not_ready() {
            reasons.push(Reason::of(found.obstacle, found.reason));
        }
        if let Some(at) = self.certificate.expires_ms().filter(|&at| at <= self.clock.now_ms()) {
            let told = "the server's certificate has expired: replace it";
            let backups_go_on = false;
            reasons.push(Reason {
                word: CERTIFICATE,
                told,
                backups_go_on,
                detail: format!("{told} (it ended at {at} ms)"),
            });
        }
        reasons
    }
}

/// Text for an obstacle that anyone may read.
const fn told(obstacle: Obstacle) -> &'static str {
    match obstacle {
        Obstacle::Stopped => {
            "the repository is read-only after a failure: the server's log has the details; check the disk, then restart the server"
        }
        Obstacle::VolumeAbsent => {
            "the volume of the repository is not there: see that it is mounted and can be read"
        }
        Obstacle::VolumeReadOnly => "the volume of the repository takes no writes: see how it is mounted",
        Obstacle::Full => {
            "the repository is full, down to the reserve: delete restore points and run reclaim, or add storage"
        }
        Obstacle::IndexDamaged => {
            "pages of the chunk index are damaged: they are being rebuilt from the containers, and backups and restores go on"
        }
        Obstacle::Catalog => "the catalog takes no changes: the server's log says why",
        Obstacle::PointsUnread => {
            "restore points on the volume cannot be read: backups and restores go on, and nothing is freed; 'holdfast-server check' says why"
        }
        Obstacle::Locked => {
            "the server was started without the keys of its encrypted repository, for administration only: start it with them"
        }
        Obstacle::NoBucket => {
            "data lies in a bucket that the settings do not name, so it cannot be restored: set s3, then restart the server"
        }
    }
}

fn log_change(before: &[Reason], now: &[Reason]) {
    for reason in now.iter().filter(|reason| !before.iter().any(|other| other.word == reason.word)) {
        if reason.backups_go_on {
            tracing::warn!(reason = reason.word, detail = reason.detail, "degraded; backups go on");
        } else {
            tracing::warn!(reason = reason.word, detail = reason.detail, "backups are not accepted");
        }
    }
    let refused = |reasons: &[Reason]| reasons.iter().any(|reason| !reason.backups_go_on);
    if refused(before) && !refused(now) {
        tracing::info!("backups are accepted again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = words().collect();
        assert_eq!(words.len(), Obstacle::ALL.len() + 1);
    }
}
