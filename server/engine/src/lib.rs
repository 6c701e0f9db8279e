//! The Holdfast storage engine: synchronous, independent of network and async runtime.
//!
//! Layers, each importing only what stands above it in this list (a test checks it):
//! vocabulary ([`ids`], [`clock`]) → [`format`] (bytes ↔ structs, pure) → [`volume`] (the only code that
//! touches files) → [`container`], [`index`], [`catalog`] → `recipe` → `ingest`, `restore`, `recovery`,
//! `check` → `engine`, the façade.

pub mod catalog;
pub mod clock;
pub mod container;
pub mod format;
pub mod ids;
pub mod index;
pub mod volume;
