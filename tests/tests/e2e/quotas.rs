//! Quotas of namespaces, with the real programs: messages for users, and raw agents that continue after a refusal.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_tests::disk::noise;
use holdfast_tests::raw::{Session, assert_refused, connect, finish, region_of};
use holdfast_tests::repository::{Class, container_bytes, files};
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server};
use tempfile::{TempDir, tempdir};

const CHUNK_BYTES: usize = 20_000;

/// Bytes of recipes that a session may add at the limit.
const RECIPE_ALLOWANCE_BYTES: u64 = 1 << 20;

struct Scene {
    folder: TempDir,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        Self { folder, server }
    }

    fn noise(&self, name: &str, seed: u64, size_bytes: usize) -> Disk {
        Disk::of_noise(self.folder.path().join(format!("{name}.raw")), seed, size_bytes)
    }

    /// Runs `holdfast-server namespace quota default ARGS…`, while the server runs.
    fn quota(&self, args: &[&str]) {
        let args = [&["quota", "default"], args].concat();
        let (status, said) = maintain(self.server.data_dir(), "namespace", &args);
        assert!(status.success(), "{said}");
    }

    /// The namespace's usage, as reported by the server.
    fn usage(&self, of: &str) -> u64 {
        let answer = get(&self.server, "/api/v1/namespaces", &self.server.admin_token()).json();
        let namespaces = answer["items"].as_array().unwrap();
        let default = namespaces.iter().find(|namespace| namespace["name"] == "default").unwrap();
        default["usage"][of].as_u64().unwrap_or_else(|| panic!("no {of} in {answer}"))
    }

    /// Bytes of all files with backup data, unfinished ones included.
    fn bytes_on_disk(&self) -> u64 {
        let blobs = self.server.data_dir().join("blobs");
        let folders = [blobs.join("containers"), blobs.join(".tmp")];
        // Another thread of the server may finish or delete a file meanwhile.
        let len = |file| std::fs::metadata(file).map_or(0, |file| file.len());
        folders.iter().flat_map(|folder| files(folder)).map(len).sum()
    }

    /// Asserts that the server's files are intact, and that another start has the same sums.
    fn ends_sound(self) {
        let (data_dir, used) = (self.server.data_dir().to_owned(), self.usage("stored_bytes"));
        let (status, said) = self.server.stop();
        assert!(status.success(), "{said}");
        let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
        assert!(status.success(), "{said}");
        let scene = Self { folder: self.folder, server: Server::start(&data_dir) };
        assert_eq!(scene.usage("stored_bytes"), used);
    }
}

/// All messages of a disk: its chunks, its extents and its end.
fn whole(disk: &[u8]) -> Vec<Kind> {
    let mut messages = Vec::new();
    for (index, extent) in (0..).zip(disk.chunks(EXTENT_BYTES as usize)) {
        let mut chunked = v1::ChunkedExtent {
            index,
            digest: Fingerprint::of(extent).as_bytes().to_vec().into(),
            ..v1::ChunkedExtent::default()
        };
        let mut names = Vec::new();
        for chunk in extent.chunks(CHUNK_BYTES) {
            let (region, name) = region_of(chunk);
            names.extend(name.as_bytes());
            chunked.lengths.push(region.plain_bytes);
            messages.push(Kind::Region(region));
        }
        chunked.fingerprints = names.into();
        messages.push(Kind::Extents(v1::Extents { chunked: vec![chunked], ..v1::Extents::default() }));
    }
    messages.push(finish());
    messages
}

/// The number before ` bytes)` that comes first after `after`.
fn bytes_said(text: &str, after: &str) -> u64 {
    let (_, text) = text.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {text}"));
    let number = text.split_once(" bytes)").and_then(|(text, _)| text.rsplit_once('('));
    number.unwrap_or_else(|| panic!("no number of bytes in {text}")).1.parse().unwrap()
}

