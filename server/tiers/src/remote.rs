//! The bucket, as each use of it sees it.

use std::sync::Arc;

use holdfast_volume::{RemoteVolume, Volume};

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Remote {
    /// What it can do beyond a volume.
    pub store: Arc<dyn RemoteVolume>,
    /// For readers: with retries and a cache around it.
    pub reads: Arc<dyn Volume>,
    /// For copies: as slow as copying may be. Without retries: a copy is tried again as a whole.
    pub writes: Arc<dyn Volume>,
}

impl Remote {
    /// Without decorators.
    pub fn plain<V: RemoteVolume + 'static>(store: &Arc<V>) -> Self {
        let volume = || Arc::<V>::clone(store) as Arc<dyn Volume>;
        Self { store: Arc::<V>::clone(store) as Arc<dyn RemoteVolume>, reads: volume(), writes: volume() }
    }
}
