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
use crate::app::stream_limits;
use crate::config::{Layer, Settings};
use crate::notify::{self, notify};
use crate::server::{FIRST_TOKEN_FILE, Server};
use crate::{open_files, telemetry};

/// Threads for calls that block but are no streams: each takes milliseconds, but for the few tables being
/// downloaded.
const CALL_THREADS: u32 = 72;

/// How long threads that hang in the operating system may hold up the end.
const THREADS_END: Duration = Duration::from_secs(2);

pub(super) fn run(args: &AllSettings) -> Result<ExitCode, Failure> {
    let settings = args.resolve()?.settings;
    telemetry::start(&settings);
    open_files::raise_limit();
    let runtime = runtime(&settings)?;
    let result = runtime.block_on(serve(&settings));
    runtime.shutdown_timeout(THREADS_END);
    result.map(|()| ExitCode::SUCCESS)
}

fn runtime(settings: &Settings) -> Result<Runtime, Failure> {
    let threads = stream_limits(settings).threads().saturating_add(CALL_THREADS);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("holdfast")
        .max_blocking_threads(usize::try_from(threads).unwrap_or(usize::MAX))
        .build()
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("cannot start threads: {error}")))
}

async fn serve(settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let mut server = tokio::select! {
        server = Server::start(settings, Arc::new(SystemClock)) => server?,
        () = signals.next() => return Ok(()),
    };
    announce(settings, &server);
    notify(notify::READY);
    let ended_by_itself = tokio::select! {
        () = signals.next() => false,
        () = server.failed() => true,
    };
    notify(notify::STOPPING);
    tokio::spawn(async move {
        signals.next().await;
        out::note("holdfast-server: stopped at once by a second signal");
        std::process::exit(i32::from(ErrorCode::Unavailable.exit_code()));
    });
    server.stop().await?;
    if ended_by_itself {
        return Err(Failure::new(ErrorCode::Internal, "serving ended unexpectedly; the log says why"));
    }
    Ok(())
}

/// What scripts wait for and what a person does next.
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
        out::say("next, on this machine:");
        out::say(format_args!("  {}", login_command(server, &token_path)));
        out::say("to look at it, open this and log in with the admin token:");
        out::say(format_args!("  https://{}", reachable(server.http_address)));
        out::say("and for each hypervisor a token of its own:");
        let folder = if Some(&settings.data_dir) == Layer::defaults().data_dir.as_ref() {
            String::new()
        } else {
            format!(" --data-dir {}", settings.data_dir.display())
        };
        out::say(format_args!("  holdfast-server token create --name HYPERVISOR --role backup{folder}"));
    }
    out::say("ready");
}

/// The address as one connects to it from this machine: no one connects to "any address".
fn reachable(address: SocketAddr) -> String {
    if address.ip().is_unspecified() { format!("localhost:{}", address.port()) } else { address.to_string() }
}

fn login_command(server: &Server, token_path: &Path) -> String {
    let host = reachable(server.grpc_address);
    let token = token_path.display();
    format!("holdfast login --server {host} --fingerprint {} --token-file {token}", server.fingerprint)
}

/// The two signals that ask for an end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| {
                Failure::new(ErrorCode::Internal, format!("cannot listen to signals: {error}"))
            })
        };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
