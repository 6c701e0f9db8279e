//! What is opened, made and refused.

use std::fs;

use holdfast_engine::clock::ManualClock;
use holdfast_keys::kit::KitPage;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::put;

use super::*;
use crate::config::{Layer, resolve};

fn id(number: u8) -> RepositoryId {
    RepositoryId::from_bytes([number; 16])
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(1_763_700_000_000))
}

fn settings(folder: &Path, encryption: Option<Encryption>) -> Settings {
    let layer = Layer { data_dir: Some(folder.to_owned()), encryption, ..Layer::default() };
    resolve(&layer, None, &|_| None).unwrap().settings
}

fn memory() -> (MemoryVolume, Arc<dyn Volume>) {
    let memory = MemoryVolume::new();
    (memory.clone(), Arc::new(memory))
}

fn table(volume: &dyn Volume) -> KeyTable {
    read_table(volume).unwrap().unwrap()
}

#[test]
fn the_settings_name_one_source() {
    let folder = Path::new("/data");
    let mut settings = settings(folder, None);
    assert_eq!(KeySource::of(&settings), KeySource::File("/data/repository.key".into()));
    settings.key_file = Some("/key".into());
    assert_eq!(KeySource::of(&settings), KeySource::File("/key".into()));
    settings.key_passphrase_file = Some("/phrase".into());
    assert_eq!(KeySource::of(&settings), KeySource::PassphraseFile("/phrase".into()));
    settings.key_command = Some("print".into());
    assert_eq!(KeySource::of(&settings), KeySource::Command("print".into()));
}

/// Anyone with a copy of the volume reads labels.
#[test]
fn labels_fit_and_tell_no_command() {
    let command = KeySource::Command("vault --token=secret".into());
    assert!(!command.label().contains("vault") && !command.to_string().contains("vault"));
    assert_eq!(KeySource::File("/a/key\n".into()).label(), "/a/key");
    assert!(KeySource::File("key".into()).label().starts_with('/'));
    for len in 50..80 {
        let label = KeySource::File(format!("/{}", "ä".repeat(len)).into()).label();
        assert!(label.len() <= holdfast_keys::slots::LABEL_MAX_BYTES, "{label}");
    }
}

#[test]
fn a_passphrase_is_the_line_without_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("passphrase");
    fs::write(&path, "correct horse \r\n\n").unwrap();
    assert_eq!(read_passphrase(&path).unwrap().expose(), b"correct horse ");
    fs::write(&path, vec![b'x'; 4097]).unwrap();
    let error = read_passphrase(&path).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
    assert!(read_passphrase(&folder.path().join("absent")).is_err());
}

#[test]
fn a_volume_is_encrypted_when_asked_for_and_stays_so() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    for asked in [None, Some(Encryption::Off)] {
        let volume = around(&raw, id(1), &settings(folder.path(), asked), false, &clock()).unwrap();
        assert!(Arc::ptr_eq(&volume, &raw));
        assert!(read_table(&memory).unwrap().is_none() && !folder.path().join(KEY_FILE).exists());
    }
    for asked in [Some(Encryption::On), None, Some(Encryption::Off), Some(Encryption::On)] {
        let volume = around(&raw, id(1), &settings(folder.path(), asked), false, &clock()).unwrap();
        assert!(!Arc::ptr_eq(&volume, &raw), "{asked:?}");
        assert_eq!(table(&memory).sequence(), 1, "one table, made once");
        assert!(!table(&memory).accepts_plain(), "nothing was there before");
    }
    let error = around(&raw, id(2), &settings(folder.path(), None), false, &clock()).unwrap_err();
    assert_eq!(error.code, ErrorCode::Damaged, "{error}");
    assert!(error.message.contains(&id(1).to_string()) && error.message.contains(&id(2).to_string()));
}

