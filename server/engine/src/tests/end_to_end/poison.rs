//! Agents that send something false under names of chunks, or say that others did.

use holdfast_proto::limits::{FALSE_CHUNKS_MAX, REPORTED_REGIONS_MAX};
use std::collections::BTreeSet;

use holdfast_catalog::ContainerRecord;
use holdfast_proto::region::Decoder;
use holdfast_proto::region::sealed::{self, Commitment};
use holdfast_types::ids::ContainerId;
use v1::ingest_response::Kind as Response;

use super::super::agent::opened;
use super::*;
use crate::ingest::DiskStream;
use crate::reports::FalseChunk;
use crate::rewrite::{Rewriter, record_of, verified};
use crate::space::Purpose;

/// The disk as an agent with the key reads it that passes these regions over, and what of it is false.
fn read_in(
    engine: &Engine,
    (namespace, backup): (NamespaceId, &str),
    passed_over: &BTreeSet<Commitment>,
) -> Result<(Vec<u8>, Vec<FalseChunk>), EngineError> {
    use v1::read_disk_response::Kind;
    let (mut image, mut found) = (Vec::new(), Vec::new());
    let mut window = v1::Window::default();
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    let reader = engine.read_disk(namespace, backup.parse().unwrap(), "root", 0, 0)?;
    for message in reader.passing_over(passed_over.clone()) {
        let batch = match message?.kind.unwrap() {
            Kind::Window(next) => {
                chunks = vec![Vec::new(); next.lengths.len()];
                window = next;
                continue;
            }
            Kind::Regions(batch) => batch,
            Kind::WindowEnd(_) => {
                let refs = window.extents.iter().flat_map(|extent| &extent.refs);
                refs.for_each(|chunk| image.extend(&chunks[*chunk as usize - 1]));
                continue;
            }
            _ => continue,
        };
        let names: Vec<Fingerprint> = Fingerprint::split_list(&window.fingerprints).unwrap().collect();
        for region in &batch.regions {
            let (plain, how) = opened(region);
            for (&chunk, &offset) in region.chunks.iter().zip(&region.offsets) {
                let bytes = &plain[offset as usize..(offset + window.lengths[chunk as usize]) as usize];
                chunks[chunk as usize] = bytes.to_vec();
                if how.of_chunk(bytes) == names[chunk as usize] {
                    continue;
                }
                let extents = (window.first_extent..).zip(&window.extents);
                let (extent, _) =
                    extents.into_iter().find(|(_, extent)| extent.refs.contains(&(chunk + 1))).unwrap();
                found.push(FalseChunk {
                    disk: "root".to_owned(),
                    extent,
                    fingerprint: names[chunk as usize],
                    commitment: *sealed::commitment_of(&region.payload).unwrap(),
                });
            }
        }
    }
    Ok((image, found))
}

fn finish(stream: &DiskStream) -> Response {
    let finish = Request::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() });
    stream.handle(finish, 1).unwrap().unwrap().kind.unwrap()
}

/// One extent of these chunks.
fn extent(chunks: &[(Fingerprint, &[u8])]) -> Request {
    let names: Vec<u8> = chunks.iter().flat_map(|(name, _)| *name.as_bytes()).collect();
    let lengths = chunks.iter().map(|(_, bytes)| u32::try_from(bytes.len()).unwrap()).collect();
    let digest = Fingerprint::UNKNOWN.as_bytes().to_vec().into();
    let extent = v1::ChunkedExtent { index: 0, digest, fingerprints: names.into(), lengths };
    Request::Extents(v1::Extents { chunked: vec![extent], ..v1::Extents::default() })
}

fn sealed_region(chunks: &[(Fingerprint, &[u8])]) -> Request {
    Request::Region(Names::Sealed.region(chunks, &mut Encoder::new(3).unwrap()))
}

impl Scene {
    /// Backs up one extent of these chunks, each of which may be anything, whether or not it was asked for.
    fn send(&self, vm: &str, chunks: &[(Fingerprint, &[u8])]) -> Committed {
        let bytes: Vec<u8> = chunks.iter().flat_map(|(_, bytes)| bytes.to_vec()).collect();
        let session = self.session(vm, &bytes);
        let stream = self.engine.open_stream(session, 0).unwrap();
        stream.handle(sealed_region(chunks), 1).unwrap();
        stream.handle(extent(chunks), 1).unwrap();
        assert!(matches!(finish(&stream), Response::Finished(_)));
        self.engine.commit(session).unwrap()
    }

