//! (N7) Of chunks that agents sealed no one here can see which of two copies is what its name says: none stands for
//! another, unless both are in regions of the very same bytes.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId};

use super::chunks::{ChunkStore, Found, found};
use super::domain::Domain;
use super::leftovers::Holds;
use crate::error::EngineError;

impl ChunkStore {
    /// All copies of a chunk of data in places that are not known to be damaged.
    ///
    /// # Errors
    /// When one cannot be asked for: there may be more.
    pub(crate) fn copies(
        &self,
        domain: &Domain,
        fingerprint: &Fingerprint,
    ) -> Result<Vec<Found>, EngineError> {
        let class = ContainerClass::Data;
        let mut copies = Vec::new();
        let mut failure = None;
        let look = |location| {
            if self.is_there(location) {
                match self.candidate(domain, class, fingerprint, location) {
                    Ok(container) => {
                        copies.extend(container.map(|open| found(open, location.region, location.slot)));
                    }
                    Err(error) => failure = Some(error),
                }
            }
            failure.is_some()
        };
        self.index.get(&domain.key(class).of(fingerprint), look)?;
        failure.map_or_else(|| copies.into_iter().collect(), Err)
    }

    /// Returns whether the region that a copy lies in has just this payload. What cannot be read has not.
    pub(crate) fn has_payload(&self, copy: &Found, payload: &[u8]) -> bool {
        let (open, region) = (&copy.container, copy.location.region);
        open.directory().region(region).is_some_and(|record| record.stored_bytes as usize == payload.len())
            && open.read_region(region).is_ok_and(|stored| *stored.payload == *payload)
    }

    /// (N7) Whether a chunk is in a region of just this payload, in another container than `but`; then that is held (D1).
    ///
    /// # Errors
    /// As [`ChunkStore::copies`].
    pub(crate) fn hold_same(
        &self,
        domain: &Domain,
        (fingerprint, payload): (&Fingerprint, &[u8]),
        but: Option<ContainerId>,
        holds: &mut Holds,
    ) -> Result<bool, EngineError> {
        let copies = self.copies(domain, fingerprint)?;
        let is_free = |id| Some(id) != but && !self.leftovers.is_refused(id);
        let mut others = copies.iter().filter(|copy| is_free(copy.location.container));
        Ok(others.any(|copy| self.has_payload(copy, payload) && copy.is_held(holds)))
    }
}
