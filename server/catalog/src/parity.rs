//! Groups of containers that parity protects.

use holdfast_types::ids::ContainerId;

use crate::sqlite::{Catalog, parity};
use crate::{ContainerRecord, ParityGroup, ParityTotals, Result};

/// Used by what writes parity and by what repairs with it.
///
/// Across processes: each function that changes something is one transaction.
impl Catalog {
    /// Up to `limit` live containers made before `before_ms` that are in no group, by number, after `after`.
    pub fn without_parity(
        &self,
        after: Option<ContainerId>,
        before_ms: i64,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>> {
        self.report(|c| parity::without(c, after, before_ms, limit))
    }

    /// Makes a group known whose blob is durable, in place of the group `replaced`. `Exists`: the number is taken.
    /// `Invalid`: a container of it is not known, is being deleted, or is in another group.
    pub fn add_parity_group(&self, group: &ParityGroup, replaced: Option<ContainerId>) -> Result<()> {
        self.write(|tx| {
            replaced.map_or(Ok(()), |replaced| parity::remove(tx, replaced))?;
            parity::add(tx, group)
        })
    }

    /// Up to `limit` groups by number, after `after`, that are not [broken](Self::broken_parity_groups), and whether each is
    /// [marked](Self::mark_parity_group).
    pub fn parity_groups(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<(ContainerId, bool)>> {
        self.report(|c| parity::groups(c, after, limit))
    }

    /// The containers of a group, those that are being deleted, too.
    pub fn parity_members(&self, number: ContainerId) -> Result<Vec<ContainerRecord>> {
        self.report(|c| parity::members(c, number))
    }

    /// Returns whether a group's blob was found damaged or missing. A group that is not known is skipped.
    pub fn mark_parity_group(&self, number: ContainerId, damaged: bool) -> Result<()> {
        self.write(|tx| parity::mark(tx, number, damaged))
    }

    /// Up to `limit` groups that are marked.
    pub fn damaged_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>> {
        self.report(|c| parity::damaged(c, limit))
    }

    /// The group a container is in.
    pub fn parity_group_of(&self, container: ContainerId) -> Result<Option<ContainerId>> {
        self.look_up(|c| parity::of(c, container))
    }

    /// Returns true if parity group `number` exists.
    pub fn has_parity_group(&self, number: ContainerId) -> Result<bool> {
        self.look_up(|c| parity::has(c, number))
    }

    /// Up to `limit` groups of which a container was deleted, or is being.
    pub fn broken_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>> {
        self.report(|c| parity::broken(c, limit))
    }

    /// Forgets a group. One that is not known is skipped.
    pub fn remove_parity_group(&self, number: ContainerId) -> Result<()> {
        self.write(|tx| parity::remove(tx, number))
    }

    pub fn parity_totals(&self) -> Result<ParityTotals> {
        self.report(parity::totals)
    }
}
