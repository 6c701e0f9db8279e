//! The attack that owners and proofs of digests prevent, with the real programs and a raw agent: another token of the
//! namespace replaces a VM's content lastingly, because honest agents skip extents that an intruder claimed.

use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_tests::disk::noise;
use holdfast_tests::raw::{Session, assert_refused, connect, connect_as, extent_of, finish, region_of};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server};
use tempfile::{TempDir, tempdir};

const BYTES: u32 = 20_000;

/// The disk under the name that the raw agent gives it: otherwise it would have no parent.
fn argument(disk: &Disk) -> String {
    format!("disk={}", disk.arg())
}

struct Scene {
    folder: TempDir,
    server: Server,
    disk: Disk,
    evil: Vec<u8>,
}

impl Scene {
    /// Creates a repository in which "victim" has an honest backup.
    fn new() -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let disk = Disk::of_noise(folder.path().join("victim.raw"), 1, BYTES as usize);
        server.agent().back_up("victim", &[&argument(&disk)]);
        Self { folder, server, disk, evil: noise(2, usize::try_from(BYTES).unwrap()) }
    }

    /// The intruder's bytes, with the digest of the disk's.
    fn lie(&self) -> Kind {
        let name = Fingerprint::of(&self.evil);
        let chunked = v1::ChunkedExtent {
            index: 0,
            digest: Fingerprint::of(&self.disk.bytes()).as_bytes().to_vec().into(),
            fingerprints: name.as_bytes().to_vec().into(),
            lengths: vec![BYTES],
        };
        Kind::Extents(v1::Extents { chunked: vec![chunked], ..v1::Extents::default() })
    }

    /// With a token of the VM's owner: the chunks are stored under another name, so that the server does not have them
    /// at hand, then the lie is committed.
    async fn poison(&self) {
        let connection = connect(&self.server).await;
        let (region, name) = region_of(&self.evil);
        let honest = [Kind::Region(region), extent_of(0, name, BYTES), finish()];
        for (vm, messages) in [("decoy", honest.to_vec()), ("victim", vec![self.lie(), finish()])] {
            let session = Session::start(&connection, vm, BYTES.into()).await;
            let (_, status) = session.send(messages).await;
            assert!(status.is_none(), "{status:?}");
            session.commit().await.unwrap();
        }
    }

    /// Asserts that the attack works while nothing is done about it: the next honest agent skips on the digest. The
    /// restored disk is the intruder's, and reported as damaged.
    fn is_poisoned(&self) {
        let agent = self.server.agent();
        agent.back_up("victim", &[&argument(&self.disk)]);
        let to = self.folder.path().join("poisoned.raw");
        let restore = ["restore", "latest", "--vm", "victim", "--to", to.to_str().unwrap()];
        agent.run(&restore).fails(5, &["extent 0", "earlier restore point"]);
        assert!(std::fs::read(&to).unwrap() == self.evil, "what there is, is there");
    }

    fn is_healed(&self) {
        let agent = self.server.agent();
        assert!(agent.read_back("victim") == self.disk.bytes(), "what is on the disk comes back");
        agent.run(&["verify", "latest", "--vm", "victim"]).ok();
    }
}

