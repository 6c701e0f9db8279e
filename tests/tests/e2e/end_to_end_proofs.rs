//! Proofs that only agents can give about an end-to-end encrypted namespace: that data is intact, who says so, and how
//! a lying agent with the key is handled.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use holdfast::end_to_end::{Cipher, KeySource};
use holdfast::repository::{get_backup, report_chunks};
use holdfast_proto::api::FalseChunk;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::SEALED_OVERHEAD_BYTES;
use holdfast_proto::region::{Codec, EncodedRegion};
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_tests::agent::Row;
use holdfast_tests::disk::{assert_same, noise};
use holdfast_tests::raw::{Session, assert_refused, connect, finish, start_request};
use holdfast_tests::repository::{Class, container_bytes};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, program};

use super::end_to_end::Scene;

const MIB: usize = 1 << 20;

fn cipher(key: &Path) -> Cipher {
    KeySource::File(key.to_owned()).cipher(&|| panic!("it is not wrapped")).unwrap()
}

impl Scene {
    /// Makes an agent with the key store other bytes under the fingerprint of the disk's first chunk, without
    /// asking for any.
    fn poison(&self, disk: &Disk, seed: u64) -> usize {
        let bytes = disk.bytes();
        let cipher = cipher(&self.key);
        let piece = Chunker::default().cut(&bytes[..4 * MIB]).remove(0);
        assert!(!piece.zero && piece.offset == 0);
        let name = cipher.fingerprint(&bytes[..piece.len as usize]);
        let (false_bytes, lengths) = (noise(seed, piece.len as usize), vec![piece.len]);
        let region = EncodedRegion { codec: Codec::Stored, plain_bytes: piece.len, payload: false_bytes };
        let sealed = cipher.seal(region, &[name], &lengths).unwrap();
        let names: Vec<u8> = name.as_bytes().to_vec();
        let region = v1::Region {
            codec: Codec::Sealed as u32,
            plain_bytes: piece.len,
            fingerprints: names.clone().into(),
            lengths: lengths.clone(),
            payload: sealed.payload.into(),
        };
        let digest = Fingerprint::UNKNOWN.as_bytes().to_vec().into();
        let chunked = v1::ChunkedExtent { index: 0, digest, fingerprints: names.into(), lengths };
        let extents = v1::Extents { chunked: vec![chunked], ..v1::Extents::default() };
        let request = v1::StartRequest {
            namespace: "vault".to_owned(),
            key_id: self.key_id.clone(),
            ..start_request("liar", piece.len.into())
        };
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let connection = connect(&self.server).await;
            let session = Session::start_as(&connection, request).await.unwrap();
            let sent = session.send(vec![Kind::Region(region), Kind::Extents(extents), finish()]).await;
            assert!(sent.1.is_none(), "{sent:?}");
            session.commit().await.unwrap();
        });
        piece.len as usize
    }

    /// Falsely reports every region of a VM's newest restore point as damaged.
    fn slander(&self, vm: &str) {
        use v1::read_disk_response::Kind;
        let backup = self.points(vm).remove(0);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let connection = connect(&self.server).await;
            let request = v1::ReadDiskRequest {
                backup_id: backup.clone(),
                disk: "disk".to_owned(),
                ..v1::ReadDiskRequest::default()
            };
            let mut stream = connection.restore().read_disk(request).await.unwrap().into_inner();
            let (mut names, mut regions) = (Vec::new(), Vec::new());
            while let Some(message) = stream.message().await.unwrap() {
                match message.kind.unwrap() {
                    Kind::Window(window) => {
                        names = Fingerprint::split_list(&window.fingerprints).unwrap().collect();
                    }
                    Kind::Regions(batch) => regions.extend(batch.regions),
                    _ => {}
                }
            }
            let chunk = |region: &v1::RegionData| FalseChunk {
                disk: "disk".to_owned(),
                extent: 0,
                fingerprint: names[region.chunks[0] as usize],
                commitment: *region.payload.last_chunk().unwrap(),
            };
            let chunks: Vec<FalseChunk> = regions.iter().map(chunk).collect();
            let point = get_backup(&connection, "vault", &backup, "").await.unwrap();
            assert!(report_chunks(&connection, &point, &chunks).await.unwrap() > 0);
        });
    }

    fn listed(&self, vm: &str) -> serde_json::Value {
        self.run(&["list", "--vm", vm, "--json"]).ok().summary()["backups"][0].clone()
    }
}

