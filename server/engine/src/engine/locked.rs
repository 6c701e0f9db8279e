//! An engine of an encrypted repository that was started without its keys, for administration: the catalog is served, and
//! nothing on the volume is read, written or looked for (K6).
//!
//! A start as any other would find nothing but what it cannot read, and call it lost. So none of it is done: no recovery, no
//! background work, no index but an empty one in memory. What would need the volume is refused with the reason. The next start
//! with the keys does what this one left out; a clean stop before it is still one.

use std::sync::Arc;

use holdfast_volume::{MemoryVolume, Volume};

use super::{Engine, EngineParts, reserve_bytes};
use crate::error::EngineError;
use crate::reclaim::Rounds;
use crate::snapshot::Snapshots;
use crate::start::{self, Start, Started};

impl Engine {
    /// Puts an engine together that serves the catalog alone; `why` is what everything else is refused with.
    ///
    /// # Errors
    /// The catalog's.
    pub fn assemble_locked(parts: EngineParts, why: &str) -> Result<Self, EngineError> {
        let EngineParts { data, catalog, clock, health, options, lock, .. } = parts;
        // (K6) Before anything could be read or written.
        health.lock(why);
        let index: Arc<dyn Volume> = Arc::new(MemoryVolume::new());
        let start = Start {
            reserve_bytes: reserve_bytes(options.reserve_bytes, &*data)?,
            data,
            index: &index,
            catalog,
            clock,
            health,
            lease_secs: options.lease_secs,
            reread_days: options.reread_days,
            directories: options.directories,
            index_options: options.index,
            memory: options.memory,
            read_threads: options.read_threads,
            on_loss: options.on_loss,
            location: &options.location,
            rebuild: false,
            older: false,
        };
        let Started { core, audit, points, snapshot, summary } = start::locked(start)?;
        let snapshots = Snapshots::new(&core, snapshot)?;
        Ok(Self {
            core: Arc::new(core),
            audit: Arc::new(audit),
            points: Arc::new(points),
            snapshots: Arc::new(snapshots),
            scrub: Arc::default(),
            index_volume: index,
            sessions: Arc::default(),
            rounds: Rounds::default(),
            opened: summary,
            _lock: lock,
        })
    }

    /// Whether it serves the catalog alone.
    pub fn is_locked(&self) -> bool {
        self.core.health.locked_reason().is_some()
    }

    /// Fails when it serves the catalog alone.
    ///
    /// # Errors
    /// [`EngineError::NoKeys`].
    pub fn check_unlocked(&self) -> Result<(), EngineError> {
        self.core.check_unlocked()
    }
}
