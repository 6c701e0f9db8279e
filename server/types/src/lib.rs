//! What volumes, catalogs and the engine all name: [`ids`] of things, and the [`clock`] that is passed in.
//! No I/O.

pub mod clock;
pub mod ids;
