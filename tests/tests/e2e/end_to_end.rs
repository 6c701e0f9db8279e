//! An end-to-end encrypted namespace: agents with its key use it like any other, the server keeps data it cannot read,
//! and without the key nothing can be read.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_tests::agent::{Agent, Ran};
use holdfast_tests::disk::{assert_same, noise, text};
use holdfast_tests::repository::{Class, container_bytes, containers_of, files};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server, program, tasks};
use serde_json::json;
use tempfile::{TempDir, tempdir};

use super::recover::lose_all_but_blobs;

const MIB: u64 = 1 << 20;

/// A server with such a namespace, and an agent with its key.
pub(super) struct Scene {
    pub(super) folder: TempDir,
    pub(super) server: Server,
    pub(super) agent: Agent,
    pub(super) key: PathBuf,
    pub(super) key_id: String,
}

/// Creates a key; returns its file and id.
pub(super) fn new_key(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    let made =
        program("holdfast").args(["namespace-key", "new", "--json", "--out"]).arg(&path).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    (path, summary["key_id"].as_str().unwrap().to_owned())
}

/// Runs `holdfast-server namespace create`, which must succeed.
pub(super) fn create(data_dir: &Path, name: &str, key_id: &str) {
    let (status, said) = maintain(data_dir, "namespace", &["create", name, "--end-to-end", key_id]);
    assert!(status.success(), "{said}");
    assert!(said.contains(key_id), "{said}");
}

impl Scene {
    pub(super) fn new() -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let (key, key_id) = new_key(folder.path(), "vault.key");
        create(server.data_dir(), "vault", &key_id);
        let agent = server.agent();
        Self { folder, server, agent, key, key_id }
    }

    /// Runs `holdfast ARGS…` in the namespace with this key.
    pub(super) fn with(&self, key: &Path, args: &[&str]) -> Ran {
        let key = key.to_str().unwrap();
        self.agent.run(&[args, &["--namespace", "vault", "--namespace-key", key]].concat())
    }

    pub(super) fn run(&self, args: &[&str]) -> Ran {
        self.with(&self.key, args)
    }

    pub(super) fn back_up(&self, vm: &str, disk: &Disk) -> serde_json::Value {
        let summary = self.run(&["backup", "--vm", vm, "--json", disk.arg()]).ok().summary();
        summary["details"][0].clone()
    }

    pub(super) fn read_back(&self, backup: &str, vm: &str) -> Vec<u8> {
        self.run(&["restore", backup, "--vm", vm, "--to", "-"]).ok().stdout
    }

    pub(super) fn disk(&self, name: &str, seed: u64) -> Disk {
        Disk::varied(self.folder.path().join(name), seed, 24 * MIB)
    }

    pub(super) fn points(&self, vm: &str) -> Vec<String> {
        let list = self.run(&["list", "--vm", vm, "--json"]).ok().summary();
        let ids = list["backups"].as_array().unwrap().iter();
        ids.map(|backup| backup["backup"].as_str().unwrap().to_owned()).collect()
    }
}

#[test]
fn agents_with_one_key_share_what_they_store_and_restore_it() {
    let scene = Scene::new();
    let disk = scene.disk("web.raw", 1);
    let first = scene.back_up("web", &disk);
    assert_same(&disk.bytes(), &scene.read_back("latest", "web"));
    // Another VM with the same content, backed up by an agent that has a copy of the key.
    let copy = scene.folder.path().join("copy.key");
    fs::copy(&scene.key, &copy).unwrap();
    let before = container_bytes(scene.server.data_dir(), Class::Data);
    scene.with(&copy, &["backup", "--vm", "clone", disk.arg()]).ok();
    assert_eq!(container_bytes(scene.server.data_dir(), Class::Data), before, "a clone stores no data");
    assert_same(&disk.bytes(), &scene.read_back("latest", "clone"));
    // The next backup sends only the changes.
    let old = disk.bytes();
    disk.put(9 * MIB + 100, &noise(77, 1000));
    let second = scene.back_up("web", &disk);
    assert!(second["unchanged_bytes"].as_u64() > Some(first["bytes"].as_u64().unwrap() / 2), "{second}");
    assert!(second["new_bytes"].as_u64() < Some(300_000), "{second}");
    assert_same(&disk.bytes(), &scene.read_back("latest", "web"));
    let points = scene.points("web");
    assert_same(&old, &scene.read_back(&points[1], "web"));
    let verified = scene.run(&["verify", &points[0], "--json"]).ok().summary();
    assert_eq!(verified["ok"], true);
    // All figures add up as usual.
    let rows = scene.agent.report();
    let stored: u64 = rows.iter().map(|row| row.number("post_lc")).sum();
    assert_eq!(stored, container_bytes(scene.server.data_dir(), Class::Data));
}