#[test]
fn a_poisoned_chunk_is_found_by_verify_and_sent_again_by_the_next_backup() {
    let scene = Scene::new();
    let disk = Disk::of_noise(scene.folder.path().join("web.raw"), 8, 9 * MIB);
    let poisoned = scene.poison(&disk, 50);
    let first = scene.back_up("web", &disk);
    let (new, dup) = (first["new_bytes"].as_u64().unwrap(), first["dup_bytes"].as_u64().unwrap());
    assert_eq!((new + dup, dup), (disk.bytes().len() as u64, poisoned as u64), "{first}");
    // The server finds nothing, and says that it cannot.
    let scrubbed = scene.agent.run(&["scrub", "--json"]).ok().text();
    assert!(scrubbed.contains("proved only by agents"), "{scrubbed}");
    assert_eq!(scene.listed("web")["damaged_bytes"], 0);
    let verify = ["verify", "latest", "--vm", "web"];
    scene.run(&verify).fails(5, &["an agent with the key sent something false"]);
    assert_eq!(scene.listed("web")["agent_verified"], serde_json::Value::Null, "damage proves nothing");
    assert_eq!(scene.listed("web")["damaged_bytes"], 0, "nor is it damage for the server");
    scene.run(&["verify", "--all"]).fails(5, &["2 DAMAGED"]);
    // The next backup of the disk sends the poisoned chunk again, and the rest of its region.
    let again = scene.back_up("web", &disk);
    assert_eq!(again["new_bytes"], poisoned as u64, "{again}");
    scene.run(&verify).ok();
    for point in scene.points("web") {
        assert_same(&disk.bytes(), &scene.read_back(&point, "web"));
    }
    let Scene { server, folder: _folder, .. } = scene;
    let data_dir = server.data_dir().to_owned();
    assert!(server.stop().0.success());
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    assert!(said.contains("is end-to-end encrypted, so its content is proved only by agents"), "{said}");
}

/// (N5) An existing chunk stays, whatever else is sent under its fingerprint.
#[test]
fn what_is_there_is_not_poisoned_afterwards() {
    let scene = Scene::new();
    let disk = Disk::of_noise(scene.folder.path().join("web.raw"), 8, 5 * MIB);
    scene.back_up("web", &disk);
    let before = container_bytes(scene.server.data_dir(), Class::Data);
    scene.poison(&disk, 51);
    assert_eq!(container_bytes(scene.server.data_dir(), Class::Data), before);
    scene.run(&["verify", "latest", "--vm", "web"]).ok();
    assert_same(&disk.bytes(), &scene.read_back("latest", "web"));
}

/// (N8) Noise sent in place of a falsely reported chunk does not open: another copy is requested.
#[test]
fn what_does_not_open_is_taken_out_of_another_copy() {
    let scene = Scene::new();
    let disk = Disk::of_noise(scene.folder.path().join("web.raw"), 8, 9 * MIB);
    scene.back_up("web", &disk);
    let before = container_bytes(scene.server.data_dir(), Class::Data);
    // It need not have the chunk to have a restore point of it.
    scene.poison(&disk, 51);
    scene.slander("liar");
    scene.poison(&disk, 52);
    assert!(container_bytes(scene.server.data_dir(), Class::Data) > before, "it was sent again");
    scene.agent.run(&["reclaim"]).ok();
    scene.run(&["verify", "latest", "--vm", "web"]).ok();
    // In order, and in disorder.
    assert_same(&disk.bytes(), &scene.read_back("latest", "web"));
    let out = scene.folder.path().join("out.raw");
    scene.run(&["restore", "latest", "--vm", "web", "--to", out.to_str().unwrap()]).ok();
    assert_same(&disk.bytes(), &fs::read(out).unwrap());
}

