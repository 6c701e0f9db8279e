//! Promises that are not kept: by an agent that gives up, goes away, is silent or lies, and by a disk that fails.

use std::sync::Arc;

use holdfast_catalog::{DetailFilter, PageRequest, RowStatus};
use holdfast_proto::{ErrorCode, v1};
use holdfast_types::ids::ContainerClass;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use v1::ingest_request::Kind as Request;

use super::agent::{Agent, Next, describe, image, name};
use super::{arrive, assert_empty, copies};
use crate::engine::Engine;
use crate::tests::Bench;
use crate::tests::agent::restore;

type Disk = Arc<FaultyVolume<MemoryVolume>>;

fn scene() -> (Bench, Disk, Engine) {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    (bench, volume, engine)
}

/// An agent that has described all of `extents` and waits for the answer to Finish.
fn waiting<'a>(engine: &'a Engine, vm: &str, extents: &[Vec<u64>]) -> Agent<'a> {
    let mut agent = Agent::start(engine, vm, extents);
    agent.until(&Next::Finish);
    agent.step().unwrap();
    assert_eq!(agent.next.front(), Some(&Next::Wait), "{vm}");
    agent
}

/// Asserts that this agent sent all chunks, after it was asked again for all of them.
fn assert_brought(engine: &Engine, mut agent: Agent<'_>, chunks: &[u64]) {
    agent.until(&Next::Done);
    assert_eq!(agent.again, sorted(chunks));
    let done = agent.done.clone().unwrap();
    let row = &done.details[0];
    assert_eq!((row.new_chunks, row.dup_bytes), (chunks.len() as u64, 0));
    assert!(row.new_bytes == row.bytes && row.bytes > 0 && row.post_lc > 0, "{row:?}");
    assert!(restore(engine, &done.backup_id, "root").unwrap() == image(&agent.extents));
}

#[test]
fn what_has_arrived_outlives_its_session() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.until(&Next::Describe(0));
    arrive(&engine, &first, 2);
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.until(&Next::Finish);
    engine.abort(first.session, "on purpose").unwrap();
    second.until(&Next::Commit);
    assert!(second.again.is_empty());
    // It is what a failed session left, and held by who found something in it.
    assert_eq!(engine.parts().0.store.leftovers.condemn(), []);
    second.until(&Next::Done);
    let done = second.done.unwrap();
    assert_eq!((done.details[0].new_chunks, done.details[0].post_lc), (0, 0));
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == image(&[vec![1, 2]]));
    let rows = engine.catalog().details(&DetailFilter::default(), PageRequest::default()).unwrap().items;
    let failed = rows.iter().find(|row| row.status == RowStatus::Aborted).unwrap();
    assert!(failed.post_lc > 0, "who brought it paid");
    // A container that no stream waits for is not sealed.
    let mut third = Agent::start(&engine, "third", &[vec![3]]);
    third.until(&Next::Describe(0));
    arrive(&engine, &third, 1);
    engine.abort(third.session, "on purpose").unwrap();
    assert_eq!(copies(&engine, &*volume).len(), 2);
    drop((first, second.stream, third));
    assert_empty(&engine);
}

#[test]
fn what_has_not_arrived_ends_with_its_session() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    engine.abort(first.session, "on purpose").unwrap();
    assert_brought(&engine, second, &[1, 2]);
    assert!(copies(&engine, &*volume).values().all(|copies| *copies == 1));
}

#[test]
fn what_has_not_arrived_ends_with_a_stream_that_failed() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    let message = Request::Open(v1::OpenStream::default());
    first.stream.as_ref().unwrap().handle(message, 10).unwrap_err();
    assert_brought(&engine, second, &[1, 2]);
}

#[test]
fn what_has_not_arrived_ends_with_its_connection() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    first.disconnect();
    assert_brought(&engine, second, &[1, 2]);
    // It comes back, and need not send what another has brought.
    first.open().unwrap();
    first.until(&Next::Done);
    assert_eq!(first.done.unwrap().details[0].new_chunks, 0);
    assert!(copies(&engine, &*volume).values().all(|copies| *copies == 1));
}

