//! The claims whose chunks lie in one container that is not indexed yet.

use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerId;

use super::table::ClaimTable;

/// (C3) Belongs to whatever writes and seals the container. Dropping it ends the claims: after the chunks are indexed,
/// or when they never will be.
#[derive(Debug)]
pub(crate) struct Arrivals {
    table: Arc<ClaimTable>,
    stream: u64,
    container: ContainerId,
    entered: Vec<Fingerprint>,
}

impl Arrivals {
    pub(super) const fn new(table: Arc<ClaimTable>, stream: u64, container: ContainerId) -> Self {
        Self { table, stream, container, entered: Vec::new() }
    }

    /// A region with these chunks was written to the container.
    pub(crate) fn add(&mut self, fingerprints: &[Fingerprint]) {
        self.entered.extend(self.table.arrived(self.stream, self.container, fingerprints));
    }

    /// Whether another stream counts on one of them.
    pub(crate) fn are_awaited(&self) -> bool {
        self.table.is_awaited(self.stream, self.container, &self.entered)
    }
}

impl Drop for Arrivals {
    fn drop(&mut self) {
        self.table.conclude(self.stream, self.container, &self.entered);
    }
}
