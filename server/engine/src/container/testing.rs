//! Small containers for tests.

use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::region::{DEFAULT_LEVEL, Encoder};
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::Volume;

use super::{ContainerWriter, OpenContainer, SealedContainer, VerifiedRegion};

pub(crate) const REPOSITORY: RepositoryId = RepositoryId::from_bytes([0xA1; 16]);
pub(crate) const NAMESPACE: NamespaceId = NamespaceId::from_bytes([0xB2; 16]);
pub(crate) const CREATED_MS: i64 = 1_700_000_000_123;

pub(crate) fn id(number: u64) -> ContainerId {
    ContainerId::new(number).unwrap()
}

/// A region of these chunks.
pub(crate) fn region(chunks: &[&[u8]]) -> VerifiedRegion {
    let chunks: Vec<_> = chunks.iter().map(|bytes| (Fingerprint::of(bytes), *bytes)).collect();
    VerifiedRegion::encode(&chunks, &mut Encoder::new(DEFAULT_LEVEL).unwrap()).unwrap()
}

pub(crate) fn writer(volume: &dyn Volume, number: u64) -> ContainerWriter {
    let class = ContainerClass::Data;
    ContainerWriter::create(volume, REPOSITORY, NAMESPACE, id(number), class, CREATED_MS).unwrap()
}

/// Seals a data container of regions of chunks.
pub(crate) fn seal(volume: &dyn Volume, number: u64, regions: &[Vec<Vec<u8>>]) -> SealedContainer {
    let mut writer = writer(volume, number);
    for chunks in regions {
        let chunks: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        writer.append(&region(&chunks)).unwrap();
    }
    writer.seal().unwrap()
}

pub(crate) fn open(volume: &dyn Volume, number: u64) -> Arc<OpenContainer> {
    Arc::new(OpenContainer::open(volume, REPOSITORY, id(number), ContainerClass::Data).unwrap())
}

/// Three regions: one that compresses, one that does not, one of a single chunk.
pub(crate) fn sample_regions(seed: u8) -> Vec<Vec<Vec<u8>>> {
    let noise = |len: usize, salt: u8| {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&[seed, salt]).finalize_xof().fill(&mut bytes);
        bytes
    };
    vec![
        vec![[seed, b'a', b'b'].repeat(60), b"holdfast ".repeat(20)],
        vec![noise(40, 1), noise(1, 2), noise(30, 3)],
        vec![vec![seed; 300]],
    ]
}
