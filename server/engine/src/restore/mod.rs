//! Restores: `disk` for whole disks with look-ahead, `range` for any bytes of one.
//!
//! `plan` turns a window of extents into reads ordered by container and offset, `windows` one after another; `disk` keeps
//! several of the reads in flight. A region is sent as it is stored; one of which little is needed is decoded here and only
//! the needed chunks are sent. Damaged regions are noted and another copy is used when there is one.
//!
//! Each file imports only from those before it: [`open`] → [`plan`] → [`read`] and [`windows`] → [`disk`];
//! [`open`] → [`range`]; [`plan`] → [`cold`].

mod cold;
mod disk;
mod open;
mod plan;
mod range;
mod read;
mod windows;

pub(crate) use cold::cold_parts;
pub use disk::{DiskReader, PartReader};
pub use open::OnDamage;
pub use range::RangeReader;
