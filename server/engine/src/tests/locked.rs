//! (K6) An engine without the keys of its volume serves the catalog, and touches nothing else.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_types::ids::BackupId;
use holdfast_volume::{
    Blob, BlobName, BlobWriter, ListPage, MemoryVolume, Owner, Space, Volume, VolumeError,
};

use super::agent::{backup, request, restore, start};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::health::Obstacle;
use crate::jobs::Budget;
use crate::jobs::NoProgress;
use crate::reclaim::ReclaimOptions;

/// A volume that must not be asked for anything but its room.
#[derive(Debug)]
struct Shut;

impl Volume for Shut {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        panic!("{name} was to be written")
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        panic!("{name} was to be read")
    }

    fn list(
        &self,
        prefix: &BlobName,
        _: Option<&BlobName>,
        _: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        panic!("{prefix} was to be listed")
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        panic!("{name} was to be removed")
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        panic!("what is unfinished was to be discarded")
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(None)
    }

    fn handles_outlive_removal(&self) -> bool {
        true
    }
}

/// Errors of all operations that need the volume.
fn refusals(engine: &Engine, id: BackupId) -> Vec<EngineError> {
    let owner = namespace(engine);
    let (who, why) = ("a test", "a reason");
    let mut charge = |_| true;
    let control = Arc::default();
    let options = ReclaimOptions::default();
    vec![
        start(engine, request("web", &[("root", b"x")])).unwrap_err(),
        engine.read_disk(owner, id, "root", 0, 0).map(drop).unwrap_err(),
        engine.read_disk_past_damage(owner, id, "root", 0, 0).map(drop).unwrap_err(),
        engine.read_range(owner, id, "root", 0, 1).map(drop).unwrap_err(),
        engine.extent_history(owner, id, "root", 1).unwrap_err(),
        engine.confirm_false_digests(owner, id, &[("root".to_owned(), 0)], who).unwrap_err(),
        engine.note_false_chunks(owner, id, &[], who).unwrap_err(),
        engine.verify_backup(owner, id, who, &mut charge).map(drop).unwrap_err(),
        engine.storage_statistics(1).unwrap_err(),
        engine.freed_by_deleting(&[id], &control).unwrap_err(),
        engine.attribute(&control).map(drop).unwrap_err(),
        engine.reclaim(&options, &control).map(drop).unwrap_err(),
        engine.delete_backups(&[id], who, why).unwrap_err(),
        engine.lock_backups(&[id], i64::MAX, who).unwrap_err(),
        engine.hold_backups(&[id], why, who).unwrap_err(),
        engine.release_holds(&[id], why, who).unwrap_err(),
        engine.rename_vm(owner, "web", "other", who).unwrap_err(),
        engine.rename_job(owner, "job", "other", who).unwrap_err(),
        engine.remove_vm(owner, "web", false, who).unwrap_err(),
        engine.empty_namespace(owner, who, why).unwrap_err(),
        engine.name_damage(1).map(drop).unwrap_err(),
        engine.scrub(&Budget::unlimited(), &NoProgress).map(drop).unwrap_err(),
        engine.write_points().unwrap_err(),
        engine.snapshot().unwrap_err(),
        engine.renew_snapshots().unwrap_err(),
        engine.audit(&NoProgress).map(drop).unwrap_err(),
        engine.check(CheckOptions { read_data: true }, &NoProgress).map(drop).unwrap_err(),
        engine.repair(&NoProgress).map(drop).unwrap_err(),
    ]
}

#[test]
fn without_keys_the_catalog_is_served_and_nothing_else_is_touched() {
    let bench = Bench::new();
    let volume = Arc::new(MemoryVolume::new());
    let disk = noise(1, 300_000);
    for crashed in [false, true] {
        let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
        let made = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
        if !crashed {
            engine.shutdown().unwrap();
        }
        drop(engine);

        let engine =
            Engine::assemble_locked(bench.parts(Arc::new(Shut)).unwrap(), "no keys, start with them")
                .unwrap();
        let id: BackupId = made.parse().unwrap();
        assert!(engine.is_locked() && engine.catalog().backup(id).unwrap().is_some());
        for refused in refusals(&engine, id) {
            assert!(
                matches!(&refused, EngineError::NoKeys(why) if why.contains("start with them")),
                "{refused}"
            );
        }
        assert!(engine.stats().is_ok() && engine.stopped().is_empty());
        let not_ready: Vec<_> = engine.not_ready().into_iter().map(|found| found.obstacle).collect();
        assert_eq!(not_ready, [Obstacle::Locked]);
        engine.shutdown().unwrap();
        drop(engine);

        // The next start finds what the one before this left.
        let engine = bench.open(Arc::<MemoryVolume>::clone(&volume));
        assert_eq!(engine.opened().clean, !crashed);
        assert!(restore(&engine, &made, "root").unwrap() == disk);
        let report = engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        engine.shutdown().unwrap();
    }
}
