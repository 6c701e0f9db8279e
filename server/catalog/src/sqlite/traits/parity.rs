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

    fn add_parity_group(&self, group: &ParityGroup) -> Result<()> {
        self.write(|tx| parity::add(tx, group))
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
