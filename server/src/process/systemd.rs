//! Tells systemd when the service is ready and when it stops, if it asks (`NOTIFY_SOCKET`, see `sd_notify(3)`).

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How often the service manager hears that the server is still starting.
pub(crate) const STILL_STARTING: std::time::Duration = std::time::Duration::from_secs(30);
/// Still starting, and for so long at least (microseconds), however long the service manager would wait.
pub(crate) const STARTING: &str = "EXTEND_TIMEOUT_USEC=120000000";
/// Ready to serve.
pub(crate) const READY: &str = "READY=1";
/// Shutting down.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Sends `state` to the socket the environment names; does nothing when it names none. If the service
/// manager does not listen, that is logged and otherwise ignored.
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