#[tokio::test]
async fn another_owners_token_reaches_neither_the_vm_nor_its_data() {
    let scene = Scene::new();
    let stolen = scene.server.token_with("stolen", &["--role", "backup", "--namespace", "default"]);
    let connection = connect_as(&scene.server, &stolen).await;
    let request = holdfast_tests::raw::start_request("victim", BYTES.into());
    let refused = connection.backup().start(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    assert_refused(Some(refused), ErrorCode::Forbidden, "another owner");
    tokio::task::spawn_blocking(move || {
        let thief = scene.server.agent().with_token(&stolen);
        thief.run(&["backup", "--vm", "victim", scene.disk.arg()]).fails(4, &["victim", "another name"]);
        thief.run(&["restore", "latest", "--vm", "victim", "--to", "-"]).fails(4, &["victim", "owner"]);
        thief.run(&["verify", "latest", "--vm", "victim"]).fails(4, &["victim"]);
        scene.is_healed();
        // An operator's action.
        let data_dir = scene.folder.path().join("repository");
        let (status, said) = maintain(&data_dir, "vm", &["owner", "victim", "stolen"]);
        assert!(status.success() && said.contains("\"admin\"") && said.contains("\"stolen\""), "{said}");
        let (_, listed) = maintain(&data_dir, "vm", &["list"]);
        assert!(listed.contains("victim") && listed.contains("stolen"), "{listed}");
        thief.back_up("victim", &[&argument(&scene.disk)]);
        let (status, said) = maintain(&data_dir, "vm", &["owner", "nothing", "stolen"]);
        assert!(!status.success() && said.contains("\"nothing\""), "{said}");
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn tokens_are_bound_by_vm_names() {
    let scene = Scene::new();
    let args = ["--role", "backup", "--owner", "admin", "--vm", "web-*", "--vm", "db-?"];
    let bound = scene.server.token_with("bound", &args);
    tokio::task::spawn_blocking(move || {
        let agent = scene.server.agent().with_token(&bound);
        agent.run(&["backup", "--vm", "victim", scene.disk.arg()]).fails(4, &["victim", "web-*, db-?"]);
        agent.run(&["restore", "latest", "--vm", "victim", "--to", "-"]).fails(4, &["victim"]);
        agent.back_up("web-1", &[&argument(&scene.disk)]);
        assert_eq!(agent.read_back("web-1"), scene.disk.bytes());
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_lie_about_what_was_just_sent_is_refused() {
    let scene = Scene::new();
    let connection = connect(&scene.server).await;
    let session = Session::start(&connection, "victim", BYTES.into()).await;
    let (region, _) = region_of(&scene.evil);
    let (_, status) = session.send(vec![Kind::Region(region), scene.lie(), finish()]).await;
    assert_refused(status, ErrorCode::Invalid, "hash to");
    assert!(session.commit().await.is_err());
    session.abort().await;
    tokio::task::spawn_blocking(move || scene.is_healed()).await.unwrap();
}

#[tokio::test]
async fn verify_finds_a_lie_and_the_next_backup_heals() {
    let scene = Scene::new();
    scene.poison().await;
    tokio::task::spawn_blocking(move || {
        scene.is_poisoned();
        let agent = scene.server.agent();
        let ran = agent.run(&["verify", "latest", "--vm", "victim"]);
        ran.fails(5, &["disk", "extent 0", "the server confirms"]);
        agent.back_up("victim", &[&argument(&scene.disk)]);
        scene.is_healed();
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn check_finds_a_lie_and_the_next_backup_heals() {
    let mut scene = Scene::new();
    scene.poison().await;
    tokio::task::spawn_blocking(move || {
        scene.is_poisoned();
        let data_dir = scene.folder.path().join("repository");
        let (status, said) = scene.server.stop();
        assert!(status.success(), "{said}");
        let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
        assert_eq!(status.code(), Some(5), "{said}");
        assert!(said.contains("victim") && said.contains("extent 0"), "{said}");
        scene.server = Server::start(&data_dir);
        scene.server.agent().back_up("victim", &[&argument(&scene.disk)]);
        scene.is_healed();
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn reading_everything_again_heals_without_knowing_of_a_lie() {
    let scene = Scene::new();
    scene.poison().await;
    tokio::task::spawn_blocking(move || {
        scene.is_poisoned();
        let agent = scene.server.agent();
        let args = ["backup", "--vm", "victim", "--reread", "--json", &argument(&scene.disk)];
        let summary = agent.run(&args).ok().summary();
        assert_eq!(summary["reread_extents"], 1, "{summary}");
        assert_eq!(summary["details"][0]["new_bytes"], 0, "only what the server lacks is sent: {summary}");
        scene.is_healed();
    })
    .await
    .unwrap();
}