    fn verify(&self, backup: &str) -> Vec<FalseChunk> {
        read_in(&self.engine, (self.vault, backup), &BTreeSet::new()).unwrap().1
    }

    /// As agents restore: what does not open is passed over until nothing more is offered.
    fn restores_past(&self, backup: &str, disk: &[u8]) -> bool {
        let mut passed_over = BTreeSet::new();
        loop {
            let (image, found) = read_in(&self.engine, (self.vault, backup), &passed_over).unwrap();
            if found.is_empty() {
                return image == disk;
            }
            let before = passed_over.len();
            passed_over.extend(found.iter().map(|chunk| chunk.commitment));
            if passed_over.len() == before {
                return false;
            }
        }
    }

    /// A report of the region that the first chunk of a disk lies in, in this container.
    fn slander(&self, name: ContainerName, fingerprint: Fingerprint) -> FalseChunk {
        let open = self.open(name);
        let (region, _) = open.directory().locate(&fingerprint).unwrap();
        let payload = open.read_region(region).unwrap().payload;
        let commitment = *sealed::commitment_of(&payload).unwrap();
        FalseChunk { disk: "root".to_owned(), extent: 0, fingerprint, commitment }
    }

    fn report(&self, backup: &str, found: &[FalseChunk]) -> Result<u32, EngineError> {
        self.engine.note_false_chunks(self.vault, backup.parse().unwrap(), found, "agent-1")
    }

    fn damaged_bytes(&self, backup: &str) -> u64 {
        let lost = self.engine.name_damage(100).unwrap();
        let of_it = lost.iter().filter(|disk| disk.backup.to_string() == backup);
        of_it.map(|disk| disk.lost.bytes).sum()
    }

    fn settle(&self) {
        let (core, _) = self.engine.parts();
        for (container, region) in core.store.reported() {
            core.store.settle_report(container, region).unwrap();
        }
    }
}

/// The name of `bytes`, and other bytes of the same length.
fn lie(bytes: &[u8]) -> (Fingerprint, Vec<u8>) {
    (Names::Sealed.of_chunk(bytes), noise(77, bytes.len()))
}

/// (N5) Neither with the key nor without it.
#[test]
fn what_is_there_is_not_replaced() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let id = scene.backup("web", &disk).backup_id;
    let before = scene.data();
    let (name, false_bytes) = lie(&disk);
    let sent = scene.send("intruder", &[(name, &false_bytes)]).details.remove(0);
    assert_eq!((sent.new_bytes, sent.dup_bytes, sent.post_lc), (0, 20_000, 0), "{sent:?}");
    assert_eq!(scene.data(), before, "nothing of it is stored");
    let scene = scene.reopened();
    assert!(scene.restores(&id, &disk));
    scene.is_sound();
}

/// (N5) As when another backup brought a chunk meanwhile.
#[test]
fn what_a_region_lacks_that_is_not_taken_is_asked_for_again() {
    let scene = Scene::new();
    let (known, fresh) = (noise(1, 20_000), noise(2, 30_000));
    scene.backup("web", &known);
    let names = Names::Sealed;
    let chunks = [(names.of_chunk(&known), &known[..]), (names.of_chunk(&fresh), &fresh[..])];
    let bytes = [&known[..], &fresh].concat();
    let session = scene.session("db", &bytes);
    let stream = scene.engine.open_stream(session, 0).unwrap().taking_pending(true);
    stream.handle(sealed_region(&chunks), 1).unwrap();
    stream.handle(extent(&chunks), 1).unwrap();
    let Response::Again(again) = finish(&stream) else { panic!("nothing is asked for again") };
    assert_eq!(again.extents.len(), 1);
    assert_eq!(again.extents[0].fingerprints, chunks[1].0.as_bytes().to_vec(), "what is there is not");
    stream.handle(sealed_region(&chunks[1..]), 1).unwrap();
    assert!(matches!(finish(&stream), Response::Finished(_)));
    let made = scene.engine.commit(session).unwrap();
    assert_eq!((made.details[0].dup_bytes, made.details[0].new_bytes), (20_000, 30_000));
    assert!(scene.restores(&made.backup_id, &bytes));
    scene.is_sound();
}

