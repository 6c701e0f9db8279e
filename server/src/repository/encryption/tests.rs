//! Opening, making and refusing keys.

use std::fs;

use holdfast_engine::clock::ManualClock;
use holdfast_keys::kit::KitPage;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{CrashPoint, FaultyVolume, InFlight, put};

use super::*;

fn id(number: u8) -> RepositoryId {
    RepositoryId::from_bytes([number; 16])
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new(1_763_700_000_000))
}

fn settings(folder: &Path, encryption: Option<Encryption>) -> Settings {
    Settings { data_dir: folder.to_owned(), encryption, ..Settings::default() }
}

fn memory() -> (MemoryVolume, Arc<dyn Volume>) {
    let memory = MemoryVolume::new();
    (memory.clone(), Arc::new(memory))
}

fn table(volume: &dyn Volume) -> KeyTable {
    read_table(volume).unwrap().unwrap()
}

fn around(
    raw: &Arc<dyn Volume>,
    id: RepositoryId,
    settings: &Settings,
    has_data: bool,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Volume>, ServiceError> {
    super::around(raw, id, settings, has_data, clock).map(|(volume, _)| volume)
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

/// Existing data stays readable, and an existing key file is used.
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
    let foreign = open_with_kit(table(&memory), &page(id(2)), &source, &*clock()).unwrap_err();
    assert!(foreign.message.contains(&id(2).to_string()), "{foreign}");
    assert!(!new.path().join(KEY_FILE).exists());
    for _ in 0..2 {
        recovered(&raw, &settings, Some(&page(id(1))), &clock()).unwrap();
        assert_eq!(table(&memory).slots().count(), 3, "the old key file, the kit, and the new one once");
    }
    recovered(&raw, &settings, None, &clock()).unwrap();
}

/// (K5) Who can write to the volume cannot bring back what opened it once.
#[test]
fn an_older_table_is_refused_until_it_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    let settings = settings(folder.path(), Some(Encryption::On));
    around(&raw, id(1), &settings, false, &clock()).unwrap();
    let older = memory.snapshot();
    // A start remembers what a command beside it made.
    let (mut open, _) = unlock(table(&memory), &KeySource::of(&settings)).unwrap();
    let secret = SlotSecret::passphrase(SecretBytes::new(b"correct horse battery".to_vec()));
    open.add_slot(&NewSlot::new(&secret, "another"), 1, &SystemRandom).unwrap();
    replace_table(&memory, &open).unwrap();
    around(&raw, id(1), &settings, false, &clock()).unwrap();
    let raw: Arc<dyn Volume> = Arc::new(older.clone());
    let error = around(&raw, id(1), &settings, false, &clock()).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
    assert!(error.message.contains("older version (1)") && error.message.contains("accept-older"), "{error}");
    at_work::accept(folder.path(), &table(&older)).unwrap();
    around(&raw, id(1), &settings, false, &clock()).unwrap();
    // A recovery is told which copy to take.
    at_work::accept(folder.path(), &table(&memory)).unwrap();
    recovered(&raw, &settings, None, &clock()).unwrap();
    around(&raw, id(1), &settings, false, &clock()).unwrap();
    // A table remembered of another repository says nothing.
    let (_, other) = self::memory();
    around(&other, id(2), &settings, false, &clock()).unwrap();
}

/// (K5) Who can write to the volume cannot put it back as it was before it was encrypted.
#[test]
fn a_volume_without_keys_is_refused_once_there_were_some() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    put(&memory, "snapshots/1", b"before");
    let plain = memory.snapshot();
    around(&raw, id(1), &settings(folder.path(), Some(Encryption::On)), true, &clock()).unwrap();
    let raw: Arc<dyn Volume> = Arc::new(plain.clone());
    for asked in [None, Some(Encryption::Off), Some(Encryption::On)] {
        let error = around(&raw, id(1), &settings(folder.path(), asked), true, &clock()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Unauthenticated, "{error}");
        assert!(error.message.contains("no keys") && error.message.contains("keys-seen"), "{error}");
        assert!(read_table(&plain).unwrap().is_none(), "none is made");
    }
    // Another repository's says nothing, and who removes the file says that it was on purpose.
    around(&raw, id(2), &settings(folder.path(), None), true, &clock()).unwrap();
    fs::remove_file(folder.path().join("keys-seen")).unwrap();
    around(&raw, id(1), &settings(folder.path(), None), true, &clock()).unwrap();
}

