//! Restores of the same that run side by side: what they read from the volume, what they hold, and that it changes
//! nothing of what they send.

use std::sync::Arc;

use holdfast_proto::v1;
use holdfast_types::ids::BackupId;
use holdfast_volume::testing::{FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume};

use super::agent::{backup, restore};
use super::{Bench, namespace, noise};
use crate::memory::READ_BYTES_MAX;
use crate::restore::DiskReader;
use crate::{Engine, MemoryBounds};

const MIB: usize = 1 << 20;

type Faulty = FaultyVolume<MemoryVolume>;

struct Fixture {
    _bench: Bench,
    volume: Arc<Faulty>,
    engine: Engine,
    disk: Vec<u8>,
    id: String,
}

/// One backup of 24 MiB that do not compress, in an engine that starts afresh.
fn fixture(memory: MemoryBounds) -> Fixture {
    let bench = Bench::new();
    let inner = MemoryVolume::new();
    let disk = noise(1, 24 * MIB);
    let id = {
        let engine = bench.open(Arc::new(inner.clone()));
        let id = backup(&engine, "golden", &[("root", &disk)]).unwrap().backup_id;
        engine.shutdown().unwrap();
        id
    };
    let volume = Arc::new(FaultyVolume::new(inner));
    let mut parts = bench.parts(Arc::<Faulty>::clone(&volume)).unwrap();
    parts.options.memory = memory;
    let engine = Engine::assemble(parts).unwrap();
    Fixture { _bench: bench, volume, engine, disk, id }
}

impl Fixture {
    fn reader(&self) -> DiskReader {
        let id: BackupId = self.id.parse().unwrap();
        self.engine.read_disk(namespace(&self.engine), id, "root", 0, 0).unwrap()
    }

    /// Restores that take a message each in turn; each begins `lag` messages after the one before. Returns what each
    /// got.
    fn side_by_side(&self, count: usize, lag: usize) -> Vec<Vec<v1::ReadDiskResponse>> {
        let mut readers: Vec<DiskReader> = Vec::new();
        let mut got = vec![Vec::new(); count];
        for turn in 0.. {
            if readers.len() < count && turn % lag.max(1) == 0 {
                readers.extend((0..if lag == 0 { count } else { 1 }).map(|_| self.reader()));
            }
            let mut is_done = true;
            for (reader, got) in readers.iter_mut().zip(&mut got) {
                if let Some(message) = reader.next() {
                    got.push(message.unwrap());
                    is_done = false;
                }
            }
            if is_done && readers.len() == count {
                return got;
            }
        }
        unreachable!()
    }
}

fn small(shared_bytes: usize) -> MemoryBounds {
    MemoryBounds { shared_bytes, read_ahead_bytes: 8 * MIB, ..MemoryBounds::default() }
}

#[test]
fn twenty_restores_read_what_one_does() {
    let one = fixture(small(16 * MIB));
    let before = one.volume.count(OpKind::Read);
    assert!(restore(&one.engine, &one.id, "root").unwrap() == one.disk);
    let reads_of_one = one.volume.count(OpKind::Read) - before;
    let regions_of_one = one.engine.stats().unwrap().shared.read_regions;
    assert!(regions_of_one >= 96, "{regions_of_one} regions of 256 KiB at most");
    // Side by side; and one message after the other, so that the last is eight behind the first.
    for (count, lag) in [(20, 0), (8, 1)] {
        let fixture = fixture(small(16 * MIB));
        let before = fixture.volume.count(OpKind::Read);
        let got = fixture.side_by_side(count, lag);
        assert!(got.iter().all(|messages| *messages == got[0]), "lag {lag}");
        let stats = fixture.engine.stats().unwrap().shared;
        assert_eq!(stats.read_regions, regions_of_one, "lag {lag}: {stats:?}");
        assert_eq!(stats.shared_regions, (count as u64 - 1) * regions_of_one, "lag {lag}: {stats:?}");
        assert!(stats.held_bytes <= 16 << 20, "{stats:?}");
        // Planning, too: recipes and directories were read once; each restore asks the index for the first chunk it
        // meets of a container, and directories for the others.
        let reads = fixture.volume.count(OpKind::Read) - before;
        assert!(
            reads <= reads_of_one + count as u64 * 2,
            "lag {lag}: {reads} reads, and {reads_of_one} of one restore"
        );
    }
}

#[test]
fn what_is_sent_is_the_same_with_nothing_shared() {
    let (with, without) = (fixture(small(16 * MIB)), fixture(small(0)));
    let (shared, alone) = (with.side_by_side(3, 2), without.side_by_side(3, 2));
    assert!(shared == alone);
    let stats = without.engine.stats().unwrap().shared;
    assert_eq!((stats.shared_regions, stats.held_bytes), (0, 0));
    assert_eq!(stats.read_regions, 3 * with.engine.stats().unwrap().shared.read_regions);
}

/// A region known to be damaged is not answered from memory.
#[test]
fn damage_found_while_it_is_kept_counts() {
    let fixture = fixture(small(64 * MIB));
    assert!(restore(&fixture.engine, &fixture.id, "root").unwrap() == fixture.disk);
    let (core, _) = fixture.engine.parts();
    let all = crate::container::list_containers(&*fixture.volume).unwrap().containers;
    let data = all.iter().find(|(name, _)| name.class == holdfast_types::ids::ContainerClass::Data);
    let (name, _) = data.unwrap();
    let blob: BlobName = name.blob();
    let flip = holdfast_volume::testing::Damage::FlipBit { offset: 4000, bit: 3 };
    fixture.volume.damage(&blob, &flip).unwrap();
    core.store.note_damage(name.id, Some(0), "test");
    assert_eq!(fixture.engine.stats().unwrap().shared.held_bytes, 0, "all of its regions are forgotten");
    let error = restore(&fixture.engine, &fixture.id, "root").unwrap_err();
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Damaged, "{error}");
}

#[test]
fn a_hundred_restores_read_ahead_no_more_than_their_bound() {
    let fixture = fixture(small(MIB));
    let pool = &fixture.engine.parts().0.read_ahead;
    let mut alone = fixture.reader();
    drop(alone.nth(3).unwrap().unwrap());
    assert_eq!(pool.extra(), 8 * MIB / READ_BYTES_MAX, "one that is alone has all of it");
    let mut others: Vec<DiskReader> = (0..99).map(|_| fixture.reader()).collect();
    for _ in 0..8 {
        for other in &mut others {
            other.next().unwrap().unwrap();
        }
        assert!(pool.extra() <= 8 * MIB / READ_BYTES_MAX);
    }
    drop((alone, others));
    assert_eq!(pool.extra(), 0);
}