/// (C7) Another backup brought some of what the agent was asked for before it came: the region is not taken (N5), and what is
/// lacking of it is asked for once more.
#[test]
fn what_was_asked_again_and_not_taken_is_asked_once_more() {
    let scene = Scene::new();
    let (first, second) = (noise(1, 20_000), noise(2, 30_000));
    let names = Names::Sealed;
    let chunks = [(names.of_chunk(&first), &first[..]), (names.of_chunk(&second), &second[..])];
    let bytes = [&first[..], &second].concat();
    let session = scene.session("db", &bytes);
    let stream = scene.engine.open_stream(session, 0).unwrap().taking_pending(true);
    stream.handle(extent(&chunks), 1).unwrap();
    let Response::Again(again) = finish(&stream) else { panic!("nothing is asked for again") };
    assert_eq!(again.extents[0].fingerprints.len(), 64, "both");
    scene.backup("web", &first);
    stream.handle(sealed_region(&chunks), 1).unwrap();
    let Response::Again(again) = finish(&stream) else { panic!("nothing is asked for again") };
    assert_eq!(again.extents[0].fingerprints, chunks[1].0.as_bytes().to_vec(), "what is there is not");
    stream.handle(sealed_region(&chunks[1..]), 1).unwrap();
    assert!(matches!(finish(&stream), Response::Finished(_)));
    let made = scene.engine.commit(session).unwrap();
    assert_eq!((made.details[0].dup_bytes, made.details[0].new_bytes), (20_000, 30_000));
    assert!(scene.restores(&made.backup_id, &bytes));
    scene.is_sound();
}

/// (C7) An agent that sends the same again and again is not asked for ever.
#[test]
fn what_was_asked_again_and_sent_with_what_was_there_before_is_not_asked_once_more() {
    let scene = Scene::new();
    let (known, fresh) = (noise(1, 20_000), noise(2, 30_000));
    scene.backup("web", &known);
    let names = Names::Sealed;
    let chunks = [(names.of_chunk(&known), &known[..]), (names.of_chunk(&fresh), &fresh[..])];
    let bytes = [&known[..], &fresh].concat();
    let session = scene.session("db", &bytes);
    let stream = scene.engine.open_stream(session, 0).unwrap().taking_pending(true);
    stream.handle(extent(&chunks), 1).unwrap();
    assert!(matches!(finish(&stream), Response::Again(_)));
    stream.handle(sealed_region(&chunks), 1).unwrap();
    let finish = Request::Finish(v1::FinishStream { read_bytes: 1, ..v1::FinishStream::default() });
    let error = stream.handle(finish, 1).unwrap_err();
    assert!(error.to_string().contains("asked for again"), "{error}");
}

/// (N6)
#[test]
fn a_poisoned_chunk_is_sent_again_once_an_agent_says_so() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let (name, false_bytes) = lie(&disk);
    scene.send("liar", &[(name, &false_bytes)]);
    // An agent that needs the poisoned chunk is not asked for it.
    let victim = scene.backup("web", &disk);
    assert_eq!(victim.details[0].new_bytes, 0, "{:?}", victim.details[0]);
    let id = victim.backup_id;
    // The server cannot see it.
    scene.is_sound();
    let found = scene.verify(&id);
    assert_eq!((found.len(), found[0].fingerprint), (1, name));
    assert_eq!(scene.report(&id, &found).unwrap(), 1);
    assert_eq!(scene.report(&id, &found).unwrap(), 0, "it is known");
    // The report is remembered, and is no damage.
    let scene = scene.reopened();
    scene.is_sound();
    assert_eq!(scene.damaged_bytes(&id), 0);
    assert_eq!(scene.engine.parts().0.store.reported_count(scene.vault), 1);
    // The next backup sends it again, and everything is whole.
    let later = scene.backup("web", &disk);
    assert_eq!(later.details[0].new_bytes, 20_000, "{:?}", later.details[0]);
    scene.settle();
    let scene = scene.reopened();
    for id in [&id, &later.backup_id] {
        assert!(scene.restores(id, &disk));
        assert_eq!((scene.verify(id), scene.damaged_bytes(id)), (vec![], 0));
    }
    assert_eq!(scene.engine.parts().0.store.reported_count(scene.vault), 0, "it was sent again");
    scene.is_sound();
    let told = scene.engine.catalog().list_audit(holdfast_catalog::PageRequest::FIRST).unwrap().items;
    assert!(told.iter().any(|entry| entry.entry.action == "chunk.reported"), "{told:?}");
}

