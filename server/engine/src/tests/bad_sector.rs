//! A disk that cannot read a sector any more: what it hits is damage, everything else goes on.

use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::ErrorCode;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};
use parking_lot::Mutex;

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, OpenContainer, list_containers};
use crate::jobs::NoProgress;

const MIB: usize = 1 << 20;

/// A range of a blob, and how often it still fails.
pub(super) type Bad = Arc<Mutex<Option<(BlobName, Range<u64>, u32)>>>;

/// Fails reads of one range of one blob.
#[derive(Debug, Clone)]
pub(super) struct BadSector {
    pub(super) inner: MemoryVolume,
    pub(super) bad: Bad,
}

#[derive(Debug)]
struct BadBlob {
    name: BlobName,
    inner: Arc<dyn Blob>,
    bad: Bad,
}

impl Blob for BadBlob {
    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let end = offset + buffer.len() as u64;
        match &mut *self.bad.lock() {
            Some((name, bad, times))
                if *name == self.name && offset < bad.end && bad.start < end && *times > 0 =>
            {
                *times -= 1;
                let source = std::io::Error::from_raw_os_error(5).into();
                Err(VolumeError::Io { action: "read", name: name.to_string(), source })
            }
            _ => self.inner.read_at(offset, buffer),
        }
    }
}

impl Volume for BadSector {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let inner = self.inner.open(name)?;
        Ok(Arc::new(BadBlob { name: name.clone(), inner, bad: Arc::clone(&self.bad) }))
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

fn first(volume: &MemoryVolume, class: ContainerClass) -> ContainerName {
    let mut names = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    names.find(|name| name.class == class).unwrap()
}

/// Makes the sector at `place` of the first container of `class` bad, before a start after a crash, and then
/// while the server runs.
fn hit(class: ContainerClass, place: impl Fn(&OpenContainer) -> u64, region: bool) {
    for running in [false, true] {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let bad = Bad::default();
        let faulty = Arc::new(BadSector { inner: volume.clone(), bad: Arc::clone(&bad) });
        let disk = noise(1, 3 * MIB);
        let mut engine = bench.open(Arc::<BadSector>::clone(&faulty));
        let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        let name = first(&volume, class);
        let open = OpenContainer::open(&volume, engine.repository_id(), name.id, name.class).unwrap();
        let at = place(&open);
        if running {
            engine.shutdown().unwrap();
        }
        drop(engine);
        if running {
            engine = bench.open(Arc::<BadSector>::clone(&faulty));
            *bad.lock() = Some((name.blob(), at..at + 1, u32::MAX));
        } else {
            *bad.lock() = Some((name.blob(), at..at + 1, u32::MAX));
            engine = bench.open(Arc::<BadSector>::clone(&faulty));
        }
        // The bytes outside the regions are needed to rely on a container, not to read it.
        match restore(&engine, &id, "root") {
            Ok(image) => assert!(!region && image == disk),
            Err(error) => assert!(region && error.code() == ErrorCode::Damaged, "{error}"),
        }
        let damaged = engine.catalog().damaged().unwrap();
        assert_eq!(
            damaged.iter().map(|one| (one.container, one.region.is_some())).collect::<Vec<_>>(),
            [(name.id, region)]
        );
        let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        assert!(report.problems.iter().all(|problem| problem.code == ErrorCode::Damaged), "{report:?}");
        let healed = backup(&engine, "web", &[("root", &disk)]).unwrap();
        assert!(healed.details[0].new_bytes > 0, "what cannot be read was needed again");
        assert!(restore(&engine, &healed.backup_id, "root").unwrap() == disk);
        assert!(restore(&engine, &id, "root").unwrap() == disk, "the older backup is healed");
        assert_eq!(engine.stopped(), []);
    }
}

#[test]
fn in_a_payload() {
    let place = |open: &OpenContainer| open.directory().region(1).unwrap().payload_offset() + 7;
    hit(ContainerClass::Data, place, true);
}

#[test]
fn in_a_directory() {
    hit(ContainerClass::Data, |open| open.stored_bytes() - 40, false);
}

#[test]
fn in_a_header() {
    hit(ContainerClass::Data, |_| 3, false);
}

#[test]
fn what_fails_once_is_read_again() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let disk = noise(1, MIB);
    let bad = Bad::default();
    let engine = bench.open(Arc::new(BadSector { inner: volume.clone(), bad: Arc::clone(&bad) }));
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let name = first(&volume, ContainerClass::Data).blob();
    let whole = 0..volume.get(&name).unwrap().len() as u64;
    *bad.lock() = Some((name, whole, 1));
    assert!(restore(&engine, &id, "root").unwrap() == disk);
    assert!(bad.lock().as_ref().is_some_and(|(_, _, times)| *times == 0), "it did fail");
    assert_eq!(engine.catalog().damaged().unwrap(), []);
}

/// A container that no row names yet, as after a crash, is not taken for one that was deleted, nor forgotten.
#[test]
fn what_could_not_be_adopted_is_looked_for_by_the_next_start() {
    let (bench, inner, bad) = (Bench::new(), MemoryVolume::new(), Bad::default());
    let volume = || Arc::new(BadSector { inner: inner.clone(), bad: Arc::clone(&bad) });
    let disk = noise(5, MIB);
    let engine = bench.open(volume());
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    drop(engine);
    let raw = rusqlite::Connection::open(bench.folder.path().join("catalog.db")).unwrap();
    raw.execute_batch("DELETE FROM containers WHERE class = 'data'").unwrap();
    drop(raw);
    let name = first(&inner, ContainerClass::Data);
    *bad.lock() = Some((name.blob(), 0..64, u32::MAX));
    let engine = bench.open(volume());
    engine.audit(&NoProgress).unwrap();
    assert!(!engine.parts().0.store.leftovers.is_gone(name.id), "it was not deleted");
    engine.shutdown().unwrap();
    drop(engine);
    *bad.lock() = None;
    let engine = bench.open(volume());
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}

#[test]
fn what_cannot_be_read_at_the_moment_is_no_damage() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let disk = noise(1, MIB);
    let engine = bench.open(Arc::new(volume.clone()));
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    engine.shutdown().unwrap();
    drop(engine);
    let faulty = Arc::new(FaultyVolume::new(volume));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty));
    for fault in [Fault::Unavailable, Fault::NotReadableNow] {
        faulty.fail_next(OpKind::Open, 1, fault);
        restore(&engine, &id, "root").unwrap_err();
        assert_eq!(engine.catalog().damaged().unwrap(), [], "{fault:?}");
    }
    assert!(restore(&engine, &id, "root").unwrap() == disk);
}