#[test]
fn without_the_key_there_is_nothing() {
    let scene = Scene::new();
    let disk = scene.disk("web.raw", 2);
    scene.back_up("web", &disk);
    let (other, other_id) = new_key(scene.folder.path(), "other.key");
    let to = scene.folder.path().join("out.raw");
    let (to, id) = (to.to_str().unwrap(), scene.key_id.as_str());
    let restore = ["restore", "latest", "--vm", "web", "--to", to];
    let backup = ["backup", "--vm", "web", disk.arg()];
    for args in [&restore[..], &backup, &["verify", "latest", "--vm", "web"]] {
        let keyless = scene.agent.run(&[args, &["--namespace", "vault"]].concat());
        keyless.fails(1, &[id, "end-to-end", "--namespace-key"]);
        scene.with(&other, args).fails(1, &[id, &other_id]);
    }
    assert!(!Path::new(to).exists(), "nothing is left of a restore that could not begin");
    // A key does not work elsewhere, and no data goes there unencrypted or unreadable by mistake.
    let key = scene.key.to_str().unwrap();
    let elsewhere = ["--namespace", "default", "--namespace-key", key];
    scene
        .agent
        .run(&[&backup[..], &elsewhere].concat())
        .fails(1, &["not end-to-end encrypted", "leave the key out"]);
    scene.agent.back_up("web", &[disk.arg()]);
    scene.agent.run(&[&restore[..], &elsewhere].concat()).fails(1, &["not end-to-end encrypted"]);
    scene.with(&scene.folder.path().join("none"), &backup).fails(1, &["there is no key file"]);
    // A command may provide it as well, and so may the environment.
    let command = format!("cat '{key}'");
    let given = ["--namespace", "vault", "--namespace-key-command", &command];
    scene.agent.run(&[&restore[..], &given].concat()).ok();
    disk.assert_same(Path::new(to));
    let mut command = scene.agent.command(&["restore", "latest", "--vm", "web", "--to", "-"]);
    command.env("HOLDFAST_NAMESPACE", "vault").env("HOLDFAST_NAMESPACE_KEY", key);
    assert_same(&disk.bytes(), &command.output().unwrap().stdout);
}

#[test]
fn nothing_of_what_was_backed_up_end_to_end_is_found_at_the_server() {
    let scene = Scene::new();
    let disk = Disk::empty(scene.folder.path().join("web.raw"), 16 * MIB);
    let (words, bits) = (text(3, 2 << 20), noise(4, 3 << 20));
    disk.put(0, &words);
    disk.put(5 * MIB + 512, &bits);
    let key = fs::read(&scene.key).unwrap();
    let digits = key.split(|byte| *byte == b' ').nth(1).unwrap().to_vec();
    let secret: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    // The plain fingerprints of its content would reveal as much as the content.
    let mut names =
        vec![blake3::hash(&disk.bytes()[..4 << 20]), blake3::hash(&disk.bytes()[4 << 20..8 << 20])];
    let mut wanted: Vec<(&str, Vec<u8>)> = Vec::new();
    for at in [1000, 1 << 20, (2 << 20) - 100] {
        wanted.push(("text", words[at..at + 24].to_vec()));
        wanted.push(("noise", bits[at..at + 16].to_vec()));
    }
    wanted.push(("key", secret));
    wanted.push(("digits of the key", digits));
    wanted.extend(names.drain(..).map(|name| ("a digest", name.as_bytes().to_vec())));
    let found = |scene: &Scene| -> Vec<&str> {
        let all = files(scene.server.data_dir()).into_iter().map(|path| fs::read(path).unwrap());
        let all: Vec<Vec<u8>> = all.collect();
        let is_found =
            |what: &[u8]| all.iter().any(|text| text.windows(what.len()).any(|window| window == what));
        wanted.iter().filter(|(_, bytes)| is_found(bytes)).map(|(what, _)| *what).collect()
    };
    scene.back_up("web", &disk);
    scene.run(&["verify", "latest", "--vm", "web"]).ok();
    assert_eq!(found(&scene), Vec::<&str>::new());
    // The search finds plain occurrences: noise as it is, and digests in recipes, which are compressed or not.
    scene.agent.back_up("plain", &[disk.arg()]);
    assert!(found(&scene).contains(&"noise"), "{:?}", found(&scene));
}