#[test]
fn a_backup_beyond_the_limit_is_refused_with_numbers_and_passes_when_it_is_raised() {
    let scene = Scene::new();
    let agent = scene.server.agent();
    let disk = scene.noise("disk", 1, 4 << 20);
    let before = disk.bytes();
    agent.back_up("web", &[disk.arg()]);
    let used = scene.usage("stored_bytes");
    assert_eq!(used, scene.bytes_on_disk(), "to the byte");
    scene.quota(&["--stored", &used.to_string()]);
    agent.back_up("web", &[disk.arg()]);
    assert_eq!(agent.backups("web").len(), 2, "an unchanged backup at the limit");

    disk.put(0, &noise(2, 2 << 20));
    let args = ["backup", "--vm", "web", disk.arg(), "--json"];
    let refused = agent.run(&args).fails(8, &["\"default\"", "quota of stored bytes", "raise the limit"]);
    assert_eq!(bytes_said(&refused.stderr, "the limit is"), used, "{}", refused.stderr);
    assert!(bytes_said(&refused.stderr, "quota of stored bytes") >= used, "{}", refused.stderr);
    let summary = refused.summary();
    assert_eq!((&summary["ok"], &summary["exit_code"]), (&false.into(), &8.into()), "{summary}");
    assert!(summary["error"].as_str().unwrap().contains("quota of stored bytes"), "{summary}");
    // A VM without a restore point is refused before it sends anything.
    agent.run(&["backup", "--vm", "new", disk.arg()]).fails(8, &["quota of stored bytes"]);
    assert!(container_bytes(scene.server.data_dir(), Class::Data) <= used);
    assert!(agent.backups("new").is_empty() && agent.backups("web").len() == 2);
    assert!(agent.read_back("web") == before, "what is there stays and can be restored");

    scene.quota(&["--stored", "1GB"]);
    agent.run(&args).ok();
    assert!(agent.read_back("web") == disk.bytes());
    scene.ends_sound();
}

#[test]
fn a_namespace_protects_no_more_than_it_may() {
    let scene = Scene::new();
    let agent = scene.server.agent();
    let disk = scene.noise("disk", 1, 2 << 20);
    scene.quota(&["--protected", "3MiB"]);
    agent.back_up("web", &[disk.arg()]);
    // Deduplication saves all of it, and it is protected once more.
    let refused = agent.run(&["backup", "--vm", "copy", disk.arg()]);
    let refused = refused.fails(8, &["quota of protected bytes", "\"default\""]);
    assert_eq!(bytes_said(&refused.stderr, "the limit is"), 3 << 20, "{}", refused.stderr);
    assert_eq!(scene.usage("protected_bytes"), 2 << 20);
    scene.quota(&["--protected", "4MiB"]);
    agent.back_up("copy", &[disk.arg()]);
    scene.ends_sound();
}

#[test]
fn a_namespace_has_no_more_restore_points_than_it_may() {
    let scene = Scene::new();
    let agent = scene.server.agent();
    let disk = scene.noise("disk", 1, 100_000);
    scene.quota(&["--restore-points", "2"]);
    agent.back_up("web", &[disk.arg()]);
    agent.back_up("db", &[disk.arg()]);
    let words = ["\"default\"", "quota of restore points", "2 exist", "the limit is 2"];
    agent.run(&["backup", "--vm", "web", disk.arg()]).fails(8, &words);
    assert_eq!((agent.backups("web").len(), scene.usage("restore_points")), (1, 2));
    scene.quota(&["--restore-points", "3"]);
    agent.back_up("web", &[disk.arg()]);
    agent.run(&["backup", "--vm", "web", disk.arg()]).fails(8, &["3 exist", "the limit is 3"]);
    scene.quota(&["--restore-points", "none"]);
    agent.back_up("web", &[disk.arg()]);
}

fn day() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400
}

#[test]
fn a_namespace_starts_no_more_backups_a_day_than_it_may() {
    // Midnight begins a new count: then once more.
    while !backups_a_day() {}
}

/// Returns false if midnight passed meanwhile.
fn backups_a_day() -> bool {
    let (scene, today) = (Scene::new(), day());
    let agent = scene.server.agent();
    let disk = scene.noise("disk", 1, 100_000);
    scene.quota(&["--sessions-per-day", "2"]);
    agent.back_up("web", &[disk.arg()]);
    // One that ends without a restore point was still started.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let connection = connect(&scene.server).await;
        Session::start(&connection, "web", 100_000).await.abort().await;
    });
    let refused = agent.run(&["backup", "--vm", "web", disk.arg()]);
    let used = scene.usage("sessions_today");
    scene.quota(&["--sessions-per-day", "3"]);
    let raised = agent.run(&["backup", "--vm", "web", disk.arg()]);
    if day() != today {
        return false;
    }
    let words = ["\"default\"", "quota of backups a day", "2 were started", "the limit is 2"];
    refused.fails(8, &words);
    assert_eq!(used, 2, "what is refused is not counted");
    raised.ok();
    assert_eq!(agent.backups("web").len(), 2);
    true
}

