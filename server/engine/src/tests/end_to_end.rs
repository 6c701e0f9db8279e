//! A namespace of which agents encrypt the content: the server takes what is bound to its names, keeps it whole, and gives
//! it back as it came.

use std::sync::Arc;

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::{Codec, Encoder};
use holdfast_proto::{ErrorCode, Fingerprint, KeyId, v1};
use holdfast_types::ids::{ContainerClass, NamespaceId, SessionId};
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{Names, backup, request, restore, restore_in, send_disk, send_disk_claiming, starter};
use super::{Bench, lines, noise};
use crate::container::{ContainerName, OpenContainer, list_containers};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::format::container::{FOOTER_BYTES, RegionRecord, directory_bytes};
use crate::ingest::{Committed, StartBackup};
use crate::reclaim::{Control, ReclaimOptions, ReclaimReport, Squeeze};

mod poison;

const MIB: usize = 1 << 20;
const KEY: KeyId = KeyId::from_bytes([0xA7; 8]);

struct Scene {
    bench: Bench,
    volume: MemoryVolume,
    engine: Engine,
    vault: NamespaceId,
}

impl Scene {
    fn new() -> Self {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let engine = bench.open(Arc::new(volume.clone()));
        let vault = engine.catalog().create_sealed_namespace("vault", KEY).unwrap().id;
        Self { bench, volume, engine, vault }
    }

    fn reopened(self) -> Self {
        let Self { bench, volume, engine, vault } = self;
        engine.shutdown().unwrap();
        drop(engine);
        let engine = bench.open(Arc::new(volume.clone()));
        Self { bench, volume, engine, vault }
    }

    fn start(&self, vm: &str, disk: &[u8], key_id: &str) -> Result<v1::StartResponse, EngineError> {
        let request = v1::StartRequest { key_id: key_id.to_owned(), ..request(vm, &[("root", disk)]) };
        self.engine.start_backup(&StartBackup { namespace: self.vault, request, starter: starter(1) })
    }

    fn session(&self, vm: &str, disk: &[u8]) -> SessionId {
        self.start(vm, disk, &KEY.to_string()).unwrap().session_id.parse().unwrap()
    }

    fn backup(&self, vm: &str, disk: &[u8]) -> Committed {
        let session = self.session(vm, disk);
        let stream = self.engine.open_stream(session, 0).unwrap();
        send_disk(&self.engine, session, &stream, 0, disk).unwrap();
        self.engine.commit(session).unwrap()
    }

    fn restores(&self, backup: &str, disk: &[u8]) -> bool {
        restore_in(&self.engine, self.vault, backup, "root").unwrap() == disk
    }

    fn delete(&self, backup: &str) {
        self.engine.delete_backups(&[backup.parse().unwrap()], "test", "not needed").unwrap();
    }

    fn reclaim(&self, options: &ReclaimOptions) -> ReclaimReport {
        self.engine.reclaim(options, &Arc::new(Control::default())).unwrap()
    }

    fn is_sound(&self) {
        let (core, _) = self.engine.parts();
        assert!(!core.store.has_damage(), "{:?}", core.store.damaged_containers());
        let report = self.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
    }

    fn data(&self) -> Vec<ContainerName> {
        let all = list_containers(&self.volume).unwrap().containers.into_iter().map(|(name, _)| name);
        all.filter(|name| name.class == ContainerClass::Data).collect()
    }

    fn open(&self, name: ContainerName) -> OpenContainer {
        OpenContainer::open(&self.volume, self.engine.repository_id(), name.id, name.class).unwrap()
    }
}

/// A restore point of noise with text and zeros in it.
fn disk(seed: u64) -> Vec<u8> {
    let mut disk = noise(seed, 9 * MIB + 12_345);
    disk[2 * MIB..3 * MIB].fill(0);
    let text = lines(seed, 20_000);
    disk[5 * MIB..][..text.len()].copy_from_slice(&text);
    disk
}

