//! Encryption at rest: a volume around a volume that seals every blob, and the table of keys, which lies on the same
//! volume in the open.
//!
//! | file | what it holds |
//! |---|---|
//! | `layout.rs` | what a sealed blob looks like: header, pages, the header again; what it is called |
//! | `writer.rs`, `blob.rs` | a blob being sealed, a blob being opened |
//! | `volume.rs` | [`SealedVolume`] |
//! | `convert.rs` | what lies in the open, or is sealed with an old data key, is sealed anew |
//! | `keys.rs` | [`Keys`]: the keys of a repository at work; a new owner gets its key before anything is sealed with it |
//! | `table.rs` | where the table of keys lies, and how it is replaced |
//!
//! What is above sees the blobs it wrote, under the names it gave them. What is below sees only sealed bytes under names
//! with a `-`, or two, at the end. So tiers, copies, caches and parity below this hold nothing that can be read without a key, and
//! nothing above needs to know of keys: one rule for containers, restore points, catalog snapshots, the index and
//! whatever comes.
//!
//! A crash leaves what the volume below leaves: whole sealed blobs, or none; and the table before or after a change.

mod blob;
mod convert;
mod keys;
mod layout;
mod table;
mod volume;
mod writer;

pub use convert::{
    Cause, Conversion, ConversionFigures, ConvertError, Converting, Inventory, Room, Surroundings, inventory,
};
pub use keys::{Keys, KeysError, TakeOverError};
pub use layout::{is_left_open, is_sealed_name, name_above, names_below};
pub use table::{Mended, TableError, read_table, settle_table, write_table};
pub use volume::SealedVolume;

#[cfg(test)]
mod tests;
