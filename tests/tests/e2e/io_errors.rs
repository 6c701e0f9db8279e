//! Failing disks: reads, writes and flushes of the real server answered with EIO. A failed operation is never
//! acknowledged, the server reports the error and retries no flush, and after a restart everything acknowledged is
//! intact.

use std::path::{Path, PathBuf};

use holdfast_tests::disk::noise;
use holdfast_tests::faults::{Fault, Faulty};
use holdfast_tests::repository::{Class, containers_of, files};
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, tasks};
use serde_json::json;
use tempfile::{TempDir, tempdir};

/// A server with two restore points of a VM.
struct Scene {
    folder: TempDir,
    server: Server,
    disk: Disk,
    /// Contents of the restore points, newest first.
    kept: Vec<(String, Vec<u8>)>,
}

impl Scene {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 4 << 20);
        let mut scene = Self { folder, server, disk, kept: Vec::new() };
        scene.back_up();
        scene.disk.put(0, &noise(2, 1 << 20));
        scene.back_up();
        scene
    }

    fn back_up(&mut self) {
        let ran = self.server.agent().run(&["backup", "--vm", "web", self.disk.arg(), "--json"]).ok();
        self.kept.insert(0, (tasks::text(&ran.summary(), "backup").to_owned(), self.disk.bytes()));
    }

    fn data_dir(&self) -> &Path {
        self.server.data_dir()
    }

    fn fault(&self, fault: &Fault) -> Option<Faulty> {
        fault.on_process(self.server.pid())
    }

    /// Limits a fault to files being written, whose names are not known in advance.
    fn on_new_files(&self, fault: Fault) -> Fault {
        let folder = self.data_dir().join("blobs/.tmp");
        let process = self.server.pid().as_raw_nonzero();
        (0..200).fold(fault, |fault, number| fault.on(folder.join(format!("{process}-{number}"))))
    }

    fn check(&self) {
        let agent = self.server.agent();
        let listed = agent.backups("web");
        for (id, bytes) in &self.kept {
            assert!(listed.contains(id), "restore point {id} is lost: {listed:?}");
            let ran = agent.run(&["restore", id, "--vm", "web", "--to", "-"]).ok();
            assert!(ran.stdout == *bytes, "restore point {id} holds other bytes");
        }
    }

    /// Starts the server again, and asserts that everything acknowledged is there and that it works.
    fn restarted(mut self) {
        let data_dir = self.data_dir().to_owned();
        self.server.terminate();
        self.server.wait();
        self.server = Server::start(&data_dir);
        self.check();
        self.back_up();
        self.check();
        tasks::run(&self.server, "reclaim", &json!({ "live_share_pct": 100 }));
        self.check();
        let (status, said) = self.server.stop();
        assert!(status.success(), "{said}");
        let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
        assert!(status.success(), "{said}");
        drop(self.folder);
    }

    /// Asserts that nothing more is written, although the disk works again: it is unknown what was lost (W9).
    fn writes_nothing(&self) {
        let agent = self.server.agent();
        let refused = agent.run(&["backup", "--vm", "other", self.disk.arg()]);
        refused.fails(8, &["restart"]);
        assert!(agent.backups("other").is_empty());
        let ready = get(&self.server, "/readyz", &self.server.admin_token());
        assert!(ready.status == 503 && ready.text().contains("stopped"), "{} {}", ready.status, ready.text());
        self.check();
    }
}

/// Makes a backup of new data under `fault`.
fn a_backup_fails(scene: Scene, fault: &Fault) {
    let Some(faulty) = scene.fault(fault) else { return };
    scene.disk.put(0, &noise(3, 2 << 20));
    let ran = scene.server.agent().run(&["backup", "--vm", "web", scene.disk.arg()]);
    assert!(!ran.succeeded(), "acknowledged although the disk failed; it saw\n{}", faulty.log());
    assert!(faulty.errors() > 0, "nothing failed: {}", ran.said());
    assert!(ran.said().to_lowercase().contains("error"), "{}", ran.said());
    drop(faulty);
    scene.writes_nothing();
    scene.restarted();
}

/// Folder of all containers.
fn folder_of_containers(scene: &Scene) -> PathBuf {
    let containers = containers_of(scene.data_dir(), Class::Data);
    containers[0].path.parent().unwrap().to_owned()
}

#[test]
fn a_container_that_cannot_be_flushed() {
    let scene = Scene::new();
    let fault = scene.on_new_files(Fault::io_error("fdatasync"));
    a_backup_fails(scene, &fault);
}

/// The flush fails once, and would succeed on a retry: the kernel has dropped what it could not write.
#[test]
fn a_container_that_cannot_be_flushed_once() {
    let scene = Scene::new();
    let fault = scene.on_new_files(Fault::io_error("fdatasync").when("1"));
    a_backup_fails(scene, &fault);
}

#[test]
fn a_container_whose_name_cannot_be_flushed() {
    let scene = Scene::new();
    let fault = Fault::io_error("fsync").on(folder_of_containers(&scene));
    a_backup_fails(scene, &fault);
}

#[test]
fn a_container_that_cannot_be_written() {
    let scene = Scene::new();
    let fault = scene.on_new_files(Fault::io_error("write"));
    a_backup_fails(scene, &fault);
}