#[test]
fn verify_all_reads_what_is_due_and_says_so_in_one_line() {
    let scene = Scene::new();
    let nothing = scene.run(&["verify", "--all"]).ok().text();
    assert!(nothing.contains("Nothing had to be verified"), "{nothing}");
    for (vm, seed) in [("web", 1), ("db", 2)] {
        scene.back_up(vm, &Disk::of_noise(scene.folder.path().join(format!("{vm}.raw")), seed, 5 * MIB));
    }
    let list = scene.run(&["list"]).ok().text();
    assert!(list.contains("only by agents: not yet"), "{list}");
    let due = ["verify", "--all", "--not-verified-for", "7d"];
    let said = scene.run(&due).ok().text();
    assert!(
        said.contains("Verified 2 restore points") && said.contains("every fingerprint matched"),
        "{said}"
    );
    assert_eq!(said.trim().lines().count(), 1, "{said}");
    let again = scene.run(&[&due[..], &["--json"]].concat()).ok().summary();
    assert_eq!((&again["sound"], &again["verified_before"]), (&0.into(), &2.into()), "{again}");
    // A newer restore point is of the same VM, which was verified.
    scene.back_up("web", &Disk::of_noise(scene.folder.path().join("web.raw"), 3, 5 * MIB));
    assert_eq!(scene.run(&[&due[..], &["--json"]].concat()).ok().summary()["sound"], 0);
    let points = scene.run(&[&due[..], &["--every-point", "--json"]].concat()).ok().summary();
    assert_eq!((&points["sound"], &points["verified_before"]), (&1.into(), &2.into()), "{points}");
    // In every lookup.
    let listed = scene.listed("db");
    assert_eq!(listed["end_to_end"], true);
    assert!(listed["agent_verified"].is_string() && listed["vm_agent_verified"].is_string(), "{listed}");
    let report = scene.run(&["report"]).ok().said();
    assert!(
        report.contains("its content is proved only by agents") && report.contains("all of its 2 VMs"),
        "{report}"
    );
    let (_, namespaces) = maintain(scene.server.data_dir(), "namespace", &["list"]);
    assert!(
        namespaces.contains("agents verified all of its 2 VMs") || namespaces.contains("Agents verified"),
        "{namespaces}"
    );
    // Users who may not read them learn that they are not their own.
    let stranger = scene.server.token_with("stranger", &["--role", "backup", "--namespace", "vault"]);
    let key = scene.key.to_str().unwrap();
    let left =
        scene.agent.with_token(&stranger).run(&["verify", "--all", "--namespace-key", key]).ok().text();
    assert!(left.contains("2 VMs of other owners left out"), "{left}");
    // Elsewhere the server proves it by itself.
    scene.agent.back_up("plain", &[Disk::of_noise(scene.folder.path().join("p.raw"), 4, MIB).arg()]);
    let plain = scene.agent.run(&["list", "--vm", "plain"]).ok().text();
    assert!(!plain.contains("agents"), "{plain}");
}

