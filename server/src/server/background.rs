//! The background jobs of a server, and how fast each may be.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::StepLimits;
use holdfast_volume::SystemTimer;

use crate::app::App;
use crate::config::Settings;
use crate::jobs::{
    AuditCounts, BUCKET_COPIES, BucketCopies, BucketRetention, CertificateFile, DataPath, EncryptRest,
    EndedAccess, EndedLogins, ExpiredLeases, KeyTableWatch, Pace, Retry, Runner, SpaceHistory, StartAudit,
    Throttle,
};

/// Backups have the disk to themselves three quarters of the time: a million containers are 250 steps, at 0.1 s a step
/// 100 s. A disk that fails is asked again every five minutes.
const AUDIT: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::share(25),
    retry: Retry { first: Duration::from_secs(5), longest: Duration::from_secs(300) },
};

/// Short rounds with idle time between them. While the catalog cannot be read, calls fail as well, so it is enough to
/// ask again every 30 s.
const HOUSEKEEPING: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::NONE,
    retry: Retry { first: Duration::from_secs(2), longest: Duration::from_secs(30) },
};

/// A step copies the whole catalog, which cannot be done in pieces: 1 GB takes some 10 s. Without pauses between, for a
/// step is followed by an hour of nothing.
const SNAPSHOTS: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::NONE,
    retry: Retry { first: Duration::from_secs(60), longest: Duration::from_secs(600) },
};

/// A fifth of the time, while no stream is open: 30 MB/s of a disk that reads 150. A step of a container goes over its
/// second by half of one.
const SCRUB: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::share(20),
    retry: Retry { first: Duration::from_secs(5), longest: Duration::from_secs(300) },
};

/// A quarter of the time, and less while streams are open: of a disk that reads and writes 150 MB/s some 12 MB/s, 1 TB
/// a day. A step of a container reads it twice and writes it once.
const ENCRYPT: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::share(25),
    retry: Retry { first: Duration::from_secs(5), longest: Duration::from_secs(300) },
};

/// As fast as the bucket and `s3_rate` allow: what it costs here is a read of what was just written, and the network. A
/// bucket that is away is asked again every minute.
const COPIES: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::NONE,
    retry: Retry { first: Duration::from_secs(1), longest: Duration::from_secs(60) },
};

/// A quarter of the time: reading recipes is work for the disk, and requests are waited for. A bucket that has no Object Lock,
/// or refuses, is asked again every few minutes.
const RETENTION: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::share(25),
    retry: Retry { first: Duration::from_secs(5), longest: Duration::from_secs(300) },
};

/// Starts all of them, as the settings say.
pub(super) fn start(app: &App, settings: &Settings) -> Runner {
    let mut runner = Runner::new(Arc::clone(&app.jobs), Arc::new(SystemTimer::new()), Arc::clone(&app.clock));
    let (auth, activity) = (&app.auth, &app.activity);
    let leases = ExpiredLeases {
        engine: Arc::clone(&app.engine),
        activity: Arc::clone(activity),
        metrics: Arc::clone(&app.metrics),
    };
    runner.start(Arc::new(leases), HOUSEKEEPING);
    let access = EndedAccess { auth: Arc::clone(auth), activity: Arc::clone(activity) };
    runner.start(Arc::new(access), HOUSEKEEPING);
    runner.start(Arc::new(EndedLogins { auth: Arc::clone(auth) }), HOUSEKEEPING);
    runner.start(Arc::new(AuditCounts { auth: Arc::clone(auth) }), HOUSEKEEPING);
    let certificate = Arc::clone(&app.addresses.certificate);
    runner.start(Arc::new(CertificateFile { certificate, settings: settings.clone() }), HOUSEKEEPING);
    if app.engine.is_locked() {
        // (K6) All others work on the volume.
        return runner;
    }
    runner.start(app.engine.audit_job(), AUDIT);
    runner.start(app.engine.damage_job(), AUDIT);
    runner.start(app.engine.index_repair_job(), AUDIT);
    runner.start(app.engine.catalog_check_job(), AUDIT);
    runner.start(app.engine.points_job(), AUDIT);
    runner.start(app.engine.retention_job(), HOUSEKEEPING);
    runner.start(app.engine.damage_report_job(), AUDIT);
    let load = Arc::new(DataPath { activity: Arc::clone(activity) });
    runner.start(app.engine.scrub_job(settings.scrub_days, Arc::<DataPath>::clone(&load)), SCRUB);
    runner.start(app.engine.parity_job(settings.parity.0, Arc::<DataPath>::clone(&load)), SCRUB);
    if let Some(encryption) = &app.encryption {
        runner.start(app.engine.old_point_folders_job(), AUDIT);
        let conversion = Arc::clone(encryption.conversion());
        let (engine, tiers) = (Arc::clone(&app.engine), app.tiers.clone());
        runner.start(Arc::new(EncryptRest { engine, conversion, load, tiers }), ENCRYPT);
        let (engine, encryption) = (Arc::clone(&app.engine), Arc::clone(encryption));
        runner.start(Arc::new(KeyTableWatch { engine, encryption }), HOUSEKEEPING);
    }
    runner.start(app.engine.snapshot_job(), SNAPSHOTS);
    let (engine, tiers) = (Arc::clone(&app.engine), app.tiers.clone());
    runner.start(Arc::new(SpaceHistory { engine, tiers, clock: Arc::clone(&app.clock) }), HOUSEKEEPING);
    if let Some(tiers) = &app.tiers {
        let copies = BucketCopies {
            tiers: Arc::clone(tiers),
            clock: Arc::clone(&app.clock),
            audits: Arc::clone(&app.tasks) as Arc<dyn StartAudit>,
        };
        runner.start(Arc::new(copies), COPIES);
        if tiers.is_primary {
            // (T12) A backup waits for it.
            let jobs = Arc::clone(&app.jobs);
            tiers.copies.on_sealed(move || jobs.wake(BUCKET_COPIES));
        }
        let (engine, clock) = (Arc::clone(&app.engine), Arc::clone(&app.clock));
        runner.start(Arc::new(BucketRetention::new(Arc::clone(tiers), engine, clock)), RETENTION);
    }
    runner
}
