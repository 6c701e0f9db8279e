use super::*;
use crate::testing::{list, put, volume_suite};
use crate::{LocalVolume, MemoryVolume};

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn faulty() -> FaultyVolume<MemoryVolume> {
    FaultyVolume::new(MemoryVolume::new())
}

fn write(volume: &dyn Volume, blob: &str, bytes: &[u8]) -> Result<(), VolumeError> {
    let mut writer = volume.create(&name(blob))?;
    writer.append(bytes)?;
    writer.seal()
}

fn read(volume: &dyn Volume, blob: &str) -> Result<Vec<u8>, VolumeError> {
    let handle = volume.open(&name(blob))?;
    handle.read_vec(&name(blob), 0, usize::try_from(handle.len()).unwrap())
}

#[test]
fn conforms_without_faults() {
    volume_suite(|| Box::new(faulty()));
}

#[test]
fn the_planned_operation_fails_and_no_other() {
    for kind in [OpKind::Create, OpKind::Append, OpKind::Seal] {
        let volume = faulty();
        volume.fail(Failure { kind, nth: 2, fault: Fault::Full });
        write(&volume, "a", b"1").unwrap();
        assert!(matches!(write(&volume, "b", b"2"), Err(VolumeError::Full { .. })), "{kind:?}");
        write(&volume, "c", b"3").unwrap();
        assert!(volume.survivor().get(&name("b")).is_none());
    }
    let volume = faulty();
    put(&volume, "a", b"12");
    read(&volume, "a").unwrap();
    for kind in [OpKind::Open, OpKind::Read, OpKind::List, OpKind::Remove] {
        volume.fail_next(kind, 1, Fault::Io);
    }
    assert!(matches!(volume.open(&name("a")), Err(VolumeError::Io { .. })));
    assert!(matches!(read(&volume, "a"), Err(VolumeError::Io { .. })));
    assert!(matches!(volume.list(&name("a"), None, crate::LIST_PAGE_ENTRIES), Err(VolumeError::Io { .. })));
    assert!(matches!(volume.remove(&name("a")), Err(VolumeError::WriteFailed { .. })));
    assert_eq!(read(&volume, "a").unwrap(), b"12");
}

#[test]
fn a_doubtful_seal_comes_in_both_variants() {
    for applied in [true, false] {
        let volume = faulty();
        volume.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied });
        assert!(matches!(write(&volume, "a", b"1"), Err(VolumeError::NotDurable { .. })));
        assert_eq!(volume.survivor().get(&name("a")).is_some(), applied);
    }
}

#[test]
fn capacity_counts_what_is_held() {
    let volume = faulty();
    volume.limit_capacity(100);
    write(&volume, "a", &[0; 60]).unwrap();
    assert!(matches!(write(&volume, "b", &[0; 60]), Err(VolumeError::Full { .. })));
    assert_eq!(volume.space().unwrap(), Some(Space { total_bytes: 100, free_bytes: 40 }));
    volume.remove(&name("a")).unwrap();
    write(&volume, "b", &[0; 60]).unwrap();
}

#[test]
fn after_a_crash_nothing_works_and_sealed_blobs_are_there() {
    let steps = |volume: &dyn Volume| -> Result<(), VolumeError> {
        write(volume, "a", b"1")?;
        write(volume, "b", b"2")?;
        volume.remove(&name("a"))
    };
    let volume = faulty();
    steps(&volume).unwrap();
    let mutations = volume.mutations();
    assert_eq!(mutations, 7);
    for in_flight in [InFlight::Lost, InFlight::Done] {
        for after_mutations in 0..mutations {
            let volume = faulty();
            volume.crash_at(CrashPoint { after_mutations, in_flight });
            steps(&volume).unwrap_err();
            assert!(volume.has_crashed());
            assert!(write(&volume, "c", b"3").is_err() && volume.open(&name("a")).is_err());
            let done = after_mutations + u64::from(in_flight == InFlight::Done);
            let survivor = volume.survivor();
            assert_eq!(survivor.get(&name("a")).is_some(), (3..7).contains(&done), "{done}");
            assert_eq!(survivor.get(&name("b")).is_some(), done >= 6, "{done}");
        }
    }
    let volume = faulty();
    volume.crash_at(CrashPoint { after_mutations: mutations, in_flight: InFlight::Lost });
    steps(&volume).unwrap();
}

#[test]
fn damage_shows_through_open_handles() {
    let volume = faulty();
    put(&volume, "a", &[0xFF; 10]);
    let handle = volume.open(&name("a")).unwrap();
    volume.damage(&name("a"), &Damage::FlipBit { offset: 3, bit: 0 }).unwrap();
    volume.damage(&name("a"), &Damage::Zero { offset: 8, len: 100 }).unwrap();
    assert_eq!(handle.read_vec(&name("a"), 2, 8).unwrap(), [255, 254, 255, 255, 255, 255, 0, 0]);
    volume.damage(&name("a"), &Damage::Truncate { len: 4 }).unwrap();
    assert!(matches!(handle.read_at(0, &mut [0; 10]), Err(VolumeError::OutOfRange { len: 4, .. })));
    assert_eq!(list(&volume, "a"), []);
    volume.damage(&name("a"), &Damage::Extend { tail: vec![1] }).unwrap();
    assert_eq!(read(&volume, "a").unwrap(), [255, 255, 255, 254, 1]);
    assert_eq!(volume.survivor().get(&name("a")).unwrap().len(), 10, "the volume below is untouched");
}

#[test]
fn a_torn_read_lies_once() {
    let volume = faulty();
    put(&volume, "a", &[7; 4]);
    volume.fail_next(OpKind::Read, 1, Fault::Torn);
    assert_eq!(read(&volume, "a").unwrap(), [7, 7, 0, 0]);
    assert_eq!(read(&volume, "a").unwrap(), [7; 4]);
}

#[test]
fn seeds_repeat() {
    assert_eq!(Failure::seeded(7, 5, 100), Failure::seeded(7, 5, 100));
    assert_ne!(Failure::seeded(7, 5, 100), Failure::seeded(8, 5, 100));
    assert_eq!(Failure::seeded(7, 5, 1).iter().map(|failure| failure.nth).max(), Some(1));
}

#[test]
fn files_survive_a_crash_as_memory_does() {
    let folder = tempfile::tempdir().unwrap();
    let volume = FaultyVolume::new(LocalVolume::open(folder.path()).unwrap());
    volume.crash_at(CrashPoint { after_mutations: 5, in_flight: InFlight::Done });
    write(&volume, "x/a", b"1").unwrap();
    write(&volume, "x/b", b"2").unwrap_err();
    write(&volume, "x/c", b"3").unwrap_err();
    let found = list(&LocalVolume::open(folder.path()).unwrap(), "x");
    assert_eq!(found.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["x/a", "x/b"]);
}
