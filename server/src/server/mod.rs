//! A server's life: open, listen, serve, and shut down in order.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | start and shutdown; the first token |
//! | `background` | the background jobs, and how fast each may be |
//!
//! Shutdown, so that nothing acknowledged is lost and agents know what to do: no new connections are accepted;
//! streams end after the message they are at, with `Unavailable`, and those that stall are cut off within seconds;
//! background jobs end after the step they are at; tasks are interrupted and begin again with the next start; commits under way get `COMMIT_GRACE` to finish, other calls
//! `SHUTDOWN_GRACE`; what the audit log counted is written; the engine gives up what is left, makes its index durable and releases the folder.

mod background;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::token::{self, Role};
use holdfast_engine::catalog::{AuditEntry, Catalog, TokenSpec};
use holdfast_engine::clock::Clock;
use holdfast_proto::ErrorCode;
use tokio::task::JoinSet;

use crate::app::{Addresses, App};
use crate::config::Settings;
use crate::control::Control;
use crate::error::{ServiceError, io_code};
use crate::http::{self, HttpState};
use crate::jobs::Runner;
use crate::limits::{COMMIT_GRACE, SHUTDOWN_GRACE};
use crate::memory::Budget;
use crate::net::Listener;
use crate::repository::{Beside, open_with_all, open_without_keys};
use crate::tasks::TaskRunner;
use crate::tls::{Certificate, Identity, TlsError};
use crate::{files, grpc};

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
    #[error("cannot write the admin token to {path}: {source}")]
    Token { path: String, source: io::Error },
    #[error(transparent)]
    Service(#[from] ServiceError),
}

impl StartError {
    /// Error code, for the exit code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Open { source, .. } | Self::Service(source) => source.code,
            Self::Tls(_) | Self::Listen { .. } => ErrorCode::Invalid,
            Self::Folder { source, .. } | Self::Token { source, .. } => io_code(source),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    app: Arc<App>,
    /// Listener for agents.
    pub grpc_address: SocketAddr,
    /// Listener for browsers and health checks.
    pub http_address: SocketAddr,
    /// Certificate fingerprint that agents pin.
    pub fingerprint: String,
    /// True if this start created the first token.
    pub first_token_created: bool,
    tasks: JoinSet<()>,
    jobs: Runner,
    task_runner: Option<TaskRunner>,
}

/// Closes a data folder that someone else made. Where that cannot be done the server works all the same, and says so.
fn close_to_others(folder: &Path) {
    let shown = folder.display();
    match files::close_to_others(folder) {
        Ok(false) => {}
        Ok(true) => {
            tracing::warn!(folder = %shown, "other users could use the data folder; it was closed to them");
        }
        Err(error) => tracing::warn!(
            folder = %shown, %error,
            "other users can use the data folder, and it cannot be closed to them; make it the server's user's, mode 0700"
        ),
    }
}

