//! A server's life: open, listen, serve, and come to an end in order.
//!
//! Order of the end, so that nothing acknowledged is lost and agents know what to do: no new connections;
//! streams end after the message they are at, with `Unavailable`; calls under way get
//! [`GRACE`] to finish; the engine gives up what is left, makes its index durable and lets go of the folder.

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Engine;
use holdfast_engine::catalog::token::{self, Role};
use holdfast_engine::catalog::{AuditEntry, Catalog, TokenSpec};
use holdfast_engine::clock::Clock;
use holdfast_proto::ErrorCode;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::MissedTickBehavior;

use crate::app::{App, Reached};
use crate::config::Settings;
use crate::error::ServiceError;
use crate::http::live::Change;
use crate::net::Listener;
use crate::repository::open_parts;
use crate::tls::{Identity, TlsError};
use crate::{files, grpc, http};

/// How long calls under way may take to finish when the server stops.
pub const GRACE: Duration = Duration::from_secs(30);

/// How often leases and the tokens of open streams are looked at.
pub const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(2);

/// Every how many rounds of that logins that ran out are forgotten: once a minute.
const PRUNE_ROUNDS: u64 = 30;

/// Between two steps of the audit: a million containers take 250 steps.
const AUDIT_PAUSE: Duration = Duration::from_millis(100);

/// Between tries of an audit that fails.
const AUDIT_RETRY_MIN: Duration = Duration::from_secs(5);
const AUDIT_RETRY_MAX: Duration = Duration::from_secs(300);

/// Name of the token the first start makes.
const FIRST_TOKEN: &str = "admin";

/// Name of the file it is kept in.
pub const FIRST_TOKEN_FILE: &str = "admin.token";

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot open the repository in {folder}: {source}")]
    Open { folder: String, source: ServiceError },
    #[error("cannot use the folder {folder}: {source}")]
    Folder { folder: String, source: io::Error },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("cannot listen on {address} for {what}: {source}; is another server running there?")]
    Listen { what: &'static str, address: SocketAddr, source: io::Error },
    #[error("cannot keep the admin token in {path}: {source}")]
    Token { path: String, source: io::Error },
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl StartError {
    /// For the exit code.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Open { source, .. } | Self::Service(source) => source.code,
            Self::Tls(_) | Self::Listen { .. } => ErrorCode::Invalid,
            Self::Folder { .. } | Self::Token { .. } => ErrorCode::Internal,
        }
    }
}

/// A server that serves.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    /// Where agents connect.
    pub grpc_address: SocketAddr,
    /// Where browsers and health checks connect.
    pub http_address: SocketAddr,
    /// What agents pin.
    pub fingerprint: String,
    /// Whether this start made the first token.
    pub first_token_created: bool,
    tasks: JoinSet<()>,
    housekeeping: JoinHandle<()>,
    audit: JoinHandle<()>,
}

impl Server {
    /// Opens the repository, making what the first start makes, and serves it. `Ok` means that it listens.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running then.
    pub async fn start(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        files::create_private_folder(&settings.data_dir).map_err(|source| StartError::Folder {
            folder: settings.data_dir.display().to_string(),
            source,
        })?;
        // First, because it takes the lock: two servers must not both make a certificate.
        let engine = Arc::new(open_engine(settings, &clock).await?);
        let identity = Identity::load_or_create(settings, year(&*clock))?;
        let token_path = settings.data_dir.join(FIRST_TOKEN_FILE);
        let first_token_created = ensure_first_token(&**engine.catalog(), &*clock, &token_path)?;

        let bind = async |what, address, alpn: &[&[u8]]| {
            let tls = identity.server_config(alpn)?;
            let listen = |source| StartError::Listen { what, address, source };
            let listener = Listener::bind(address, tls, settings.max_connections).await.map_err(listen)?;
            let address = listener.address().map_err(listen)?;
            Ok::<_, StartError>((listener, address))
        };
        let (grpc_listener, grpc_address) = bind("gRPC", settings.grpc, &[b"h2"]).await?;
        let (http_listener, http_address) = bind("HTTPS", settings.http, &[b"h2", b"http/1.1"]).await?;

        let fingerprint = identity.fingerprint.to_string();
        let reached = Reached { grpc: grpc_address, http: http_address, fingerprint: fingerprint.clone() };
        let app = App::new(engine, settings, reached);
        app.metrics.watch("grpc", grpc_listener.traffic());
        app.metrics.watch("http", http_listener.traffic());
        let mut tasks = JoinSet::new();
        let grpc_app = Arc::clone(&app);
        let incoming = grpc_listener.incoming(app.stopping());
        tasks.spawn(async move {
            let stopping = grpc_app.stopping();
            if let Err(error) = grpc::serve(grpc_app, incoming, stopping).await {
                tracing::error!(%error, "serving gRPC failed");
            }
        });
        tasks.spawn(http::serve(http::router(Arc::clone(&app)), http_listener.incoming(app.stopping())));
        let housekeeping = tokio::spawn(housekeeping(Arc::clone(&app)));
        let audit = tokio::spawn(audit(Arc::clone(&app)));
        Ok(Self {
            app,
            grpc_address,
            http_address,
            fingerprint,
            first_token_created,
            tasks,
            housekeeping,
            audit,
        })
    }

