//! Network block devices (NBD): disks that another program serves.
//!
//! [`Export::connect`] follows an [`Address`], negotiates with the server, and opens several connections where the server
//! says that they see the same disk. [`Export::read_at`], [`Export::extents`], [`Export::write_at`] and [`Export::zero_at`]
//! block; many threads may call them at once. What was written is durable after [`Export::flush`].
//!
//! The protocol is that of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle negotiation,
//! structured replies and the metadata context `base:allocation` where the server has them.
//!
//! [`Server::start`] serves disks of this process ([`Disk`]) to any NBD client, read-only: `listen` has the sockets, `offer` the
//! negotiation, `serve` the requests of one connection.
//!
//! Nothing that the server sends is believed. Lengths are compared with what was asked for before memory is taken or a byte is
//! kept; a reply must cover the whole request, each byte once. A server that breaks the protocol loses the connection.
//! Every exchange has a deadline. Nor is anything that a client sends: what it asks for is compared with the disk, and a reply
//! of any length goes through a buffer of a fixed one.

mod address;
mod connection;
mod error;
mod export;
mod exports;
mod handshake;
mod listen;
mod offer;
mod serve;
mod server;
mod stream;
#[cfg(test)]
mod testing;
mod tls;
mod wire;

pub use address::{Address, DEFAULT_PORT};
pub use connection::Extent;
pub use error::NbdError;
pub use export::{CONNECTIONS_MAX, Export};
pub use exports::{Disk, Exports};
pub use listen::{Listener, Place};
pub use server::{CLIENTS_MAX, Server};