/// What is there stays readable, and a key file that is there is taken.
#[test]
fn a_volume_with_data_is_encrypted_from_now_on() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    put(&memory, "snapshots/1", b"before");
    let settings = settings(folder.path(), Some(Encryption::On));
    key_file::create(&folder.path().join(KEY_FILE), &SystemRandom).unwrap();
    let key = fs::read(folder.path().join(KEY_FILE)).unwrap();
    let volume = around(&raw, id(1), &settings, true, &clock()).unwrap();
    assert!(table(&memory).accepts_plain());
    assert_eq!(fs::read(folder.path().join(KEY_FILE)).unwrap(), key);
    assert_eq!(volume.open(&BlobName::new("snapshots/1").unwrap()).unwrap().len(), 6);
}

#[test]
fn another_key_is_told_from_damage() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, raw) = memory();
    let on = Some(Encryption::On);
    around(&raw, id(1), &settings(folder.path(), on), false, &clock()).unwrap();
    let wanted = table(&memory).key().to_string();
    let missing = around(&raw, id(1), &settings(other.path(), on), false, &clock()).unwrap_err();
    assert!(!other.path().join(KEY_FILE).exists(), "none is made for a table that another opens");
    key_file::create(&other.path().join(KEY_FILE), &SystemRandom).unwrap();
    let wrong = around(&raw, id(1), &settings(other.path(), None), false, &clock()).unwrap_err();
    for error in [missing, wrong] {
        assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
        assert!(error.message.contains(&wanted) && error.message.contains("Nothing is damaged"), "{error}");
    }
}

/// Whichever folder tells: the oldest blobs of a repository that was encrypted later do not.
#[test]
fn encrypted_blobs_without_keys_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (plain, sealed) in [
        (None, "containers/0000000/0000000001.data-"),
        (None, "points/n/v/x.1-"),
        (Some("snapshots/1"), "snapshots/2-"),
        (Some("index/a"), "index/clean-stop-"),
    ] {
        let (memory, raw) = memory();
        for name in plain.into_iter().chain([sealed]) {
            put(&memory, name, b"x");
        }
        for asked in [None, Some(Encryption::On)] {
            let settings = settings(folder.path(), asked);
            let errors = [
                around(&raw, id(1), &settings, true, &clock()).unwrap_err(),
                recovered(&raw, &settings, None, &clock()).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
                assert!(error.message.contains(sealed), "{error}");
            }
            assert!(read_table(&memory).unwrap().is_none() && !folder.path().join(KEY_FILE).exists());
        }
    }
}

#[test]
fn a_kit_makes_a_key_file_once() {
    let (folder, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (memory, raw) = memory();
    let first = settings(folder.path(), Some(Encryption::On));
    around(&raw, id(1), &first, false, &clock()).unwrap();
    let (mut open, _) = unlock(table(&memory), &KeySource::of(&first)).unwrap();
    let secret = holdfast_keys::Secret::random(&SystemRandom).unwrap();
    let slot = SlotSecret::recovery_kit(secret.clone());
    open.add_slot(&NewSlot::new(&slot, "kit"), 1, &SystemRandom).unwrap();
    replace_table(&memory, &open).unwrap();
    let page = |repository| {
        let page = KitPage { repository, key: open.table().key(), made_ms: 1, volumes: &[], commands: &[] };
        let path = folder.path().join("kit.txt");
        fs::write(&path, page.text(&secret).expose()).unwrap();
        path
    };
    let settings = settings(new.path(), None);
    let source = KeySource::of(&settings);
    let foreign = import_kit(&memory, table(&memory), &page(id(2)), &source, &*clock()).unwrap_err();
    assert!(foreign.message.contains(&id(2).to_string()), "{foreign}");
    assert!(!new.path().join(KEY_FILE).exists());
    for _ in 0..2 {
        recovered(&raw, &settings, Some(&page(id(1))), &clock()).unwrap();
        assert_eq!(table(&memory).slots().count(), 3, "the old key file, the kit, and the new one once");
    }
    recovered(&raw, &settings, None, &clock()).unwrap();
}