#[test]
fn what_goes_leaves_the_rest_and_the_server_proves_what_it_can() {
    let scene = Scene::new();
    let (kept, gone) = (scene.disk("kept.raw", 5), scene.disk("gone.raw", 6));
    // They share a part, so that containers become sparse.
    kept.put(0, &gone.bytes()[..6 << 20]);
    scene.back_up("gone", &gone);
    scene.back_up("kept", &kept);
    let before = container_bytes(scene.server.data_dir(), Class::Data);
    let point = scene.points("gone").remove(0);
    scene.run(&["delete", &point, "--yes", "--reason", "a test"]).ok();
    tasks::run(&scene.server, "reclaim", &json!({ "live_share_pct": 100 }));
    assert!(container_bytes(scene.server.data_dir(), Class::Data) < before);
    assert_same(&kept.bytes(), &scene.read_back("latest", "kept"));
    tasks::run(&scene.server, "reclaim", &json!({ "squeeze": true, "squeeze_min_age_days": 0 }));
    scene.agent.run(&["scrub", "--json"]).ok();
    scene.agent.run(&["verify", "--at-server"]).ok();
    assert_same(&kept.bytes(), &scene.read_back("latest", "kept"));
    let Scene { server, folder, agent: _, key, key_id } = scene;
    let data_dir = server.data_dir().to_owned();
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    for (command, args) in [("check", &["--read-data"][..]), ("rebuild-index", &[])] {
        let (status, said) = maintain(&data_dir, command, args);
        assert!(status.success(), "{command}: {said}");
    }
    let (_, said) = maintain(&data_dir, "namespace", &["list"]);
    assert!(said.contains(&key_id), "{said}");
    // From nothing but the volume: the points tell about the namespace.
    lose_all_but_blobs(&data_dir);
    let blobs = data_dir.join("blobs");
    let snapshots = blobs.join("snapshots");
    fs::remove_dir_all(&snapshots).unwrap_or_else(|error| panic!("{}: {error}", snapshots.display()));
    let (status, said) = maintain(&data_dir, "recover", &["--from", blobs.to_str().unwrap()]);
    assert!(status.success(), "{said}");
    let server = Server::start(&data_dir);
    let agent = server.agent();
    let scene = Scene { server, folder, agent, key, key_id };
    assert_same(&kept.bytes(), &scene.read_back("latest", "kept"));
    let refused = scene.agent.run(&["backup", "--vm", "new", "--namespace", "vault", kept.arg()]);
    refused.fails(1, &[&scene.key_id]);
    let again = scene.back_up("kept", &kept);
    assert_eq!(again["new_bytes"], 0, "{again}");
}

#[test]
fn damage_of_sealed_data_is_found_by_server_and_agent_and_heals() {
    let scene = Scene::new();
    let disk = Disk::of_noise(scene.folder.path().join("web.raw"), 8, 12 << 20);
    scene.back_up("web", &disk);
    let Scene { server, folder, agent: _, key, key_id } = scene;
    let data_dir = server.data_dir().to_owned();
    assert!(server.stop().0.success());
    let victim = containers_of(&data_dir, Class::Data).remove(0);
    victim.flip_bit(500_000);
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert_eq!(status.code(), Some(5), "{said}");
    let server = Server::start(&data_dir);
    let agent = server.agent();
    let scene = Scene { server, folder, agent, key, key_id };
    scene.run(&["verify", "latest", "--vm", "web"]).fails(5, &["damaged"]);
    let again = scene.back_up("web", &disk);
    assert!((1..1_000_000).contains(&again["new_bytes"].as_u64().unwrap()), "{again}");
    for point in scene.points("web") {
        assert_same(&disk.bytes(), &scene.read_back(&point, "web"));
    }
}