fn refused(result: Result<v1::StartResponse, EngineError>, words: &[&str]) {
    let error = result.unwrap_err();
    let text = error.to_string();
    assert_eq!(error.code(), ErrorCode::Invalid, "{text}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

#[test]
fn a_namespace_takes_what_is_sealed_with_its_key_and_nothing_else() {
    let scene = Scene::new();
    let other = KeyId::from_bytes([1; 8]).to_string();
    let ours = KEY.to_string();
    refused(scene.start("web", b"x", ""), &[&ours, "no key", "--namespace-key"]);
    refused(scene.start("web", b"x", &other), &[&ours, &other]);
    refused(scene.start("web", b"x", "nonsense"), &["nonsense"]);
    let plain = v1::StartRequest { key_id: ours.clone(), ..request("web", &[("root", b"x")]) };
    refused(super::agent::start(&scene.engine, plain), &["not end-to-end encrypted", "--end-to-end"]);
    assert_eq!(scene.start("web", b"x", &ours).unwrap().key_id, ours);
    let said = super::agent::start(&scene.engine, request("web", &[("root", b"x")])).unwrap();
    assert_eq!(said.key_id, "", "the same VM in a plain namespace is another");
}

#[test]
fn plain_regions_are_refused_where_agents_encrypt_and_sealed_ones_elsewhere() {
    let scene = Scene::new();
    let bytes = b"some bytes";
    let region =
        |names: Names| names.region(&[(names.of_chunk(bytes), bytes)], &mut Encoder::new(3).unwrap());
    let session = scene.session("web", bytes);
    let stream = scene.engine.open_stream(session, 0).unwrap();
    let error = stream.handle(Request::Region(region(Names::Plain)), 1).unwrap_err();
    assert!(error.to_string().contains("not sealed"), "{error}");
    let started = super::agent::start(&scene.engine, request("web", &[("root", bytes)])).unwrap();
    let stream = scene.engine.open_stream(started.session_id.parse().unwrap(), 0).unwrap();
    let error = stream.handle(Request::Region(region(Names::Sealed)), 1).unwrap_err();
    assert!(error.to_string().contains("is sealed"), "{error}");
    assert_eq!(scene.data(), [], "nothing of it is stored");
}

/// Substitutes that a hostile agent can send for a sealed region.
#[test]
fn sealed_regions_that_are_not_what_they_say_are_refused() {
    let bytes = noise(3, 20_000);
    let (one, other) = bytes.split_at(10_000);
    let names = Names::Sealed;
    let sound = || {
        let chunks = [(names.of_chunk(one), one), (names.of_chunk(other), other)];
        names.region(&chunks, &mut Encoder::new(3).unwrap())
    };
    let swapped = [other, one].map(|chunk| *names.of_chunk(chunk).as_bytes()).concat();
    let flipped = |at: usize| {
        let mut payload = sound().payload.to_vec();
        payload[at] ^= 1;
        v1::Region { payload: payload.into(), ..sound() }
    };
    let longer = [&sound().payload[..], &[0; 30_000]].concat();
    let lies = [
        (v1::Region { fingerprints: swapped.into(), ..sound() }, "made for other chunks"),
        (v1::Region { lengths: vec![9_999, 10_001], ..sound() }, "made for other chunks"),
        (flipped(0), "commitment"),
        (flipped(40), "commitment"),
        (flipped(100), "commitment"),
        (flipped(sound().payload.len() - 1), "commitment"),
        (v1::Region { payload: vec![0; 113].into(), ..sound() }, "cannot hold"),
        (v1::Region { payload: Vec::new().into(), ..sound() }, "cannot hold"),
        (v1::Region { payload: longer.into(), ..sound() }, "cannot hold"),
        (v1::Region { lengths: vec![10_000], ..sound() }, "2 fingerprints but 1 lengths"),
        (v1::Region { lengths: vec![0, 20_000], ..sound() }, "0 bytes long"),
        (v1::Region { plain_bytes: 300_000, ..sound() }, "300000"),
    ];
    for (lie, words) in lies {
        let scene = Scene::new();
        let session = scene.session("web", &bytes);
        let stream = scene.engine.open_stream(session, 0).unwrap();
        let finish = Request::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() });
        let messages = [Request::Region(lie), finish];
        let error = messages.into_iter().find_map(|message| stream.handle(message, 1).err());
        let error = error.unwrap_or_else(|| panic!("{words}: it is taken"));
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
        drop(scene.engine.abort(session, "test"));
        scene.is_sound();
        let id = scene.backup("web", &bytes).backup_id;
        assert!(scene.restores(&id, &bytes), "the next, honest backup works");
    }
}

