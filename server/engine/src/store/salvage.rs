//! Chunks out of containers that are known to be damaged as a whole: for restores that find them nowhere else.
//!
//! (A7) What is found here is never an answer to a backup: the next one stores it again.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_catalog::ContainerState;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location};
use parking_lot::Mutex;

use super::chunks::{ChunkStore, Found, found};
use super::damage::LOOK_AGAIN_MS;
use super::domain::Domain;
use crate::container::{OpenContainer, Owner, salvage};
use crate::error::EngineError;

/// Damaged containers whose contents are kept in memory: some 100 KiB each, a few MiB of recipes.
const KEPT_MAX: usize = 32;

/// Damaged containers asked about one chunk at most. Reading one takes up to a second.
const ASKED_MAX: usize = 64;

/// What reading damaged containers found, the last one first.
#[derive(Debug, Default)]
pub(super) struct SalvageCache(Mutex<VecDeque<Kept>>);

/// What is left of a container, and whether that is all there was; `None`: nothing can be had of it.
type Left = Option<(Arc<OpenContainer>, bool)>;

#[derive(Debug)]
struct Kept {
    container: ContainerId,
    found: Left,
    looked_ms: i64,
}

impl ChunkStore {
    /// As [`ChunkStore::find`] among containers that are damaged, for reading only.
    pub(crate) fn find_salvaged(
        &self,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
    ) -> Result<Option<Found>, EngineError> {
        let damaged = self.damage.containers_lost_as_a_whole();
        for container in damaged.into_iter().rev().take(ASKED_MAX) {
            let Some((open, _)) = self.salvaged(container)? else { continue };
            // (A6) Only of the namespace that asks.
            if open.namespace() != domain.namespace || open.class() != class {
                continue;
            }
            if let Some((region, slot)) = open.directory().locate(fingerprint) {
                let location = Location { container, region, slot };
                return found(open, location.region, location.slot).map(Some);
            }
        }
        Ok(None)
    }

    /// What can be had of a damaged container; read again after a while.
    pub(crate) fn salvaged(&self, container: ContainerId) -> Result<Left, EngineError> {
        let now_ms = self.clock.now_ms();
        // Held while a container is read: all who need it wait for one reading.
        let mut kept = self.salvage.0.lock();
        if let Some(place) = kept.iter().position(|entry| entry.container == container)
            && let Some(entry) = kept.remove(place)
            && (0..LOOK_AGAIN_MS).contains(&now_ms.saturating_sub(entry.looked_ms))
        {
            let found = entry.found.clone();
            kept.push_front(entry);
            return Ok(found);
        }
        let found = self.read_salvage(container)?;
        kept.push_front(Kept { container, found: found.clone(), looked_ms: now_ms });
        kept.truncate(KEPT_MAX);
        Ok(found)
    }

    fn read_salvage(&self, container: ContainerId) -> Result<Left, EngineError> {
        // Whose it is only the catalog can say, when its header cannot.
        let Some(record) = self.catalog.container(container)? else { return Ok(None) };
        if record.state == ContainerState::Condemned {
            return Ok(None);
        }
        let owner = Owner {
            id: record.id,
            class: record.class,
            namespace: record.namespace,
            created_ms: record.created_ms,
        };
        match salvage(self.containers.volume(), self.containers.repository(), owner) {
            Ok(salvaged) => {
                let regions = salvaged.open.directory().region_count();
                tracing::warn!(%container, regions, complete = salvaged.complete, "reading what is left of a damaged container");
                Ok(Some((Arc::new(salvaged.open), salvaged.complete)))
            }
            Err(error) => {
                tracing::warn!(%container, %error, "nothing can be read of a damaged container");
                Ok(None)
            }
        }
    }
}
