//! One stream's claims.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerId;

use super::arrivals::Arrivals;
use super::table::{Asked, ClaimTable, Outlook, Output, Standing};

/// Memory a claim takes, about: in the table, and among what is asked or has arrived.
const CLAIM_BYTES: usize = 160;

/// See the module's text. Dropping it ends its claims, but for those that wait for their seal.
#[derive(Debug)]
pub(crate) struct StreamClaims {
    table: Arc<ClaimTable>,
    number: u64,
    /// The version of the table that a wait looked at, and one; 0: it waits for nothing.
    waits_since: AtomicU64,
}

impl StreamClaims {
    pub(super) fn new(table: Arc<ClaimTable>, output: Weak<dyn Output>) -> Self {
        let number = table.enter(output);
        Self { table, number, waits_since: AtomicU64::new(0) }
    }

    /// To be asked before chunks are looked up that [`StreamClaims::ask`] is asked about.
    pub(crate) fn concluded(&self) -> u64 {
        self.table.concluded()
    }

    /// What to tell the agent of chunks that were not found; and whether to look again for those it claims now.
    /// `concluded`: see there.
    pub(crate) fn ask(
        &self,
        missing: &[Fingerprint],
        takes_pending: bool,
        (now_ms, concluded): (i64, u64),
    ) -> (Vec<Asked>, bool) {
        self.table.ask(self.number, missing, takes_pending, (now_ms, concluded))
    }

    /// Takes claims back that have not arrived.
    pub(crate) fn withdraw(&self, fingerprints: &[Fingerprint]) {
        self.table.withdraw(self.number, fingerprints);
    }

    /// Where promised chunks are, for a stream that goes on.
    pub(crate) fn standing(&self, promised: &[Fingerprint]) -> Standing {
        self.table.standing(self.number, promised)
    }

    /// Ends the claims that have not arrived: the agent is not going to send them, or is gone.
    pub(crate) fn forget_asked(&self) {
        self.table.forget_asked(self.number);
    }

    /// What to do about promised chunks when the stream finishes since `since_ms`.
    pub(crate) fn outlook(&self, promised: &[Fingerprint], since_ms: i64, now_ms: i64) -> Outlook {
        let outlook = self.table.outlook(self.number, promised, (since_ms, now_ms));
        let waits = outlook.awaited > 0;
        self.waits_since.store(if waits { outlook.version + 1 } else { 0 }, Ordering::Release);
        outlook
    }

    /// It waits for nothing any more.
    pub(crate) fn stop_waiting(&self) {
        self.waits_since.store(0, Ordering::Release);
    }

    /// Waits until what the last outlook saw has changed, up to `timeout`. `false`, at once: it waits for nothing.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let Some(version) = self.waits_since.load(Ordering::Acquire).checked_sub(1) else { return false };
        self.table.wait(version, timeout);
        true
    }

    /// The part of a container that the stream begins.
    pub(crate) fn arrivals(&self, container: ContainerId) -> Arrivals {
        Arrivals::new(Arc::clone(&self.table), self.number, container)
    }

    /// Memory its claims take, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.table.count_of(self.number) * CLAIM_BYTES) as u64
    }
}

impl Drop for StreamClaims {
    fn drop(&mut self) {
        self.table.leave(self.number);
    }
}
