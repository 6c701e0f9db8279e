//! What every call shares, whichever protocol it came by: the engine, who may use it, and what is going on.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::Catalog;
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_proto::ErrorCode;
use tokio::sync::watch;
use tracing::Span;

use crate::activity::Activity;
use crate::auth::{Authenticator, Lookups};
use crate::config::Settings;
use crate::error::ServiceError;
use crate::jobs::Jobs;
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::readiness::Readiness;

/// The running server, shared by all calls. What only one protocol needs is in that protocol's own state.
#[derive(Debug)]
pub struct App {
    pub engine: Arc<Engine>,
    pub auth: Arc<Authenticator>,
    pub clock: Arc<dyn Clock>,
    pub activity: Arc<Activity>,
    pub metrics: Arc<Metrics>,
    /// Background work: what it is doing, and a way to pause it.
    pub jobs: Arc<Jobs>,
    pub addresses: Addresses,
    pub started_ms: i64,
    /// What the server may use of memory, and for what.
    pub budget: Budget,
    /// Whether backups are accepted.
    pub(crate) readiness: Readiness,
    pub(crate) lease_secs: u32,
    lookups: Lookups,
    stopping: watch::Sender<bool>,
}

/// Where a server is reached, and how clients recognise it.
#[derive(Debug, Clone)]
pub struct Addresses {
    /// Where agents connect.
    pub grpc: SocketAddr,
    /// Where browsers connect.
    pub http: SocketAddr,
    /// SHA-256 of the certificate, which agents pin.
    pub fingerprint: String,
    /// When the certificate ceases to be valid, in milliseconds since the Unix epoch, if it says so.
    pub certificate_expires_ms: Option<i64>,
}

impl App {
    /// A server over `engine`.
    ///
    /// # Errors
    /// `Internal` when no threads can be started; `Invalid` when there is too little memory.
    pub fn new(
        engine: Arc<Engine>,
        settings: &Settings,
        addresses: Addresses,
    ) -> Result<Arc<Self>, ServiceError> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let lookups = Lookups::start().map_err(|error| {
            ServiceError::new(ErrorCode::Internal, format!("cannot start threads: {error}"))
        })?;
        let budget = Budget::find(settings)?;
        let readiness =
            Readiness::new(Arc::clone(&engine), Arc::clone(&clock), addresses.certificate_expires_ms);
        Ok(Arc::new(Self {
            readiness,
            auth: Arc::new(Authenticator::new(Arc::clone(engine.catalog()), Arc::clone(&clock))),
            activity: Arc::new(Activity::new(&engine, &clock, settings, &budget)),
            metrics: Arc::new(Metrics::new()),
            jobs: Arc::default(),
            addresses,
            budget,
            started_ms: clock.now_ms(),
            lease_secs: settings.lease_secs,
            stopping: watch::Sender::new(false),
            lookups,
            engine,
            clock,
        }))
    }

    /// The catalog.
    pub fn catalog(&self) -> &dyn Catalog {
        self.engine.catalog().as_ref()
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

    /// Runs `work` where it may block, within the caller's log span.
    ///
    /// # Errors
    /// The errors of `work`; `Internal` when it panics.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (app, span) = (Arc::clone(self), Span::current());
        tokio::task::spawn_blocking(move || span.in_scope(|| work(&app))).await?
    }
}