#[test]
fn a_stream_that_is_opened_again_is_asked_again() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    // From then on, whether or not anything comes over the new stream.
    let opened = engine.open_stream(first.session, 0).unwrap();
    assert_brought(&engine, second, &[1, 2]);
    first.open().unwrap();
    first.until(&Next::Done);
    assert!(copies(&engine, &*volume).values().all(|copies| *copies == 1));
    drop(opened);
}

#[test]
fn what_an_older_stream_was_still_being_told_is_not_waited_for() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    let opened = engine.open_stream(first.session, 0).unwrap();
    // The older stream's question, which was under way when the newer one was opened.
    let session = engine.parts().1.get(first.session).unwrap();
    let claims = session.claims(0);
    claims.ask(&[name(1), name(2)], true, (engine.parts().0.clock.monotonic_ms(), claims.concluded()));
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    opened.opened().unwrap();
    assert_brought(&engine, second, &[1, 2]);
    first.disconnect();
}

#[test]
fn what_an_agent_finishes_without_is_not_waited_for() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    // It said that it would describe them, and describes zeros.
    let zero = vec![v1::ExtentRange { first: 0, count: 1 }];
    let message = v1::Extents { zero, ..v1::Extents::default() };
    first.stream.as_ref().unwrap().handle(Request::Extents(message), 10).unwrap();
    first.next = [Next::Finish, Next::Commit, Next::Done].into();
    first.until(&Next::Done);
    assert_brought(&engine, second, &[1, 2]);
}

#[test]
fn a_silent_agent_is_waited_for_a_minute() {
    let (bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    bench.clock.advance_ms(10_000);
    let mut second = waiting(&engine, "second", &[vec![1, 2]]);
    bench.clock.advance_ms(49_999);
    second.step().unwrap();
    assert_eq!(second.next.front(), Some(&Next::Wait));
    // Waiting is no silence: this one lives on when the other's lease has run out.
    bench.clock.advance_ms(1);
    second.step().unwrap();
    assert_eq!(second.next.front(), Some(&Next::Send(sorted(&[1, 2]))), "asked 60 s ago");
    bench.clock.advance_ms(60_001);
    assert_eq!(engine.expire_sessions(), 1);
    assert!(!engine.is_live(first.session));
    let again = sorted(&[1, 2]);
    assert_brought(&engine, second, &again);
}

/// Sorts chunks by fingerprint, the order in which they are asked for.
fn sorted(chunks: &[u64]) -> Vec<u64> {
    let mut chunks = chunks.to_vec();
    chunks.sort_by_key(|number| *name(*number).as_bytes());
    chunks
}

#[test]
fn a_new_question_after_a_minute_is_not_told_to_wait() {
    let (bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    bench.clock.advance_ms(60_000);
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.until(&Next::Done);
    assert_eq!((second.pending, second.done.unwrap().details[0].new_chunks), (0, 2));
}

#[test]
fn claims_that_pass_from_stream_to_stream_are_waited_for_a_minute_in_all() {
    let (bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1]]);
    first.step().unwrap();
    let mut waits = waiting(&engine, "waits", &[vec![1]]);
    // Each claims it when the one before is gone, and sends nothing.
    for number in 0..2 {
        bench.clock.advance_ms(29_000);
        first.disconnect();
        first = Agent::start(&engine, &format!("claims-{number}"), &[vec![1]]);
        first.step().unwrap();
        waits.step().unwrap();
        assert_eq!(waits.next.front(), Some(&Next::Wait), "{number}");
    }
    bench.clock.advance_ms(2_000);
    assert_brought(&engine, waits, &[1]);
}

#[test]
fn a_seal_that_fails_breaks_the_promise() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.until(&Next::Describe(0));
    arrive(&engine, &first, 2);
    volume.fail_next(OpKind::Seal, 1, Fault::Full);
    let second = waiting(&engine, "second", &[vec![1, 2]]);
    assert_brought(&engine, second, &sorted(&[1, 2]));
    let error = loop {
        if let Err(error) = first.stream.as_ref().unwrap().idle() {
            break error;
        }
    };
    assert_eq!(error.code(), ErrorCode::Full, "{error}");
}

