//! Recipe nodes out of recipe containers.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerClass;
use parking_lot::Mutex;

use super::chunks::ChunkStore;
use super::domain::Domain;
use crate::container::RecentDirectories;
use crate::error::EngineError;
use crate::recipe::{NodeSource, WalkError};

/// Reads the recipe nodes of one namespace.
#[derive(Debug)]
pub(crate) struct NodeReader {
    store: Arc<ChunkStore>,
    domain: Domain,
    recent: Mutex<RecentDirectories>,
    sound_only: bool,
}

impl NodeReader {
    pub(crate) fn new(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { store, domain, recent: Mutex::new(RecentDirectories::default()), sound_only: false }
    }

    /// As [`NodeReader::new`]; what can only be had out of damaged containers, or of parity, is missing.
    pub(crate) fn of_sound_copies(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { sound_only: true, ..Self::new(store, domain) }
    }

    /// Returns whether nothing out of damaged containers counts.
    pub(crate) const fn is_sound_only(&self) -> bool {
        self.sound_only
    }

    pub(crate) const fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(crate) const fn store(&self) -> &Arc<ChunkStore> {
        &self.store
    }
}

impl NodeSource for NodeReader {
    type Error = EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, EngineError> {
        let mut recent = self.recent.lock();
        let (store, domain, class) = (&self.store, &self.domain, ContainerClass::Recipe);
        let read = if self.sound_only {
            store.read_sound_chunk(domain, class, fingerprint, &mut recent)
        } else {
            store.read_chunk(domain, class, fingerprint, &mut recent)
        };
        read?.ok_or_else(|| EngineError::Damaged(format!("recipe node {fingerprint} is missing or damaged")))
    }
}

impl From<WalkError<Self>> for EngineError {
    fn from(error: WalkError<Self>) -> Self {
        match error {
            WalkError::Source(source) => source,
            damaged @ (WalkError::Node { .. } | WalkError::Shape { .. } | WalkError::Above(_)) => {
                Self::Damaged(damaged.to_string())
            }
        }
    }
}
