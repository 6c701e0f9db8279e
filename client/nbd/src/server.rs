//! A server: takes clients in, and lets them go.
//!
//! Each client has a thread, and up to [`WORKERS_MAX`](crate::serve::WORKERS_MAX) more while it waits for data. Memory: a buffer of
//! 256 KiB for each of these, so 16 × 9 × 256 KiB = 36 MiB at most.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;

use crate::exports::Exports;
use crate::listen::Listener;
use crate::offer;
use crate::serve::Session;
use crate::stream::{Socket, Timed};

/// Clients at once; those beyond are turned away.
pub const CLIENTS_MAX: usize = 16;
/// Time for a client to negotiate.
const NEGOTIATION_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failure to take a client in, such as a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Disks being served. Ends when it is dropped: clients are disconnected, and a Unix socket is removed.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    listener: Listener,
    exports: Exports,
    stopping: AtomicBool,
    clients: Mutex<HashMap<u64, Socket>>,
}

impl Server {
    /// Begins to serve `exports` to those who connect to `listener`.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(listener: Listener, exports: Exports) -> io::Result<Self> {
        let stopping = AtomicBool::new(false);
        let shared = Arc::new(Shared { listener, exports, stopping, clients: Mutex::default() });
        let served = Arc::clone(&shared);
        let thread = Builder::new().name("nbd-accept".to_owned()).spawn(move || served.accept())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Number of clients that are connected.
    pub fn clients(&self) -> usize {
        self.shared.clients.lock().len()
    }

    /// The address of an export, as clients take it.
    ///
    /// # Errors
    /// As [`Listener::uri`].
    pub fn uri(&self, name: &str) -> io::Result<String> {
        self.shared.listener.uri(name)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        for socket in self.shared.clients.lock().values() {
            socket.close();
        }
        // One that cannot be woken ends with the process.
        let woken = self.shared.listener.wake();
        self.shared.listener.remove();
        if woken && let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn accept(self: Arc<Self>) {
        for number in 0.. {
            let accepted = self.listener.accept();
            if self.stopping.load(Ordering::SeqCst) {
                break;
            }
            match accepted {
                Ok(socket) => {
                    // A client that cannot be served is disconnected, and that is all.
                    drop(Arc::clone(&self).take_in(number, socket));
                }
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    fn take_in(self: Arc<Self>, number: u64, socket: Socket) -> io::Result<()> {
        {
            let mut clients = self.clients.lock();
            if clients.len() >= CLIENTS_MAX {
                return Ok(());
            }
            clients.insert(number, socket.try_clone()?);
        }
        let leaving = Leaving { shared: Arc::clone(&self), number };
        // Between the two, the server may have begun to stop.
        if self.stopping.load(Ordering::SeqCst) {
            socket.close();
        }
        let serve = move || {
            let served = offer::negotiate(Timed::over(socket, NEGOTIATION_TIMEOUT), &leaving.shared.exports)
                .and_then(|agreed| {
                    agreed.map_or(Ok(()), |(socket, chosen)| Session::new(socket, chosen)?.serve())
                });
            drop((served, leaving));
        };
        Builder::new().name(format!("nbd-{number}")).spawn(serve).map(drop)
    }
}

/// Takes a client off the list when its thread ends, however it does.
struct Leaving {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        if let Some(socket) = self.shared.clients.lock().remove(&self.number) {
            socket.close();
        }
    }
}

#[cfg(test)]
mod tests;
