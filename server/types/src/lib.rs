//! Types that volumes, catalogs and the engine share: [`ids`], the [`clock`] that is passed in, and the [`owner`] of files.

pub mod clock;
pub mod ids;
pub mod owner;
