//! What volumes, catalogs and the engine all name: [`ids`] of things, the [`clock`] that is passed in, and whose files are
//! ([`owner`]).

pub mod clock;
pub mod ids;
pub mod owner;
