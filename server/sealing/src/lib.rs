//! Encryption at rest: a volume that seals every blob on the volume below, and the table of keys, which is on the same
//! volume, unencrypted.
//!
//! | file | what it holds |
//! |---|---|
//! | `layout.rs` | layout and names of sealed blobs: header, pages, the header again |
//! | `writer.rs`, `blob.rs` | sealing and opening a blob |
//! | `volume.rs` | [`SealedVolume`] |
//! | `convert.rs` | seals anew blobs that are plain, or sealed with an old data key |
//! | `keys.rs` | [`Keys`]: the keys of a repository in use; a new owner gets its key before anything is sealed with it |
//! | `table.rs` | storage of the table of keys, and how it is replaced |
//!
//! The layers above see the blobs they wrote, under the names they gave them. The layers below see only sealed bytes,
//! under names that end with one `-` or two. So tiers, copies, caches and parity below this contain nothing that is
//! readable without a key, and nothing above needs to know about keys: one rule for containers, restore points,
//! catalog snapshots, the index and future blobs.
//!
//! A crash leaves whole sealed blobs, or none, as the volume below does; and the table before or after a change.

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
