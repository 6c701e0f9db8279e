//! A proxy between agent and server that a test can cut or hold. It acts on byte counts, never on the clock: tests
//! behave the same on a slow machine.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Counters of a proxy, and its planned actions.
#[derive(Debug, Default)]
struct State {
    /// Open sockets with the numbers of their connections.
    sockets: Vec<(u64, TcpStream)>,
    connections: u64,
    /// Bytes from agents to the server.
    upstream_bytes: u64,
    /// Counts of upstream bytes at which every connection is cut, in order.
    cuts_at: Vec<u64>,
    /// Cuts the first connection that has carried this many bytes upstream, and no other.
    cut_one_at: Option<u64>,
    /// Number of upstream bytes after which nothing more passes upstream.
    hold_at: Option<u64>,
    /// Cuts the first connection that has carried this many bytes downstream, and no other.
    cut_one_down_at: Option<u64>,
    /// Bytes that one connection may carry downstream until there are this many connections.
    ration: Option<(u64, u64)>,
    /// Set when the proxy is dropped: nothing passes in either direction.
    is_gone: bool,
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

    /// Counts bytes from an agent, and cuts or holds if planned. The connection has carried `carried` in all. Returns
    /// false if the bytes must not pass.
    fn upstream(&self, connection: u64, bytes: usize, carried: u64) -> bool {
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
        while !state.is_gone && state.hold_at.is_some_and(|at| state.upstream_bytes > at) {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_gone
    }

    /// Cuts a connection that has carried `carried` bytes from the server if planned, or waits for more connections.
    /// Returns false if the bytes must not pass.
    fn downstream(&self, connection: u64, carried: u64) -> bool {
        let mut state = self.state();
        if state.cut_one_down_at.is_some_and(|at| carried >= at) {
            state.cut_one_down_at = None;
            state.cut(|number| number == connection);
        }
        let is_short = |state: &State| {
            state.ration.is_some_and(|(ration, enough)| carried > ration && state.connections < enough)
        };
        while !state.is_gone && is_short(&state) {
            state = self.released.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_gone
    }

    fn release(&self) {
        let mut state = self.state();
        (state.hold_at, state.ration) = (None, None);
        drop(state);
        self.released.notify_all();
    }

    /// Cuts everything at once. Held bytes have not passed, and never will: an agent that died had not sent them.
    fn end(&self) {
        let mut state = self.state();
        state.is_gone = true;
        state.cut(|_| true);
        drop(state);
        self.released.notify_all();
    }
}

impl State {
    fn cut(&mut self, which: impl Fn(u64) -> bool) {
        for (_, socket) in self.sockets.extract_if(.., |(number, _)| which(*number)) {
            // Fails if it is closed already.
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

/// Forwards connections to a server until it is dropped, which cuts them.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    wire: Arc<Wire>,
}

impl Proxy {
    /// Creates a proxy for the server at `server` that cuts every connection `times` times, each time when another
    /// `every_bytes` have passed upstream. New connections work.
    ///
    /// # Panics
    /// When no port is free.
    pub fn cutting(server: &str, every_bytes: u64, times: u64) -> Self {
        let cuts_at = (1..=times).map(|cut| cut * every_bytes).collect();
        Self::with(server, State { cuts_at, ..State::default() })
    }

    /// Creates a proxy for the server at `server` that cuts one connection: the first that has carried `bytes`
    /// upstream. The others, and new ones, work.
    ///
    /// # Panics
    /// When no port is free.
    pub fn cutting_one(server: &str, bytes: u64) -> Self {
        Self::with(server, State { cut_one_at: Some(bytes), ..State::default() })
    }

    /// Creates a proxy for the server at `server` that lets about `bytes` pass upstream and nothing more until
    /// [`Proxy::release`]: a backup through it stays in progress for as long as a test needs.
    ///
    /// # Panics
    /// When no port is free.
    pub fn holding(server: &str, bytes: u64) -> Self {
        Self::with(server, State { hold_at: Some(bytes), ..State::default() })
    }

    /// Same as [`Proxy::cutting_one`], by the bytes it has carried downstream.
    ///
    /// # Panics
    /// When no port is free.
    pub fn cutting_one_down(server: &str, bytes: u64) -> Self {
        Self::with(server, State { cut_one_down_at: Some(bytes), ..State::default() })
    }

    /// Creates a proxy for the server at `server` that lets each connection carry only about `bytes` downstream until
    /// there are `connections`.
    ///
    /// # Panics
    /// When no port is free.
    pub fn rationing(server: &str, bytes: u64, connections: u64) -> Self {
        Self::with(server, State { ration: Some((bytes, connections)), ..State::default() })
    }

    fn with(server: &str, state: State) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        let wire = Arc::new(Wire { state: Mutex::new(state), ..Wire::default() });
        let (server, shared) = (server.to_owned(), Arc::downgrade(&wire));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The proxy was dropped.
                let Some(wire) = shared.upgrade().filter(|wire| !wire.state().is_gone) else { return };
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                let number = {
                    let mut state = wire.state();
                    state.connections += 1;
                    state.connections
                };
                wire.released.notify_all();
                join(number, client, upstream, &wire);
            }
        });
        Self { address, wire }
    }

