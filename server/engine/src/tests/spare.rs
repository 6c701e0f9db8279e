//! What is damaged here and sound far away is read from there, and written anew from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_proto::ErrorCode;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};

use super::agent::{backup, restore};
use super::{Bench, noise};
use crate::container::list_containers;
use crate::jobs::NoProgress;
use crate::store::RepairSource;

const MIB: usize = 1 << 20;

/// A volume whose blobs have copies far away.
#[derive(Debug, Clone)]
struct Copied {
    inner: MemoryVolume,
    far: MemoryVolume,
    is_away: Arc<AtomicBool>,
}

impl Volume for Copied {
    fn here(&self) -> Option<Arc<dyn Volume>> {
        Some(Arc::new(self.inner.clone()))
    }

    fn open_far(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if self.is_away.load(Ordering::Relaxed) {
            let (name, source) = (name.to_string(), "away".into());
            return Err(VolumeError::Unavailable { action: "open", name, source });
        }
        self.far.open(name)
    }

    holdfast_volume::pass_on!(create_for, open, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

/// What becomes of a container.
type Change<'a> = &'a dyn Fn(&Copied, &BlobName);

/// A volume with one restore point and its copy far away, then changed, and its disk.
fn scene(change: Change<'_>, class: ContainerClass) -> (Bench, Copied, String, Vec<u8>) {
    let (bench, disk) = (Bench::new(), noise(1, 6 * MIB));
    let volume = Copied { inner: MemoryVolume::new(), far: MemoryVolume::new(), is_away: Arc::default() };
    let engine = bench.open(Arc::new(volume.clone()));
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    engine.shutdown().unwrap();
    let all = list_containers(&volume.inner).unwrap().containers.into_iter().map(|(name, _)| name);
    for name in all {
        let blob = name.blob();
        volume.far.replace(&blob, volume.inner.get(&blob).unwrap());
        if name.class == class {
            change(&volume, &blob);
        }
    }
    (bench, volume, id, disk)
}

fn flip(volume: &MemoryVolume, name: &BlobName) {
    let mut bytes = volume.get(name).unwrap().to_vec();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    volume.replace(name, bytes);
}

/// (T22)
#[test]
fn what_is_damaged_here_is_had_from_far_away() {
    let cut = |volume: &Copied, name: &BlobName| {
        volume.inner.replace(name, volume.inner.get(name).unwrap().slice(..70));
    };
    let changes: [Change<'_>; 2] = [&|volume, name| flip(&volume.inner, name), &cut];
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        for change in changes {
            let (bench, volume, id, disk) = scene(change, class);
            let engine = bench.open(Arc::new(volume.clone()));
            assert!(restore(&engine, &id, "root").unwrap() == disk, "it is read past the damage");
            // (A7) It is no copy for a backup.
            assert!(!engine.catalog().damaged().unwrap().is_empty());
            let repaired = engine.repair(&NoProgress).unwrap();
            assert!(!repaired.is_empty());
            for one in repaired {
                assert_eq!((one.source, one.complete, one.into.len()), (RepairSource::Bucket, true, 1));
            }
            volume.is_away.store(true, Ordering::Relaxed);
            assert!(restore(&engine, &id, "root").unwrap() == disk, "from what was written anew");
        }
    }
}

/// (T22) (R4)
#[test]
fn what_is_not_sound_far_away_either_stays_damaged() {
    let changes: [Change<'_>; 3] = [
        &|volume, name| flip(&volume.far, name),
        &|volume, name| volume.far.remove(name).unwrap(),
        &|volume, _| volume.is_away.store(true, Ordering::Relaxed),
    ];
    for change in changes {
        let both = |volume: &Copied, name: &BlobName| {
            flip(&volume.inner, name);
            change(volume, name);
        };
        let (bench, volume, id, _) = scene(&both, ContainerClass::Data);
        let engine = bench.open(Arc::new(volume));
        let error = restore(&engine, &id, "root").unwrap_err();
        assert_eq!(error.code(), ErrorCode::Damaged, "{error}");
        assert!(engine.repair(&NoProgress).unwrap().iter().all(|one| !one.complete));
    }
}