#[test]
fn a_sealed_namespace_lives_as_another() {
    let scene = Scene::new();
    let first = disk(1);
    let one = scene.backup("web", &first);
    assert!(scene.restores(&one.backup_id, &first));
    // A clone, by another agent with the same key, costs nothing; nor does what did not change.
    let clone = scene.backup("clone", &first).details.remove(0);
    assert_eq!((clone.new_bytes, clone.post_lc, clone.dup_bytes), (0, 0, clone.bytes), "{clone:?}");
    let mut second = first.clone();
    second[7 * MIB..7 * MIB + 100].fill(9);
    let later = scene.backup("web", &second);
    let row = &later.details[0];
    assert!(row.unchanged_bytes >= 4 * MIB as u64 && row.new_bytes < 300_000, "{row:?}");
    // The same bytes in a plain namespace are others.
    let plain = backup(&scene.engine, "web", &[("root", &first)]).unwrap();
    assert_eq!(plain.details[0].dup_bytes, 0);
    for name in scene.data() {
        let open = scene.open(name);
        let version = scene.volume.get(&name.blob()).unwrap()[4];
        let sealed = open.namespace() == scene.vault;
        assert_eq!((open.directory().is_sealed(), version), (sealed, if sealed { 2 } else { 1 }));
    }
    scene.is_sound();
    let scene = scene.reopened();
    assert!(scene.restores(&later.backup_id, &second) && scene.restores(&one.backup_id, &first));
    assert!(restore(&scene.engine, &plain.backup_id, "root").unwrap() == first);
    let verified = |backup: &str| {
        scene.engine.verify_backup(scene.vault, backup.parse().unwrap(), "test", &mut |_| true).unwrap()
    };
    let report = verified(&later.backup_id).unwrap();
    assert!(report.is_sound() && report.bytes > 8 * MIB as u64, "{report:?}");
    let range = scene.engine.read_range(scene.vault, one.backup_id.parse().unwrap(), "root", 0, 10);
    assert!(matches!(range, Err(EngineError::Sealed)), "{range:?}");
}

/// (N4)
#[test]
fn reclaim_keeps_sealed_regions_whole() {
    let scene = Scene::new();
    let first = noise(1, 12 * MIB);
    let gone = scene.backup("web", &first).backup_id;
    // A little of every region stays in use, and nothing of some.
    let mut second = noise(2, 12 * MIB);
    second[..4 * MIB].copy_from_slice(&first[..4 * MIB]);
    for at in (4 * MIB..8 * MIB).step_by(MIB) {
        second[at..at + 200_000].copy_from_slice(&first[at..at + 200_000]);
    }
    let kept = scene.backup("db", &second).backup_id;
    let stored = |scene: &Scene| -> u64 {
        scene.engine.catalog().all_containers().map(|row| row.unwrap().stored_bytes).sum()
    };
    let before = stored(&scene);
    scene.delete(&gone);
    let all = ReclaimOptions { live_share_pct: 100, ..ReclaimOptions::default() };
    let report = scene.reclaim(&all);
    let after = stored(&scene);
    assert!(
        report.containers_written > 0 && after + 4 * MIB as u64 <= before,
        "{before} to {after}: {report:?}"
    );
    assert!(scene.restores(&kept, &second));
    scene.is_sound();
    for name in scene.data() {
        let open = scene.open(name);
        for region in 0u16.. {
            let Some(record) = open.directory().region(region) else { break };
            assert_eq!(record.codec, Codec::Sealed);
        }
    }
    let again = scene.reclaim(&all);
    assert_eq!((again.containers_written, again.containers_deleted), (0, 0), "it is done once: {again:?}");
    let squeeze = Squeeze { level: 19, min_age_days: 0 };
    let squeezed = scene.reclaim(&ReclaimOptions { squeeze: Some(squeeze), ..ReclaimOptions::default() });
    assert_eq!(squeezed.squeezed_bytes_before, 0, "what agents sealed is not compressed again: {squeezed:?}");
    let scene = scene.reopened();
    assert!(scene.restores(&kept, &second));
}

#[test]
fn damage_of_sealed_regions_is_found_named_and_healed() {
    let scene = Scene::new();
    let disk = disk(5);
    let id = scene.backup("web", &disk).backup_id;
    let victim = scene.data().remove(0);
    let record = *scene.open(victim).directory().region(1).unwrap();
    let sound = scene.volume.get(&victim.blob()).unwrap().to_vec();
    let at = usize::try_from(record.payload_offset()).unwrap() + 50;
    let mut spoilt = sound.clone();
    spoilt[at] ^= 4;
    scene.volume.replace(&victim.blob(), spoilt);
    let scene = scene.reopened();
    let report = scene.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
    assert!(!report.is_sound());
    assert!(restore_in(&scene.engine, scene.vault, &id, "root").is_err());
    // The next backup sends what was lost again.
    let later = scene.backup("web", &disk);
    assert!(later.details[0].new_bytes > 0, "{:?}", later.details[0]);
    assert!(scene.restores(&id, &disk) && scene.restores(&later.backup_id, &disk));
}