#[test]
fn a_catalog_that_cannot_be_flushed() {
    let scene = Scene::new();
    let fault = Fault::io_error("fsync,fdatasync").on(scene.data_dir().join("catalog.db-wal"));
    a_backup_fails(scene, &fault);
}

#[test]
fn a_catalog_that_cannot_be_written() {
    let scene = Scene::new();
    let fault = Fault::io_error("pwrite64,write").on(scene.data_dir().join("catalog.db-wal"));
    a_backup_fails(scene, &fault);
}

/// Runs a reclaim under `fault`, with containers to free and to copy.
fn a_reclaim_fails(mut scene: Scene, fault: &Fault) {
    let (oldest, _) = scene.kept.pop().unwrap();
    scene.server.agent().run(&["delete", &oldest, "--yes", "--reason", "a test"]).ok();
    let Some(faulty) = scene.fault(fault) else { return };
    let options = json!({ "live_share_pct": 100 });
    let task = tasks::end(&scene.server, &tasks::start(&scene.server, "reclaim", &options));
    assert!(faulty.errors() > 0, "nothing failed: {task}; it saw\n{}", faulty.log());
    assert_eq!(tasks::text(&task, "status"), "failed", "{task}");
    assert!(tasks::text(&task, "error").to_lowercase().contains("error"), "{task}");
    drop(faulty);
    scene.writes_nothing();
    scene.restarted();
}

#[test]
fn copies_that_cannot_be_flushed() {
    let scene = Scene::new();
    let fault = scene.on_new_files(Fault::io_error("fdatasync").when("1"));
    a_reclaim_fails(scene, &fault);
}

#[test]
fn a_removal_that_cannot_be_flushed() {
    let scene = Scene::new();
    // The first flush is that of the copies' names.
    let fault = Fault::io_error("fsync").on(folder_of_containers(&scene)).when("2+");
    a_reclaim_fails(scene, &fault);
}

/// Unreadable data is not copied, and stays.
#[test]
fn a_reclaim_that_cannot_read_frees_nothing_of_it() {
    let mut scene = Scene::new();
    let (oldest, _) = scene.kept.pop().unwrap();
    let agent = scene.server.agent();
    agent.run(&["delete", &oldest, "--yes", "--reason", "a test"]).ok();
    let before = containers_of(scene.data_dir(), Class::Data);
    let fault = Fault::io_error("pread64,read").on(&before[0].path);
    let fault = before.iter().skip(1).fold(fault, |fault, one| fault.on(&one.path));
    let Some(faulty) = scene.fault(&fault) else { return };
    let task =
        tasks::end(&scene.server, &tasks::start(&scene.server, "reclaim", &json!({ "live_share_pct": 100 })));
    assert!(faulty.errors() > 0, "nothing failed: {task}");
    for container in &before {
        assert!(container.path.exists(), "{} went unread: {task}", container.name());
    }
    drop(faulty);
    let data_dir = scene.data_dir().to_owned();
    scene.server.stop();
    scene.server = Server::start(&data_dir);
    scene.restarted();
}

/// A verification names unreadable data; once it is readable again, nothing is damaged.
#[test]
fn a_disk_that_cannot_be_read_for_a_while() {
    let scene = Scene::new();
    let data = containers_of(scene.data_dir(), Class::Data);
    let fault = Fault::io_error("pread64").on(&data[0].path);
    let fault = data.iter().skip(1).fold(fault, |fault, one| fault.on(&one.path));
    let Some(faulty) = scene.fault(&fault) else { return };
    let agent = scene.server.agent();
    agent.run(&["verify", "latest", "--vm", "web"]).fails(5, &["web"]);
    let to = scene.folder.path().join("restored.raw");
    agent.run(&["restore", "latest", "--vm", "web", "--to", to.to_str().unwrap()]).fails(5, &["web"]);
    assert!(!to.exists(), "what could not be read looks like a disk");
    let task = tasks::end(&scene.server, &tasks::start(&scene.server, "verify", &json!({})));
    assert!(task.to_string().contains("web"), "it does not name what cannot be read: {task}");
    assert!(faulty.errors() > 0);
    drop(faulty);
    scene.restarted();
}

/// A deletion whose flush fails was not acknowledged; after a restart it is complete, or never began.
#[test]
fn a_deletion_that_cannot_be_flushed() {
    let mut scene = Scene::new();
    let (oldest, bytes) = scene.kept.pop().unwrap();
    let points: Vec<PathBuf> = files(&scene.data_dir().join("blobs/points"));
    let fault = Fault::io_error("fsync").on(points[0].parent().unwrap());
    let Some(faulty) = scene.fault(&fault) else { return };
    let ran = scene.server.agent().run(&["delete", &oldest, "--yes", "--reason", "a test"]);
    assert!(!ran.succeeded() && faulty.errors() > 0, "{}", ran.said());
    drop(faulty);
    scene.check();
    let data_dir = scene.data_dir().to_owned();
    scene.server.stop();
    scene.server = Server::start(&data_dir);
    let listed = scene.server.agent().backups("web");
    if listed.contains(&oldest) {
        scene.kept.push((oldest, bytes));
    }
    scene.restarted();
}