impl Server {
    /// Opens the repository, creating it at the first start, and serves it. `Ok` means that it listens.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left running.
    pub async fn start(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Self, StartError> {
        files::create_private_folder(&settings.data_dir).map_err(|source| StartError::Folder {
            folder: settings.data_dir.display().to_string(),
            source,
        })?;
        // First, because it takes the lock: two servers must not both create a certificate.
        let (engine, beside) = open_engine(settings, &clock).await?;
        let engine = Arc::new(engine);
        // Only now is it known to be a folder of ours.
        close_to_others(&settings.data_dir);
        let identity = Identity::load_or_create(&settings.identity_source(), year(&*clock)?)?;
        let certificate = Certificate::of(&identity)?;
        let token_path = settings.data_dir.join(FIRST_TOKEN_FILE);
        let first_token_created = ensure_first_token(engine.catalog(), &*clock, &token_path)?;

        let connections = Budget::find(settings).map_err(ServiceError::from)?.connections;
        let bind = async |what, address, connections, alpn: &[&[u8]]| {
            let tls = certificate.server_config(alpn)?;
            let listen = |source| StartError::Listen { what, address, source };
            let listener = Listener::bind(address, tls, connections).await.map_err(listen)?;
            let address = listener.address().map_err(listen)?;
            Ok::<_, StartError>((listener, address))
        };
        let (grpc_listener, grpc_address) = bind("gRPC", settings.grpc, connections, &[b"h2"]).await?;
        let browsers = connections.min(http::bounds::CONNECTIONS_MAX);
        let (http_listener, http_address) =
            bind("HTTPS", settings.http, browsers, &[b"h2", b"http/1.1"]).await?;

        let fingerprint = identity.fingerprint.to_string();
        let advertised = settings.advertised(grpc_address);
        let addresses = Addresses { grpc: grpc_address, advertised, http: http_address, certificate };
        let app = App::new(engine, beside, settings, addresses, clock)?;
        tracing::info!(budget = %app.budget, "memory");
        for (name, listener) in [("grpc", &grpc_listener), ("http", &http_listener)] {
            app.metrics.watch(name, listener.traffic());
            app.activity.add_door(listener.door());
        }
        let mut tasks = JoinSet::new();
        let state = HttpState::new(Arc::clone(&app), settings);
        let for_agents = http::beside_calls(state.clone(), grpc::calls(Arc::clone(&app)));
        let protocol = grpc::protocol(&app);
        tasks.spawn(grpc_listener.serve(protocol, app.stopping(), for_agents));
        tasks.spawn(http::serve(state, http_listener, app.stopping()));
        if app.encryption.is_some()
            && let Some(control) = Control::bind(&settings.data_dir)
        {
            tasks.spawn(control.serve(Arc::clone(&app)));
        }
        let jobs = background::start(&app, settings);
        // (K6) Tasks work on the volume: those that wait, and those that schedules start, wait for a start with the keys.
        let task_runner = if app.engine.is_locked() { None } else { Some(TaskRunner::start(&app.tasks)) };
        Ok(Self {
            app,
            grpc_address,
            http_address,
            fingerprint,
            first_token_created,
            tasks,
            jobs,
            task_runner,
        })
    }

    /// Presents another certificate if its file has one.
    pub async fn reload_certificate(&self, settings: &Settings) {
        let (certificate, settings) = (Arc::clone(&self.app.addresses.certificate), settings.clone());
        let reload = move || certificate.reload(&settings.identity_source());
        if let Err(error) = tokio::task::spawn_blocking(reload).await {
            tracing::error!(%error, "the certificate could not be looked at");
        }
    }

    /// State that the calls share.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// Resolves when serving ended without being told to, which it never should.
    pub async fn failed(&mut self) {
        self.tasks.join_next().await;
    }

    /// Shuts down in order; see the module's documentation.
    ///
    /// # Errors
    /// When the engine could not make its index durable. Nothing is lost by that; the next start takes longer.
    pub async fn stop(self) -> Result<(), ServiceError> {
        tracing::info!(streams = self.app.activity.streams.count(), "shutting down");
        self.app.stop();
        if let Some(tiers) = &self.app.tiers {
            tiers.stop();
        }
        self.jobs.stop().await;
        if let Some(tasks) = self.task_runner {
            tasks.stop().await;
        }
        end_calls(&self.app, self.tasks).await;
        let shut_down = |app: &Arc<App>| {
            // All calls have ended: what they left to be counted is complete.
            if let Err(error) = app.auth.audit_log().flush() {
                tracing::error!(%error, "cannot write the last counts of the audit log");
            }
            Ok(app.engine.shutdown()?)
        };
        self.app.blocking(shut_down).await?;
        tracing::info!("repository closed");
        Ok(())
    }
}

/// Idle and stalled connections end by themselves (`net`). Of the rest only commits are waited for.
async fn end_calls(app: &Arc<App>, mut tasks: JoinSet<()>) {
    let done = async { while tasks.join_next().await.is_some() {} };
    let cut_off = async {
        tokio::time::sleep(SHUTDOWN_GRACE).await;
        tokio::time::timeout(COMMIT_GRACE.saturating_sub(SHUTDOWN_GRACE), app.no_commits()).await.is_ok()
    };
    let in_time = tokio::select! {
        () = done => return,
        in_time = cut_off => in_time,
    };
    if in_time {
        tracing::info!("calls that did not end within {} s were cut off", SHUTDOWN_GRACE.as_secs());
    } else {
        tracing::warn!("a commit did not end within {} s and was cut off", COMMIT_GRACE.as_secs());
    }
    tasks.shutdown().await;
}

/// Opens the repository, or creates it.
async fn open_engine(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<(Engine, Beside), StartError> {
    let (chosen, clock) = (settings.clone(), Arc::clone(clock));
    let open = move || {
        if chosen.without_keys {
            let (parts, why) = open_without_keys(&chosen, &clock)?;
            tracing::warn!("{why}");
            return Ok((Engine::assemble_locked(parts, &why)?, Beside { encryption: None, tiers: None }));
        }
        let (parts, beside) = open_with_all(&chosen, &clock)?;
        let engine = Engine::assemble(parts)?;
        // (T10) Before there is any backup.
        if let Some(tiers) = &beside.tiers {
            engine.note_cold(&tiers.cold_containers()?);
        }
        Ok((engine, beside))
    };
    let opened =
        tokio::task::spawn_blocking(open).await.map_err(ServiceError::from).and_then(|opened| opened);
    let (engine, beside) = opened
        .map_err(|source| StartError::Open { folder: settings.data_dir.display().to_string(), source })?;
    tracing::info!(repository = %engine.repository_id(), summary = ?engine.opened(), "repository opened");
    Ok((engine, beside))
}

/// The current year.
fn year(clock: &dyn Clock) -> Result<i32, StartError> {
    let now = jiff::Timestamp::from_millisecond(clock.now_ms())
        .map_err(|error| ServiceError::new(ErrorCode::Internal, format!("the clock is wrong: {error}")))?;
    Ok(i32::from(now.to_zoned(jiff::tz::TimeZone::UTC).year()))
}

/// Name of the token.
const FIRST_TOKEN: &str = "admin";

/// Name of the file it is kept in, below the data folder.
pub const FIRST_TOKEN_FILE: &str = "admin.token";

/// Creates the first token when there is none at all. The file is written before the catalog's row: a crash between
/// the two leaves a file whose token does not work, and the next start replaces it.
fn ensure_first_token(catalog: &Catalog, clock: &dyn Clock, path: &Path) -> Result<bool, StartError> {
    if !catalog.list_tokens().map_err(ServiceError::from)?.is_empty() {
        return Ok(false);
    }
    create_admin_token(catalog, clock, path, FIRST_TOKEN, "first start")?;
    Ok(true)
}

/// Creates the admin token of a recovered server, whose other tokens are disabled. The name is the first one's, with a
/// number where that is taken. Returns the name.
///
/// # Errors
/// [`StartError`].
pub fn create_recovery_token(
    catalog: &Catalog,
    clock: &dyn Clock,
    path: &Path,
) -> Result<String, StartError> {
    let listed = catalog.list_tokens().map_err(ServiceError::from)?;
    let taken = |name: &str| listed.iter().any(|token| token.name == name && token.revoked_ms.is_none());
    let names = (2..).map(|number: u32| format!("{FIRST_TOKEN}-{number}"));
    let name = std::iter::once(FIRST_TOKEN.to_owned()).chain(names).find(|name| !taken(name));
    let name = name.ok_or_else(|| ServiceError::defect("every name for the admin token is taken"))?;
    create_admin_token(catalog, clock, path, &name, "recovery")?;
    Ok(name)
}

fn create_admin_token(
    catalog: &Catalog,
    clock: &dyn Clock,
    path: &Path,
    name: &str,
    who: &str,
) -> Result<(), StartError> {
    let (text, id, hash) = token::new_token(clock).map_err(ServiceError::from)?;
    files::write_durably(path, format!("{}\n", text.as_str()).as_bytes(), files::MODE_SECRET)
        .map_err(|source| StartError::Token { path: path.display().to_string(), source })?;
    let spec = TokenSpec {
        id,
        name: name.to_owned(),
        role: Role::Admin,
        namespaces: Vec::new(),
        owner: name.to_owned(),
        vm_patterns: Vec::new(),
        expires_ms: None,
    };
    catalog.create_token(&spec, &hash).map_err(ServiceError::from)?;
    catalog
        .audit(&AuditEntry {
            who: who.to_owned(),
            action: "token.create".to_owned(),
            object: id.to_string(),
            detail: format!("{name:?}, role {}", Role::Admin),
        })
        .map_err(ServiceError::from)?;
    Ok(())
}