#[test]
fn a_key_that_is_wrapped_needs_its_passphrase() {
    let scene = Scene::new();
    let folder = scene.folder.path();
    let disk = Disk::of_noise(folder.join("web.raw"), 8, 3 * MIB);
    let (wrapped, phrase) = (folder.join("wrapped.key"), folder.join("phrase"));
    fs::write(&phrase, "twelve and more\n").unwrap();
    let mut wrap = program("holdfast");
    wrap.args(["namespace-key", "wrap", "--json", "--namespace-key"]).arg(&scene.key);
    wrap.arg("--out").arg(&wrapped).arg("--new-passphrase-file").arg(&phrase);
    let made = wrap.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).unwrap();
    assert_eq!(made["key_id"], scene.key_id.as_str());
    assert_eq!(fs::metadata(&wrapped).unwrap().permissions().mode() & 0o777, 0o600);
    let backup = ["backup", "--vm", "web", disk.arg()];
    scene.with(&wrapped, &backup).fails(1, &["wrapped by a passphrase", "--namespace-key-passphrase-file"]);
    let file = phrase.to_str().unwrap();
    scene.with(&wrapped, &[&backup[..], &["--namespace-key-passphrase-file", file]].concat()).ok();
    assert_same(&disk.bytes(), &scene.read_back("latest", "web"));
    let with_phrase = |phrase: &str| {
        let mut verify = scene.agent.command(&["verify", "latest", "--vm", "web", "--namespace", "vault"]);
        verify.env("HOLDFAST_NAMESPACE_KEY", &wrapped).env("HOLDFAST_NAMESPACE_KEY_PASSPHRASE", phrase);
        let output = verify.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(with_phrase("twelve and more").0, Some(0));
    let (code, said) = with_phrase("not that one at all");
    assert!(code == Some(1) && said.contains("does not open the key"), "{said}");
    assert!(!said.contains("not that one"), "{said}");
    // A new one, with the passphrase from standard input.
    let fresh = folder.join("fresh.key");
    let mut new = program("holdfast");
    new.args(["namespace-key", "new", "--passphrase", "--out"])
        .arg(&fresh)
        .stdin(fs::File::open(&phrase).unwrap());
    let made = new.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(fs::read_to_string(&fresh).unwrap().starts_with("holdfast-wrapped-key-1 "));
}

/// Details of encrypted data equal those of the same data unencrypted, except for the overhead.
#[test]
fn compression_details_are_exact_end_to_end() {
    let scene = Scene::new();
    let disk = scene.disk("web.raw", 1);
    let mut stored = 0;
    for change in [false, true] {
        if change {
            disk.put(9 << 20, &noise(77, 100_000));
        }
        let job = if change { "second" } else { "first" };
        let args = ["backup", "--vm", "web", "--job", job, disk.arg()];
        scene.run(&args).ok();
        scene.agent.run(&args).ok();
        let rows = scene.agent.report();
        let row = |namespace: &str| -> &Row {
            let of_it = |row: &&Row| row.text("namespace") == namespace && row.text("job") == job;
            rows.iter().find(of_it).unwrap()
        };
        let (sealed, plain) = (row("vault"), row("default"));
        for column in [
            "virtual_bytes",
            "bytes",
            "read_bytes",
            "unchanged_bytes",
            "dup_bytes",
            "new_bytes",
            "chunks",
            "new_chunks",
        ] {
            assert_eq!(sealed.number(column), plain.number(column), "{column} of {job}");
        }
        let more = sealed.number("post_lc") - plain.number("post_lc");
        assert!(more > 0 && more.is_multiple_of(SEALED_OVERHEAD_BYTES.into()), "{more} bytes");
        assert!(more / u64::from(SEALED_OVERHEAD_BYTES) <= sealed.number("new_chunks"), "{more} bytes");
        stored = rows.iter().map(|row| row.number("post_lc")).sum();
    }
    assert_eq!(stored, container_bytes(scene.server.data_dir(), Class::Data), "to the byte");
}

/// Requests that would need decoding by the server are refused with an explanation.
#[test]
fn ranges_are_refused_where_the_server_cannot_decode() {
    let scene = Scene::new();
    let disk = Disk::of_noise(scene.folder.path().join("web.raw"), 8, MIB);
    scene.back_up("web", &disk);
    let point = scene.points("web").remove(0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let connection = connect(&scene.server).await;
        let request =
            v1::ReadRangeRequest { backup_id: point, disk: "web".to_owned(), offset: 0, length: 10 };
        let refused = match connection.restore().read_range(request).await {
            Ok(stream) => stream.into_inner().message().await.err(),
            Err(status) => Some(status),
        };
        assert_refused(refused, ErrorCode::Invalid, "end-to-end encrypted");
    });
    scene.run(&["restore", "latest", "--vm", "web", "--to", "-"]).ok();
}
