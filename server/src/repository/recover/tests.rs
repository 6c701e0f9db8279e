//! Losses, what comes back, and refusals.

use holdfast_engine::catalog::token::Role;
use holdfast_engine::catalog::{Catalog, TokenSpec};
use holdfast_engine::clock::SystemClock;
use holdfast_engine::ids::TokenId;
use holdfast_engine::{Engine, NoProgress};
use holdfast_volume::BlobName;

use super::*;
use crate::config::{Given, Resolved, resolve};
use crate::repository::{open_parts, snapshot};

fn resolved(folder: &Path) -> Resolved {
    resolve(&Given::default().with("data_dir", Some(folder)).unwrap(), None, &|_| None).unwrap()
}

fn begin(from: &Path, into: &Path) -> Result<Recovery, ServiceError> {
    Recovery::begin(from, &resolved(into).settings, None, &clock())
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

fn open(folder: &Path) -> Engine {
    Engine::assemble(open_parts(&resolved(folder).settings, &clock()).unwrap()).unwrap()
}

fn create_token(catalog: &Catalog, number: u8, name: &str) -> TokenId {
    let id = TokenId::from_bytes([number; 16]);
    let spec = TokenSpec {
        id,
        name: name.into(),
        role: Role::Admin,
        namespaces: vec![],
        owner: "ops".into(),
        vm_patterns: vec![],
        expires_ms: None,
    };
    catalog.create_token(&spec, &[number; 32]).unwrap();
    id
}

/// A repository with three snapshots: of a first token, of a second, and of a third that is revoked.
fn repository(folder: &Path) -> RepositoryId {
    let engine = open(folder);
    for (number, name) in [(1, "one"), (2, "two"), (3, "three")] {
        let id = create_token(engine.catalog(), number, name);
        if number == 3 {
            engine.catalog().revoke_token(id).unwrap();
        }
        engine.snapshot().unwrap().unwrap();
    }
    let id = engine.repository_id();
    // As a kill leaves it.
    std::mem::forget(engine);
    id
}

fn snapshots(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder.join("blobs/snapshots")).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

/// A copy of the volume in a folder of its own, as a disk that was saved: no process has it open.
fn saved(folder: &Path) -> tempfile::TempDir {
    let target = tempfile::tempdir().unwrap();
    copy(&folder.join(BLOBS), &target.path().join(BLOBS));
    target
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn recover(from: &Path, into: &Path, given: Option<&Path>) -> Recovered {
    let recovery = begin(&from.join(BLOBS), into).unwrap();
    let (catalog, recovered) = recovery.catalog(&clock(), given, &NoProgress).unwrap();
    recovery.finish(catalog).unwrap();
    recovered
}

#[test]
fn the_newest_snapshot_comes_back_and_its_tokens_wait() {
    let folder = tempfile::tempdir().unwrap();
    let id = repository(folder.path());
    let disk = saved(folder.path());
    let recovered = recover(disk.path(), disk.path(), None);
    let (name, header) = recovered.snapshot.unwrap();
    assert_eq!((name.as_str(), header.repository), ("snapshots/0000000000000003", id));
    assert_eq!((recovered.unusable.len(), recovered.disabled_tokens), (0, 2));
    let engine = open(disk.path());
    assert_eq!(engine.repository_id(), id);
    let tokens = engine.catalog().list_tokens().unwrap();
    assert_eq!(tokens.len(), 3);
    for token in &tokens {
        assert!(!token.is_usable(clock().now_ms()), "{token:?}");
        assert_eq!(token.revoked_ms.is_some(), token.name == "three", "revoked stays revoked");
    }
    engine.catalog().enable_token(tokens[0].id).unwrap();
    engine.catalog().enable_token(tokens[2].id).unwrap_err();
}

#[test]
fn a_damaged_snapshot_is_named_and_the_one_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let id = repository(folder.path());
    let disk = saved(folder.path());
    let files = snapshots(disk.path());
    for (file, at) in [(&files[2], 100), (&files[1], 3)] {
        let mut bytes = fs::read(file).unwrap();
        bytes[at] ^= 0x10;
        fs::write(file, bytes).unwrap();
    }
    let recovered = recover(disk.path(), disk.path(), None);
    assert_eq!(recovered.snapshot.unwrap().1.number, 1);
    let named: Vec<&str> = recovered.unusable.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(named, ["snapshots/0000000000000003", "snapshots/0000000000000002"]);
    assert_eq!(open(disk.path()).catalog().list_tokens().unwrap().len(), 1);
    // With none at all: the repository is the same, and knows no token.
    let disk = saved(folder.path());
    fs::remove_dir_all(disk.path().join("blobs/snapshots")).unwrap();
    let recovered = recover(disk.path(), disk.path(), None);
    assert!(recovered.snapshot.is_none() && recovered.disabled_tokens == 0);
    let engine = open(disk.path());
    assert_eq!((engine.repository_id(), engine.catalog().list_tokens().unwrap().len()), (id, 0));
    assert!(engine.catalog().namespace_by_name(DEFAULT_NAMESPACE).unwrap().is_some());
}

#[test]
fn a_catalog_is_never_replaced_and_a_foreign_folder_never_taken() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let disk = saved(folder.path());
    fs::write(catalog_path(disk.path()), b"x").unwrap();
    let other = tempfile::tempdir().unwrap();
    for into in [disk.path(), other.path()] {
        let error = begin(&disk.path().join(BLOBS), into).unwrap_err();
        assert!(error.message.contains("catalog.db exists"), "{error}");
    }
    assert_eq!(fs::read(catalog_path(disk.path())).unwrap(), b"x");
    // An empty file, which a crash leaves while a catalog is created, does not count as a catalog.
    fs::write(catalog_path(disk.path()), b"").unwrap();
    fs::write(disk.path().join("catalog.db-wal"), b"a log of a lost catalog").unwrap();
    recover(disk.path(), disk.path(), None);
    assert_eq!(
        fs::read(disk.path().join("catalog.db-wal.before-recovery")).unwrap(),
        b"a log of a lost catalog"
    );
    open(disk.path());
    let empty = tempfile::tempdir().unwrap();
    let error = begin(empty.path(), other.path()).unwrap_err();
    assert!(error.message.contains("nothing of a repository"), "{error}");
    let error = begin(&empty.path().join("gone"), other.path()).unwrap_err();
    assert!(error.message.contains("gone"), "{error}");
}

