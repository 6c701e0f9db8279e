//! Chunks on their way: many streams at once that share them.

pub(super) mod agent;
mod broken;
mod clones;
mod model;

use std::collections::HashMap;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerClass;

use crate::engine::Engine;

/// Number of copies of each chunk of data.
fn copies(engine: &Engine, volume: &dyn holdfast_volume::Volume) -> HashMap<Fingerprint, usize> {
    let mut copies = HashMap::new();
    let store = &engine.parts().0.store;
    for (name, _) in crate::container::list_containers(volume).unwrap().containers {
        if name.class == ContainerClass::Data {
            let container = store.containers.get(name.id, name.class).unwrap();
            for (fingerprint, _, _) in container.directory().iter() {
                *copies.entry(fingerprint).or_default() += 1;
            }
        }
    }
    copies
}

/// Drives a stream until so many chunks have arrived.
pub(super) fn arrive(engine: &Engine, agent: &agent::Agent<'_>, count: usize) {
    while engine.parts().0.claims.arrived() < count {
        agent.stream.as_ref().unwrap().idle().unwrap();
        std::thread::yield_now();
    }
}

/// Asserts that nothing is left in memory of backups that have ended.
fn assert_empty(engine: &Engine) {
    let core = &engine.parts().0;
    assert_eq!((core.claims.count(), core.session_memory.used_bytes()), (0, 0));
}
