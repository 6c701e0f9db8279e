//! Where a server listens: a Unix socket that only its owner may use, or a TCP port.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use crate::error::NbdError;
use crate::stream::Socket;

/// Characters that an address cannot have as they are.
const ESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_');

/// Place for a server to listen at: `unix:PATH` or `HOST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Path of a socket.
    Unix(PathBuf),
    /// A host and a port; `:PORT` is one of this machine only.
    Tcp(String),
}

impl FromStr for Place {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        let wrong = |why: &str| NbdError::Address { text: text.to_owned(), why: why.to_owned() };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(wrong("the path is missing"))
            } else {
                Ok(Self::Unix(path.into()))
            };
        }
        let port = text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        match port {
            Some(("", Ok(port))) => Ok(Self::Tcp(format!("127.0.0.1:{port}"))),
            Some((_, Ok(_))) => Ok(Self::Tcp(text.to_owned())),
            _ => Err(wrong("write unix:PATH, HOST:PORT, or :PORT for this machine only")),
        }
    }
}

/// A socket that clients connect to. A Unix socket is removed when this is dropped.
#[derive(Debug)]
pub struct Listener(Kind);

#[derive(Debug)]
enum Kind {
    Tcp(TcpListener),
    /// With its path, and its inode: another socket of that name is not ours.
    Unix(UnixListener, PathBuf, u64),
}

impl Listener {
    /// Listens at `place`. A Unix socket gets mode 0600 before it gets its name; one that no program listens on any more is
    /// replaced.
    ///
    /// # Errors
    /// `AlreadyExists` when something of this name is there; any other of the system.
    pub fn bind(place: &Place) -> io::Result<Self> {
        match place {
            Place::Tcp(address) => {
                TcpListener::bind(address.as_str()).map(|listener| Self(Kind::Tcp(listener)))
            }
            Place::Unix(path) => {
                remove_stale(path)?;
                let (listener, inode) = bind_private(path)?;
                Ok(Self(Kind::Unix(listener, path.clone(), inode)))
            }
        }
    }

    /// The address as NBD clients take it, for the export `name`.
    ///
    /// # Errors
    /// The system does not tell the port.
    pub fn uri(&self, name: &str) -> io::Result<String> {
        let encode = |text: &str| percent_encoding::utf8_percent_encode(text, &ESCAPED).to_string();
        Ok(match &self.0 {
            Kind::Tcp(listener) => format!("nbd://{}/{}", reachable(listener.local_addr()?), encode(name)),
            Kind::Unix(_, path, _) => {
                format!("nbd+unix:///{}?socket={}", encode(name), encode(&path.to_string_lossy()))
            }
        })
    }

    pub(crate) fn accept(&self) -> io::Result<Socket> {
        match &self.0 {
            Kind::Tcp(listener) => {
                let (socket, _) = listener.accept()?;
                // Requests are small and waited for.
                socket.set_nodelay(true)?;
                Ok(Socket::Tcp(socket))
            }
            Kind::Unix(listener, ..) => listener.accept().map(|(socket, _)| Socket::Unix(socket)),
        }
    }

    /// Removes a Unix socket, if it is still the one that was made. Clients that are connected stay so.
    pub(crate) fn remove(&self) {
        if let Kind::Unix(_, path, inode) = &self.0
            && inode_of(path) == Some(*inode)
        {
            // If it cannot be removed, the next server there replaces it.
            let _ = fs::remove_file(path);
        }
    }

    /// Wakes `accept` up. False: it could not be reached.
    pub(crate) fn wake(&self) -> bool {
        match &self.0 {
            Kind::Tcp(listener) => {
                listener.local_addr().is_ok_and(|address| TcpStream::connect(reachable(address)).is_ok())
            }
            Kind::Unix(_, path, inode) => inode_of(path) == Some(*inode) && UnixStream::connect(path).is_ok(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.remove();
    }
}

/// An address that a client of this machine reaches.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback = ("localhost", address.port()).to_socket_addrs().ok();
        let alike = loopback.and_then(|mut found| found.find(|found| found.is_ipv4() == address.is_ipv4()));
        address.set_ip(alike.map_or(address.ip(), |found| found.ip()));
    }
    address
}

fn inode_of(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|found| found.ino())
}

/// Removes a socket that a program left behind which was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let refused =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_socket && refused() { fs::remove_file(path) } else { Ok(()) }
}

/// Binds a socket in a folder of its own, which no other user may enter, and gives it its name when its mode is right.
fn bind_private(path: &Path) -> io::Result<(UnixListener, u64)> {
    let mut folder = path.as_os_str().to_owned();
    folder.push(format!(".{}", std::process::id()));
    let folder = PathBuf::from(folder);
    fs::DirBuilder::new().mode(0o700).create(&folder)?;
    let inside = folder.join("s");
    let bound = UnixListener::bind(&inside).and_then(|listener| {
        fs::set_permissions(&inside, fs::Permissions::from_mode(0o600))?;
        // Unlike a rename, this replaces nothing.
        fs::hard_link(&inside, path)?;
        Ok((listener, fs::symlink_metadata(path)?.ino()))
    });
    let _ = fs::remove_file(&inside);
    let _ = fs::remove_dir(&folder);
    bound
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_sockets_or_ports_of_this_machine_unless_a_host_is_named() {
        let place = |text: &str| text.parse::<Place>().ok();
        assert_eq!(place("unix:/run/x"), Some(Place::Unix("/run/x".into())));
        assert_eq!(place(":0"), Some(Place::Tcp("127.0.0.1:0".into())));
        assert_eq!(place("[::1]:10809"), Some(Place::Tcp("[::1]:10809".into())));
        for wrong in ["unix:", "host", "host:x", "", "/run/x"] {
            assert_eq!(place(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_socket_is_its_owners_replaces_nothing_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a b");
        let listener = Listener::bind(&Place::Unix(path.clone())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(listener.uri("d/1").unwrap().ends_with("a%20b"));
        assert_eq!(Listener::bind(&Place::Unix(path.clone())).unwrap_err().kind(), ErrorKind::AlreadyExists);
        drop(listener);
        assert!(!path.exists());
        // One that is not ours stays; one whose program was killed is replaced.
        fs::write(&path, "file").unwrap();
        assert!(Listener::bind(&Place::Unix(path.clone())).is_err());
        fs::remove_file(&path).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let ours = Listener::bind(&Place::Unix(path.clone())).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "file").unwrap();
        assert!(!ours.wake());
        drop(ours);
        assert!(path.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }
}
