//! The Holdfast server: the asynchronous shell around the storage engine.
//!
//! Read in this order: [`server`] (a server's life) → [`app`] (what calls share) → [`auth`] → `grpc` and `http` (the
//! protocols) → `cli`. The engine does the storage work; nothing here knows an on-disk format.
//!
//! Imports point one way, from the bottom of this list to its top; `xtask/tests/structure/` finds circles.
//!
//! | module | open it for |
//! |---|---|
//! | `error`, `files`, `insight`, `limits`, `net`, `shares`, `tls` | building blocks: errors, small durable files, what numbers mean, what a stranger may cost, connections, budgets, the certificate |
//! | `config` | settings: flags, environment, file |
//! | `memory` | what memory there is, and what it is used for |
//! | `process` | this process: logging, allocator, service manager |
//! | `repository` | turns the settings into the engine's parts: volumes, catalog, keys, buckets; making a repository again |
//! | `audit_log` | entries that peers can cause as often as they like: counted |
//! | `findings` | what is out of line with the history of a VM: noted after each run, and listed |
//! | `auth` | authentication: tokens, logins with a browser, what a caller may do |
//! | `retention` | which restore points are kept and which go: policies, deleting by rules |
//! | `activity` | what is going on: sessions, streams, who watches; their limits |
//! | `readiness` | whether backups are accepted, and why not |
//! | `metrics` | metrics |
//! | `archive` | what lies in the archive of a bucket, and what bringing it back costs |
//! | `jobs` | background work |
//! | `tasks` | long work that people and schedules start |
//! | `app` | what all calls share |
//! | `reading` | reading restore points back: who may, and thawing |
//! | `control` | what commands on this machine ask of a running server |
//! | `grpc`, `http` | the agents' protocol; REST API and web UI |
//! | `server` | start and shutdown |
//! | `cli` | the command line |

pub mod activity;
pub mod app;
mod archive;
mod audit_log;
pub mod auth;
pub mod cli;
pub mod config;
mod control;
pub mod error;
pub mod files;
mod findings;

mod grpc;
pub mod http;
mod insight;
pub mod jobs;
mod limits;
pub mod memory;
mod metrics;
mod net;
mod process;
mod readiness;
mod reading;
pub mod repository;
mod retention;
pub mod server;
mod shares;
mod tasks;
pub mod tls;
