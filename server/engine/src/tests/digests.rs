//! Extent digests: a lie is refused where it can be seen, and found and healed where it could not.

use std::sync::Arc;

use holdfast_catalog::PageRequest;
use holdfast_proto::limits::{EXTENT_BYTES, FALSE_DIGESTS_MAX};
use holdfast_proto::{ErrorCode, Fingerprint, v1};
use holdfast_types::ids::{BackupId, SessionId};
use holdfast_volume::MemoryVolume;
use v1::ingest_request::Kind as Request;

use super::agent::{backup, request, restore, send_disk, send_disk_claiming, start_as, starter};
use super::{Bench, namespace, noise};
use crate::check::CheckOptions;
use crate::core::DigestStats;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::Committed;
use crate::jobs::NoProgress;

const EXTENT: usize = EXTENT_BYTES as usize;
const DAY_MS: i64 = 86_400_000;

/// The present contents of the VM's disk.
fn honest_disk() -> Vec<u8> {
    noise(1, 2 * EXTENT + 77)
}

/// Backs up `bytes` as VM web with a stolen token of its owner, and says that they hash to what `truth` hashes to.
fn lie(engine: &Engine, bytes: &[u8], truth: &[u8]) -> Result<Committed, EngineError> {
    let started = start_as(engine, request("web", &[("root", bytes)]), starter(2))?;
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0)?;
    let digests: Vec<Fingerprint> = truth.chunks(EXTENT).map(Fingerprint::of).collect();
    let sent = send_disk_claiming(engine, session, &stream, (0, bytes), |index, _| {
        digests[usize::try_from(index).unwrap()]
    });
    if let Err(error) = sent {
        engine.abort(session, "test")?;
        return Err(error);
    }
    engine.commit(session)
}

/// A repository in which the latest backup of web holds other bytes than it says: the chunks were there already,
/// so the server did not see all of them. Returns the lying backup.
fn poisoned(engine: &Engine) -> BackupId {
    let evil = noise(2, 2 * EXTENT + 77);
    backup(engine, "web", &[("root", &honest_disk())]).unwrap();
    backup(engine, "decoy", &[("root", &evil)]).unwrap();
    let lied = lie(engine, &evil, &honest_disk()).unwrap();
    lied.backup_id.parse().unwrap()
}

fn restored(engine: &Engine, backup: &Committed) -> Vec<u8> {
    restore(engine, &backup.backup_id, "root").unwrap()
}

fn next_backup(engine: &Engine) -> Committed {
    backup(engine, "web", &[("root", &honest_disk())]).unwrap()
}

fn reported(extents: std::ops::Range<u64>) -> Vec<(String, u64)> {
    extents.map(|index| ("root".to_owned(), index)).collect()
}

#[test]
fn a_lie_about_bytes_that_were_just_sent_ends_the_backup() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let first = next_backup(&engine);
    let proved = engine.stats().unwrap().digests.proved;
    assert_eq!(proved, 3, "every extent of a first backup is proved");
    let error = lie(&engine, &noise(2, 2 * EXTENT + 77), &honest_disk()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    for words in ["root", "extent 0", &Fingerprint::of(&honest_disk()[..EXTENT]).to_string()] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    assert_eq!(engine.stats().unwrap().digests.refused, 1);
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    let entry = log.iter().find(|record| record.entry.action == "backup.false-digest").unwrap();
    assert!(entry.entry.who == "agent-2" && entry.entry.detail.contains("web"), "{entry:?}");
    let next = next_backup(&engine);
    assert_eq!(next.details[0].unchanged_bytes, first.details[0].bytes);
    assert!(restored(&engine, &next) == honest_disk());
}

#[test]
fn holes_and_repeated_chunks_are_proved_too() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut disk = noise(1, 3 * EXTENT);
    disk[100_000..900_000].fill(0);
    disk.copy_within(1_000_000..2_000_000, 2_500_000);
    disk[EXTENT - 200_000..EXTENT + 300_000].fill(0);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let stats = engine.stats().unwrap().digests;
    assert_eq!((stats.proved, stats.refused), (3, 0), "{stats:?}");
    // The chunks of the extent are known, so that nothing is at hand.
    backup(&engine, "copy", &[("root", &disk)]).unwrap();
    let stats = engine.stats().unwrap().digests;
    assert_eq!(stats, DigestStats { proved: 3, unproved: 3, ..DigestStats::default() });
}