    /// What the calls share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Resolves when serving ended by itself, which it never should.
    pub async fn failed(&mut self) {
        self.tasks.join_next().await;
    }

    /// Comes to an end in order; see the module's documentation.
    ///
    /// # Errors
    /// When the engine could not make its index durable. Nothing is lost then; the next start takes longer.
    pub async fn stop(mut self) -> Result<(), ServiceError> {
        tracing::info!(streams = self.app.streams.count(), "shutting down");
        self.app.stop();
        self.housekeeping.abort();
        self.audit.abort();
        let done = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, done).await.is_err() {
            tracing::warn!("calls still under way after {} s are cut off", GRACE.as_secs());
            self.tasks.abort_all();
        }
        self.app.blocking(|app| Ok(app.engine.shutdown()?)).await?;
        tracing::info!("the repository is closed");
        Ok(())
    }
}

async fn open_engine(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Engine, StartError> {
    let (chosen, clock) = (settings.clone(), Arc::clone(clock));
    let open = move || Ok(Engine::assemble(open_parts(&chosen, &clock)?)?);
    let opened =
        tokio::task::spawn_blocking(open).await.map_err(ServiceError::from).and_then(|opened| opened);
    let engine = opened
        .map_err(|source| StartError::Open { folder: settings.data_dir.display().to_string(), source })?;
    tracing::info!(repository = %engine.repository_id(), summary = ?engine.opened(), "repository open");
    Ok(engine)
}

/// Makes the first token when there is none at all. The file comes before the catalog's row: a crash between
/// leaves a file whose token does not work, and the next start replaces it.
fn ensure_first_token(catalog: &dyn Catalog, clock: &dyn Clock, path: &Path) -> Result<bool, StartError> {
    if !catalog.list_tokens().map_err(ServiceError::from)?.is_empty() {
        return Ok(false);
    }
    let (text, id, hash) = token::new_token(clock).map_err(ServiceError::from)?;
    files::write_durably(path, format!("{}\n", text.as_str()).as_bytes(), files::MODE_SECRET)
        .map_err(|source| StartError::Token { path: path.display().to_string(), source })?;
    let spec = TokenSpec {
        id,
        name: FIRST_TOKEN.to_owned(),
        role: Role::Admin,
        namespaces: Vec::new(),
        expires_ms: None,
    };
    catalog.create_token(&spec, &hash).map_err(ServiceError::from)?;
    catalog
        .audit(&AuditEntry {
            who: "first start".to_owned(),
            action: "token.create".to_owned(),
            object: id.to_string(),
            detail: format!("{FIRST_TOKEN:?}, role {}", Role::Admin),
        })
        .map_err(ServiceError::from)?;
    Ok(true)
}

fn year(clock: &dyn Clock) -> i32 {
    let now = jiff::Timestamp::from_millisecond(clock.now_ms()).unwrap_or_default();
    i32::from(now.to_zoned(jiff::tz::TimeZone::UTC).year())
}

/// Ends sessions whose lease ran out and streams whose token ended, and forgets logins that ran out.
async fn housekeeping(app: Arc<App>) {
    let mut ticks = tokio::time::interval(HOUSEKEEPING_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u64.. {
        ticks.tick().await;
        if round % PRUNE_ROUNDS == 0 {
            prune_logins(&app).await;
        }
        let round = app.blocking(|app| {
            let expired = app.engine.expire_sessions();
            if expired > 0 {
                tracing::info!(expired, "gave up backups whose agents went silent");
                app.live.note(Change::Run);
            }
            app.metrics.forget_sessions(|session| {
                let asked = app.engine.session_namespace(session);
                asked.is_err_and(|error| error.code() == ErrorCode::SessionGone)
            });
            for owner in app.live.owners() {
                if !app.auth.still_holds(owner.0, owner.1.as_ref())? {
                    app.live.end(&owner);
                }
            }
            for token in app.streams.tokens() {
                if !app.auth.still_valid(token)? {
                    tracing::info!(%token, "the token ended; ending its streams");
                    app.streams.end_token(token);
                }
            }
            Ok(())
        });
        if let Err(error) = round.await {
            tracing::error!(%error, "housekeeping failed");
        }
    }
}

/// Looks at the containers the start did not look at (ORDERING, S7), a folder at a time, with pauses in which
/// backups have the disk for themselves. What fails is tried again, less and less often.
async fn audit(app: Arc<App>) {
    let mut wait = AUDIT_PAUSE;
    while !app.engine.audit_progress().finished {
        match app.blocking(|app| Ok(app.engine.audit_step()?)).await {
            Ok(_) => wait = AUDIT_PAUSE,
            Err(error) => {
                wait = (wait * 2).clamp(AUDIT_RETRY_MIN, AUDIT_RETRY_MAX);
                tracing::warn!(%error, retry_secs = wait.as_secs(), "the audit of the containers failed");
            }
        }
        tokio::time::sleep(wait).await;
    }
}

/// Forgets logins that ran out. They open nothing any more, so a catalog that cannot be written to keeps nothing else from
/// being done.
async fn prune_logins(app: &Arc<App>) {
    if let Err(error) = app.blocking(|app| Ok(app.catalog().prune_expiring(app.clock.now_ms())?)).await {
        tracing::debug!(%error, "cannot forget old logins");
    }
}
