//! Sockets with a deadline, with and without TLS.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use crate::address::Transport;

/// A connected socket of either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }

    /// Ends both directions, also for clones: what waits for the other side fails at once.
    pub(crate) fn close(&self) {
        // One that the other side ended is closed already.
        let _ = match self {
            Self::Tcp(socket) => socket.shutdown(Shutdown::Both),
            Self::Unix(socket) => socket.shutdown(Shutdown::Both),
        };
    }

    /// Sets how long one read and one write may take; `None`: as long as they will.
    pub(crate) fn limit(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write)),
            Self::Unix(socket) => {
                socket.set_read_timeout(read).and_then(|()| socket.set_write_timeout(write))
            }
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(buffer),
            Self::Unix(socket) => socket.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket whose calls fail at a deadline, however slowly the other side sends.
#[derive(Debug)]
pub(crate) struct Timed {
    socket: Socket,
    deadline: Instant,
}

impl Timed {
    /// Connects within `timeout`, which is also the deadline of what follows. Looking up a name and connecting to a Unix
    /// socket have no timeouts of their own, so a thread does it, and is left behind if it takes too long.
    pub(crate) fn connect(to: &Transport, timeout: Duration) -> io::Result<Self> {
        let deadline = Instant::now() + timeout;
        let (sender, receiver) = mpsc::channel();
        let to = to.clone();
        std::thread::Builder::new()
            .name("nbd-connect".to_owned())
            .spawn(move || sender.send(dial(&to, timeout)))?;
        let socket = receiver.recv_timeout(timeout).map_err(|_| timed_out())??;
        Ok(Self { socket, deadline })
    }

    /// A socket that fails after `timeout`, whatever is done with it.
    pub(crate) fn over(socket: Socket, timeout: Duration) -> Self {
        Self { socket, deadline: Instant::now() + timeout }
    }

    /// The socket, without any deadline.
    pub(crate) fn into_socket(self) -> io::Result<Socket> {
        self.socket.limit(None, None)?;
        Ok(self.socket)
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(timed_out()) } else { Ok(Some(left)) }
    }
}

#[cfg(test)]
impl From<UnixStream> for Timed {
    fn from(socket: UnixStream) -> Self {
        Self { socket: Socket::Unix(socket), deadline: Instant::now() }
    }
}

fn dial(to: &Transport, timeout: Duration) -> io::Result<Socket> {
    match to {
        Transport::Unix(path) => UnixStream::connect(path).map(Socket::Unix),
        Transport::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, timeout) {
                    // Requests are small and waited for.
                    Ok(socket) => return socket.set_nodelay(true).map(|()| Socket::Tcp(socket)),
                    Err(error) => last = error,
                }
            }
            Err(last)
        }
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "no answer in time")
}

/// The system says `WouldBlock` when a socket's timeout has passed.
fn named(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { timed_out() } else { error }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.socket.limit(left, left).and_then(|()| self.socket.read(buffer)).map_err(named)
    }
}

impl Write for Timed {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let left = self.left()?;
        self.socket.limit(left, left).and_then(|()| self.socket.write(buffer)).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Transport of a connection.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Timed),
    Tls(Box<StreamOwned<ClientConnection, Timed>>),
}

impl Stream {
    /// Gives what follows `timeout` in all.
    pub(crate) fn allow(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        match self {
            Self::Plain(timed) => timed.deadline = deadline,
            Self::Tls(tls) => tls.sock.deadline = deadline,
        }
    }

    /// Says goodbye to the other side's TLS, if there is one.
    pub(crate) fn close(&mut self) {
        if let Self::Tls(tls) = self {
            tls.conn.send_close_notify();
            drop(tls.flush());
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.read(buffer),
            Self::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(timed) => timed.write(buffer),
            Self::Tls(tls) => tls.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(timed) => timed.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}
