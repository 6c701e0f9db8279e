//! A wire between agent and server that a test can cut or hold. It acts on the bytes that pass, never on the
//! clock: what a test sees is the same on a slow machine.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// What has passed, and what is to happen.
#[derive(Debug, Default)]
struct State {
    /// Each with the number of its connection.
    sockets: Vec<(u64, TcpStream)>,
    connections: u64,
    /// From agents to the server.
    upstream_bytes: u64,
    /// Numbers of upstream bytes at which every connection is cut, in order.
    cuts_at: Vec<u64>,
    /// The first connection that has carried so many bytes upstream is cut, and no other.
    cut_one_at: Option<u64>,
    /// Upstream bytes after which nothing passes upstream any more.
    hold_at: Option<u64>,
}

#[derive(Debug, Default)]
struct Wire {
    state: Mutex<State>,
    released: Condvar,
}

impl Wire {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts bytes from an agent and cuts or holds when it is time to. The connection has carried `carried` in all.
    fn upstream(&self, connection: u64, bytes: usize, carried: u64) {
        let mut state = self.state();
        state.upstream_bytes += bytes as u64;
        if state.cut_one_at.is_some_and(|at| carried >= at) {
            state.cut_one_at = None;
            state.cut(|number| number == connection);
        }
        if state.cuts_at.first().is_some_and(|&at| state.upstream_bytes >= at) {
            state.cuts_at.remove(0);
            state.cut(|_| true);
        }
        while state.hold_at.is_some_and(|at| state.upstream_bytes > at) {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn release(&self) {
        self.state().hold_at = None;
        self.released.notify_all();
    }
}

impl State {
    fn cut(&mut self, which: impl Fn(u64) -> bool) {
        for (_, socket) in self.sockets.extract_if(.., |(number, _)| which(*number)) {
            // Fails when it is closed already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

/// Forwards connections to a server until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    wire: Arc<Wire>,
}

impl Proxy {
    /// A proxy before the server at `server` that breaks every connection `times` times, each time when
    /// another `every_bytes` have passed upstream. New connections work.
    ///
    /// # Panics
    /// When no port is free.
    pub fn cutting(server: &str, every_bytes: u64, times: u64) -> Self {
        let cuts_at = (1..=times).map(|cut| cut * every_bytes).collect();
        Self::with(server, State { cuts_at, ..State::default() })
    }

    /// A proxy before the server at `server` that breaks one connection: the first that has carried `bytes` upstream. The
    /// others, and new ones, work.
    ///
    /// # Panics
    /// When no port is free.
    pub fn cutting_one(server: &str, bytes: u64) -> Self {
        Self::with(server, State { cut_one_at: Some(bytes), ..State::default() })
    }

    /// A proxy before the server at `server` that lets about `bytes` pass upstream and nothing more until
    /// [`Proxy::release`]: a backup through it is in progress for as long as a test needs it to be.
    ///
    /// # Panics
    /// When no port is free.
    pub fn holding(server: &str, bytes: u64) -> Self {
        Self::with(server, State { hold_at: Some(bytes), ..State::default() })
    }

    fn with(server: &str, state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        let wire = Arc::new(Wire { state: Mutex::new(state), ..Wire::default() });
        let (server, shared) = (server.to_owned(), Arc::downgrade(&wire));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Gone: the proxy was dropped.
                let Some(wire) = shared.upgrade() else { return };
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                let number = {
                    let mut state = wire.state();
                    state.connections += 1;
                    state.connections
                };
                join(number, client, upstream, &wire);
            }
        });
        Self { address, wire }
    }

    /// Where agents connect to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Bytes agents sent through so far.
    pub fn upstream_bytes(&self) -> u64 {
        self.wire.state().upstream_bytes
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.wire.state().connections
    }

    /// Lets everything pass from now on.
    pub fn release(&self) {
        self.wire.release();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.release();
        self.wire.state().cut(|_| true);
        self.wire = Arc::default();
        // Wakes the listening thread so that it sees that it is not needed any more.
        drop(TcpStream::connect(&self.address));
    }
}

fn join(number: u64, client: TcpStream, server: TcpStream, wire: &Arc<Wire>) {
    let Ok(pairs) = (|| -> std::io::Result<_> {
        Ok([(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)])
    })() else {
        return;
    };
    wire.state().sockets.extend([(number, client), (number, server)]);
    for (index, (from, to)) in pairs.into_iter().enumerate() {
        let upstream = if index == 0 { Arc::downgrade(wire) } else { Weak::new() };
        std::thread::spawn(move || forward(number, from, to, &upstream));
    }
}

/// Forwards one direction; counts what passes when `wire` is given.
fn forward(number: u64, mut from: TcpStream, mut to: TcpStream, wire: &Weak<Wire>) {
    let mut buffer = vec![0; 64 << 10];
    let mut carried = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        carried += read as u64;
        if let Some(wire) = wire.upgrade() {
            wire.upstream(number, read, carried);
        }
        if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts what arrives on one connection after another, until the connection ends.
    fn counting_server() -> (String, std::sync::mpsc::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (send, received) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                let mut buffer = [0; 1000];
                while let Ok(read @ 1..) = client.read(&mut buffer) {
                    if send.send(read).is_err() {
                        return;
                    }
                }
            }
        });
        (address, received)
    }

    #[test]
    fn nothing_passes_a_held_wire_until_it_is_released() {
        let (server, received) = counting_server();
        let proxy = Proxy::holding(&server, 1000);
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(&[1; 1000]).unwrap();
        let mut arrived = 0;
        while arrived < 1000 {
            arrived += received.recv().unwrap();
        }
        client.write_all(&[2; 500]).unwrap();
        crate::wait_for("the wire to hold", || (proxy.upstream_bytes() == 1500).then_some(()));
        assert!(received.try_recv().is_err());
        proxy.release();
        assert_eq!(received.recv().unwrap(), 500);
    }

    #[test]
    fn one_connection_is_cut_and_the_others_live() {
        let (server, received) = counting_server();
        let proxy = Proxy::cutting_one(&server, 100);
        let mut cut = TcpStream::connect(proxy.address()).unwrap();
        cut.write_all(&[1; 100]).unwrap();
        assert_eq!(cut.read(&mut [0; 1]).unwrap_or(0), 0, "cut");
        let mut lives = TcpStream::connect(proxy.address()).unwrap();
        lives.write_all(&[1; 300]).unwrap();
        let mut arrived = 0;
        while arrived < 300 {
            arrived += received.recv().unwrap();
        }
    }

    #[test]
    fn a_wire_is_cut_as_often_as_was_asked() {
        let (server, _received) = counting_server();
        let proxy = Proxy::cutting(&server, 100, 2);
        for connection in 1..=2 {
            let mut client = TcpStream::connect(proxy.address()).unwrap();
            client.write_all(&[1; 100]).unwrap();
            assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0, "cut");
            assert_eq!(proxy.connections(), connection);
        }
        let mut client = TcpStream::connect(proxy.address()).unwrap();
        client.write_all(&[1; 300]).unwrap();
        crate::wait_for("everything to pass", || (proxy.upstream_bytes() == 500).then_some(()));
    }
}
