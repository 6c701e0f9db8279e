//! The catalog as a whole: what repository it is of, whether it is sound, how large it is.

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::Result;
use crate::rows::RepositoryRecord;

/// Version of the repository as a whole: which files there are and how they belong together. Raised when an
/// older build must not touch a repository although each file's own version is known to it.
pub const REPOSITORY_FORMAT: u32 = 1;

/// Problems [`Upkeep::integrity_check`] names at most.
pub const INTEGRITY_PROBLEMS_MAX: u32 = 100;

/// True when to go on with what takes long.
pub type GoOn = Box<dyn FnMut() -> bool + Send>;

/// Asked at start, by checks and for metrics. Across processes: nothing here changes rows, and none of it
/// keeps another process from reading or writing.
pub trait Upkeep: Send + Sync + fmt::Debug {
    /// The repository's own record.
    fn repository(&self) -> Result<RepositoryRecord>;
    /// Checks the database, its references and the sums kept of namespaces; returns what is wrong, at most
    /// [`INTEGRITY_PROBLEMS_MAX`] problems. Empty: sound. Reads everything.
    fn integrity_check(&self) -> Result<Vec<String>>;
    /// Checks the database, its references, and that every restore point has all its rows; the sums aside, which keep
    /// nothing. `None`: `go_on`, asked every few milliseconds, said no.
    fn damage_check(&self, go_on: GoOn) -> Result<Option<Vec<String>>>;
    /// Makes anew, in one transaction, what follows from other rows: indexes and sums; and drops what is left of restore
    /// points that lost rows, so that their points can be entered again. Returns what is wrong then; if anything is, nothing
    /// was changed. Not possible where rows were lost that no point tells of.
    fn heal(&self) -> Result<Vec<String>>;
    /// Bytes the database takes up, its log aside.
    fn size_bytes(&self) -> Result<u64>;
    /// Whether a change could be begun now: the lock can be had and the database takes a change, which is taken back at
    /// once. Writes nothing, so a disk that fails only when it is written to is not noticed, and nothing is latched.
    /// `Busy`: another process has the lock at the moment. `ReadOnly`: changes have stopped.
    fn check_writable(&self) -> Result<()>;
    /// Folds the log into the database; also done when the catalog is dropped, unless changes have stopped. Readers
    /// and writers go on. Fails as a change does.
    fn checkpoint(&self) -> Result<()>;
    /// A whole copy of the catalog as of one moment, compact, as a stream of bytes; readers and writers go on. What it
    /// is made of is the implementation's affair: only the same one can open it. It takes as much room again
    /// beside the catalog until it is dropped. `Full`: that room is not there, and then nothing of it was taken. Fails soon
    /// once `stop` is set.
    fn snapshot(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>>;
    /// A number that differs from every earlier one of this process when anything was changed in between, by whichever
    /// process.
    fn change_mark(&self) -> Result<i64>;
    /// The place of the audit log's last entry (0: it is empty), and whether tokens, owners or quotas were changed after
    /// the entry at `after`. Reads what the log has after that.
    fn access_changed_since(&self, after: u128) -> Result<(u128, bool)>;
}
