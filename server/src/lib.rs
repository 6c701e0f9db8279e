//! The Holdfast server: the async shell around the storage engine.
//!
//! Read in this order: [`server`] (a server's life) → [`app`] (what calls share) → [`auth`] → `grpc` and
//! [`http`] (the protocols) → `cli`. The engine does all the work; nothing here knows a format.

pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod error;
pub mod files;
mod folder_lock;
mod grpc;
pub mod http;
mod insight;
mod memory;
mod metrics;
mod net;
mod notify;
mod open_files;
mod recent;
pub mod repository;
pub mod server;
mod service;
pub mod sessions;
pub mod streams;
mod telemetry;
pub mod tls;