/// A raw agent goes on sending in refused sessions and starts new ones, with 24 MiB each for a limit of 4.
#[tokio::test]
async fn an_agent_that_ignores_refusals_stores_no_more_than_the_limit() {
    const LIMIT_BYTES: u64 = 4 << 20;
    let scene = Scene::new();
    let disk = scene.noise("disk", 1, 1 << 20);
    scene.server.agent().back_up("bystander", &[disk.arg()]);
    scene.quota(&["--stored", "4MiB"]);
    let connection = connect(&scene.server).await;
    let mut sessions = 0;
    for vm in 0..3 {
        let vm = format!("greedy-{vm}");
        let session = match Session::try_start(&connection, &vm, 6 << 20).await {
            Ok(session) => session,
            Err(status) => {
                assert_refused(Some(status), ErrorCode::Quota, "quota of stored bytes");
                continue;
            }
        };
        sessions += 1;
        let (_, status) = session.send(whole(&noise(10 + sessions, 6 << 20))).await;
        assert_refused(status, ErrorCode::Quota, "quota of stored bytes");
        for again in 0..3 {
            let (_, status) = session.send(whole(&noise(20 + 10 * sessions + again, 6 << 20))).await;
            assert!(status.is_some(), "a session goes on after a refusal");
            let stored = scene.bytes_on_disk();
            assert!(stored <= LIMIT_BYTES + RECIPE_ALLOWANCE_BYTES, "{stored} bytes");
        }
        assert!(session.commit().await.is_err(), "a refused backup cannot be committed");
        // Gone already, or aborted now.
        drop(session.try_abort().await);
        let data = container_bytes(scene.server.data_dir(), Class::Data);
        assert!(data <= LIMIT_BYTES, "{data} bytes of data");
    }
    assert!(sessions > 0, "the first one fits and must be admitted");
    tokio::task::spawn_blocking(move || {
        assert!(scene.usage("stored_bytes") <= LIMIT_BYTES);
        let agent = scene.server.agent();
        agent.back_up("bystander", &[disk.arg()]);
        assert!(agent.read_back("bystander") == disk.bytes());
        scene.ends_sound();
    })
    .await
    .unwrap();
}

/// Each of them fits alone; the data both have sent when neither has ended does not.
#[tokio::test]
async fn two_backups_at_once_stay_within_the_limit_together() {
    const LIMIT_BYTES: u64 = 9 << 20;
    let scene = Scene::new();
    scene.quota(&["--stored", "9MiB"]);
    let connection = connect(&scene.server).await;
    let one = Session::start(&connection, "one", 6 << 20).await;
    let two = Session::start(&connection, "two", 6 << 20).await;
    let disks = [noise(1, 6 << 20), noise(2, 6 << 20)];
    let ((_, first), (_, second)) = tokio::join!(one.send(whole(&disks[0])), two.send(whole(&disks[1])));
    let refused: Vec<bool> = [&first, &second].map(Option::is_some).into();
    assert!(refused.contains(&true), "12 MiB do not fit into 9");
    for status in [first, second].into_iter().flatten() {
        assert_refused(Some(status), ErrorCode::Quota, "quota of stored bytes");
    }
    assert!(scene.bytes_on_disk() <= LIMIT_BYTES);
    let committed = [one.commit().await, two.commit().await].map(|outcome| outcome.is_err());
    assert_eq!(committed.to_vec(), refused, "what was not refused is kept, and nothing else");
    for session in [one, two] {
        drop(session.try_abort().await);
    }
    assert!(container_bytes(scene.server.data_dir(), Class::Data) <= LIMIT_BYTES);
    tokio::task::spawn_blocking(move || {
        assert!(scene.usage("stored_bytes") <= LIMIT_BYTES);
        for ((vm, disk), refused) in ["one", "two"].iter().zip(&disks).zip(refused) {
            let agent = scene.server.agent();
            assert_eq!(agent.backups(vm).is_empty(), refused, "{vm}");
            assert!(refused || agent.read_back(vm) == *disk, "{vm}");
        }
        scene.ends_sound();
    })
    .await
    .unwrap();
}