/// (K4) What was destroyed is gone from today's table, and today's key file opens no older one; wherever a crash came.
#[test]
fn what_is_shredded_opens_with_nothing_of_today() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    let settings = settings(folder.path(), Some(Encryption::On));
    let source = KeySource::of(&settings);
    let namespace = holdfast_engine::ids::NamespaceId::from_bytes([7; 16]);
    let owner = holdfast_keys::Owner::Namespace(namespace);
    let (volume, at_work) = super::around(&raw, id(1), &settings, false, &clock()).unwrap();
    let name = BlobName::new("points/n/v/x.1").unwrap();
    let mut blob = volume.create_for(&name, holdfast_volume::Owner::namespace([7; 16])).unwrap();
    blob.append(b"of a tenant").unwrap();
    blob.seal().unwrap();
    let (older, key_file) = (table(&memory), folder.path().join(KEY_FILE));
    let (aside, old_key) = (folder.path().join("aside"), fs::read(&key_file).unwrap());
    fs::copy(&key_file, &aside).unwrap();

    let shredded = at_work.unwrap().shred(namespace, &source, &source.renew().unwrap()).unwrap();
    assert_eq!((shredded.keys.len(), shredded.slots.len()), (1, 0));
    assert!(volume.open(&name).unwrap_err().is_unreadable_now());
    assert_ne!(fs::read(&key_file).unwrap(), old_key);
    assert!(table(&memory).data_keys().all(|key| key.owner != owner));
    assert!(unlock(older.clone(), &source).is_err(), "today's key does not open the older table");
    unlock(table(&memory), &source).unwrap();

    // A crash before the new key file got its name, and before the older table went.
    write_table(&*raw, &older).unwrap();
    fs::rename(&key_file, renewed_path(&key_file)).unwrap();
    fs::copy(&aside, &key_file).unwrap();
    let volume = around(&raw, id(1), &settings, false, &clock()).unwrap();
    assert!(volume.open(&name).unwrap_err().is_unreadable_now());
    assert!(!renewed_path(&key_file).exists() && fs::read(&key_file).unwrap() != old_key);
    assert_eq!(
        holdfast_volume::testing::list(&*raw, "keys").len(),
        2,
        "(K8) both of today's, none of before"
    );
    // One before the table: the file that was made for it does not count.
    fs::write(renewed_path(&key_file), "garbage").unwrap();
    around(&raw, id(1), &settings, false, &clock()).unwrap();
    let (_, at_work) = super::around(&raw, id(1), &settings, false, &clock()).unwrap();
    at_work.unwrap().shred(namespace, &source, &source.renew().unwrap()).unwrap();
    around(&raw, id(1), &settings, false, &clock()).unwrap();
}

#[test]
fn a_reminder_ends_with_a_kit() {
    let folder = tempfile::tempdir().unwrap();
    let (memory, raw) = memory();
    let settings = settings(folder.path(), Some(Encryption::On));
    let reminder =
        || super::around(&raw, id(1), &settings, false, &clock()).unwrap().1.unwrap().reminder().is_some();
    assert!(reminder());
    for kind in [SlotSecret::recovery_kit, SlotSecret::key_file] {
        let (mut open, _) = unlock(table(&memory), &KeySource::of(&settings)).unwrap();
        let secret = kind(holdfast_keys::Secret::random(&SystemRandom).unwrap());
        open.add_slot(&NewSlot::new(&secret, "another"), 1, &SystemRandom).unwrap();
        replace_table(&memory, &open).unwrap();
        assert!(!reminder());
    }
}

/// Change that a command makes to the table of keys.
type Change = fn(&mut OpenKeys, &KeySource);

fn rotate(open: &mut OpenKeys, source: &KeySource) {
    let label = source.label();
    open.rotate_repository_key(&[NewSlot::new(&source.read().unwrap(), &label)], 1, &SystemRandom).unwrap();
}

const CHANGES: [Change; 4] = [
    |open, source| rotate(open, source),
    |open, source| {
        rotate(open, source);
        let owners: Vec<_> = open.table().data_keys().map(|key| key.owner).collect();
        for owner in owners {
            open.retire(owner, 1, &SystemRandom).unwrap();
        }
    },
    |open, _| {
        let kit = SlotSecret::recovery_kit(holdfast_keys::Secret::random(&SystemRandom).unwrap());
        open.add_slot(&NewSlot::new(&kit, "kit"), 1, &SystemRandom).unwrap();
    },
    |open, _| open.remove_slot(SlotId(2), 1).unwrap(),
];

/// A blob of a namespace, and a second slot.
fn encrypted(settings: &Settings) -> MemoryVolume {
    let (memory, raw) = memory();
    let volume = around(&raw, id(1), settings, false, &clock()).unwrap();
    let mut blob = volume.create_for(&point(), holdfast_volume::Owner::namespace([7; 16])).unwrap();
    blob.append(b"of a tenant").unwrap();
    blob.seal().unwrap();
    let (mut open, _) = unlock(table(&memory), &KeySource::of(settings)).unwrap();
    let kit = SlotSecret::recovery_kit(holdfast_keys::Secret::random(&SystemRandom).unwrap());
    open.add_slot(&NewSlot::new(&kit, "another"), 1, &SystemRandom).unwrap();
    replace_table(&memory, &open).unwrap();
    memory
}

