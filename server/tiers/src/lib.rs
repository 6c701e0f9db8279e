//! Tiers: a local volume, and one far away (a bucket) that gets a copy of everything a repository is made of. What the
//! local one lacks is read from the other.
//!
//! | file | what it holds |
//! |---|---|
//! | `record.rs` | [`Record`]: what lies in the bucket and what is to go from there, in a database of its own |
//! | `waiting.rs` | kinds of blobs in the order in which they are copied; blobs that are sealed and not copied yet, in memory, and those that could not be read |
//! | `volume.rs` | [`TieredVolume`]: the volume of the engine, or below its encryption; [`AbsentVolume`] stands in for a bucket that is not configured any more |
//! | `shared.rs` | state that these parts share: [`Remote`], the bucket, as each use of it sees it; requests to the archive, for its costs, and those under way |
//! | `round.rs` | a round of copying: how far it is |
//! | `lease.rs`, `holder.rs` | who writes to the bucket |
//! | `error.rs` | why copying does not go on |
//! | `prices.rs` | [`prices`]: what Amazon S3 asks for, by storage class |
//! | `copies.rs` | [`Copies`]: does the copying and removing, a bounded piece a call |
//! | `thawed.rs` | copies of what was thawed, kept here for a while |
//! | `compare.rs` | whether what lies in the bucket is what lies here |
//! | `evict.rs` | containers that lie there alone, but for their ends |
//! | `cold.rs` | what lies in an archive there, and reading it |
//! | `freeze.rs` | containers that are given the storage class of an archive |
//! | `thaw.rs` | [`Archive`]: brings back what lies in one, asking for each object once |
//! | `retain.rs` | makes what locked restore points need stay there (Object Lock) |
//! | `audit.rs` | the bucket against the record: what is gone, changed or archived there |
//! | `places.rs` | what lies where |
//! | `survey.rs` | makes the record of a listing of the bucket |
//! | `fetch.rs` | brings what should be at hand |
//!
//! Invariants (ORDERING, "Copies in a bucket"):
//! - A restore point is copied only after all it needs (T1), and nothing goes from the bucket before what was sealed
//!   before its removal is there (T2), but for tables of keys, which a newer one replaces (T7). So whatever restore points
//!   are in the bucket can be restored from it alone.
//! - A removal is noted, durably, before the local blob goes (T3): no crash brings a removed blob back.
//! - What lies in the bucket is known from the record alone; work never lists the bucket (T4).
//! - One server writes to the bucket: the one whose lease lies there (T8).
//! - The local copy of a container goes only after what lies in the bucket was once more found to be the same (T9).
//! - What lies in an archive is data containers whose ends lie beside them, and the record says so before (T10).
//! - What was thawed and is kept here is checked whenever it is read, and counts as no copy (T16).
//! - What the bucket has lost is copied again from here (T13), or counts for nothing until it is back (T14).
//! - What locked restore points need stays there as long as they do, and is only ever extended (T17, T18).
//! - An object is what was sent only by the checksum that was sent, and what lies there alone is read once a year (T20, T21).
//! - The bucket being away fails reads of what only it has, and delays copies; nothing else (T5).
//!
//! A crash leaves blobs in the bucket that are not in the record: the next process finds out by asking for each blob
//! that the record lacks, and takes those that are the same for copied.

mod audit;
mod cold;
mod compare;
mod copies;
mod error;
mod evict;
mod fetch;
mod freeze;
mod holder;
mod lease;
mod places;
pub mod prices;
mod record;
mod retain;
mod round;
mod shared;
mod survey;
mod thaw;
mod thawed;
mod volume;
mod waiting;

pub use audit::{AuditEnd, AuditFinding, AuditWatch, Audited, Outcome};
pub use cold::{days_min, is_archive};
pub use copies::{Copies, CopyStatus, Worked};
pub use error::CopyError;
pub use evict::{enter_moved, has_moved_containers, moved_containers, note_made_of_bucket};
pub use fetch::{FetchError, Fetched};
pub use holder::Holder;
pub use places::{Held, KindPlaces};
pub use record::{ClassTotals, Flaw, KindTotals, Record, RecordError, RetentionTotals};
pub use retain::{Extended, Extending, Keep};
pub use shared::{ArchiveAsked, AskedThaws, Names, Remote};
pub use survey::{Missing, SurveyError, holds_blobs, survey, survey_missing};
pub use thaw::{Archive, Thawing, UNDER_WAY_MS};
pub use thawed::{ThawCacheLimits, ThawCacheTotals};
pub use volume::{AbsentVolume, TieredVolume};

#[cfg(test)]
mod tests;
