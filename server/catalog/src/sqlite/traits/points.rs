//! [`Points`] on SQLite.

use holdfast_types::ids::BackupId;

use super::super::{SqliteCatalog, commit_numbers, namespaces, points, renames};
use crate::{CommitState, NamespaceRecord, PointRecord, Points, Rename, Result, validate};

impl Points for SqliteCatalog {
    fn commits(&self) -> Result<CommitState> {
        self.look_up(commit_numbers::state)
    }

    fn set_points_written(&self, written: bool) -> Result<()> {
        if self.commits()?.points_written == written {
            return Ok(());
        }
        self.write(|tx| commit_numbers::set_written(tx, written))
    }

    fn note_generation(&self, generation: u64) -> Result<()> {
        self.write(|tx| commit_numbers::note_generation(tx, generation))
    }

    fn backup_ids(&self, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
        self.report(|c| points::ids(c, after, limit))
    }

    fn point(&self, id: BackupId) -> Result<Option<PointRecord>> {
        self.look_up(|c| points::read(c, id))
    }

    fn enter_points(&self, points: &[PointRecord]) -> Result<Vec<bool>> {
        points.iter().try_for_each(validate::point)?;
        self.write(|tx| points.iter().map(|point| points::enter(tx, self.clock.as_ref(), point)).collect())
    }

    fn follow_names(&self, renames: &[Rename]) -> Result<()> {
        renames.iter().try_for_each(|one| validate::name("VM or job", &one.to))?;
        self.write(|tx| renames::follow(tx, self.clock.as_ref(), renames))
    }

    fn restore_namespace(&self, namespace: &NamespaceRecord) -> Result<NamespaceRecord> {
        validate::name("namespace", &namespace.name)?;
        self.write(|tx| namespaces::restore(tx, namespace))
    }
}