#[test]
fn a_digest_that_means_zeros_is_refused_for_data() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = honest_disk();
    let started = start_as(&engine, request("web", &[("root", &disk)]), starter(2)).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let error = send_disk_claiming(&engine, session, &stream, (0, &disk), |_, _| Fingerprint::ZERO);
    assert!(error.unwrap_err().to_string().contains("reserved for zeros"));
}

/// The effect of the attack as long as digests are not checked: the reason for the rest of this file.
#[test]
fn a_lie_about_known_chunks_makes_the_next_agent_skip() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    poisoned(&engine);
    let next = next_backup(&engine);
    assert_eq!(next.details[0].unchanged_bytes, next.details[0].bytes, "the honest agent sends nothing");
    assert!(restored(&engine, &next) == noise(2, 2 * EXTENT + 77), "and the intruder's bytes come back");
}

/// (R6) The agent was offered the digests, and reads while another finds out that they are false.
#[test]
fn a_digest_found_false_after_it_was_offered_is_not_taken_over() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let lied = poisoned(&engine);
    let disk = honest_disk();
    let started = start_as(&engine, request("web", &[("root", &disk)]), starter(1)).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let offered = engine.parent_digests(session, 0, 0).unwrap().unwrap();
    assert_eq!(offered.digests[..32], Fingerprint::of(&disk[..EXTENT]).as_bytes()[..]);
    engine.confirm_false_digests(namespace(&engine), lied, &reported(1..2), "agent-1").unwrap();
    let range = |first, count| v1::Extents {
        unchanged: vec![v1::ExtentRange { first, count }],
        ..v1::Extents::default()
    };
    stream.handle(Request::Extents(range(0, 1)), 10).unwrap();
    let error = stream.handle(Request::Extents(range(1, 2)), 10).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SessionGone, "{error}");
    for words in ["extent 1", "found false", "start the backup again"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    engine.abort(session, "test").unwrap();
    let partly = next_backup(&engine);
    assert_eq!(partly.details[0].bytes - partly.details[0].unchanged_bytes, EXTENT as u64, "sent again");
}

#[test]
fn a_confirmed_report_heals_the_next_backup() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let lied = poisoned(&engine);
    let inherited = next_backup(&engine).backup_id.parse().unwrap();
    let confirm = |backup, extents| {
        engine.confirm_false_digests(namespace(&engine), backup, &reported(extents), "agent-1").unwrap()
    };
    assert_eq!(confirm(lied, 0..1), 1);
    let partly = next_backup(&engine);
    assert_eq!(
        partly.details[0].bytes - partly.details[0].unchanged_bytes,
        EXTENT as u64,
        "one is read anew"
    );
    assert_eq!(confirm(inherited, 0..3), 3, "the same lies in a backup that took them over");
    assert_eq!(engine.stats().unwrap().digests.found_false, 4);
    let healed = next_backup(&engine);
    assert!(restored(&engine, &healed) == honest_disk());
    assert_eq!(next_backup(&engine).details[0].unchanged_bytes, healed.details[0].bytes, "and stays so");
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    assert!(log.iter().any(|record| record.entry.action == "digest.false" && record.entry.who == "agent-1"));
}

#[test]
fn a_report_that_is_not_true_changes_nothing() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let first = next_backup(&engine);
    let backup: BackupId = first.backup_id.parse().unwrap();
    let confirm = |extents: Vec<(String, u64)>| {
        engine.confirm_false_digests(namespace(&engine), backup, &extents, "agent-2")
    };
    assert_eq!(confirm(reported(0..3)).unwrap(), 0);
    assert_eq!(confirm(reported(1 << 40..(1 << 40) + 1)).unwrap(), 0, "past the end");
    assert!(matches!(confirm(vec![("x".into(), 0)]), Err(EngineError::NotFound { what: "disk", .. })));
    let many = reported(0..FALSE_DIGESTS_MAX as u64 + 1);
    assert_eq!(confirm(many).unwrap_err().code(), ErrorCode::Invalid);
    assert_eq!(next_backup(&engine).details[0].unchanged_bytes, first.details[0].bytes);
}

