//! Copies in a bucket: made beside backups, whatever the bucket does; read when data is lost here; and sufficient for
//! a blank machine.
//!
//! | file | tests |
//! |---|---|
//! | `copies.rs` | copies are made once, equal the originals, and suffice to recover a server |
//! | `archived.rs` | archived data, and thawing it |
//! | `flipped.rs` | corrupted answers |
//! | `kept.rs` | data kept out of the archive, and thawed copies kept here |
//! | `audit.rs` | objects deleted, truncated, replaced or archived out of band |
//! | `bad_days.rs` | a bucket that is unreachable, slow, read-only or misbehaving, and machines that fail |
//! | `storms.rs` | the same for each way to use a bucket: mass refusals, wrong clocks, outages during a backup |
//! | `keys.rs` | no plain objects stay once everything is encrypted, and none of a destroyed namespace |
//! | `locked.rs` | retention of objects that locked restore points need, in a bucket with Object Lock |
//! | `moved.rs` | data that only the bucket has |
//! | `primary.rs` | data that lives in the bucket: a backup counts when it is there |
//! | `thawed.rs` | the archive over REST |
//! | `writers.rs` | two servers and one bucket |
//! | `seen.rs` | reported figures of the bucket |

mod archived;
mod audit;
mod bad_days;
mod copies;
mod flipped;
mod kept;
mod keys;
mod locked;
mod moved;
mod primary;
mod seen;
mod storms;
mod thawed;
mod writers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use holdfast_bucket::{ACCESS_KEY, BUCKET, SECRET_KEY, TestBucket};
use holdfast_tests::repository::files;
use holdfast_tests::server::maintain;
use holdfast_tests::{Server, wait_for};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

/// A bucket, and the settings of servers that copy to it.
struct Site {
    folder: TempDir,
    bucket: TestBucket,
    config: PathBuf,
}

impl Site {
    /// A site with an encrypted repository.
    fn new() -> Self {
        Self::with("encryption = \"on\"\n")
    }

    /// A site with a repository that is copied unencrypted.
    fn plain() -> Self {
        Self::with("s3_plain = true\n")
    }

    fn with(settings: &str) -> Self {
        Self::of(TestBucket::start(), settings)
    }

    /// A site whose bucket has Object Lock.
    fn locking(settings: &str) -> Self {
        Self::of(TestBucket::start_with_object_lock(), settings)
    }

    fn of(bucket: TestBucket, settings: &str) -> Self {
        let folder = tempdir().unwrap();
        let config = folder.path().join("server.toml");
        let site = Self { folder, bucket, config };
        site.set_secret(SECRET_KEY);
        site.configure(settings);
        site
    }

    /// Writes the settings of the bucket, and these.
    fn configure(&self, settings: &str) {
        let text = format!(
            "{settings}s3 = \"s3://{BUCKET}/site\"\ns3_endpoint = {:?}\ns3_path_style = true\ns3_credentials = {:?}\n",
            self.bucket.endpoint(),
            self.path("credentials")
        );
        fs::write(&self.config, text).unwrap();
    }

    /// Sets the secret that servers use.
    fn set_secret(&self, secret: &str) {
        let keys = format!("[default]\naws_access_key_id = {ACCESS_KEY}\naws_secret_access_key = {secret}\n");
        let new = self.path("credentials.new");
        fs::write(&new, keys).unwrap();
        fs::rename(new, self.path("credentials")).unwrap();
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

    /// Waits until the bucket has so many restore points, and everything they need.
    fn wait_for_points(&self, count: usize) {
        wait_for("the copies", || (self.copies("points").len() >= count).then_some(()));
    }

    /// Waits until the bucket has everything that is here, and nothing that was removed, and the server reports that.
    fn wait_up_to_date(&self, data_dir: &Path) -> Value {
        wait_for("being up to date", || {
            let keys = self.bucket.keys();
            if copied(data_dir).iter().any(|name| !keys.contains(&format!("site/{name}"))) {
                return None;
            }
            let status = self.status(data_dir);
            let said = &status["server"];
            let is_done =
                said["failure"].is_null() && said["waiting_blobs"] == 0 && said["comparing"] == false;
            (is_done && status["removals"] == 0).then_some(status)
        })
    }

    /// Waits until copying fails with a message that has `part`.
    fn wait_for_failure(&self, data_dir: &Path, part: &str) -> String {
        wait_for("the failure to be told", || {
            let status = self.status(data_dir);
            status["server"]["failure"].as_str().filter(|text| text.contains(part)).map(ToString::to_string)
        })
    }

    /// Runs `holdfast-server COMMAND` with the settings of the site.
    fn maintain(&self, data_dir: &Path, command: &str, args: &[&str]) -> (ExitStatus, String) {
        maintain(data_dir, command, &[args, &["--config", self.config.to_str().unwrap()]].concat())
    }

    /// Exports a kit that opens the copies, too; no server may be running.
    fn export_kit(&self, data_dir: &Path, name: &str) -> PathBuf {
        let (status, kit) = self.maintain(data_dir, "key", &["export-kit"]);
        assert!(status.success(), "{kit}");
        let page = self.path(name);
        fs::write(&page, kit).unwrap();
        let server = self.start(data_dir);
        self.wait_up_to_date(data_dir);
        stop(server);
        page
    }

    /// Recovers a new data folder from the bucket and a kit.
    fn recover(&self, new: &Path, kit: &Path) -> (ExitStatus, String) {
        let from = format!("s3://{BUCKET}/site");
        self.maintain(new, "recover", &["--from", &from, "--kit", kit.to_str().unwrap()])
    }

    /// Asserts that the bucket has every blob here that is copied, byte for byte, and nothing else.
    fn assert_exact(&self, data_dir: &Path) {
        self.assert_same(data_dir);
        let blobs = data_dir.join("blobs");
        for key in ["containers", "points", "keys"].into_iter().flat_map(|kind| self.copies(kind)) {
            let name = key.strip_prefix("site/").unwrap();
            assert!(blobs.join(name).exists(), "{name} is there, and not here");
        }
    }

    /// Asserts that the bucket has every blob here that is copied, byte for byte.
    fn assert_same(&self, data_dir: &Path) {
        for name in copied(data_dir) {
            let object = self.bucket.object(&format!("site/{name}"));
            let object = object.unwrap_or_else(|| panic!("{name} is not there"));
            assert!(
                object.bytes == fs::read(data_dir.join("blobs").join(&name)).unwrap(),
                "{name} is another"
            );
        }
    }
}

/// Names of all blobs here that are copied, except catalog snapshots: a stop seals one, which the next server copies.
fn copied(data_dir: &Path) -> Vec<String> {
    let blobs = data_dir.join("blobs");
    let all = files(&blobs).into_iter();
    let names = all.map(|path| path.strip_prefix(&blobs).unwrap().to_str().unwrap().to_owned());
    names
        .filter(|name| ["containers/", "points/", "keys/"].iter().any(|kind| name.starts_with(kind)))
        .collect()
}

fn stop(server: Server) {
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}
