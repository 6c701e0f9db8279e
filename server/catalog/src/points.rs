//! Restore points as the volume knows them: what a point is made of, and how one that the catalog lacks is entered.

use holdfast_types::ids::BackupId;

use crate::sqlite::{Catalog, commit_numbers, namespaces, points, renames};
use crate::{CommitState, NamespaceRecord, PointRecord, Rename, Result, validate};

/// Used by commits, at start, by checks and by recovery.
///
/// Across processes: each function that changes something is one transaction.
impl Catalog {
    /// Returns the state of the repository's commits.
    pub fn commits(&self) -> Result<CommitState> {
        self.look_up(commit_numbers::state)
    }

    /// Records whether every backup is known to have its point on the volume.
    pub fn set_points_written(&self, written: bool) -> Result<()> {
        if self.commits()?.points_written == written {
            return Ok(());
        }
        self.write(|tx| commit_numbers::set_written(tx, written))
    }

    /// The volume is at this generation: a copy that is older than the volume agrees with it from now on.
    pub fn note_generation(&self, generation: u64) -> Result<()> {
        self.write(|tx| commit_numbers::note_generation(tx, generation))
    }

    /// Up to `limit` backups after `after`, by id; see
    /// [`Catalog::all_backup_ids`].
    pub fn backup_ids(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.report(|c| points::ids(c, after, limit))
    }

    /// Returns the point of the backup `id`, if there is such a backup. Which token made it, and its parent, the
    /// catalog does not know.
    pub fn point(&self, id: BackupId) -> Result<Option<PointRecord>> {
        self.look_up(|c| points::read(c, id))
    }

    /// Makes restore points exist that the volume knows and the catalog does not, all in one transaction: each with its
    /// namespace, VM, job and run, and an entry in the audit log. One replaces the record of a failure of the same
    /// session. Within its VM it takes the place its commit number says. Container numbers below the point's are not
    /// handed out afterwards. Says of each whether it was missing; one that was not stays as it is. `Exists`: a
    /// backup is another session's. `Invalid`: one contradicts itself, or its run is of another owner or namespace.
    pub fn enter_points(&self, points: &[PointRecord]) -> Result<Vec<bool>> {
        points.iter().try_for_each(validate::point)?;
        self.write(|tx| points.iter().map(|point| points::enter(tx, self.clock.as_ref(), point)).collect())
    }

    /// (P10) Gives VMs and jobs the names that newer points say, all in one transaction, with entries in the audit log:
    /// names may have gone round. Policies follow, and points become stale. Where another has the name still, both are one
    /// from now on. What is not there by its old name is skipped. `Invalid`: not a name.
    pub fn follow_names(&self, renames: &[Rename]) -> Result<()> {
        renames.iter().try_for_each(|one| validate::name("VM or job", &one.to))?;
        self.write(|tx| renames::follow(tx, self.clock.as_ref(), renames))
    }

    /// The namespace of this id; when there is none it is created, with the id added to its name where another has the
    /// name. `Invalid`: not a name.
    pub fn restore_namespace(&self, namespace: &NamespaceRecord) -> Result<NamespaceRecord> {
        validate::name("namespace", &namespace.name)?;
        self.write(|tx| namespaces::restore(tx, namespace))
    }
}
