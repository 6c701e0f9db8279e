//! Copies in a bucket: made beside backups, whatever the bucket does; read where something is lost here; and enough for a
//! blank machine.

use std::fs;
use std::path::{Path, PathBuf};

use holdfast_bucket::{ACCESS_KEY, BUCKET, Fault, Op, SECRET_KEY, TestBucket};
use holdfast_tests::repository::files;
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server, wait_for};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

/// A bucket, and the settings of servers that copy to it.
struct Site {
    folder: TempDir,
    bucket: TestBucket,
    config: PathBuf,
}

impl Site {
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let bucket = TestBucket::start();
        let credentials = folder.path().join("credentials");
        let keys =
            format!("[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {SECRET_KEY}\n");
        fs::write(&credentials, keys).unwrap();
        let config = folder.path().join("server.toml");
        let text = format!(
            "encryption = \"on\"\ns3 = \"s3://{BUCKET}/site\"\ns3_endpoint = {:?}\ns3_path_style = true\ns3_credentials = {credentials:?}\n",
            bucket.endpoint()
        );
        fs::write(&config, text).unwrap();
        Self { folder, bucket, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, data_dir: &Path) -> Server {
        Server::options().args(&["--config", self.config.to_str().unwrap()]).start(data_dir)
    }

    fn status(&self, data_dir: &Path) -> Value {
        let (status, said) = maintain(data_dir, "tier", &["status", "--json"]);
        assert!(status.success(), "{said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error} in {said}"))
    }

    /// Keys of a kind.
    fn copies(&self, kind: &str) -> Vec<String> {
        let all = self.bucket.keys();
        all.into_iter().filter(|key| key.starts_with(&format!("site/{kind}/"))).collect()
    }

    /// Waits until so many restore points, and all they need, are there.
    fn wait_for_points(&self, count: usize) {
        wait_for("the copies", || (self.copies("points").len() >= count).then_some(()));
    }

    /// Every blob here that is copied is there, byte for byte.
    fn assert_same(&self, data_dir: &Path) {
        let blobs = data_dir.join("blobs");
        for path in files(&blobs) {
            let name = path.strip_prefix(&blobs).unwrap().to_str().unwrap().to_owned();
            if ["containers/", "points/", "keys/"].iter().any(|kind| name.starts_with(kind)) {
                let object = self.bucket.object(&format!("site/{name}"));
                let object = object.unwrap_or_else(|| panic!("{name} is not there"));
                assert!(object.bytes == fs::read(&path).unwrap(), "{name} is another");
            }
        }
    }
}

