//! [`Parities`] on SQLite.

use holdfast_types::ids::ContainerId;

use super::super::{SqliteCatalog, parity};
use crate::{ContainerRecord, Parities, ParityGroup, ParityTotals, Result};

impl Parities for SqliteCatalog {
    fn without_parity(
        &self,
        after: Option<ContainerId>,
        before_ms: i64,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>> {
        self.report(|c| parity::without(c, after, before_ms, limit))
    }

    fn add_parity_group(&self, group: &ParityGroup, replaced: Option<ContainerId>) -> Result<()> {
        self.write(|tx| {
            replaced.map_or(Ok(()), |replaced| parity::remove(tx, replaced))?;
            parity::add(tx, group)
        })
    }

    fn parity_groups(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<(ContainerId, bool)>> {
        self.report(|c| parity::groups(c, after, limit))
    }

    fn parity_members(&self, number: ContainerId) -> Result<Vec<ContainerRecord>> {
        self.report(|c| parity::members(c, number))
    }

    fn mark_parity_group(&self, number: ContainerId, damaged: bool) -> Result<()> {
        self.write(|tx| parity::mark(tx, number, damaged))
    }

    fn damaged_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>> {
        self.report(|c| parity::damaged(c, limit))
    }

    fn parity_group_of(&self, container: ContainerId) -> Result<Option<ContainerId>> {
        self.look_up(|c| parity::of(c, container))
    }

    fn has_parity_group(&self, number: ContainerId) -> Result<bool> {
        self.look_up(|c| parity::has(c, number))
    }

    fn broken_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>> {
        self.report(|c| parity::broken(c, limit))
    }

    fn remove_parity_group(&self, number: ContainerId) -> Result<()> {
        self.write(|tx| parity::remove(tx, number))
    }

    fn parity_totals(&self) -> Result<ParityTotals> {
        self.report(parity::totals)
    }
}
