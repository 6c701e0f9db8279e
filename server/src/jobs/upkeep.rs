//! Short jobs of the server: each looks at one thing from time to time and puts it right.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Engine, Job, JobError, Step};
use holdfast_proto::ErrorCode;

use crate::activity::{Activity, Change};
use crate::audit_log::FLUSH_INTERVAL;
use crate::auth::Authenticator;
use crate::config::Settings;
use crate::metrics::Metrics;
use crate::repository::Encryption;
use crate::tls::Certificate;

/// Interval between rounds. A lease of 120 s is given up after 122 s at most.
const LEASES_INTERVAL: Duration = Duration::from_secs(2);

/// Gives up backups whose lease has expired.
///
/// A step is a whole round: at most `max_sessions` backups (512 unless configured otherwise), a transaction each for
/// those that are given up.
#[derive(Debug)]
pub(crate) struct ExpiredLeases {
    pub(crate) engine: Arc<Engine>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Job for ExpiredLeases {
    fn name(&self) -> &'static str {
        "expired-leases"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let expired = self.engine.expire_sessions();
        budget.charge(u64::try_from(expired)?, 0);
        if expired > 0 {
            tracing::info!(expired, "gave up backups whose agents stopped responding");
            self.activity.note(Change::Run);
        }
        self.metrics.forget_sessions(|session| {
            let asked = self.engine.session_namespace(session);
            asked.is_err_and(|error| error.code() == ErrorCode::SessionGone)
        });
        Ok(Step::Idle(LEASES_INTERVAL))
    }
}

/// Interval between rounds: the time by which an answer in progress may outlive its token.
const ACCESS_INTERVAL: Duration = Duration::from_secs(2);

/// Ends streams, connections and watchers whose token or login has ended.
///
/// A step is a whole round: one or two look-ups in the catalog for each token with open streams or connections and each
/// credential of a watcher. With the default settings these are at most 16 + 16 + 16 streams, 2 × 224 connections and 128
/// watchers, so 752 look-ups, if every connection has a token of its own.
#[derive(Debug)]
pub(crate) struct EndedAccess {
    pub(crate) auth: Arc<Authenticator>,
    pub(crate) activity: Arc<Activity>,
}

impl Job for EndedAccess {
    fn name(&self) -> &'static str {
        "ended-access"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        for token in self.activity.tokens() {
            if budget.must_stop() {
                return Ok(Step::More);
            }
            if !self.auth.still_valid(token)? {
                tracing::info!(%token, "the token has ended; ending its streams and connections");
                self.activity.end_token(token);
            }
            budget.charge(1, 0);
        }
        for credential in self.activity.watchers.credentials() {
            if budget.must_stop() {
                return Ok(Step::More);
            }
            if !self.auth.still_holds(&credential)? {
                self.activity.watchers.end(&credential);
            }
            budget.charge(1, 0);
        }
        Ok(Step::Idle(ACCESS_INTERVAL))
    }
}

/// Interval between rounds.
const LOGINS_INTERVAL: Duration = Duration::from_secs(60);

/// Removes logins that have ended. They give access to nothing any more; this only frees their rows.
///
/// A step is one transaction: it deletes at most 64 rows a token, and in practice the logins that ended in a minute.
#[derive(Debug)]
pub(crate) struct EndedLogins {
    pub(crate) auth: Arc<Authenticator>,
}

impl Job for EndedLogins {
    fn name(&self) -> &'static str {
        "ended-logins"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.auth.forget_ended_logins()?;
        budget.charge(1, 0);
        Ok(Step::Idle(LOGINS_INTERVAL))
    }
}

/// Writes what the audit log counts in memory.
///
/// A step is at most one transaction of a few thousand rows; nearly always none.
#[derive(Debug)]
pub(crate) struct AuditCounts {
    pub(crate) auth: Arc<Authenticator>,
}

impl Job for AuditCounts {
    fn name(&self) -> &'static str {
        "audit-counts"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.auth.audit_log().flush()?;
        budget.charge(1, 0);
        Ok(Step::Idle(FLUSH_INTERVAL))
    }
}

/// Longest time for which a changed file goes unnoticed.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(60);

/// Presents another certificate once its file has it.
///
/// A step reads two small files.
#[derive(Debug)]
pub(crate) struct CertificateFile {
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) settings: Settings,
}

impl Job for CertificateFile {
    fn name(&self) -> &'static str {
        "certificate"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.certificate.reload(&self.settings.identity_source());
        budget.charge(1, 0);
        Ok(Step::Idle(CERTIFICATE_INTERVAL))
    }
}

/// Interval between looks: each reads two small blobs.
const KEY_TABLE_INTERVAL: Duration = Duration::from_secs(300);

/// Looks at the table of keys on the volume: a server has it in memory, and would notice only at its next start that it was
/// damaged or deleted there. A crash leaves what was there.
#[derive(Debug)]
pub(crate) struct KeyTableWatch {
    pub(crate) engine: Arc<Engine>,
    pub(crate) encryption: Arc<Encryption>,
}

impl Job for KeyTableWatch {
    fn name(&self) -> &'static str {
        "key-table"
    }

    fn step(&self, _: &Budget) -> Result<Step, JobError> {
        // (K8)
        if self.engine.read_only_reason().is_none() {
            self.encryption.mend()?;
        }
        Ok(Step::Idle(KEY_TABLE_INTERVAL))
    }
}
