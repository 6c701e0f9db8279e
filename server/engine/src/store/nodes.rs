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
}

impl NodeReader {
    pub(crate) fn new(store: Arc<ChunkStore>, domain: Domain) -> Self {
        Self { store, domain, recent: Mutex::new(RecentDirectories::default()) }
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
        self.store
            .read_chunk(&self.domain, ContainerClass::Recipe, fingerprint, &mut recent)?
            .ok_or_else(|| EngineError::Damaged(format!("recipe node {fingerprint} is missing or damaged")))
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