/// (N1) Bytes that someone exchanged with care: every checksum of the format is right.
#[test]
fn damage_that_its_checksum_hides_is_found_by_the_commitment() {
    let scene = Scene::new();
    let disk = disk(9);
    let id = scene.backup("web", &disk).backup_id;
    let victim = scene.data().remove(0);
    let open = scene.open(victim);
    let mut bytes = scene.volume.get(&victim.blob()).unwrap().to_vec();
    let record = *open.directory().region(0).unwrap();
    bytes[usize::try_from(record.payload_offset()).unwrap() + 70] ^= 1;
    let end = usize::try_from(record.end()).unwrap();
    let start = usize::try_from(record.payload_offset()).unwrap();
    let payload_crc = crate::format::crc32c(&bytes[start..end]);
    let fitting = RegionRecord { payload_crc, ..record };
    bytes[record.offset as usize..start].copy_from_slice(&fitting.encode_header());
    // The directory's record, and its checksum.
    let directory = scene.volume.get(&victim.blob()).unwrap().len()
        - FOOTER_BYTES
        - directory_bytes(open.directory().region_count(), open.directory().chunk_count());
    bytes[directory + 24 + 12..directory + 24 + 16].copy_from_slice(&payload_crc.to_le_bytes());
    let crc = bytes.len() - FOOTER_BYTES - 8;
    let computed = crate::format::crc64(&bytes[directory..crc]);
    bytes[crc..crc + 8].copy_from_slice(&computed.to_le_bytes());
    scene.volume.replace(&victim.blob(), bytes);
    let scene = scene.reopened();
    let report = scene.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
    assert!(
        report.problems.iter().any(|problem| problem.what.contains("commitment")),
        "{:?}",
        report.problems
    );
    let later = scene.backup("web", &disk);
    assert!(later.details[0].new_bytes > 0, "it is sent again: {:?}", later.details[0]);
    assert!(scene.restores(&id, &disk));
}

#[test]
fn what_is_left_of_a_damaged_sealed_container_is_read_and_repaired() {
    type Spoil = (&'static str, fn(&mut Vec<u8>));
    let spoils: [Spoil; 3] = [
        ("header", |bytes| bytes[20] ^= 1),
        ("footer", |bytes| *bytes.last_mut().unwrap() ^= 1),
        ("directory's checksum", |bytes| {
            let end = bytes.len() - 33;
            bytes[end] ^= 1;
        }),
    ];
    for (what, spoil) in spoils {
        let scene = Scene::new();
        let disk = disk(6);
        let id = scene.backup("web", &disk).backup_id;
        scene.engine.shutdown().unwrap();
        let victim = scene.data().remove(0);
        let mut bytes = scene.volume.get(&victim.blob()).unwrap().to_vec();
        spoil(&mut bytes);
        scene.volume.replace(&victim.blob(), bytes);
        let Scene { bench, volume, engine, vault } = scene;
        drop(engine);
        let engine = bench.open(Arc::new(volume.clone()));
        let scene = Scene { bench, volume, engine, vault };
        let damaged =
            scene.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
        assert!(!damaged.is_sound(), "{what}");
        assert!(scene.restores(&id, &disk), "{what}: read past it");
        let repaired = scene.engine.repair(&crate::NoProgress).unwrap();
        assert!(repaired.iter().all(|one| one.complete) && repaired.len() == 1, "{what}: {repaired:?}");
        assert!(scene.restores(&id, &disk), "{what}");
        scene.is_sound();
    }
}

/// (N3) Only agents can say that a digest of data that they sealed is false.
#[test]
fn agents_are_believed_about_digests_of_what_they_sealed() {
    let scene = Scene::new();
    let disk = noise(8, 2 * EXTENT_BYTES as usize);
    let lie = |index, digest| if index == 1 { Fingerprint::of(b"another") } else { digest };
    let session = scene.session("web", &disk);
    let stream = scene.engine.open_stream(session, 0).unwrap();
    send_disk_claiming(&scene.engine, session, &stream, (0, &disk), lie).unwrap();
    let id = scene.engine.commit(session).unwrap().backup_id.parse().unwrap();
    scene.is_sound();
    let report = [("root".to_owned(), 1)];
    assert_eq!(scene.engine.confirm_false_digests(scene.vault, id, &report, "agent").unwrap(), 1);
    let session = scene.session("web", &disk);
    let digests = scene.engine.parent_digests(session, 0, 0).unwrap().unwrap().digests;
    let offered: Vec<Fingerprint> = Fingerprint::split_list(&digests).unwrap().collect();
    assert_eq!(offered[1], Fingerprint::UNKNOWN, "it is read anew");
    assert_ne!(offered[0], Fingerprint::UNKNOWN);
}
