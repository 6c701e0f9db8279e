//! Slots of a repository at rest.

use std::path::Path;
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::RepositoryId;
use holdfast_volume::{LocalVolume, Volume};
use tempfile::TempDir;

use super::*;
use crate::config::{Encryption, Settings};

/// An encrypted volume with its key file.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings {
        data_dir: folder.path().to_owned(),
        encryption: Some(Encryption::On),
        ..Settings::default()
    };
    let volume: Arc<dyn Volume> = Arc::new(LocalVolume::open(folder.path().join(BLOBS)).unwrap());
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (volume, _) =
        encryption::around(&volume, RepositoryId::from_bytes([1; 16]), &settings, false, &clock).unwrap();
    holdfast_volume::testing::put(&*volume, "points/a", b"sealed");
    folder
}

fn args(folder: &Path) -> FolderArgs {
    FolderArgs { folder: DataFolder { config: None, data_dir: Some(folder.to_owned()) } }
}

fn table(folder: &Path) -> KeyTable {
    Place::find(&args(folder).folder).unwrap().table
}

fn kinds(folder: &Path) -> Vec<SlotKind> {
    table(folder).slots().map(|slot| slot.kind).collect()
}

fn remove_slot(folder: &Path, slot: u32) -> Result<(), Failure> {
    remove(&RemoveArgs { folder: args(folder).folder, slot })
}

#[test]
fn a_kit_is_a_slot_and_the_key_in_use_stays() {
    let folder = folder();
    let path = folder.path();
    assert!(!has_kit(&table(path)));
    export_kit(&args(path).folder).unwrap();
    assert_eq!(kinds(path), [SlotKind::KeyFile, SlotKind::RecoveryKit]);
    assert!(has_kit(&table(path)));
    let refused = format!("{:?}", remove_slot(path, 1).unwrap_err());
    assert!(refused.contains("could not start without it"), "{refused}");
    assert!(remove_slot(path, 9).is_err());
    remove_slot(path, 2).unwrap();
    assert_eq!(kinds(path), [SlotKind::KeyFile]);
}

#[test]
fn a_rotation_keeps_what_the_settings_name() {
    let folder = folder();
    let path = folder.path();
    export_kit(&args(path).folder).unwrap();
    let before = table(path);
    rotate(&RotateArgs { folder: args(path).folder, data_keys: false, data_key_of: Vec::new() }).unwrap();
    let after = table(path);
    assert_ne!(after.key(), before.key());
    assert_eq!(kinds(path), [SlotKind::KeyFile]);
    let states = |table: &KeyTable| table.data_keys().map(|key| (key.id, key.state)).collect::<Vec<_>>();
    assert_eq!(states(&after), states(&before));
    for _ in 0..2 {
        rotate(&RotateArgs { folder: args(path).folder, data_keys: true, data_key_of: Vec::new() }).unwrap();
    }
    let all = states(&table(path));
    assert_eq!(all.len(), before.data_keys().count(), "new ones are made when they are needed");
    assert!(all.iter().all(|(_, state)| *state == DataKeyState::Old), "{all:?}");
}

/// A process that is no server, or one of an earlier version, goes on with the keys it opened.
#[test]
fn keys_change_only_with_the_server_or_without_any() {
    let folder = folder();
    let path = folder.path();
    let before = table(path);
    let held = FolderLock::take(path).unwrap();
    assert!(export_kit(&args(path).folder).is_err());
    assert!(remove_slot(path, 1).is_err());
    assert!(
        rotate(&RotateArgs { folder: args(path).folder, data_keys: true, data_key_of: Vec::new() }).is_err()
    );
    for json in [true, false] {
        status(&StatusArgs { folder: args(path).folder, json }).unwrap();
    }
    assert_eq!(table(path), before);
    drop(held);
    export_kit(&args(path).folder).unwrap();
}

#[test]
fn a_status_has_all_but_secrets() {
    let folder = folder();
    let json = status_json(&table(folder.path()), &Inventory::default(), None, None);
    assert_eq!(json["slots"][0]["kind"], "key file");
    assert_eq!(json["data_keys"][0]["current"], true);
    assert_eq!((&json["plain_accepted"], &json["recovery_kit"]), (&json!(false), &json!(false)));
    let key = fs::read_to_string(folder.path().join("repository.key")).unwrap();
    let bits = key.split(' ').nth(1).unwrap();
    assert!(!json.to_string().contains(bits));
}

#[test]
fn a_repository_that_is_not_encrypted_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("{:?}", status(&StatusArgs { folder: args(folder.path()).folder, json: false }));
    assert!(missing.contains("there is no repository"), "{missing}");
    fs::create_dir(folder.path().join(BLOBS)).unwrap();
    let plain = format!("{:?}", status(&StatusArgs { folder: args(folder.path()).folder, json: false }));
    assert!(plain.contains("not encrypted") && plain.contains("--encrypt"), "{plain}");
}