#[test]
fn a_check_that_reads_finds_lies_and_the_next_backup_heals() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    poisoned(&engine);
    let check = |read_data| engine.check(CheckOptions { read_data }, &NoProgress).unwrap();
    assert!(check(false).is_sound(), "only reading tells");
    let report = check(true);
    assert_eq!(report.code(), Some(ErrorCode::Damaged));
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    let problem = &report.problems[0];
    assert!(problem.object.contains("web") && problem.what.contains("3 extents"), "{problem:?}");
    let healed = next_backup(&engine);
    assert_eq!(healed.details[0].unchanged_bytes, 0);
    assert!(restored(&engine, &healed) == honest_disk());
}

#[test]
fn within_thirty_days_every_lie_is_gone_by_itself() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    poisoned(&engine);
    let mut reread = 0;
    for _ in 0..30 {
        bench.clock.advance_ms(DAY_MS);
        for _ in 0..2 {
            let details = next_backup(&engine).details.remove(0);
            reread += details.bytes - details.unchanged_bytes;
        }
    }
    assert!(restored(&engine, &next_backup(&engine)) == honest_disk());
    assert_eq!(reread, honest_disk().len() as u64, "each extent once, however many backups there are");
}

#[test]
fn an_agent_is_told_which_extents_are_due() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    next_backup(&engine);
    bench.clock.advance_ms(3 * DAY_MS);
    let disk = honest_disk();
    let started = start_as(&engine, request("web", &[("root", &disk)]), starter(1)).unwrap();
    let told = started.parents[0].reread.unwrap();
    assert_eq!((told.cycle_days, told.days), (30, 3));
    let due = holdfast_proto::reread::Reread::from_wire(&told).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let block = engine.parent_digests(session, 0, 0).unwrap().unwrap();
    for (index, digest) in (0..).zip(Fingerprint::split_list(&block.digests).unwrap()) {
        assert_eq!(digest == Fingerprint::UNKNOWN, due.is_due(index), "extent {index}");
    }
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    engine.commit(session).unwrap();
}

#[test]
fn an_extent_described_late_is_unproved_and_not_refused() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    // Regions of both extents first, then what they are: the first extent's are not at hand any more.
    let disk = noise(1, 4 * EXTENT);
    let started = start_as(&engine, request("web", &[("root", &disk)]), starter(1)).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let mut encoder = holdfast_proto::region::Encoder::new(1).unwrap();
    let mut extents = v1::Extents::default();
    for (index, extent) in (0..).zip(disk.chunks(EXTENT)) {
        let chunks: Vec<_> = extent.chunks(32 << 10).map(|chunk| (Fingerprint::of(chunk), chunk)).collect();
        for region in chunks.chunks(8) {
            let region = super::agent::region(region, &mut encoder);
            stream.handle(Request::Region(region), 1).unwrap();
        }
        extents.chunked.push(v1::ChunkedExtent {
            index,
            digest: Fingerprint::of(extent).as_bytes().to_vec().into(),
            fingerprints: chunks.iter().flat_map(|(name, _)| *name.as_bytes()).collect::<Vec<u8>>().into(),
            lengths: vec![32 << 10; chunks.len()],
        });
    }
    stream.handle(Request::Extents(extents), 1).unwrap();
    stream
        .handle(Request::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() }), 1)
        .unwrap();
    let committed = engine.commit(session).unwrap();
    assert!(restored(&engine, &committed) == disk);
    let stats = engine.stats().unwrap().digests;
    assert_eq!((stats.proved, stats.unproved, stats.refused), (1, 3, 0), "{stats:?}");
}
