//! The damage matrix for files outside the volume, and for whole folders, with the real server: the result of a start,
//! twice, and that everything is whole again once the bytes are back. Files of the volume are in the engine's matrix.
//!
//! A start that refuses names the file, ends with a documented exit code (never by a signal or a panic), and changes
//! nothing that matters. docs/operations/damage.md has both tables in words.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::repository::copy_folder;
use holdfast_tests::{Disk, Server};
use tempfile::{TempDir, tempdir};

/// Damage to a file, or to a folder with its contents.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// Flips a bit of the first bytes, which identify the kind of file.
    Flip,
    Truncate,
    Empty,
    Delete,
    Garbage,
    /// Restores the copy of it made before the last backup.
    Stale,
}
use Fault::{Delete, Empty, Flip, Garbage, Stale, Truncate};

#[derive(Debug, Clone, Copy)]
enum Start {
    /// It starts, and both VMs restore.
    Opens,
    /// It ends with this exit code and a message with this word.
    Refuses(i32, &'static str),
}
use Start::{Opens, Refuses};

#[rustfmt::skip]
const MATRIX: &[(&str, Fault, Start)] = &[
    ("catalog.db",       Flip,     Refuses(5, "catalog.db")),
    ("catalog.db",       Truncate, Refuses(5, "catalog.db")),
    ("catalog.db",       Empty,    Refuses(5, "repository")),
    ("catalog.db",       Delete,   Refuses(5, "catalog.db")),
    ("catalog.db",       Garbage,  Refuses(5, "catalog.db")),
    ("catalog.db",       Stale,    Opens),
    ("tls/cert.pem",     Flip,     Refuses(1, "cert.pem")),
    ("tls/cert.pem",     Truncate, Refuses(1, "cert.pem")),
    ("tls/cert.pem",     Empty,    Refuses(1, "cert.pem")),
    ("tls/cert.pem",     Garbage,  Refuses(1, "cert.pem")),
    ("tls/cert.pem",     Delete,   Refuses(1, "cert.pem")),
    ("tls/key.pem",      Truncate, Refuses(1, "key.pem")),
    ("tls/key.pem",      Empty,    Refuses(1, "key.pem")),
    ("tls/key.pem",      Delete,   Refuses(1, "key.pem")),
    ("tls/key.pem",      Garbage,  Refuses(1, "key.pem")),
    ("tls/fingerprint",  Empty,    Opens),
    ("tls/fingerprint",  Delete,   Opens),
    ("tls/fingerprint",  Garbage,  Opens),
    ("repository.lock",  Empty,    Opens),
    ("repository.lock",  Delete,   Opens),
    ("repository.lock",  Garbage,  Opens),
    ("blobs/index",      Delete,   Opens),
    ("blobs/repository", Delete,   Opens),
    ("blobs/repository", Garbage,  Opens),
    ("blobs",            Delete,   Refuses(5, "mounted")),
];

struct Scene {
    _folder: TempDir,
    data_dir: PathBuf,
    /// A copy of everything, made while the server was stopped.
    sound: PathBuf,
    stale: PathBuf,
    disks: [Disk; 2],
    token: String,
}

fn scene() -> Scene {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let (sound, stale) = (folder.path().join("sound"), folder.path().join("stale"));
    let mut token = String::new();
    let disks = ["web", "db"].map(|vm| {
        // The state before this backup: in the end, before the last.
        drop(fs::remove_dir_all(&stale));
        if data_dir.exists() {
            copy_folder(&data_dir, &stale);
        }
        let server = Server::start(&data_dir);
        let seed = vm.len() as u64;
        let disk = Disk::of_noise(folder.path().join(format!("{vm}.raw")), seed, 2 << 20);
        server.agent().back_up(vm, &[disk.arg()]);
        token = server.admin_token();
        let (status, said) = server.stop();
        assert!(status.success(), "{said}");
        disk
    });
    copy_folder(&data_dir, &sound);
    Scene { _folder: folder, data_dir, sound, stale, disks, token }
}

fn spoil(path: &Path, fault: Fault) {
    if let Delete = fault {
        let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        return removed.unwrap();
    }
    let mut bytes = fs::read(path).unwrap();
    match fault {
        Flip => bytes[3] ^= 1,
        Truncate => bytes.truncate(bytes.len() / 2),
        Empty | Delete | Stale => bytes.clear(),
        Garbage => {
            let len = bytes.len().max(16);
            bytes = (0..len).map(|place| u8::try_from(place * 7 % 251).unwrap()).collect();
        }
    }
    fs::write(path, bytes).unwrap();
}

impl Scene {
    /// Restores every byte.
    fn bring_back(&self) {
        fs::remove_dir_all(&self.data_dir).unwrap();
        copy_folder(&self.sound, &self.data_dir);
    }