#[test]
fn a_folder_elsewhere_gets_a_link_and_a_crash_in_the_middle_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let id = repository(folder.path());
    let disk = saved(folder.path());
    let home = tempfile::tempdir().unwrap();
    let into = home.path().join("new");
    let from = disk.path().join(BLOBS);
    // Each place a crash can leave it at.
    drop(begin(&from, &into).unwrap());
    let recovery = begin(&from, &into).unwrap();
    let (catalog, _) = recovery.catalog(&clock(), None, &NoProgress).unwrap();
    std::mem::forget(catalog);
    drop(recovery);
    assert!(!catalog_path(&into).exists());
    fs::write(into.join("catalog.db.recovering-wal"), b"half").unwrap();
    recover(disk.path(), &into, None);
    assert_eq!(fs::read_link(into.join(BLOBS)).unwrap(), fs::canonicalize(&from).unwrap());
    assert_eq!(open(&into).repository_id(), id);
    let error = begin(&from, &into).unwrap_err();
    assert!(error.message.contains("exists"), "{error}");
}

#[test]
fn the_backup_of_a_server_comes_back_with_its_certificate() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    fs::create_dir(folder.path().join("tls")).unwrap();
    for file in [KEY_FILE, CERTIFICATE_FILE] {
        fs::write(folder.path().join(file), file).unwrap();
    }
    let target = tempfile::tempdir().unwrap();
    let to = target.path().join("backup");
    for _ in 0..2 {
        snapshot::write(&resolved(folder.path()), &clock(), &to, "test").unwrap();
    }
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&to), mode(&to.join(KEY_FILE))), (0o700, 0o600));
    assert!(fs::read_to_string(to.join("config.toml")).unwrap().contains("data_dir = "));
    // The command need not be told again the settings that the server got by flags or a file.
    let given = Given::default().with("data_dir", Some(folder.path())).unwrap();
    let given = given.with("lease_secs", Some(77)).unwrap();
    snapshot::keep_settings(&resolve(&given, None, &|_| None).unwrap()).unwrap();
    snapshot::write(&resolved(folder.path()), &clock(), &to, "test").unwrap();
    let told = fs::read_to_string(to.join("config.toml")).unwrap();
    assert!(told.contains("lease_secs = 77  # command line\n"), "{told}");
    assert_eq!(mode(&folder.path().join("settings.toml")), 0o600);
    let disk = saved(folder.path());
    fs::remove_dir_all(disk.path().join("blobs/snapshots")).unwrap();
    let recovered = recover(disk.path(), disk.path(), Some(&to));
    assert_eq!(recovered.snapshot.unwrap().0, to.join(CATALOG_FILE).display().to_string());
    assert_eq!(fs::read_to_string(disk.path().join(KEY_FILE)).unwrap(), KEY_FILE);
    assert_eq!(open(disk.path()).catalog().list_tokens().unwrap().len(), 3);
    // One that was asked for and cannot be used is an error: no other is taken in its place.
    let disk = saved(folder.path());
    fs::write(to.join(CATALOG_FILE), b"garbage").unwrap();
    let recovery = begin(&disk.path().join(BLOBS), disk.path()).unwrap();
    let error = recovery.catalog(&clock(), Some(&to), &NoProgress).unwrap_err();
    assert_eq!(error.code, ErrorCode::Damaged, "{error}");
    // A folder with other files in it is not written to.
    fs::write(target.path().join("letter.txt"), b"x").unwrap();
    let error = snapshot::write(&resolved(folder.path()), &clock(), target.path(), "test").unwrap_err();
    assert!(error.message.contains("other files"), "{error}");
}

