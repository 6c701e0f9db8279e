//! State shared by the calls of both protocols: the engine, authentication, and current activity.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::catalog::{Catalog, TaskKind, TaskRecord};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TokenId;
use holdfast_engine::{Engine, Moving};
use holdfast_proto::ErrorCode;
use holdfast_proto::address::ServerAddress;
use holdfast_volume::SystemTimer;
use tokio::sync::watch;
use tracing::Span;

use crate::activity::Activity;
use crate::archive::Archives;
use crate::auth::{Authenticator, Lookups};
use crate::config::Settings;
use crate::error::ServiceError;
use crate::jobs::Jobs;
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::net::{Held, Link, Origin, TooMany};
use crate::readiness::Readiness;
use crate::repository::{Beside, Encryption, Tiers};
use crate::tasks::{
    Archiving, AuditWork, Limits, PolicyWork, ReclaimWork, ScrubWork, Surroundings, TaskParts, Tasks,
    ThawWork, VerifyWork, Work,
};
use crate::tls::Certificate;

/// The running server, shared by all calls. What only one protocol needs is in that protocol's own state.
#[derive(Debug)]
pub struct App {
    pub engine: Arc<Engine>,
    /// Encryption at rest; `None`: the repository is not encrypted.
    pub(crate) encryption: Option<Arc<Encryption>>,
    /// The bucket with copies of the repository.
    pub(crate) tiers: Option<Arc<Tiers>>,
    pub auth: Arc<Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub activity: Arc<Activity>,
    pub metrics: Arc<Metrics>,
    /// Background work: what it is doing, and a way to pause it.
    pub jobs: Arc<Jobs>,
    /// Long work that people and schedules start.
    pub(crate) tasks: Arc<Tasks>,
    /// Looks up the parts of restore points that lie in a bucket's archive.
    pub(crate) archives: Arc<Archives>,
    pub addresses: Addresses,
    pub started_ms: i64,
    /// Memory budget of the server, by use.
    pub budget: Budget,
    /// Tells whether backups are accepted, and why not.
    pub(crate) readiness: Readiness,
    pub(crate) lease_secs: u32,
    lookups: Lookups,
    stopping: watch::Sender<bool>,
    /// Commits under way.
    commits: watch::Sender<usize>,
}

/// Addresses of a server, and its certificate.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// Listener for agents.
    pub grpc: SocketAddr,
    /// The same as agents use it, for join codes.
    pub advertised: Vec<ServerAddress>,
    /// Listener for browsers.
    pub http: SocketAddr,
    /// The certificate that clients are shown.
    pub certificate: Arc<Certificate>,
}