    fn restores(&self, server: &Server) -> bool {
        let agent = server.agent().with_token(&self.token);
        ["web", "db"].iter().zip(&self.disks).all(|(vm, disk)| agent.read_back(vm) == disk.bytes())
    }

    fn differs(&self, file: &str, fault: Fault, expected: Start) -> String {
        self.bring_back();
        if let Stale = fault {
            fs::copy(self.stale.join(file), self.data_dir.join(file)).unwrap();
        } else {
            spoil(&self.data_dir.join(file), fault);
        }
        let mut wrong = String::new();
        for round in 0..2 {
            match (Server::options().try_start(&self.data_dir), expected) {
                (Ok(server), Opens) => {
                    if !self.restores(&server) {
                        wrong += &format!("start {round}: not everything restores; ");
                    }
                    let (status, said) = server.stop();
                    if !status.success() {
                        wrong += &format!("start {round}: it stops with {status}: {said}; ");
                    }
                }
                (Err((status, said)), Refuses(code, word)) => {
                    // No code: it was killed by a signal. 101: it panicked.
                    if status.code() != Some(code) || !said.contains(word) || said.contains("panicked") {
                        wrong += &format!("start {round}: {status}, not {code} with {word:?}: {said}; ");
                    }
                }
                (Ok(_), Refuses(..)) => wrong += &format!("start {round}: it opens; "),
                (Err((status, said)), Opens) => {
                    wrong += &format!("start {round}: it ends with {status}: {said}; ");
                }
            }
        }
        self.bring_back();
        match Server::options().try_start(&self.data_dir) {
            Ok(server) if self.restores(&server) => {}
            Ok(_) => wrong += "with the bytes back, not everything restores; ",
            Err((status, said)) => wrong += &format!("with the bytes back: {status}: {said}; "),
        }
        wrong
    }
}

fn run(rows: impl Fn(&str) -> bool) {
    let scene = scene();
    let rows = MATRIX.iter().filter(|(file, ..)| rows(file));
    let wrong: Vec<String> = rows
        .map(|&(file, fault, expected)| (file, fault, scene.differs(file, fault, expected)))
        .filter(|(.., wrong)| !wrong.is_empty())
        .map(|(file, fault, wrong)| format!("{file} × {fault:?}: {wrong}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn the_catalog() {
    run(|file| file == "catalog.db");
}

#[test]
fn certificate_and_key() {
    run(|file| file.starts_with("tls/"));
}

#[test]
fn lock_and_folders() {
    run(|file| file != "catalog.db" && !file.starts_with("tls/"));
}

/// The catalog's log as a kill leaves it. Restore points that only the log has are on the volume, too.
#[test]
fn the_catalogs_log() {
    let scene = scene();
    let server = Server::start(&scene.data_dir);
    let agent = server.agent().with_token(&scene.token);
    scene.disks[0].put(1 << 20, b"changed");
    agent.back_up("web", &[scene.disks[0].arg()]);
    server.kill();
    fs::remove_dir_all(&scene.sound).unwrap();
    copy_folder(&scene.data_dir, &scene.sound);
    let wrong: Vec<String> = [Flip, Truncate, Empty, Delete, Garbage]
        .into_iter()
        .map(|fault| (fault, scene.differs("catalog.db-wal", fault, Opens)))
        .filter(|(_, wrong)| !wrong.is_empty())
        .map(|(fault, wrong)| format!("catalog.db-wal × {fault:?}: {wrong}"))
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// A setting that cannot be parsed is never replaced by its default.
#[test]
fn the_configuration_file() {
    let folder = tempdir().unwrap();
    let (data_dir, config) = (folder.path().join("repository"), folder.path().join("server.toml"));
    let start = || Server::options().arg("--config").arg(config.to_str().unwrap()).try_start(&data_dir);
    let sound = "reserve = \"8MiB\"\n";
    fs::write(&config, sound).unwrap();
    drop(start().unwrap());
    for fault in [Flip, Truncate, Delete, Garbage] {
        spoil(&config, fault);
        let (status, said) = start().map(drop).unwrap_err();
        assert_eq!(status.code(), Some(2), "{fault:?}: {said}");
        assert!(said.contains("server.toml") && !said.contains("panicked"), "{fault:?}: {said}");
        fs::write(&config, sound).unwrap();
    }
    // Without contents it sets nothing.
    spoil(&config, Empty);
    drop(start().unwrap());
}