/// The newest snapshot cannot be read now.
#[derive(Debug)]
struct NewestLocked(Arc<dyn Volume>);

impl Volume for NewestLocked {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        if name.as_str() == "snapshots/0000000000000003" {
            return Err(VolumeError::without_key(name, "data key 7 is not among the keys"));
        }
        self.0.open(name)
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal to 0);
}

/// (S12)
#[test]
fn a_snapshot_without_its_key_is_named_and_the_one_before_it_is_used() {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let disk = saved(folder.path());
    let mut recovery = begin(&disk.path().join(BLOBS), disk.path()).unwrap();
    recovery.volume = Arc::new(NewestLocked(recovery.volume));
    let (_, recovered) = recovery.catalog(&clock(), None, &NoProgress).unwrap();
    assert_eq!(recovered.snapshot.unwrap().1.number, 2);
    let [(name, why)] = recovered.unusable.as_slice() else { panic!("{:?}", recovered.unusable) };
    assert_eq!(name, "snapshots/0000000000000003");
    assert!(why.contains("data key 7"), "{why}");
}

/// Writes a certificate with its key that tests can tell by its name.
fn put_certificate(folder: &Path, name: &str) {
    fs::create_dir_all(folder.join("tls")).unwrap();
    for file in [KEY_FILE, CERTIFICATE_FILE] {
        fs::write(folder.join(file), name).unwrap();
    }
}

