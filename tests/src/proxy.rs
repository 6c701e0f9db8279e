//! A wire between agent and server that a test can cut.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Default)]
struct State {
    sockets: Mutex<Vec<TcpStream>>,
    upstream_bytes: AtomicU64,
    connections: AtomicU64,
}

/// Forwards connections to a server until it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: String,
    state: Arc<State>,
}

impl Proxy {
    /// A proxy before the server at `server`.
    ///
    /// # Panics
    /// When no port is free.
    pub fn to(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("bound").to_string();
        let state = Arc::new(State::default());
        let (server, shared) = (server.to_owned(), Arc::clone(&state));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // Nobody but this thread holds the state: the proxy was dropped.
                if Arc::strong_count(&shared) == 1 {
                    return;
                }
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                shared.connections.fetch_add(1, Ordering::Relaxed);
                join(client, upstream, &shared);
            }
        });
        Self { address, state }
    }

    /// Where agents connect to.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Bytes agents sent through so far.
    pub fn upstream_bytes(&self) -> u64 {
        self.state.upstream_bytes.load(Ordering::Relaxed)
    }

    /// Connections made so far.
    pub fn connections(&self) -> u64 {
        self.state.connections.load(Ordering::Relaxed)
    }

    /// Breaks every connection there is; new ones work.
    pub fn cut(&self) {
        let mut sockets = self.state.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        for socket in sockets.drain(..) {
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        // Wakes the thread so that it sees that nobody needs it any more.
        let address = std::mem::take(&mut self.address);
        self.state = Arc::default();
        drop(TcpStream::connect(address));
    }
}

fn join(client: TcpStream, server: TcpStream, state: &Arc<State>) {
    let Ok(pairs) = (|| -> std::io::Result<_> {
        Ok([(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)])
    })() else {
        return;
    };
    state.sockets.lock().unwrap_or_else(PoisonError::into_inner).extend([client, server]);
    for (index, (mut from, mut to)) in pairs.into_iter().enumerate() {
        let state = Arc::downgrade(state);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(read @ 1..) = from.read(&mut buffer) {
                if index == 0
                    && let Some(state) = state.upgrade()
                {
                    state.upstream_bytes.fetch_add(read as u64, Ordering::Relaxed);
                }
                if to.write_all(buffer.get(..read).unwrap_or_default()).is_err() {
                    break;
                }
            }
            drop(to.shutdown(Shutdown::Write));
        });
    }
}
