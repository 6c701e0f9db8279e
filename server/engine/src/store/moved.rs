//! Holds of chunks whose container goes although they are held, because each has another copy.
//!
//! A stream that was told *not needed* of a chunk does not look again. Were the copy not held in its turn, it would go with
//! the next round of reclaim once the restore points are deleted for which it was made.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerId;

use super::chunks::{ChunkStore, Found};
use super::leftovers::Held;
use crate::container::{OpenContainer, RecentDirectories};
use crate::error::EngineError;

impl ChunkStore {
    /// (D1) From now on a session that counts on a chunk of a container that is refused counts on another copy of it, one in
    /// `copies` where there is one. `false`: one of them has none, so the container must stay.
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