/// Agents know a server by its certificate.
#[test]
fn the_certificate_that_was_set_aside_is_used_where_no_other_comes_back() {
    let lost = tempfile::tempdir().unwrap();
    repository(lost.path());
    put_certificate(lost.path(), "of the lost one");
    let backup = tempfile::tempdir().unwrap();
    let backup = backup.path().join("backup");
    snapshot::write(&resolved(lost.path()), &clock(), &backup, "test").unwrap();
    let saved = saved(lost.path());
    let certificate = |given: Option<&Path>, key_is_lost: bool, is_interrupted: bool| {
        let target = tempfile::tempdir().unwrap();
        open(target.path()).shutdown().unwrap();
        put_certificate(target.path(), "put there by hand");
        if is_interrupted {
            drop(begin(&saved.path().join(BLOBS), target.path()).unwrap());
        }
        if key_is_lost {
            fs::remove_file(target.path().join(KEY_FILE)).unwrap();
        }
        recover(saved.path(), target.path(), given);
        let read = |file| fs::read_to_string(target.path().join(file)).ok();
        assert_eq!(read(KEY_FILE), read(CERTIFICATE_FILE), "they belong together");
        read(CERTIFICATE_FILE)
    };
    for is_interrupted in [false, true] {
        assert_eq!(certificate(None, false, is_interrupted).as_deref(), Some("put there by hand"));
        assert_eq!(certificate(Some(&backup), false, is_interrupted).as_deref(), Some("of the lost one"));
    }
    assert_eq!(certificate(None, true, false), None, "a certificate without its key is of no use");
    fs::remove_file(backup.join(KEY_FILE)).unwrap();
    assert_eq!(certificate(Some(&backup), false, false).as_deref(), Some("put there by hand"));
}

#[test]
fn what_was_set_aside_once_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.token");
    for text in ["one", "two", "three"] {
        fs::write(&path, text).unwrap();
        set_aside(&path).unwrap();
    }
    let read = |suffix: &str| {
        fs::read_to_string(folder.path().join(format!("admin.token.before-recovery{suffix}"))).unwrap()
    };
    assert_eq!([read(""), read(".2"), read(".3")], ["one", "two", "three"]);
}

/// As a package's first start leaves it, with the first administrator's token.
#[test]
fn a_repository_that_was_never_used_is_set_aside() {
    let (lost, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let id = repository(lost.path());
    let saved = saved(lost.path());
    let fresh = open(target.path());
    let unused = fresh.repository_id();
    create_token(fresh.catalog(), 9, "admin");
    fresh.shutdown().unwrap();
    drop(fresh);
    fs::write(target.path().join("tiers.db"), "what lies in the bucket of the unused one").unwrap();
    // What an administrator put there for the recovery, and what a file system keeps.
    fs::write(target.path().join("repository.key"), "the only one").unwrap();
    fs::create_dir(target.path().join("lost+found")).unwrap();
    let recovery = begin(&saved.path().join(BLOBS), target.path()).unwrap();
    assert_eq!(recovery.repository, id);
    drop(recovery);
    let aside = target.path().join("unused-repository");
    assert!(!target.path().join("tiers.db").exists());
    fs::remove_file(aside.join("tiers.db")).unwrap();
    assert_eq!(open(&aside).repository_id(), unused, "nothing of it is lost");
    assert!(target.path().join("repository.key").exists() && target.path().join("lost+found").exists());

    // A catalog may be older than its volume.
    let older = tempfile::tempdir().unwrap();
    let fresh = open(older.path());
    fresh.shutdown().unwrap();
    drop(fresh);
    fs::create_dir_all(older.path().join(BLOBS).join("points/n")).unwrap();
    let refused = begin(&saved.path().join(BLOBS), older.path()).unwrap_err();
    assert!(refused.message.contains("exists"), "{refused:?}");

    // Whoever has a token may count on the repository.
    let used = tempfile::tempdir().unwrap();
    let fresh = open(used.path());
    for number in [1, 2] {
        create_token(fresh.catalog(), number, &format!("token {number}"));
    }
    fresh.shutdown().unwrap();
    drop(fresh);
    let refused = begin(&saved.path().join(BLOBS), used.path()).unwrap_err();
    assert!(refused.message.contains("exists"), "{refused:?}");
}