/// (N6) A report may be a lie.
#[test]
fn a_false_report_costs_no_data() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let id = scene.backup("web", &disk).backup_id;
    let (gone, kept) = (scene.backup("gone", &noise(3, 20_000)).backup_id, scene.data());
    let slander = scene.slander(kept[0], Names::Sealed.of_chunk(&disk));
    assert_eq!(scene.report(&id, std::slice::from_ref(&slander)).unwrap(), 1);
    assert!(scene.restores(&id, &disk), "what is there is read all the same");
    let scene = scene.reopened();
    scene.delete(&gone);
    let all = ReclaimOptions { live_share_pct: 100, ..ReclaimOptions::default() };
    scene.reclaim(&all);
    scene.engine.repair(&crate::NoProgress).unwrap();
    assert!(scene.restores(&id, &disk));
    // Once it was sent again, the report has nothing left to be about.
    let other = noise(4, 10_000);
    let names = Names::Sealed;
    let chunks = [(names.of_chunk(&disk), &disk[..]), (names.of_chunk(&other), &other[..])];
    let later = scene.send("web", &chunks);
    assert_eq!(later.details[0].new_bytes, 30_000, "{:?}", later.details[0]);
    scene.settle();
    assert_eq!(scene.report(&id, &[slander]).unwrap(), 1, "of the old copy");
    let again = scene.backup("web", &disk);
    assert_eq!((again.details[0].new_bytes, scene.damaged_bytes(&id)), (0, 0));
    scene.reclaim(&all);
    assert!(scene.restores(&id, &disk) && scene.restores(&again.backup_id, &disk));
}

/// (N6) Chunks that are written anew count again, so reported ones are not rewritten.
#[test]
fn what_was_reported_is_not_repaired() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let (name, false_bytes) = lie(&disk);
    scene.send("liar", &[(name, &false_bytes)]);
    let id = scene.backup("web", &disk).backup_id;
    assert_eq!(scene.report(&id, &scene.verify(&id)).unwrap(), 1);
    // The container loses its header, so that a repair writes what it can read of it anew.
    let victim = scene.data().remove(0);
    let mut bytes = scene.volume.get(&victim.blob()).unwrap().to_vec();
    bytes[20] ^= 1;
    scene.volume.replace(&victim.blob(), bytes);
    let scene = scene.reopened();
    scene.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
    let repaired = scene.engine.repair(&crate::NoProgress).unwrap();
    assert!(repaired.iter().all(|one| !one.complete && one.rewritten == 0), "{repaired:?}");
    assert!(scene.data().contains(&victim), "and stays");
    let later = scene.backup("web", &disk);
    assert_eq!(later.details[0].new_bytes, 20_000, "{:?}", later.details[0]);
    assert!(scene.restores(&id, &disk));
}

#[test]
fn reports_are_bounded_and_about_what_they_name() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let id = scene.backup("web", &disk).backup_id;
    let name = Names::Sealed.of_chunk(&disk);
    let chunk = |extent, fingerprint, commitment| FalseChunk {
        disk: "root".to_owned(),
        extent,
        fingerprint,
        commitment,
    };
    assert_eq!(scene.report(&id, &[chunk(0, name, [9; 32])]).unwrap(), 0, "what is stored is not that");
    for wrong in [
        chunk(1, name, [9; 32]),
        chunk(0, Fingerprint::of(b"x"), [9; 32]),
        chunk(0, Fingerprint::ZERO, [9; 32]),
    ] {
        let error = scene.report(&id, &[wrong]).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    }
    let other = FalseChunk { disk: "other".to_owned(), ..chunk(0, name, [9; 32]) };
    assert_eq!(scene.report(&id, &[other]).unwrap_err().code(), ErrorCode::NotFound);
    let many = vec![chunk(0, name, [9; 32]); FALSE_CHUNKS_MAX + 1];
    assert_eq!(scene.report(&id, &many).unwrap_err().code(), ErrorCode::Invalid);
    let plain = backup(&scene.engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let elsewhere = scene.engine.note_false_chunks(
        super::super::namespace(&scene.engine),
        plain.parse().unwrap(),
        &[chunk(0, Fingerprint::of(&disk), [9; 32])],
        "agent-1",
    );
    assert_eq!(elsewhere.unwrap_err().code(), ErrorCode::Invalid);
    scene.is_sound();
    // The maximum number of reports.
    let (core, _) = scene.engine.parts();
    let number = scene.data().remove(0).id;
    let record = core.catalog.container(number).unwrap().unwrap();
    for id in (0..4).map(|one| ContainerId::new(1000 + one).unwrap()) {
        core.catalog.add_containers(&[ContainerRecord { id, ..record.clone() }]).unwrap();
        for region in 0..u16::try_from(REPORTED_REGIONS_MAX / 4).unwrap() {
            core.store.note_report(scene.vault, id, region).unwrap();
        }
    }
    let error = scene.report(&id, &[chunk(0, name, [9; 32])]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Limit, "{error}");
}