fn stop(server: Server) {
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

#[test]
fn a_blank_machine_comes_back_from_the_bucket_and_a_printed_page() {
    let site = Site::new();
    let (data_dir, new) = (site.path("repository"), site.path("new"));
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 7, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    let late = Disk::of_noise(site.path("late.raw"), 8, 6 << 20);
    server.agent().back_up("mail", &[late.arg()]);
    site.wait_for_points(2);
    server.kill();
    site.assert_same(&data_dir);
    let (status, kit) = maintain(&data_dir, "key", &["export-kit"]);
    assert!(status.success(), "{kit}");
    let page = site.path("kit.txt");
    fs::write(&page, kit).unwrap();
    // The machine is gone.
    fs::remove_dir_all(&data_dir).unwrap();

    let config = site.config.to_str().unwrap();
    let from = format!("s3://{BUCKET}/site");
    // Without the page there is nothing to be had.
    let (status, said) = maintain(&new, "recover", &["--from", &from, "--config", config]);
    assert_eq!(status.code(), Some(4), "{said}");
    let lists = site.bucket.count(Op::List);
    let args = ["--from", &from, "--config", config, "--kit", page.to_str().unwrap()];
    let (status, said) = maintain(&new, "recover", &args);
    assert!(status.success(), "{said}");
    assert!(said.contains("requests: ") && said.contains("data is read from there"), "{said}");
    assert!(site.bucket.count(Op::List) - lists <= 8, "listed once");
    let data = files(&new.join("blobs/containers"));
    assert!(data.iter().all(|path| !path.to_string_lossy().contains(".data")), "data stays there: {data:?}");

    let server = site.start(&new);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert_eq!(server.agent().read_back("mail"), late.bytes());
    // And the chains go on, here and there.
    late.put(1 << 20, b"changed");
    server.agent().back_up("mail", &[late.arg()]);
    site.wait_for_points(3);
    assert_eq!(server.agent().read_back("mail"), late.bytes());
    stop(server);
    site.assert_same(&new);
}

#[test]
fn backups_and_restores_go_on_while_the_bucket_is_away() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 3, 12 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    site.bucket.go_away();
    disk.put(0, b"while it is away");
    server.agent().back_up("web", &[disk.arg()]);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    wait_for("the failure to be told", || {
        site.status(&data_dir)["server"]["failure"].as_str().map(ToString::to_string)
    });
    // Neither a restart nor a kill forgets what waits.
    stop(server);
    let server = site.start(&data_dir);
    disk.put(1 << 20, b"and after a restart");
    server.agent().back_up("web", &[disk.arg()]);
    server.kill();
    site.bucket.heal();
    let server = site.start(&data_dir);
    site.wait_for_points(3);
    let status = wait_for("being up to date", || {
        let status = site.status(&data_dir);
        let said = &status["server"];
        (said["failure"].is_null() && said["waiting_blobs"] == 0 && said["comparing"] == false)
            .then_some(status)
    });
    assert_eq!(status["location"], format!("s3://{BUCKET}/site at {}", site.bucket.endpoint()));
    stop(server);
    site.assert_same(&data_dir);
}

/// Answers that are lost, and refusals, cost time and requests, never a second copy.
#[test]
fn nothing_is_sent_twice() {
    let site = Site::new();
    let data_dir = site.path("repository");
    site.bucket.fail(Op::Put, "containers/", 1, Fault::LoseAnswer);
    site.bucket.fail(Op::Put, "containers/", 2, Fault::Refuse(503, "SlowDown"));
    site.bucket.fail(Op::Put, "points/", 1, Fault::LoseAnswer);
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 5, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    wait_for("being up to date", || {
        let status = site.status(&data_dir);
        let said = &status["server"];
        (said["failure"].is_null() && said["waiting_blobs"] == 0 && said["comparing"] == false).then_some(())
    });
    stop(server);
    site.assert_same(&data_dir);
    // One for each object, and the two that were refused.
    assert_eq!(site.bucket.requests(Op::Put, "/containers/"), site.copies("containers").len() + 2);
    assert_eq!(site.bucket.requests(Op::Put, "/points/"), site.copies("points").len());
}

/// A file that is lost here is read from there; one that is archived there is explained.
#[test]
fn what_is_lost_here_is_read_from_there() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 9, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    stop(server);
    let lost: Vec<PathBuf> = files(&data_dir.join("blobs/containers"));
    for path in &lost {
        fs::remove_file(path).unwrap();
    }
    let server = site.start(&data_dir);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
}

#[test]
fn what_is_not_encrypted_is_not_copied() {
    let site = Site::new();
    let data_dir = site.path("repository");
    stop(Server::start(&data_dir));
    let text = fs::read_to_string(&site.config).unwrap().replace("encryption = \"on\"\n", "");
    fs::write(&site.config, text).unwrap();
    let config = ["--config", site.config.to_str().unwrap()];
    let (status, said) = Server::options().args(&config).try_start(&data_dir).unwrap_err();
    assert!(!status.success() && said.contains("s3_plain"), "{status}: {said}");
    assert!(site.bucket.keys().is_empty(), "{:?}", site.bucket.keys());
    let server = Server::options().args(&config).arg("--s3-plain").start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 9, 5 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    stop(server);
}
