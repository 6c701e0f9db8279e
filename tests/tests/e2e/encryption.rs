//! An encrypted repository: it works like any other, its volume reveals nothing, and its secrets can be lost, changed
//! and recovered.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use holdfast_tests::disk::{assert_same, noise};
use holdfast_tests::repository::files;
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, tasks, wait_for};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::recover::lose_all_but_blobs;

mod conversion;
mod keys;
mod running;

const VM: &str = "ledger-of-the-bank";
const JOB: &str = "nightly-and-secret";
const NAMESPACE: &str = "tenant-of-floor-9";
const DISK: &str = "vault-drive";

/// A repository without a running server, with one VM of a namespace.
struct Scene {
    folder: TempDir,
    data_dir: PathBuf,
    disk: Disk,
}

impl Scene {
    fn new(serve: &[&str]) -> Self {
        let folder = tempdir().unwrap();
        let data_dir = folder.path().join("repository");
        let disk = Disk::of_noise(folder.path().join("disk.raw"), 7, 6 << 20);
        let scene = Self { folder, data_dir, disk };
        scene.add(serve);
        scene
    }

    fn encrypted() -> Self {
        Self::new(&["--encrypt"])
    }

    /// Makes one more backup, with a separate server.
    fn add(&self, serve: &[&str]) {
        let is_new = !self.data_dir.exists();
        let server = Server::options().args(serve).start(&self.data_dir);
        if is_new {
            server.token("agent", "backup", &[NAMESPACE]);
        }
        let disk = format!("{DISK}={}", self.disk.arg());
        let args = ["backup", "--namespace", NAMESPACE, "--vm", VM, "--job", JOB, &disk];
        server.agent().run(&args).ok();
        stop(server);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key_file(&self) -> PathBuf {
        self.data_dir.join("repository.key")
    }

    /// Runs `holdfast-server key …`, which must succeed; returns its output.
    fn key(&self, args: &[&str]) -> String {
        let (status, said) = maintain(&self.data_dir, "key", args);
        assert!(status.success(), "key {args:?}: {status}\n{said}");
        said
    }

    fn status(&self) -> Value {
        let said = self.key(&["status", "--json"]);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"))
    }

    /// Exports a kit to a file.
    fn export_kit(&self, name: &str) -> PathBuf {
        let kit = self.path(name);
        fs::write(&kit, self.key(&["export-kit"])).unwrap();
        kit
    }

    /// Asserts that the newest restore point equals the current disk.
    fn restores(&self) {
        let server = Server::start(&self.data_dir);
        assert_same(&self.disk.bytes(), &read_back(&server, "latest"));
        stop(server);
    }

    /// Asserts that the server refuses to start, with these words in its output.
    fn refuses(&self, serve: &[&str], words: &[&str]) {
        let (status, said) = Server::options().args(serve).try_start(&self.data_dir).unwrap_err();
        assert_eq!(status.code(), Some(4), "{said}");
        for word in words {
            assert!(said.contains(word), "the server should say {word:?} but says:\n{said}");
        }
    }

    /// Files of the volume whose path contains `part`.
    fn blobs(&self, part: &str) -> Vec<PathBuf> {
        let all = files(&self.data_dir.join("blobs"));
        all.into_iter().filter(|path| path.to_string_lossy().contains(part)).collect()
    }
}

fn read_back(server: &Server, backup: &str) -> Vec<u8> {
    let args = ["restore", backup, "--namespace", NAMESPACE, "--vm", VM, "--to", "-"];
    server.agent().run(&args).ok().stdout
}

fn stop(server: Server) {
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

fn repository_key(status: &Value) -> String {
    status["repository_key"].as_str().unwrap().to_owned()
}

fn contains(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

/// Returns those of `wanted` that occur anywhere in the volume: in a file, or in a file's or folder's name.
fn found<'a>(scene: &Scene, wanted: &'a [(&'a str, Vec<u8>)]) -> Vec<&'a str> {
    let blobs = scene.data_dir.join("blobs");
    let paths = files(&blobs);
    assert!(paths.len() > 5, "{paths:?}");
    let mut texts: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    texts.extend(paths.iter().map(|path| path.to_string_lossy().into_owned().into_bytes()));
    let is_found = |(_, bytes): &&(_, Vec<u8>)| texts.iter().any(|text| contains(text, bytes));
    wanted.iter().filter(is_found).map(|(what, _)| *what).collect()
}

fn secrets() -> Vec<(&'static str, Vec<u8>)> {
    let contents = noise(7, 6 << 20);
    let names = [VM, JOB, NAMESPACE, DISK].map(|name| (name, name.as_bytes().to_vec()));
    let places = [("the beginning", 1000), ("the middle", 3 << 20), ("the end", (6 << 20) - 1000)];
    let contents = places.map(|(what, at)| (what, contents[at..at + 16].to_vec()));
    [&names[..], &contents[..]].concat()
}

#[test]
fn nothing_that_was_backed_up_is_found_on_the_volume() {
    let secrets = secrets();
    let all: Vec<&str> = secrets.iter().map(|(what, _)| *what).collect();
    // The search finds plain occurrences.
    assert_eq!(found(&Scene::new(&[]), &secrets), all);
    let scene = Scene::encrypted();
    assert_eq!(found(&scene, &secrets), Vec::<&str>::new());
    nothing_lies_in_the_open(&scene);
}

#[test]
fn an_encrypted_repository_lives_as_another() {
    let scene = Scene::encrypted();
    let before = scene.disk.bytes();
    scene.disk.put(1 << 20, &noise(8, 3 << 20));
    scene.add(&[]);
    let server = Server::options().arg("--scrub-days=0").start(&scene.data_dir);
    let list = server.agent().run(&["list", "--namespace", NAMESPACE, "--vm", VM, "--json"]).ok().summary();
    let older = list["backups"][1]["backup"].as_str().unwrap().to_owned();
    assert_same(&before, &read_back(&server, &older));
    server.agent().run(&["delete", &older, "--namespace", NAMESPACE, "--yes", "--reason", "a test"]).ok();
    tasks::run(&server, "reclaim", &json!({ "live_share_pct": 100 }));
    server.agent().run(&["scrub", "--json"]).ok();
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
    for command in ["check", "rebuild-index"] {
        let (status, said) = maintain(&scene.data_dir, command, &[]);
        assert!(status.success(), "{command}: {status}\n{said}");
    }
    scene.restores();
    // As after a power cut.
    let server = Server::start(&scene.data_dir);
    server.kill();
    scene.restores();
}

#[test]
fn a_missing_or_wrong_key_names_the_one_that_is_wanted() {
    let scene = Scene::encrypted();
    let wanted = repository_key(&scene.status());
    let lies_there = scene.blobs("");
    let elsewhere = scene.path("elsewhere.key");
    fs::rename(scene.key_file(), &elsewhere).unwrap();
    scene.refuses(&[], &[&wanted, "there is no key file", "Nothing is damaged"]);
    scene.refuses(&["--encrypt"], &[&wanted, "there is no key file"]);
    assert!(!scene.key_file().exists(), "none is made beside data that another opens");
    for command in [&["check"][..], &["rebuild-index"], &["key", "rotate"]] {
        let (status, said) = maintain(&scene.data_dir, command[0], &command[1..]);
        assert_eq!(status.code(), Some(4), "{command:?}: {said}");
        assert!(said.contains(&wanted), "{command:?}: {said}");
    }
    // From another repository.
    let other = Scene::encrypted();
    fs::copy(other.key_file(), scene.key_file()).unwrap();
    scene.refuses(&[], &[&wanted, "does not open it"]);
    fs::remove_file(scene.key_file()).unwrap();
    // A secret of another kind.
    let passphrase = scene.path("passphrase");
    fs::write(&passphrase, "correct horse battery staple\n").unwrap();
    scene.refuses(&["--key-passphrase-file", passphrase.to_str().unwrap()], &[&wanted, "passphrase"]);
    scene.refuses(&["--key-command", "echo correct horse"], &[&wanted, "key command"]);
    scene.refuses(&["--key-command", "exit 3"], &[&wanted, "key command"]);
    assert_eq!(scene.blobs(""), lies_there, "nothing was changed");

    let server = Server::options().args(&["--key-file", elsewhere.to_str().unwrap()]).start(&scene.data_dir);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
    fs::rename(&elsewhere, scene.key_file()).unwrap();
    // A passphrase opens it, too, once it was added.
    scene.key(&["add-passphrase", "--passphrase-file", passphrase.to_str().unwrap()]);
    fs::remove_file(scene.key_file()).unwrap();
    let args = ["--key-passphrase-file", passphrase.to_str().unwrap()];
    let server = Server::options().args(&args).start(&scene.data_dir);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
}

#[test]
fn a_command_opens_a_repository_from_its_first_start_on() {
    let command = ["--encrypt", "--key-command", "echo 0123456789abcdef0123456789abcdef"];
    let scene = Scene::new(&command);
    assert!(!scene.key_file().exists());
    assert_eq!(scene.status()["slots"][0]["kind"], "command");
    scene.disk.put(0, b"changed");
    scene.add(&command[1..]);
    let server = Server::options().args(&command[1..]).start(&scene.data_dir);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
    // The volume does not reveal it.
    let text: Vec<u8> = scene.blobs("keys/").iter().flat_map(|path| fs::read(path).unwrap()).collect();
    assert!(!contains(&text, b"0123456789abcdef"));
}

#[test]
fn a_kit_recovers_what_lost_its_key_and_catalog() {
    let scene = Scene::encrypted();
    assert_eq!(scene.status()["recovery_kit"], false);
    let kit = scene.export_kit("kit.txt");
    assert_eq!(scene.status()["recovery_kit"], true);
    let other = Scene::encrypted();
    let foreign = other.export_kit("kit.txt");
    lose_all_but_blobs(&scene.data_dir);
    assert!(!scene.key_file().exists());
    let blobs = scene.data_dir.join("blobs");
    let from = ["--from", blobs.to_str().unwrap()];
    let recover = |kit: &[&str]| maintain(&scene.data_dir, "recover", &[&from[..], kit].concat());
    for kit in [None, foreign.to_str(), Some("/nonexistent")] {
        let (status, said) = kit.map_or_else(|| recover(&[]), |kit| recover(&["--kit", kit]));
        assert_eq!(status.code(), Some(4), "{said}");
        assert!(!scene.data_dir.join("catalog.db").exists(), "{said}");
    }
    // As typed from the page: the words, in capitals.
    let page = fs::read_to_string(&kit).unwrap();
    let words = page.split("-----").nth(2).unwrap().to_uppercase();
    let typed = scene.path("typed.txt");
    fs::write(&typed, words).unwrap();
    let (status, said) = recover(&["--kit", typed.to_str().unwrap()]);
    assert!(status.success(), "{said}");
    assert!(scene.key_file().exists(), "the next start needs no kit");
    scene.restores();
    scene.disk.put(0, b"changed");
    scene.add(&[]);
    scene.restores();
}

#[test]
fn a_rotation_ends_old_kits_and_data_restores() {
    let scene = Scene::encrypted();
    let old = scene.export_kit("old.txt");
    let before = scene.status();
    let said = scene.key(&["rotate"]);
    assert!(said.contains("slot 2 (recovery kit") && said.contains("export a new recovery kit"), "{said}");
    let after = scene.status();
    assert_ne!(repository_key(&after), repository_key(&before));
    assert_eq!(after["data_keys"], before["data_keys"]);
    assert_eq!(after["slots"].as_array().unwrap().len(), 1, "{after}");
    scene.restores();
    let (status, said) = maintain(&scene.data_dir, "key", &["import", "--kit", old.to_str().unwrap()]);
    assert_eq!(status.code(), Some(4), "{said}");

    // New data gets new keys, old data gets them from the running server, and then the old keys are dropped.
    scene.key(&["rotate", "--data-keys"]);
    let keys = scene.status()["data_keys"].clone();
    assert!(keys.as_array().unwrap().iter().all(|key| key["current"] == false), "{keys}");
    scene.disk.put(0, &noise(9, 1 << 20));
    scene.add(&[]);
    let server = Server::start(&scene.data_dir);
    wait_until_converted(&scene);
    assert_same(&scene.disk.bytes(), &read_back(&server, "latest"));
    stop(server);
    let rotated = scene.status()["data_keys"].clone();
    assert_eq!(rotated.as_array().unwrap().len(), 2, "{rotated}");
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    scene.restores();

    // A lost key file: a kit creates another, and the lost one is revoked.
    let kit = scene.export_kit("new.txt");
    let lost = scene.path("lost.key");
    fs::rename(scene.key_file(), &lost).unwrap();
    scene.key(&["import", "--kit", kit.to_str().unwrap()]);
    scene.restores();
    let slots = scene.status()["slots"].clone();
    let of_files = slots.as_array().unwrap().iter().filter(|slot| slot["kind"] == "key file");
    let ids: Vec<&str> = of_files.map(|slot| slot["id"].as_str().unwrap()).collect();
    let [first, second] = ids[..] else { panic!("{slots}") };
    let (status, said) = maintain(&scene.data_dir, "key", &["remove", second]);
    assert!(!status.success() && said.contains("could not start without it"), "{said}");
    scene.key(&["remove", first]);
    scene.refuses(&["--key-file", lost.to_str().unwrap()], &["does not open it"]);
    scene.restores();
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&byte.map(|byte| byte ^ 0x10), offset).unwrap();
}

/// Asserts that `check` ends with 5 and names the blob.
fn check_names(scene: &Scene, path: &Path) {
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert_eq!(status.code(), Some(5), "{said}");
    let file = path.file_name().unwrap().to_string_lossy();
    let stem = file.trim_end_matches('-').split('.').next().unwrap();
    assert!(said.to_lowercase().contains(stem), "the check should name {stem}:\n{said}");
}

#[test]
fn changed_and_exchanged_blobs_are_found_and_named() {
    let scene = Scene::encrypted();
    scene.disk.put(0, &noise(9, 6 << 20));
    scene.add(&[]);
    let data = scene.blobs(".data-");
    assert!(data.len() >= 2, "{data:?}");
    let middle = fs::metadata(&data[0]).unwrap().len() / 2;
    flip(&data[0], middle);
    check_names(&scene, &data[0]);
    flip(&data[0], middle);
    // A point is sealed anew from the catalog once its damage is known.
    let points = scene.blobs("points/");
    flip(&points[0], fs::metadata(&points[0]).unwrap().len() / 2);
    check_names(&scene, &points[0]);
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    // A running server finds it, too.
    flip(&data[0], 1 << 20);
    let server = Server::options().arg("--scrub-days=0").start(&scene.data_dir);
    let ran = server.agent().run(&["scrub", "--json"]);
    let stem = data[0].file_stem().unwrap().to_string_lossy();
    assert_eq!(ran.code, Some(5), "{}", ran.said());
    assert!(ran.said().contains(&*stem) && ran.said().contains(VM), "{}", ran.said());
    stop(server);
    flip(&data[0], 1 << 20);

    // Swapped containers, each intact and encrypted with the same key.
    let [first, second] = [&data[0], &data[1]].map(|path| fs::read(path).unwrap());
    fs::write(&data[0], &second).unwrap();
    fs::write(&data[1], &first).unwrap();
    check_names(&scene, &data[0]);
    check_names(&scene, &data[1]);
    fs::write(&data[0], &first).unwrap();
    fs::write(&data[1], &second).unwrap();
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    // An unencrypted one in place of an encrypted one.
    let other = Scene::new(&[]);
    let plain = other.blobs(".data").remove(0);
    let name = data[0].to_string_lossy().trim_end_matches('-').to_owned();
    fs::rename(&data[0], scene.path("aside")).unwrap();
    fs::copy(plain, name).unwrap();
    check_names(&scene, &data[0]);
}

#[test]
fn keys_that_went_away_are_missed() {
    let encrypted = Scene::encrypted();
    // The oldest blobs of this repository are not encrypted.
    let later = Scene::new(&[]);
    later.disk.put(0, b"changed");
    later.add(&["--encrypt"]);
    for scene in [encrypted, later] {
        let keys = scene.data_dir.join("blobs/keys");
        let aside = scene.path("keys");
        fs::rename(&keys, &aside).unwrap();
        let lies_there = scene.blobs("");
        scene.refuses(&[], &["encrypted data", "keys", "nothing was changed"]);
        scene.refuses(&["--encrypt"], &["encrypted data", "keys", "nothing was changed"]);
        assert_eq!(scene.blobs(""), lies_there);
        fs::rename(&aside, &keys).unwrap();
        scene.restores();
    }
}

/// (K8) One of the two tables of keys is enough, and the other is rewritten.
#[test]
fn one_of_the_two_tables_of_keys_is_enough() {
    let scene = Scene::encrypted();
    let paths = scene.blobs("keys/");
    let whole = fs::read(&paths[0]).unwrap();
    assert_eq!(paths.len(), 2);
    let flipped: Vec<u8> = whole.iter().enumerate().map(|(at, byte)| byte ^ u8::from(at == 100)).collect();
    for path in &paths {
        for damaged in [&flipped[..], &whole[..50], &[]] {
            fs::write(path, damaged).unwrap();
            scene.restores();
            assert!(paths.iter().all(|path| fs::read(path).unwrap() == whole), "{}", path.display());
        }
        fs::remove_file(path).unwrap();
        scene.restores();
        assert!(paths.iter().all(|path| fs::read(path).unwrap() == whole), "{}", path.display());
    }
    paths.iter().for_each(|path| fs::write(path, &flipped).unwrap());
    let (status, said) = Server::options().try_start(&scene.data_dir).unwrap_err();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("keys/") && said.contains("put a copy of it back"), "{said}");
    fs::write(&paths[0], &whole).unwrap();
    scene.restores();
}

/// Waits until everything is encrypted with the current keys.
fn wait_until_converted(scene: &Scene) {
    wait_for("everything to be encrypted", || {
        let status = scene.status();
        let keys = status["data_keys"].as_array().unwrap();
        let is_converted = status["plain_accepted"] == false && keys.iter().all(|key| key["current"] == true);
        // The table of keys says so a moment before the server does.
        (is_converted && status["server"]["done"] != false).then_some(())
    });
}

/// Asserts that nothing on the volume is plain but the keys and the repository's mark.
fn nothing_lies_in_the_open(scene: &Scene) {
    let blobs = scene.data_dir.join("blobs");
    let plain = scene.blobs("").into_iter().filter(|path| !path.to_string_lossy().ends_with('-'));
    let names: Vec<_> = plain.map(|path| path.strip_prefix(&blobs).unwrap().to_owned()).collect();
    assert!(
        names.iter().all(|name| name.starts_with("keys") || name == Path::new("repository")),
        "{names:?}"
    );
}

/// Files whose bytes are less random than noise, not counting their headers.
fn patterned(scene: &Scene) -> Vec<PathBuf> {
    let blobs = scene.data_dir.join("blobs");
    let is_patterned = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap();
        let body = bytes.get(64..bytes.len().saturating_sub(64)).unwrap_or_default();
        let mut counts = [0_u32; 256];
        body.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let shares =
            counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / body.len() as f64);
        // 4 KiB of noise have 7.95 bits a byte.
        body.len() >= 4096 && shares.map(|share| -share * share.log2()).sum::<f64>() < 7.9
    };
    files(&blobs)
        .into_iter()
        .filter(|path| !path.starts_with(blobs.join("keys")))
        .filter(is_patterned)
        .collect()
}

#[test]
fn everything_on_the_volume_looks_like_noise() {
    let plain = Scene::new(&[]);
    assert!(!patterned(&plain).is_empty(), "what is not encrypted has patterns");
    assert_eq!(patterned(&Scene::encrypted()), Vec::<PathBuf>::new());
}

#[test]
fn a_reminder_stays_until_a_kit_is_exported() {
    let scene = Scene::encrypted();
    let told = |server: &Server| {
        let answer = get(server, "/api/v1/server", &server.admin_token()).json();
        answer["encryption"]["reminder"].as_str().map(str::to_owned)
    };
    let server = Server::start(&scene.data_dir);
    assert!(told(&server).unwrap().contains("export-kit"));
    wait_for("the reminder", || server.log().contains("export-kit").then_some(()));
    stop(server);
    assert!(scene.key(&["status"]).contains("export-kit"));
    scene.export_kit("kit.txt");
    let server = Server::start(&scene.data_dir);
    assert_eq!(told(&server), None);
    let (_, said) = server.stop();
    assert!(!said.contains("export-kit"), "{said}");
    assert!(!scene.key(&["status"]).contains("export-kit"));
}
