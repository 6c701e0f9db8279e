//! Records of the catalog, as types of its own: one file a subject. Messages of the protocol are made from them
//! in `wire.rs` and nowhere else, so that the protocol can change without the database, and the reverse. Times
//! are milliseconds since the Unix epoch.

mod attribution;
mod audit;
mod backup;
mod container;
mod detail;
mod expiring;
mod parity;
mod places;
mod quota;
mod repository;
mod retention;
mod scrub;
mod space_day;
mod task;
mod trust;

pub use attribution::{
    AttributedBy, AttributedDay, AttributedGroup, AttributionRecord, AttributionState, BackupShareRecord,
    CountedShare,
};
pub use audit::{AuditEntry, AuditRecord, AuditRepeat};
pub use backup::{
    AgentsProof, AgentsProofs, Attempt, BackupCommit, BackupFilter, BackupRecord, CommitState, DiskRecord,
    FailedRun, PointRecord, RootRecord, RunRecord, Verification, VmRecord,
};
pub use container::{ContainerRecord, ContainerState, DamageChanges, DamageRecord};
pub use detail::DetailFilter;
pub use expiring::ExpiringRecord;
pub use holdfast_proto::api::{DetailRow, PointFate, Quota, RowStatus, TaskKind, TaskProgress, TaskStatus};
pub use holdfast_proto::v1::ChunkerParams;
pub use parity::{ParityGroup, ParityTotals};
pub use places::BackupPlaces;
pub use quota::{NamespaceQuota, StartAccount, Usage};
pub use repository::{NamespaceRecord, RepositoryRecord};
pub use retention::{
    DeletionRecord, LegalHold, LockChange, Named, NamedVm, PointState, Rename, RetentionLock, RetentionPolicy,
};
pub use scrub::{
    BackupInOrder, ByteRange, DamageTotals, DamagedDisk, LostRanges, ProofSummary, ScrubPhase, ScrubState,
    Scrubbed, WithinBackup,
};
pub use space_day::SpaceDay;
pub use task::{ScheduleMark, ScheduleRecord, TaskLine, TaskRecord};
pub use trust::{FalseDigest, VmOwner};
