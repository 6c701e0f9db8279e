//! Finding and reading chunks and recipe nodes: fingerprint → index → container → region → checked bytes.
//!
//! The one place that decides whether a stored chunk counts. An index hit is only a candidate; it counts when
//! the container's directory holds the whole fingerprint and nothing is known to be damaged there. Damage
//! met on the way is remembered, so that the next backup stores the chunk again and older backups heal.
//!
//! Files, each importing only from those before it: [`damage`] and [`decoded`] (what is known, what is at
//! hand), [`losses`] (what is missing, and when that is too much to believe), [`reach`] (where recipes' chunks lie), [`reported`] (what agents say of regions),
//! [`index_repair_state`] (how far a repair of the index is), [`gone`] (containers on their way out), [`chunk_set`],
//! [`leftovers`] (who counts on what, and what failed sessions left) → [`domain`] (a namespace's keys) → [`chunks`] (the store) → [`notes`] (taking note of damage, looking at it again),
//! [`read`] (checked bytes), [`deletion`], [`moved`] (holds of what was copied), [`copies`] (of what agents sealed), [`nodes`] (recipe nodes) → [`healing`] (damage that other copies make up for), [`index_repair`] (pages of the index
//! that cannot be read).

mod chunk_set;
mod chunks;
mod copies;
mod damage;
mod decoded;
mod deletion;
mod domain;
mod gone;
mod healing;
mod index_repair;
mod index_repair_state;
mod leftovers;
mod nodes;
mod notes;
mod reach;
mod read;
mod reported;
mod salvage;
mod salvage_cache;

pub(crate) use chunks::{ChunkStore, Found, StoreParts};
#[cfg(test)]
pub(crate) use damage::LOOK_AGAIN_MS;
pub(crate) use domain::Domain;
pub(crate) use leftovers::{Holds, Leftover, Leftovers};
pub use damage::OnLoss;
pub(crate) use nodes::NodeReader;
pub(crate) use notes::{lost, region_is_sound};
pub(crate) use reach::Reach;
pub(crate) use read::{ReadChunk, ReadFrom};