/// (N6, N7, N8) A token of another owner, without the key, reports sound chunks and sends noise under their name.
#[test]
fn noise_under_the_name_of_what_was_reported_destroys_nothing() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let (name, noise_of_it) = lie(&disk);
    let id = scene.backup("web", &disk).backup_id;
    let until = scene.engine.parts().0.clock.now_ms() + 86_400_000;
    scene.engine.lock_backups(&[id.parse().unwrap()], until, "test").unwrap();
    // Its own restore point names the chunk, which it need not have.
    let own = scene.send("intruder", &[(name, &noise_of_it)]).backup_id;
    let sound = scene.slander(scene.data()[0], name);
    assert_eq!(scene.report(&own, std::slice::from_ref(&sound)).unwrap(), 1);
    let sent = scene.send("intruder", &[(name, &noise_of_it)]);
    assert_eq!(sent.details[0].new_bytes, 20_000, "{:?}", sent.details[0]);
    assert!(scene.restores_past(&id, &disk), "before reclaim");
    let all = ReclaimOptions { live_share_pct: 100, ..ReclaimOptions::default() };
    let mut scene = scene;
    for _ in 0..3 {
        scene.settle();
        scene.reclaim(&all);
        scene.engine.repair(&crate::NoProgress).unwrap();
        assert!(scene.restores_past(&id, &disk), "after reclaim");
        scene = scene.reopened();
        scene.is_sound();
    }
    // Also with all of the intruder's gone, and reported in turn.
    let noisy = *scene.data().last().unwrap();
    assert_eq!(scene.report(&id, &[scene.slander(noisy, name), sound]).unwrap(), 2);
    scene.delete(&own);
    scene.delete(&sent.backup_id);
    scene.reclaim(&all);
    assert!(scene.restores_past(&id, &disk), "with both copies reported");
    // The next backup sends it again. These agents seal alike, so two of the copies are the same.
    let later = scene.backup("web", &disk);
    assert_eq!(later.details[0].new_bytes, 20_000, "{:?}", later.details[0]);
    scene.settle();
    scene.reclaim(&all);
    for id in [&id, &later.backup_id] {
        assert!(scene.restores_past(id, &disk));
    }
    assert_eq!(scene.data().len(), 2);
}

/// (N7) As reclaim leaves them when it ends between copying and condemning.
#[test]
fn of_two_copies_of_the_same_bytes_one_stays() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let id = scene.backup("web", &disk).backup_id;
    let (core, _) = scene.engine.parts();
    let open = scene.open(scene.data()[0]);
    let mut output = Rewriter::new(core, scene.vault, ContainerClass::Data, Purpose::Reclaim);
    let stored = open.read_region(0).unwrap();
    output.append(&verified(&open, stored, &mut Decoder::new().unwrap()).unwrap().0).unwrap();
    core.catalog.add_containers(&[record_of(&output.seal().unwrap().unwrap())]).unwrap();
    assert_eq!(scene.data().len(), 2);
    scene.reclaim(&ReclaimOptions::default());
    assert_eq!(scene.data().len(), 1);
    assert!(scene.restores(&id, &disk));
    scene.is_sound();
}

/// (N5, I4) A chunk whose only entry is in an unreadable page of the index is there.
#[test]
fn a_page_that_cannot_be_read_lets_no_second_copy_in() {
    let scene = Scene::new();
    let disk = noise(1, 20_000);
    let (name, noise_of_it) = lie(&disk);
    let id = scene.backup("web", &disk).backup_id;
    scene.engine.core_index_checkpoint().unwrap();
    let before = scene.data();
    let Scene { bench, volume, engine, vault } = scene;
    engine.shutdown().unwrap();
    drop(engine);
    super::super::index_pages::spoil(&volume, usize::MAX);
    let engine = bench.open(Arc::new(volume.clone()));
    let scene = Scene { bench, volume, engine, vault };
    let sent = scene.send("intruder", &[(name, &noise_of_it)]);
    assert_eq!((sent.details[0].new_bytes, scene.data()), (0, before), "{:?}", sent.details[0]);
    assert!(scene.restores(&id, &disk));
}
