//! Second copies of containers.

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_proto::region::Encoder;
use holdfast_types::ids::{ContainerClass, ContainerId};

use crate::container::{ContainerWriter, VerifiedRegion};
use crate::engine::Engine;

/// Writes everything in a data container again, into one that look-ups prefer from now on.
pub(super) fn copy_of(engine: &Engine, id: ContainerId) -> ContainerId {
    let core = engine.parts().0;
    let class = ContainerClass::Data;
    let old = core.store.containers.get(id, class).unwrap();
    let copy = core.next_container().unwrap();
    let mut writer =
        ContainerWriter::create(&*core.volume, core.repository, old.namespace(), copy, class, 0).unwrap();
    let mut encoder = Encoder::new(3).unwrap();
    for region in 0..u16::try_from(old.directory().region_count()).unwrap() {
        let plain = old.read_region(region).unwrap().decode_checked(&old).unwrap();
        let (names, ends) = old.directory().region_chunks(region).unwrap();
        let mut start = 0;
        let chunks: Vec<_> = names
            .iter()
            .zip(ends)
            .map(|(name, end)| (*name, &plain[std::mem::replace(&mut start, *end as usize)..*end as usize]))
            .collect();
        writer.append(&VerifiedRegion::encode(&chunks, &mut encoder).unwrap()).unwrap();
    }
    let sealed = writer.seal().unwrap();
    let open = core.store.containers.get(copy, class).unwrap();
    core.store.index_container(&open).unwrap();
    let record = ContainerRecord {
        id: copy,
        class,
        namespace: old.namespace(),
        stored_bytes: sealed.stored_bytes,
        plain_bytes: sealed.directory.plain_bytes(),
        chunk_count: sealed.directory.chunk_count() as u64,
        created_ms: 0,
        run: None,
        state: ContainerState::Live,
    };
    core.catalog.add_containers(&[record]).unwrap();
    copy
}
