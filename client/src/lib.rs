//! The Holdfast agent: backs up virtual disks to a Holdfast server and restores them.
//!
//! Start with [`connect::Connection::open`], then [`backup::run`], [`restore::Reader`] or [`reader::Reader`]; [`estimate`] needs
//! no server. Nothing here prints: it reports through [`progress::Progress`] and typed errors; only [`cli`],
//! the `holdfast` command, talks to people. [`service`] is the agent that backs up by the clock. Disks are read through [`source::Source`] and written through
//! [`restore::target::Target`].

mod backoff;
pub mod backup;
pub mod cancel;
mod child;
pub mod cli;
pub mod connect;
pub mod end_to_end;
pub mod error;
pub mod estimate;
mod point_name;
mod pool;
pub mod progress;
pub mod reader;
pub mod repository;
pub mod restore;
pub mod service;
mod slices;
pub mod source;
pub mod stages;
mod turn;

pub use error::ClientError;
