use std::sync::Arc;

use holdfast_volume::testing::FaultyVolume;
use holdfast_volume::{BlobName, BlobWriter, MemoryVolume, Volume};

use super::{Grant, Ledger, Purpose, SpaceError};

const MIB: u64 = 1 << 20;
const RESERVE: u64 = 20 * MIB;

fn small(capacity: u64) -> (Arc<FaultyVolume<MemoryVolume>>, Arc<Ledger>) {
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    volume.limit_capacity(capacity);
    let ledger = Ledger::new(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume), RESERVE);
    (volume, ledger)
}

fn blob(volume: &impl Volume, number: usize) -> Box<dyn BlobWriter> {
    volume.create(&BlobName::new(format!("blob-{number}")).unwrap()).unwrap()
}

/// Twelve writers in turn, each a quarter of a megabyte at a time, until none is let write.
#[test]
fn many_writers_leave_the_reserve_whole() {
    let (volume, ledger) = small(100 * MIB);
    let piece = vec![1; 256 << 10];
    let mut writers: Vec<_> =
        (0..12).map(|number| (blob(&volume, number), Grant::new(&ledger, Purpose::Data), true)).collect();
    while writers.iter().any(|(_, _, goes_on)| *goes_on) {
        for (writer, grant, goes_on) in writers.iter_mut().filter(|(_, _, goes_on)| *goes_on) {
            *goes_on = grant.cover(writer.len() + piece.len() as u64).is_ok();
            if *goes_on {
                writer.append(&piece).unwrap();
                grant.wrote(writer.len());
            }
        }
    }
    let free = || volume.space().unwrap().unwrap().free_bytes;
    assert!(free() >= RESERVE, "{} of {RESERVE} left", free());
    assert!(free() < RESERVE + 30 * MIB, "{} are free, and all were refused", free());
    for (writer, grant, _) in writers {
        let bytes = writer.len();
        writer.seal().unwrap();
        grant.sealed(bytes);
    }
    assert_eq!(ledger.room().unwrap().unwrap().promised_bytes, 0, "all that was promised was given back");
}

#[test]
fn data_leaves_room_for_recipes_and_recipes_for_the_index() {
    let (_volume, ledger) = small(RESERVE + 10 * MIB);
    let mut data = Grant::new(&ledger, Purpose::Data);
    data.cover(MIB).unwrap();
    let error = data.cover(9 * MIB).unwrap_err().to_string();
    assert!(error.contains("30 MiB free") && error.contains("28 MiB are kept"), "{error}");
    let mut recipe = Grant::new(&ledger, Purpose::Recipe);
    recipe.cover(12 * MIB).unwrap();
    assert!(matches!(recipe.cover(20 * MIB), Err(SpaceError::NoRoom { .. })));
    let mut index = Grant::new(&ledger, Purpose::Index);
    index.cover(10 * MIB).unwrap();
    let error = index.cover(40 * MIB).unwrap_err().to_string();
    assert!(error.contains("30 MiB free") && error.contains("0 MiB are kept"), "{error}");
}

#[test]
fn what_a_discarded_blob_was_promised_goes_to_the_next() {
    let (_volume, ledger) = small(RESERVE + 20 * MIB);
    let mut first = Grant::new(&ledger, Purpose::Data);
    first.cover(10 * MIB).unwrap();
    let mut second = Grant::new(&ledger, Purpose::Data);
    second.cover(10 * MIB).unwrap_err();
    drop(first);
    second.cover(10 * MIB).unwrap();
}

/// Room that others made is seen before anything is refused.
#[test]
fn a_refusal_is_never_made_from_memory() {
    let (volume, ledger) = small(RESERVE);
    let mut grant = Grant::new(&ledger, Purpose::Data);
    grant.cover(MIB).unwrap_err();
    volume.limit_capacity(RESERVE + 20 * MIB);
    grant.cover(MIB).unwrap();
}

#[test]
fn a_volume_without_limit_grants_everything() {
    let ledger = Ledger::new(Arc::new(MemoryVolume::new()), u64::MAX);
    Grant::new(&ledger, Purpose::Data).cover(u64::MAX / 2).unwrap();
    assert_eq!(ledger.room().unwrap(), None);
}
