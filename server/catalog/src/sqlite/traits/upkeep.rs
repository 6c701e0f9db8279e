//! [`Upkeep`] on SQLite.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::super::convert::OrCatalogError as _;
use super::super::{SqliteCatalog, audit, connection, details, heal, namespaces, quotas, snapshot};
use crate::{GoOn, INTEGRITY_PROBLEMS_MAX, RepositoryRecord, Result, Upkeep};

impl Upkeep for SqliteCatalog {
    fn repository(&self) -> Result<RepositoryRecord> {
        self.look_up(namespaces::repository)
    }

    fn integrity_check(&self) -> Result<Vec<String>> {
        self.report(|c| {
            let mut problems = heal::problems(c)?;
            problems.extend(quotas::problems(c)?);
            problems.extend(details::sums::kept::problems(c)?);
            problems.truncate(usize::try_from(INTEGRITY_PROBLEMS_MAX).unwrap_or(usize::MAX));
            Ok(problems)
        })
    }

    fn damage_check(&self, go_on: GoOn) -> Result<Option<Vec<String>>> {
        heal::look(&self.path, go_on)
    }

    fn heal(&self) -> Result<Vec<String>> {
        self.change("write", heal::heal)
    }

    fn size_bytes(&self) -> Result<u64> {
        self.report(connection::size_bytes)
    }

    fn check_writable(&self) -> Result<()> {
        self.try_change(|tx| {
            tx.execute("UPDATE repository SET next_container = next_container", [])
                .or_error("write")
                .map(drop)
        })
    }

    fn checkpoint(&self) -> Result<()> {
        self.change("checkpoint", |writer| connection::checkpoint(writer))
    }

    fn snapshot(&self, stop: &Arc<AtomicBool>) -> Result<Box<dyn Read + Send>> {
        snapshot::check_room(&self.path, self.size_bytes()?)?;
        Ok(Box::new(snapshot::take(&self.path, stop)?))
    }

    fn change_mark(&self) -> Result<i64> {
        self.watcher.mark(&self.path)
    }

    fn access_changed_since(&self, after: u128) -> Result<(u128, bool)> {
        self.report(|c| audit::access_changed_since(c, after))
    }
}