#[test]
fn no_lock_of_the_other_stream_is_waited_for() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.until(&Next::Describe(0));
    arrive(&engine, &first, 2);
    let session = engine.parts().1.get(first.session).unwrap();
    // As while it waits for its disk.
    let _held = session.hold_disk(0);
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.until(&Next::Done);
    assert!(second.again.is_empty());
}

#[test]
fn what_was_asked_again_must_be_sent() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.step().unwrap();
    let mut second = waiting(&engine, "second", &[vec![1, 2]]);
    first.disconnect();
    second.step().unwrap();
    assert!(matches!(second.next.pop_front(), Some(Next::Send(_))));
    // Asked once more when it may not have heard.
    second.open().unwrap();
    second.step().unwrap();
    assert!(matches!(second.next.pop_front(), Some(Next::Send(_))), "{:?}", second.next);
    let error = second.step().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    assert!(error.to_string().contains("asked for again"), "{error}");
}

#[test]
fn nothing_is_said_between_finish_and_its_answer() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1]]);
    first.step().unwrap();
    let second = waiting(&engine, "second", &[vec![1]]);
    let error = second.send(&[1]).unwrap_err();
    assert!(error.to_string().contains("before its answer"), "{error}");
}

/// Chunk 1 of the extent is said to be a byte longer than it is.
fn lie() -> v1::Extents {
    let mut extents = describe(0, &[1]);
    extents.chunked[0].lengths[0] += 1;
    *extents.chunked[0].lengths.last_mut().unwrap() -= 1;
    extents
}

#[test]
fn a_promise_is_of_a_length() {
    for brings_itself in [false, true] {
        let (_bench, _volume, engine) = scene();
        let mut first = Agent::start(&engine, "first", &[vec![1]]);
        first.step().unwrap();
        let mut second = Agent::start(&engine, "second", &[vec![1]]);
        second.until(&Next::Describe(0));
        second.stream.as_ref().unwrap().handle(Request::Extents(lie()), 10).unwrap();
        second.next.pop_front();
        let error = if brings_itself {
            second.send(&[1]).unwrap_err()
        } else {
            first.until(&Next::Done);
            second.step().unwrap_err()
        };
        assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
        assert!(error.to_string().contains("extent 0: chunk"), "{error}");
        assert!(error.to_string().contains("bytes long, not"), "{error}");
        engine.commit(second.session).unwrap_err();
    }
}

#[test]
fn two_extents_agree_on_the_length_of_what_is_promised() {
    let (_bench, _volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &[vec![1]]);
    first.step().unwrap();
    let mut second = Agent::start(&engine, "second", &[vec![1], vec![1]]);
    second.until(&Next::Query(1));
    let mut other = lie();
    other.chunked[0].index = 1;
    let error = second.stream.as_ref().unwrap().handle(Request::Extents(other), 10).unwrap_err();
    assert!(error.to_string().contains("bytes long, not"), "{error}");
}

#[test]
fn a_chunk_that_was_found_and_is_lost_is_asked_again() {
    let (_bench, volume, engine) = scene();
    Agent::start(&engine, "first", &[vec![1, 2]]).until(&Next::Done);
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.until(&Next::Describe(0));
    let files = crate::container::list_containers(&*volume).unwrap().containers;
    let data = files.iter().find(|(name, _)| name.class == ContainerClass::Data).unwrap().0;
    engine.parts().0.store.note_damage(data.id, None, "test");
    let again = sorted(&[1, 2]);
    assert_brought(&engine, second, &again);
}

#[test]
fn a_chunk_that_no_one_has_is_asked_for() {
    let (_bench, _volume, engine) = scene();
    // It never asked, and describes what it was never told is there.
    let mut agent = Agent::start(&engine, "first", &[vec![1]]);
    agent.next.pop_front();
    agent.next.push_front(Next::Describe(0));
    assert_brought(&engine, agent, &[1]);
}

