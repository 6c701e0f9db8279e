//! Copies of a chunk beside the one that the index gives first, and what may stand for what.
//!
//! Holds of chunks move to another copy when their container goes although they are held. A stream that was told *not
//! needed* of a chunk does not look again. Were the copy not held in its turn, it would go with the next round of reclaim
//! once the restore points are deleted for which it was made.
//!
//! (N7) Of chunks that agents sealed no one here can see which of two copies is what its name says: none stands for
//! another, unless both are in regions of the very same bytes.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId};

use super::Domain;
use super::chunks::{ChunkStore, Found, found};
use super::leftovers::{Held, Holds};
use crate::container::{OpenContainer, RecentDirectories};
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

    /// Returns true if the region that a copy is in has exactly this payload. False for one that cannot be read.
    pub(crate) fn has_payload(&self, copy: &Found, payload: &[u8]) -> bool {
        let (open, region) = (&copy.container, copy.location.region);
        open.directory().region(region).is_some_and(|record| record.stored_bytes as usize == payload.len())
            && open.read_region(region).is_ok_and(|stored| *stored.payload == *payload)
    }

    /// (N7) Looks for a copy of a chunk in a region of the same payload, in another container than `but`, and holds it
    /// (D1). Returns true if there is one.
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

    /// (D1) Moves the holds on chunks of a refused container to another copy of each, one in `copies` where there is
    /// one. `false`: one of them has none, so the container must stay.
    ///
    /// # Errors
    /// When the index cannot be asked; it must stay then, too.
    pub(crate) fn move_holds(
        &self,
        from: &OpenContainer,
        copies: &[ContainerId],
    ) -> Result<bool, EngineError> {
        let mut recent = RecentDirectories::default();
        for (number, holders) in self.leftovers.held_in(from.id()) {
            let Some(name) = from.directory().fingerprint(number) else { return Ok(false) };
            if !self.move_hold(from, name, copies, &holders, &mut recent)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn move_hold(
        &self,
        from: &OpenContainer,
        name: &Fingerprint,
        copies: &[ContainerId],
        holders: &[Held],
        recent: &mut RecentDirectories,
    ) -> Result<bool, EngineError> {
        let (domain, class) = (self.domain(from.namespace()), from.class());
        let is_copy = |id: ContainerId| copies.contains(&id);
        let copy = self.find_where(&domain, class, name, &is_copy)?;
        if copy.is_some_and(|copy| self.hold_for(holders, &copy)) {
            return Ok(true);
        }
        // Again when it was given up in between: then another copy counts, or none.
        while let Some(found) = self.find(&domain, class, name, recent)? {
            if self.hold_for(holders, &found) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn hold_for(&self, holders: &[Held], found: &Found) -> bool {
        let Found { container, location, .. } = found;
        // Found in this directory, so it has a number.
        let number = container.directory().number_of(location.region, location.slot);
        number.is_some_and(|number| self.leftovers.hold_for(holders, location.container, number))
    }
}
