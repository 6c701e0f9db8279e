//! The catalog as a whole: what repository it is of, whether it is sound, how large it is.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sqlite::convert::OrCatalogError as _;
use crate::sqlite::{Catalog, audit, connection, heal, namespaces, room, snapshot};
use crate::{GoOn, INTEGRITY_PROBLEMS_MAX, RepositoryRecord, Result};

/// Used at start, by checks and for metrics. Across processes: nothing here changes rows, and none of it
/// keeps another process from reading or writing.
impl Catalog {
    /// The repository's own record.
    pub fn repository(&self) -> Result<RepositoryRecord> {
        self.look_up(namespaces::repository)
    }

    /// Checks the database, its references and the sums kept of namespaces; returns what is wrong, at most
    /// [`INTEGRITY_PROBLEMS_MAX`] problems. Empty: sound. Reads everything.
    pub fn integrity_check(&self) -> Result<Vec<String>> {
        self.report(|c| {
            let mut problems = heal::problems(c)?;
            problems.extend(heal::sum_problems(c)?);
            problems.truncate(usize::try_from(INTEGRITY_PROBLEMS_MAX).unwrap_or(usize::MAX));
            Ok(problems)
        })
    }

    /// Checks the database, its references, and that every restore point has all its rows; the sums aside, which keep
    /// nothing. `None`: `go_on`, asked every few milliseconds, said no.
    pub fn damage_check(&self, go_on: GoOn) -> Result<Option<Vec<String>>> {
        heal::look(&self.path, go_on, heal::problems)
    }

    /// Makes anew, in one transaction, what follows from other rows: indexes and sums; and drops what is left of restore
    /// points that lost rows, so that their points can be entered again. Returns what is wrong then; if anything is, nothing
    /// was changed. Not possible where rows were lost that no point tells of.
    pub fn heal(&self) -> Result<Vec<String>> {
        self.change("write", heal::heal)
    }

    /// Makes all sums anew if one of them is wrong; returns which were. `None`: `go_on`, asked every few milliseconds, said no.
    pub fn correct_sums(&self, go_on: GoOn) -> Result<Option<Vec<String>>> {
        let found = heal::look(&self.path, go_on, heal::sum_problems)?;
        if found.as_ref().is_some_and(|wrong| !wrong.is_empty()) {
            self.add_up()?;
        }
        Ok(found)
    }

    /// Makes all sums anew, of the rows that there are.
    pub fn add_up(&self) -> Result<()> {
        self.write(heal::add_up)
    }

    /// Bytes the database takes up, its log aside.
    pub fn size_bytes(&self) -> Result<u64> {
        self.report(connection::size_bytes)
    }

    /// Checks that a change could be begun now: the lock can be had and the database takes a change, which is taken
    /// back at once. Writes nothing, so a disk that fails only when it is written to is not noticed, and nothing is
    /// latched. `Busy`: another process has the lock at the moment. `ReadOnly`: changes have stopped.
    pub fn check_writable(&self) -> Result<()> {
        self.try_change(|tx| {
            tx.execute("UPDATE repository SET next_container = next_container", [])
                .or_error("write")
                .map(drop)
        })
    }

    /// Folds the log into the database; also done when the catalog is dropped, unless changes have stopped. Readers
    /// and writers go on. Fails as a change does.
    pub fn checkpoint(&self) -> Result<()> {
        self.change("checkpoint", |writer| connection::checkpoint(writer))
    }

    /// A whole copy of the catalog as of one moment, compact, as a stream of bytes; readers and writers go on. What it
    /// is made of is the implementation's affair: only the same one can open it. It takes as much room again
    /// beside the catalog until it is dropped. `Full`: that room is not there, and then nothing of it was taken. Fails soon
    /// once `stop` is set.
    pub fn snapshot(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>> {
        room::check(&self.path, self.size_bytes()?, 0)?;
        Ok(Box::new(snapshot::take(&self.path, stop)?))
    }

    /// (W17) Bytes of the file system that sorting for reports leaves free from now on.
    pub fn leave_free(&self, bytes: u64) {
        self.left_free_bytes.store(bytes, Ordering::Relaxed);
    }

    /// A number that differs from every earlier one of this process when anything was changed in between, by whichever
    /// process.
    pub fn change_mark(&self) -> Result<i64> {
        self.watcher.mark(&self.path)
    }

    /// The place of the audit log's last entry (0: it is empty), and whether tokens, owners or quotas were changed after
    /// the entry at `after`. Reads what the log has after that.
    pub fn access_changed_since(&self, after: u128) -> Result<(u128, bool)> {
        self.report(|c| audit::access_changed_since(c, after))
    }
}
