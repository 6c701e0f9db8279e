//! `holdfast-server serve`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::SystemClock;
use holdfast_proto::ErrorCode;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::AllSettings;
use super::fail::Failure;
use super::out;
use crate::activity::streams::StreamLimits;
use crate::config::{Resolved, Settings};
use crate::insight::agents_reminder;
use crate::memory::Budget;
use crate::process::{self, notify};
use crate::repository::snapshot;
use crate::server::{FIRST_TOKEN_FILE, Server};

/// Threads for blocking calls that are not streams. Each takes milliseconds, except for the few tables being
/// downloaded: one thread for each of the HTTPS requests at once (64), one for each answer that is lines
/// (`ANSWERS_MAX`, 8), and some for unary gRPC calls.
const CALL_THREADS: u32 = 80;

/// Longest wait of a shutdown for threads that are stuck in the operating system.
const THREADS_END: Duration = Duration::from_secs(2);

pub(super) fn run(args: &AllSettings) -> Result<ExitCode, Failure> {
    let resolved = args.resolve()?;
    let settings = &resolved.settings;
    process::start_logging(settings);
    process::raise_file_limit();
    let runtime = runtime(settings)?;
    let result = runtime.block_on(serve(&resolved));
    runtime.shutdown_timeout(THREADS_END);
    result.map(|()| ExitCode::SUCCESS)
}

fn runtime(settings: &Settings) -> Result<Runtime, Failure> {
    let budget = Budget::find(settings)?;
    let threads = StreamLimits::of_budget(&budget).threads().saturating_add(CALL_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("holdfast")
        .max_blocking_threads(threads as usize)
        .build()
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot start threads: {error}")))
}

async fn serve(resolved: &Resolved) -> Result<(), Failure> {
    let settings = &resolved.settings;
    let mut signals = Signals::new()?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut server = {
        let mut start = std::pin::pin!(Server::start(settings, Arc::new(SystemClock)));
        // (S15) A recovery takes as long as it takes; killed half way it would begin again, for ever.
        let mut still = tokio::time::interval(process::STILL_STARTING);
        loop {
            tokio::select! {
                server = &mut start => break server?,
                () = signals.next() => return Ok(()),
                _ = still.tick() => notify(process::STARTING),
                _ = hangup.recv() => {}
            }
        }
    };
    if let Err(error) = snapshot::keep_settings(resolved) {
        tracing::warn!(%error, "backups of the server will have other settings than it was started with");
    }
    announce(settings, &server);
    notify(process::READY);
    let ended_by_itself = loop {
        tokio::select! {
            () = signals.next() => break false,
            () = server.failed() => break true,
            _ = hangup.recv() => server.reload_certificate(settings).await,
        }
    };
    notify(process::STOPPING);
    tokio::spawn(async move {
        signals.next().await;
        out::note("holdfast-server: stopped immediately by a second signal");
        std::process::exit(i32::from(ErrorCode::Unavailable.exit_code()));
    });
    server.stop().await?;
    if ended_by_itself {
        return Err(Failure::new(
            ErrorCode::Internal,
            "the server stopped serving unexpectedly; the log says why",
        ));
    }
    Ok(())
}

/// Prints the lines that scripts wait for, and what to do next.
fn announce(settings: &Settings, server: &Server) {
    let token_path = settings.data_dir.join(FIRST_TOKEN_FILE);
    if server.first_token_created {
        out::say(format_args!("created a repository in {}", settings.data_dir.display()));
        out::say(format_args!("admin token in {}", token_path.display()));
    }
    out::say(format_args!("certificate fingerprint {}", server.fingerprint));
    out::say(format_args!("gRPC listening on {}", server.grpc_address));
    out::say(format_args!("HTTPS listening on {}", server.http_address));
    if server.first_token_created {
        out::say("next, log in on this machine:");
        out::say(format_args!("  {}", login_command(server, &token_path)));
        out::say("for the web UI, open this address and log in with the admin token:");
        out::say(format_args!("  https://{}", reachable(server.http_address)));
        out::say(
            "for each hypervisor, print the line to run there, which gives it a token for the namespaces it is given:",
        );
        let folder = if settings.data_dir == Settings::default().data_dir {
            String::new()
        } else {
            format!(" --data-dir {}", settings.data_dir.display())
        };
        let create = "holdfast-server token create --join --name HYPERVISOR --namespace default";
        out::say(format_args!("  {create}{folder}"));
    }
    if let Some(reminder) = server.app().encryption.as_ref().and_then(|encryption| encryption.reminder()) {
        out::note(reminder);
    }
    match server.app().catalog().agents_proof_summaries() {
        Ok(found) => {
            let now_ms = server.app().clock.now_ms();
            let late = found.iter().filter_map(|found| agents_reminder(found, now_ms));
            late.for_each(|text| out::note(format_args!("{text}")));
        }
        Err(error) => tracing::warn!(%error, "cannot look up what agents have verified"),
    }
    out::say("ready");
}

/// The address to connect to from this machine: "any address" is one to listen on only.
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}

fn login_command(server: &Server, token_path: &Path) -> String {
    let host = reachable(server.grpc_address);
    let token = token_path.display();
    format!("holdfast login --server {host} --fingerprint {} --token-file {token}", server.fingerprint)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot handle signals: {error}")))
}

/// The two signals that ask the server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