#[test]
fn promises_that_were_kept_take_no_memory() {
    let (_bench, _volume, engine) = scene();
    let extents: Vec<Vec<u64>> = (0..5).map(|extent| (extent * 900..(extent + 1) * 900).collect()).collect();
    let mut first = Agent::start(&engine, "first", &extents);
    let mut second = Agent::start(&engine, "second", &extents);
    for extent in 0..5 {
        first.until(&if extent == 4 { Next::Finish } else { Next::Query(extent + 1) });
        if extent < 4 {
            second.until(&Next::Query(extent + 1));
        }
    }
    let session = engine.parts().1.get(second.session).unwrap();
    assert_eq!(session.promised(0), 3600);
    first.until(&Next::Done);
    // From 4,096 on what is indexed is looked up.
    second.until(&Next::Describe(4));
    second.extents[4] = (3600..4500).collect();
    second.step().unwrap();
    assert_eq!((second.pending, session.promised(0)), (3600, 3600), "the rest was found at once");
    second.until(&Next::Done);
}

/// `count` extents of 900 chunks.
fn large(count: u64) -> Vec<Vec<u64>> {
    (0..count).map(|extent| (extent * 900..(extent + 1) * 900).collect()).collect()
}

#[test]
fn many_promises_are_sealed_although_no_one_finishes() {
    let (_bench, volume, engine) = scene();
    let mut first = Agent::start(&engine, "first", &large(20));
    first.until(&Next::Finish);
    arrive(&engine, &first, 20 * 900);
    let mut second = Agent::start(&engine, "second", &large(20));
    second.until(&Next::Query(19));
    assert_eq!((second.pending, copies(&engine, &*volume).len()), (19 * 900, 0));
    // They are looked at once there are 18,000. What the first sends then comes into another container, on which no one
    // counts, so that it ends with its session.
    second.until(&Next::Finish);
    first.send(&[1_000_000]).unwrap();
    while ![1, 20 * 900 + 1].contains(&engine.parts().0.claims.arrived()) {
        first.stream.as_ref().unwrap().idle().unwrap();
        std::thread::yield_now();
    }
    engine.abort(first.session, "on purpose").unwrap();
    assert_eq!(copies(&engine, &*volume).len(), 20 * 900);
    second.until(&Next::Done);
    assert!(second.again.is_empty());
}

#[test]
fn promises_are_bounded_when_nothing_can_be_sealed() {
    let (_bench, _volume, engine) = scene();
    // Asked, and not sent.
    let extents = large(33);
    let mut askers: Vec<Agent<'_>> = Vec::new();
    for (number, part) in extents.chunks(17).enumerate() {
        let mut asker = Agent::start(&engine, &format!("asks-{number}"), part);
        for extent in 0..part.len() as u64 {
            asker.next = [Next::Query(extent)].into();
            asker.step().unwrap();
        }
        askers.push(asker);
    }
    let mut second = Agent::start(&engine, "second", &extents);
    second.until(&Next::Query(32));
    assert_eq!(second.pending, 32 * 900);
    // From 28,672 on it is told to send what another brings as well.
    second.step().unwrap();
    assert!(matches!(second.next.front(), Some(Next::Send(chunks)) if chunks.len() == 900));
    let session = engine.parts().1.get(second.session).unwrap();
    assert_eq!(session.promised(0), 32 * 900);
}

#[test]
fn an_agent_that_asks_for_nothing_cannot_fill_the_memory() {
    let (_bench, _volume, engine) = scene();
    let extents: Vec<Vec<u64>> =
        (0..128).map(|extent| (extent * 900..(extent + 1) * 900).collect()).collect();
    let mut agent = Agent::start(&engine, "names", &extents);
    agent.next = (0..128).map(Next::Describe).collect();
    let error = (0..128).find_map(|_| agent.step().err()).expect("refused");
    assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    assert!(error.to_string().contains("ask which chunks are needed"), "{error}");
    assert_eq!(agent.next.len(), 0, "114,688 of 115,200");
    drop(agent.stream.take());
    engine.abort(agent.session, "on purpose").unwrap();
    assert_empty(&engine);
}
