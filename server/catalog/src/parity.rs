//! Groups of containers that parity protects.

use std::fmt;

use holdfast_types::ids::ContainerId;

use crate::Result;
use crate::rows::{ContainerRecord, ParityGroup, ParityTotals};

/// Asked by what writes parity and by what repairs with it.
///
/// Across processes: each function that changes something is one transaction.
pub trait Parities: Send + Sync + fmt::Debug {
    /// Up to `limit` live containers made before `before_ms` that are in no group, by number, after `after`.
    fn without_parity(
        &self,
        after: Option<ContainerId>,
        before_ms: i64,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>>;
    /// Makes a group known whose blob is durable, in place of the group `replaced`. `Exists`: the number is taken.
    /// `Invalid`: a container of it is not known, is being deleted, or is in another group.
    fn add_parity_group(&self, group: &ParityGroup, replaced: Option<ContainerId>) -> Result<()>;
    /// Up to `limit` groups by number, after `after`, that are not [broken](Self::broken_parity_groups), and whether each is
    /// [marked](Self::mark_parity_group).
    fn parity_groups(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<(ContainerId, bool)>>;
    /// The containers of a group, those that are being deleted, too.
    fn parity_members(&self, number: ContainerId) -> Result<Vec<ContainerRecord>>;
    /// Returns whether a group's blob was found damaged or missing. A group that is not known is skipped.
    fn mark_parity_group(&self, number: ContainerId, damaged: bool) -> Result<()>;
    /// Up to `limit` groups that are marked.
    fn damaged_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>>;
    /// The group a container is in.
    fn parity_group_of(&self, container: ContainerId) -> Result<Option<ContainerId>>;
    /// Whether there is such a group.
    fn has_parity_group(&self, number: ContainerId) -> Result<bool>;
    /// Up to `limit` groups of which a container was deleted, or is being.
    fn broken_parity_groups(&self, limit: u32) -> Result<Vec<ContainerId>>;
    /// Forgets a group. One that is not known is skipped.
    fn remove_parity_group(&self, number: ContainerId) -> Result<()>;
    fn parity_totals(&self) -> Result<ParityTotals>;
}