impl App {
    /// A server over `engine`.
    ///
    /// # Errors
    /// `Internal` when no threads can be started; `Invalid` when there is too little memory.
    pub fn new(
        engine: Arc<Engine>,
        beside: Beside,
        settings: &Settings,
        addresses: Addresses,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, ServiceError> {
        let Beside { encryption, tiers } = beside;
        let lookups = Lookups::start().map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("cannot start threads: {error}"))
        })?;
        let budget = Budget::find(settings)?;
        let readiness =
            Readiness::new(Arc::clone(&engine), Arc::clone(&clock), Arc::clone(&addresses.certificate));
        let activity = Arc::new(Activity::new(&engine, &clock, settings, &budget));
        let metrics = Arc::new(Metrics::new(encryption.clone()));
        if let Some(tiers) = &tiers {
            metrics.watch_tiers(Arc::clone(tiers));
        }
        let archives = Arc::new(Archives::new(&engine, tiers.as_ref(), settings)?);
        let tasks = tasks((&engine, tiers.as_ref()), &clock, &activity, &metrics, &archives, settings);
        Ok(Arc::new(Self {
            readiness,
            auth: Arc::new(Authenticator::new(Arc::clone(engine.catalog()), Arc::clone(&clock))),
            activity,
            metrics,
            jobs: Arc::default(),
            tasks,
            archives,
            addresses,
            budget,
            started_ms: clock.now_ms(),
            lease_secs: settings.lease_secs,
            stopping: watch::Sender::new(false),
            commits: watch::Sender::new(0),
            lookups,
            engine,
            encryption,
            tiers,
            clock,
        }))
    }

    /// The catalog.
    pub fn catalog(&self) -> &Catalog {
        self.engine.catalog().as_ref()
    }

    /// Starts a task on behalf of `who`. Blocks.
    ///
    /// # Errors
    /// `ReadOnly`: the server runs without its keys (K6); as [`Tasks::start`].
    pub(crate) fn start_task(
        &self,
        kind: TaskKind,
        options: &str,
        who: &str,
    ) -> Result<TaskRecord, ServiceError> {
        self.engine.check_unlocked()?;
        self.tasks.start(kind, options, who)
    }

    /// Tells everything that listens to [`App::stopping`] to end, and ends all activity.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.activity.close();
    }

    /// Becomes true when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// A commit begins; it ends when what is returned is dropped. Shutdown gives it the time it needs.
    pub(crate) fn begin_commit(self: &Arc<Self>) -> Committing {
        self.commits.send_modify(|count| *count += 1);
        Committing(Arc::clone(self))
    }

    /// Resolves when no commit is under way.
    pub(crate) async fn no_commits(&self) {
        // Cannot fail: the sender is this server's own.
        let _ = self.commits.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Asks who calls, within the caller's log span, on threads that nothing else occupies.
    ///
    /// # Errors
    /// The errors of `look_up`; `Limit` when very many calls wait; `Internal` when it panics.
    pub(crate) async fn identify<T: Send + 'static>(
        self: &Arc<Self>,
        look_up: impl FnOnce(&Authenticator) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (app, span) = (Arc::clone(self), Span::current());
        self.lookups.run(move || span.in_scope(|| look_up(&app.auth))).await
    }

    /// Asks who calls on the connection of `link`, within the budgets of its address and of the token. `shown` is what
    /// the caller shows: `None` for nothing at all, else the token it names, if it names one. `protocol` for the metric.
    ///
    /// # Errors
    /// As [`App::identify`]; `Limit` when the address is backed off after wrong tokens, or the token has as many
    /// connections as it may.
    pub(crate) async fn admit<T: Send + 'static>(
        self: &Arc<Self>,
        protocol: &'static str,
        link: &Link,
        shown: Option<Option<TokenId>>,
        look_up: impl FnOnce(&Authenticator) -> Result<T, ServiceError> + Send + 'static,
        token: impl FnOnce(&T) -> TokenId,
    ) -> Result<T, ServiceError> {
        let (origin, back_off) = (link.origin(), self.auth.back_off());
        let turn = back_off.turn(origin, shown.flatten()).map_err(|wait| {
            self.metrics.counters().refused(protocol, "backed_off");
            backed_off(origin, wait)
        })?;
        let found = self.identify(look_up).await;
        drop(turn);
        match found {
            Ok(found) => {
                let token = token(&found);
                back_off.succeeded(origin, token);
                link.authenticated(token).map_err(too_many_connections)?;
                Ok(found)
            }
            // Nothing was tried, so there is nothing to slow down.
            Err(error) if error.code == ErrorCode::Unauthenticated && shown.is_some() => {
                let wait = back_off.failed(origin);
                Err(wait.map_or(error, |wait| {
                    // Told as a limit, so it is not counted by its code.
                    self.metrics.counters().refused(protocol, "unauthenticated");
                    backed_off(origin, wait)
                }))
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `work` where it may block, within the caller's log span.
    ///
    /// # Errors
    /// The errors of `work`; `Internal` when it panics.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (app, span) = (Arc::clone(self), Span::current());
        let held = held();
        let work = move || {
            let _held = held;
            span.in_scope(|| work(&app))
        };
        tokio::task::spawn_blocking(work).await?
    }
}

tokio::task_local! {
    /// Slot and room of the request in progress. Blocking work holds them to its end, also when the request is given up: all
    /// requests share its threads.
    static HELD: Held;
}

/// The slot of the request under way, if it has one.
pub(crate) fn held() -> Option<Held> {
    HELD.try_with(Held::clone).ok()
}

/// Runs `request`; it and what it does in [`App::blocking`] keep `held`.
pub(crate) async fn holding<F: Future>(held: Option<Held>, request: F) -> F::Output {
    match held {
        Some(held) => HELD.scope(held, request).await,
        None => request.await,
    }
}

/// The tasks of a server, one kind each.
fn tasks(
    (engine, tiers): (&Arc<Engine>, Option<&Arc<Tiers>>),
    clock: &Arc<dyn Clock>,
    activity: &Arc<Activity>,
    metrics: &Arc<Metrics>,
    archives: &Arc<Archives>,
    settings: &Settings,
) -> Arc<Tasks> {
    let verify = VerifyWork {
        engine: Arc::clone(engine),
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        activity: Arc::clone(activity),
    };
    let policy = PolicyWork { engine: Arc::clone(engine), activity: Arc::clone(activity) };
    let moving = settings
        .s3_move_after_days
        .or(settings.s3_primary.then_some(0))
        .map(|min_age_days| Moving { min_age_days, until_free_pct: settings.s3_move_until_free });
    let class = &settings.s3_archive_class;
    let archive_after_days = settings.s3_archive_after_days.filter(|_| tiers.is_some());
    let archiving = archive_after_days.map(|min_age_days| Archiving {
        min_age_days,
        class: class.clone(),
        minimum_days: archives.prices.minimum_days(class),
        clock: Arc::clone(clock),
    });
    let reclaim = ReclaimWork { engine: Arc::clone(engine), tiers: tiers.cloned(), moving, archiving };
    let thaw = ThawWork { engine: Arc::clone(engine), archives: Arc::clone(archives) };
    let scrub = ScrubWork { engine: Arc::clone(engine) };
    let mut works: Vec<Arc<dyn Work>> =
        vec![Arc::new(policy), Arc::new(reclaim), Arc::new(scrub), Arc::new(thaw), Arc::new(verify)];
    if let Some(tiers) = tiers.filter(|tiers| tiers.bucket.is_some()) {
        let (engine, tiers, clock) = (Arc::clone(engine), Arc::clone(tiers), Arc::clone(clock));
        works.push(Arc::new(AuditWork { engine, tiers, clock }));
    }
    Tasks::new(TaskParts {
        catalog: Arc::clone(engine.catalog()),
        clock: Arc::clone(clock),
        timer: Arc::new(SystemTimer::new()),
        surroundings: Arc::clone(activity) as Arc<dyn Surroundings>,
        counters: metrics.counters(),
        limits: Limits::of(settings),
        works,
    })
}

/// A commit under way.
#[derive(Debug)]
pub(crate) struct Committing(Arc<App>);

impl Drop for Committing {
    fn drop(&mut self) {
        self.0.commits.send_modify(|count| *count = count.saturating_sub(1));
    }
}

fn backed_off(origin: Origin, wait: Duration) -> ServiceError {
    let secs = wait.as_millis().div_ceil(1000);
    ServiceError::new(
        ErrorCode::Limit,
        format!("too many calls without a valid token came from {origin}; try again in {secs} s, with a valid token"),
    )
    .retry_after(wait)
}

fn too_many_connections(limit: TooMany) -> ServiceError {
    let text = match limit {
        TooMany::OfToken(max) => format!(
            "this token has {max} connections open, which is all it may have; close some, or use a token for each machine"
        ),
        TooMany::InAll(max) => format!(
            "callers have {max} connections open, which is all this server allows; try again later, or raise max_connections"
        ),
    };
    ServiceError::new(ErrorCode::Limit, text).retry_after(Duration::from_secs(5))
}
