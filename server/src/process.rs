//! This process and the operating system it runs on.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings};

/// Most arenas; two cores' worth of contention is far below the cost of hashing what is in the buffers.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS: libc::c_int = 4;

/// Allocations of at least this size are mapped by themselves. It is above every buffer of the data path (4 MiB),
/// so that those are reused instead of being cleared by the kernel each time.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAP_THRESHOLD_BYTES: libc::c_int = 32 << 20;

/// Free memory at the top of an arena beyond this goes back to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_THRESHOLD_BYTES: libc::c_int = 64 << 20;

/// Keeps the C allocator from holding freed memory back. Call it before the first thread starts.
///
/// glibc gives every few threads an arena of their own and returns little of it to the system. A server whose
/// blocking threads come and go and hand megabyte buffers to each other would peak at a multiple of what it uses.
/// Measured on 2 cores with three backups and then three restores of 16 GiB disks at once: peak 233 MB and
/// 178 MB kept when idle with glibc's defaults, 195 MB and 115 MB with few arenas. Mapping every megabyte buffer
/// by itself was tried as well: the kernel then clears each page again, which took a restore half as much CPU
/// time again (2.5 against 1.7 CPU seconds for 3 GB). jemalloc and mimalloc were not needed.
pub(crate) fn configure_allocator() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt takes two integers by value and may be called at any time.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAP_THRESHOLD_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES);
    }
}

/// Starts logging as the settings say, to standard error. Standard output belongs to what scripts read. A second call in one
/// process changes nothing.
///
/// Spans say what a line belongs to: `call` (every gRPC call, with its method and the request id the client
/// chose), and within it one with the `session` of a backup or the `backup` that is read back. In JSON these are
/// in `spans`; the agent's log uses the same names. Secrets never get here: the types that hold them do not print
/// them.
pub(crate) fn start_logging(settings: &Settings) {
    // The filter was checked when the settings were read.
    let filter = EnvFilter::builder().parse_lossy(&settings.log_level);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let started = match settings.log_format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(true).try_init()
        }
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}

/// With fewer than this a server with the default settings may run out: 1,024 connections of agents and 256 of browsers,
/// 32 streams with a few files each, and the index's files.
const ENOUGH: u64 = 2048;

/// Raises the soft limit to the hard limit and logs the result.
///
/// The soft limit is usually 1,024 for the sake of programs that use `select(2)`; this one does not.
pub(crate) fn raise_file_limit() {
    let before = getrlimit(Resource::Nofile);
    if before.current != before.maximum
        && let Err(error) =
            setrlimit(Resource::Nofile, Rlimit { current: before.maximum, maximum: before.maximum })
    {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
    // `None`: unlimited.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < ENOUGH {
        tracing::warn!(limit, "the limit of open files is low; raise LimitNOFILE of the service");
    } else {
        tracing::info!(limit, "limit of open files");
    }
}

/// Interval at which the service manager hears that the server is still starting.
pub(crate) const STILL_STARTING: std::time::Duration = std::time::Duration::from_secs(30);
/// Still starting, and for so long at least (microseconds), however long the service manager would wait.
pub(crate) const STARTING: &str = "EXTEND_TIMEOUT_USEC=120000000";
/// Ready to serve.
pub(crate) const READY: &str = "READY=1";
/// Shutting down.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Tells systemd when the service is ready and when it stops, if it asks (see `sd_notify(3)`): sends `state` to the socket that
/// `NOTIFY_SOCKET` names; does nothing when it names none. If the service manager does not listen, that is logged and
/// otherwise ignored.
pub(crate) fn notify(state: &str) {
    if let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty())
        && let Err(error) = send(&socket, state)
    {
        tracing::warn!(%error, "cannot send {state} to the service manager");
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be_afterwards() {
        raise_file_limit();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    /// (S15)
    #[test]
    fn a_start_asks_for_more_time_than_lies_between_two_words() {
        let micros = STARTING.strip_prefix("EXTEND_TIMEOUT_USEC=").unwrap().parse().unwrap();
        assert!(std::time::Duration::from_micros(micros) > 3 * STILL_STARTING);
    }

    #[test]
    fn reaches_a_socket_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), READY).unwrap();
        let mut buffer = [0; 64];
        let count = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], READY.as_bytes());

        let name = format!("holdfast-test-{}", std::process::id());
        let listener =
            UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes()).unwrap()).unwrap();
        send(OsStr::new(&format!("@{name}")), STOPPING).unwrap();
        let count = listener.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..count], STOPPING.as_bytes());
    }
}
