//! Tiers: a local volume, and a remote one (a bucket) that gets a copy of everything in a repository. Blobs missing
//! from the local volume are read from the bucket.
//!
//! | file | what it holds |
//! |---|---|
//! | `record.rs` | [`Record`]: blobs in the bucket and blobs due for removal from it, in a database of its own |
//! | `waiting.rs` | kinds of blobs in copy order; blobs that are sealed and not copied yet, in memory, and those that could not be read |
//! | `volume.rs` | [`TieredVolume`]: the volume of the engine, or below its encryption; [`AbsentVolume`] stands in for a bucket that is no longer configured |
//! | `shared.rs` | shared state: [`Remote`], the bucket as each user of it sees it; requests to the archive, for its costs, and those in progress |
//! | `round.rs` | progress of a round of copying |
//! | `lease.rs`, `holder.rs` | the server that writes to the bucket |
//! | `error.rs` | errors that stop copying |
//! | `prices.rs` | [`prices`]: Amazon S3's prices, by storage class |
//! | `copies.rs` | [`Copies`]: does the copying and removing, in bounded steps |
//! | `thawed.rs` | local cache of thawed copies |
//! | `compare.rs` | compares objects with local blobs |
//! | `evict.rs` | containers that only the bucket has, apart from their ends |
//! | `cold.rs` | archived objects, and the volume that refuses to read them |
//! | `freeze.rs` | moves containers into an archive storage class |
//! | `thaw.rs` | [`Archive`]: thaws archived objects, with one request for each |
//! | `retain.rs` | puts objects that locked restore points need under retention (Object Lock) |
//! | `audit.rs` | compares the bucket with the record: objects gone, changed or archived |
//! | `places.rs` | totals of blobs by place |
//! | `survey.rs` | rebuilds the record from a listing of the bucket |
//! | `fetch.rs` | fetches blobs that should be local |
//!
//! Invariants (ORDERING, "Copies in a bucket"):
//! - A restore point is copied only after everything it needs (T1), and a blob is removed from the bucket only after
//!   everything sealed before its removal is there (T2), except tables of keys, which a newer one replaces (T7). So
//!   every restore point in the bucket can be restored from it alone.
//! - A removal is durably recorded before the local blob is removed (T3): no crash brings a removed blob back.
//! - The record alone tells which blobs the bucket has; work never lists the bucket (T4).
//! - One server writes to the bucket: the holder of its lease (T8).
//! - The local copy of a container is removed only after the bucket's copy was verified once more (T9).
//! - Only data containers are archived, with their ends beside them, and the record says so before (T10).
//! - A thawed copy kept here is verified whenever it is read, and does not count as a copy (T16).
//! - An object that the bucket lost is copied again from here (T13), or nothing counts on it until it is back (T14).
//! - Objects that locked restore points need stay as long as those do, and their retention is only ever
//!   extended (T17, T18).
//! - An object is verified by the checksum it was sent with, and one that only the bucket has is read once a
//!   year (T20, T21).
//! - An unreachable bucket fails reads of blobs that only it has, and delays copies; nothing else (T5).
//!
//! A crash leaves blobs in the bucket that are not in the record: the next process asks the bucket for each blob that
//! the record lacks, and accepts equal objects as copies.

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