fn point() -> BlobName {
    BlobName::new("points/n/v/x.1").unwrap()
}

/// (K1) A server goes on with what a command changed; wherever power fails, the next start opens what is there.
#[test]
fn keys_change_while_a_server_runs_and_a_crash_at_any_write_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Some(Encryption::On));
    let source = KeySource::of(&settings);
    let start = encrypted(&settings);
    let reads = |volume: &Arc<dyn Volume>| {
        assert_eq!(volume.open(&point()).unwrap().read_vec(&point(), 0, 11).unwrap(), b"of a tenant");
    };
    for change in CHANGES {
        let (mut open, _) = unlock(table(&start), &source).unwrap();
        let before = open.table().clone();
        change(&mut open, &source);
        let after = open.table().clone();
        let mut writes = 0..;
        loop {
            let crash = writes.next().unwrap();
            let mut has_crashed = false;
            for in_flight in [InFlight::Lost, InFlight::Done] {
                let faulty = Arc::new(FaultyVolume::new(start.snapshot()));
                faulty.crash_at(CrashPoint { after_mutations: crash, in_flight });
                let raw: Arc<dyn Volume> = Arc::clone(&faulty) as Arc<dyn Volume>;
                // A start remembers the table before.
                at_work::accept(folder.path(), &before).unwrap();
                let (volume, at_work) = super::around(&raw, id(1), &settings, false, &clock()).unwrap();
                let taken = at_work.unwrap().take_over(before.sequence(), &after.encode());
                has_crashed |= faulty.has_crashed();
                assert_eq!(taken.is_err(), faulty.has_crashed(), "{taken:?}");
                if taken.is_ok() {
                    reads(&volume);
                    assert_eq!(table(&*raw), after);
                    continue;
                }
                let survivor: Arc<dyn Volume> = faulty.survivor();
                assert!([&before, &after].contains(&&table(&*survivor)), "one of the two");
                let volume = around(&survivor, id(1), &settings, false, &clock()).unwrap();
                reads(&volume);
                assert_eq!(holdfast_volume::testing::list(&*survivor, "keys").len(), 2);
            }
            if !has_crashed {
                break;
            }
        }
        assert!(writes.start > 2, "{writes:?}");
    }
}

/// A server takes over only what it can start with, and what loses nothing.
#[test]
fn a_table_that_would_lock_the_server_out_or_lose_data_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(folder.path(), Some(Encryption::On));
    let source = KeySource::of(&settings);
    let memory = encrypted(&settings);
    let raw: Arc<dyn Volume> = Arc::new(memory.clone());
    let (_, at_work) = super::around(&raw, id(1), &settings, false, &clock()).unwrap();
    let at_work = at_work.unwrap();
    let (present, before) = (|| unlock(table(&memory), &source).unwrap().0, table(&memory));
    let offer = |based_on: u64, open: &OpenKeys| {
        let refused = at_work.take_over(based_on, &open.table().encode()).unwrap_err();
        assert_eq!(table(&memory), before, "{refused}");
        refused
    };
    let number = before.sequence();
    // Made of another table than the one that counts.
    let mut open = present();
    rotate(&mut open, &source);
    assert_eq!(offer(number - 1, &open).code, ErrorCode::Busy);
    // Not opened by what this server's settings name.
    let mut open = present();
    open.remove_slot(SlotId(1), 1).unwrap();
    let refused = offer(number, &open);
    assert!(refused.message.contains("settings of the running server"), "{refused}");
    let mut open = present();
    let other = SlotSecret::key_file(holdfast_keys::Secret::random(&SystemRandom).unwrap());
    open.rotate_repository_key(&[NewSlot::new(&other, "x")], 1, &SystemRandom).unwrap();
    assert_eq!(offer(number, &open).code, ErrorCode::Unauthenticated);
    // Without a namespace's keys.
    let mut open = present();
    let owner = holdfast_keys::Owner::Namespace(holdfast_engine::ids::NamespaceId::from_bytes([7; 16]));
    open.drop_owner(owner, 1).unwrap();
    assert!(offer(number, &open).message.contains("is missing"));
    // Not newer.
    assert_eq!(offer(number, &present()).code, ErrorCode::Invalid);
    // No table at all.
    assert!(at_work.take_over(number, b"garbage").is_err());
    // And as it should be.
    let mut open = present();
    rotate(&mut open, &source);
    at_work.take_over(number, &open.table().encode()).unwrap();
    assert_eq!(
        (table(&memory), at_work.repository_key()),
        (open.table().clone(), open.table().key().to_string())
    );
}