    /// Address for agents.
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

    /// Returns true once [`Proxy::cutting_one_down`] has cut a connection.
    pub fn has_cut_one(&self) -> bool {
        self.wire.state().cut_one_down_at.is_none()
    }

    /// Lets everything pass from now on.
    pub fn release(&self) {
        self.wire.release();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.wire.end();
        self.wire = Arc::default();
        // Wakes the listening thread so that it notices and ends.
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
        let wire = Arc::downgrade(wire);
        std::thread::spawn(move || forward(number, from, to, &wire, index == 0));
    }
}

/// Forwards one direction, and counts the bytes.
fn forward(number: u64, mut from: TcpStream, mut to: TcpStream, wire: &Weak<Wire>, upstream: bool) {
    let mut buffer = vec![0; 64 << 10];
    let mut carried = 0;
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        carried += read as u64;
        let passes = wire.upgrade().is_some_and(|wire| {
            if upstream { wire.upstream(number, read, carried) } else { wire.downstream(number, carried) }
        });
        if !passes {
            break;
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

    /// Counts the bytes of one connection after another, until each ends.
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

    /// Repeated: bytes would only sometimes pass before the cut.
    #[test]
    fn what_a_wire_holds_never_passes_once_it_is_gone() {
        for _ in 0..100 {
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
            drop(proxy);
            // The next connection is read once the first has ended.
            TcpStream::connect(&server).unwrap().write_all(&[3; 7]).unwrap();
            assert_eq!(received.recv().unwrap(), 7);
        }
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
    fn what_comes_from_the_server_cuts_one_connection_or_waits_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut client in listener.incoming().map_while(Result::ok) {
                drop(client.write_all(&[7; 1000]));
            }
        });
        let everything = |address: &str| {
            let mut bytes = Vec::new();
            drop(TcpStream::connect(address).unwrap().read_to_end(&mut bytes));
            bytes.len()
        };
        let cutting = Proxy::cutting_one_down(&server, 1000);
        assert_eq!((everything(cutting.address()), cutting.has_cut_one()), (0, true));
        assert_eq!(everything(cutting.address()), 1000, "only one");
        let rationing = Proxy::rationing(&server, 10, 2);
        let mut first = TcpStream::connect(rationing.address()).unwrap();
        first.set_nonblocking(true).unwrap();
        crate::wait_for("the first connection", || (rationing.connections() == 1).then_some(()));
        assert!(first.read(&mut [0; 1]).is_err(), "nothing passes yet");
        assert_eq!(everything(rationing.address()), 1000);
        first.set_nonblocking(false).unwrap();
        assert_eq!(first.read_to_end(&mut Vec::new()).unwrap(), 1000);
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
