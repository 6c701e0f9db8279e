//! The engine as a whole: a small agent speaks the protocol to it, over simulated disks.

mod absent;
pub(crate) mod agent;
mod backup;
mod bad_sector;
mod catalog_damage;
mod confined;
mod crash;
mod damage;
mod damage_matrix;
mod damage_report;
mod deletion_crash;
mod digests;
mod end_to_end;
mod extent_history;
mod far;
mod freezing;
mod full_catalog;
pub(crate) mod gone;
mod hostile;
mod in_flight;
mod index_pages;
mod keyless;
mod live;
mod locked;
mod locked_needs;
mod lost_rows;
mod memory;
mod model;
mod moving;
mod old_folders;
mod older_catalog;
mod owners;
mod parity;
mod parity_groups;
mod past_damage;
mod points;
mod quota;
mod readiness;
mod reclaim;
mod reliance;
mod renames;
mod retention;
mod returned;
mod room;
mod rules;
mod salvage;
mod scrub;
mod sealed;
mod sessions;
mod shared;
mod starting;
mod statistics;
mod stopping;
mod unread;
mod verify;

use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::NamespaceId;
use holdfast_volume::Volume;

use crate::engine::{Engine, EngineOptions, EngineParts};
use crate::error::EngineError;
use crate::health::Health;
use crate::index::IndexOptions;

/// An engine over a volume of the test's choice; its catalog is a real database in a folder of its own.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        Self { folder: tempfile::tempdir().unwrap(), clock }
    }

    pub(crate) fn try_open(&self, volume: Arc<dyn Volume>) -> Result<Engine, EngineError> {
        Engine::assemble(self.parts(volume)?)
    }

    /// The parts that an engine over `volume` is assembled from.
    pub(crate) fn parts(&self, volume: Arc<dyn Volume>) -> Result<EngineParts, EngineError> {
        let health = Arc::<Health>::default();
        let catalog = Arc::new(self.catalog(&health)?);
        Ok(self.parts_with(volume, catalog, health))
    }

    /// The catalog that shares its latch with an engine.
    pub(crate) fn catalog(&self, health: &Arc<Health>) -> Result<Catalog, EngineError> {
        let path = self.folder.path().join("catalog.db");
        let clock = Arc::<ManualClock>::clone(&self.clock);
        let (catalog, _) = Catalog::open_or_create(&path, clock, Arc::<Health>::clone(health))?;
        Ok(catalog)
    }

    pub(crate) fn parts_with(
        &self,
        volume: Arc<dyn Volume>,
        catalog: Arc<Catalog>,
        health: Arc<Health>,
    ) -> EngineParts {
        let options = EngineOptions {
            reserve_bytes: Some(0),
            // Inline maintenance: the same operations in the same order, every time.
            index: IndexOptions {
                write_buffer_bytes: 1 << 20,
                background: false,
                new_secret: Some([7; 32]),
                ..IndexOptions::default()
            },
            ..EngineOptions::default()
        };
        EngineParts {
            data: Arc::clone(&volume),
            index: volume,
            catalog,
            clock: Arc::<ManualClock>::clone(&self.clock),
            health,
            options,
            lock: None,
        }
    }

    pub(crate) fn open(&self, volume: Arc<dyn Volume>) -> Engine {
        self.try_open(volume).unwrap()
    }
}

pub(crate) fn namespace(engine: &Engine) -> NamespaceId {
    engine.catalog().namespace_by_name("default").unwrap().unwrap().id
}

/// Bytes without pattern, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// Text in which a higher level finds more, the same for the same seed.
pub(crate) fn lines(seed: u64, count: usize) -> Vec<u8> {
    let line = |bytes: &[u8]| match *bytes {
        [a, b, c] => {
            format!("entry {} of disk{}: read {}\n", u32::from(a) * u32::from(b) / 64 * 7919, c % 16, a ^ b)
        }
        _ => String::new(),
    };
    noise(seed, count * 3).chunks(3).flat_map(|bytes| line(bytes).into_bytes()).collect()
}
