//! What every protocol stands on: the engine, who may use it, and how much at once.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::Catalog;
use holdfast_engine::clock::{Clock, SystemClock};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tracing::Span;

use crate::auth::Authenticator;
use crate::config::Settings;
use crate::error::ServiceError;
use crate::http::download::DOWNLOADS_MAX;
use crate::http::kept::Kept;
use crate::http::limits::Places;
use crate::http::live::Live;
use crate::metrics::Metrics;
use crate::recent::Recent;
use crate::sessions::SessionLimit;
use crate::streams::{StreamLimits, Streams};

/// The running server, shared by all calls.
#[derive(Debug)]
pub struct App {
    pub engine: Arc<Engine>,
    pub auth: Authenticator,
    pub clock: Arc<dyn Clock>,
    pub streams: Arc<Streams>,
    pub sessions: Arc<SessionLimit>,
    pub metrics: Metrics,
    /// Restores the audit log has an entry of.
    pub(crate) restores_noted: Recent,
    /// How it is reached.
    pub reached: Reached,
    pub started_ms: i64,
    /// Whether browsers may be told never to come unencrypted, see [`http`](crate::http).
    pub(crate) strict_transport: bool,
    pub(crate) lease_secs: u32,
    /// Held while a token is revoked over HTTP.
    pub(crate) token_changes: Mutex<()>,
    /// Tables being downloaded at once.
    pub(crate) downloads: Arc<Semaphore>,
    /// What was last found out about containers.
    pub(crate) kept: Kept,
    /// Who watches what is going on.
    pub(crate) live: Live,
    /// Requests over HTTP at once.
    pub(crate) places: Places,
    stopping: watch::Sender<bool>,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Reached {
    /// Where agents connect.
    pub grpc: SocketAddr,
    /// Where browsers connect.
    pub http: SocketAddr,
    /// SHA-256 of the certificate, which agents pin.
    pub fingerprint: String,
}

impl App {
    /// A server over `engine`.
    pub fn new(engine: Arc<Engine>, settings: &Settings, reached: Reached) -> Arc<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Arc::new(Self {
            auth: Authenticator::new(Arc::clone(engine.catalog()), Arc::clone(&clock)),
            engine,
            started_ms: clock.now_ms(),
            clock,
            streams: Streams::new(stream_limits(settings)),
            sessions: SessionLimit::new(settings.max_sessions),
            metrics: Metrics::new(settings.metrics_open),
            restores_noted: Recent::default(),
            reached,
            strict_transport: settings.tls_cert.is_some(),
            lease_secs: settings.lease_secs,
            token_changes: Mutex::default(),
            downloads: Arc::new(Semaphore::new(DOWNLOADS_MAX)),
            kept: Kept::default(),
            live: Live::default(),
            places: Places::default(),
            stopping: watch::Sender::new(false),
        })
    }

    /// The catalog.
    pub fn catalog(&self) -> &dyn Catalog {
        self.engine.catalog().as_ref()
    }

    /// Tells everything that listens to [`App::stopping`] to come to an end, and ends all streams.
    pub fn stop(&self) {
        self.stopping.send_replace(true);
        self.streams.close();
    }

    /// Becomes true when the server stops.
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Runs `work` where it may block, within the caller's log span.
    ///
    /// # Errors
    /// What `work` errs with; `Internal` when it panics.
    pub async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Arc<Self>) -> Result<T, ServiceError> + Send + 'static,
    ) -> Result<T, ServiceError> {
        let (app, span) = (Arc::clone(self), Span::current());
        tokio::task::spawn_blocking(move || span.in_scope(|| work(&app))).await?
    }
}

/// The settings' bounds on streams.
pub fn stream_limits(settings: &Settings) -> StreamLimits {
    StreamLimits { ingest: settings.max_streams, restore: settings.max_restores }
}
