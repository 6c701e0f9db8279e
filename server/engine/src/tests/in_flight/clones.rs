//! Streams that share chunks, when nothing goes wrong.

use std::sync::Arc;

use holdfast_types::ids::ContainerClass;
use holdfast_volume::MemoryVolume;

use super::agent::{Agent, Next, image};
use super::{arrive, assert_empty, copies};
use crate::tests::Bench;
use crate::tests::agent::restore;

fn disk() -> Vec<Vec<u64>> {
    (0..6).map(|extent| (extent * 20..extent * 20 + 30).collect()).collect()
}

#[test]
fn eight_clones_at_once_are_stored_once() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut agents: Vec<_> =
        (0..8).map(|number| Agent::start(&engine, &format!("vm-{number}"), &disk())).collect();
    while agents.iter().any(|agent| agent.done.is_none()) {
        for agent in &mut agents {
            agent.step().unwrap();
        }
    }
    assert!(copies(&engine, &volume).values().all(|copies| *copies == 1));
    let rows: Vec<_> = agents.iter().map(|agent| agent.done.clone().unwrap().details.remove(0)).collect();
    // 130 chunks, each paid for once.
    assert_eq!(rows.iter().map(|row| row.new_chunks).sum::<u64>(), 130);
    assert!(rows.iter().all(|row| row.bytes == rows[0].bytes && row.chunks == 180));
    for agent in &agents {
        assert!(agent.pending > 0 && agent.again.is_empty(), "{}", agent.vm);
        let done = agent.done.as_ref().unwrap();
        assert!(restore(&engine, &done.backup_id, "root").unwrap() == image(&disk()));
    }
    drop(agents);
    assert_empty(&engine);
}

#[test]
fn what_fifty_clones_wait_for_is_not_sealed_in_many_small_containers() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disk: Vec<Vec<u64>> = (0..12).map(|extent| (extent * 100..(extent + 1) * 100).collect()).collect();
    let mut agents: Vec<_> =
        (0..50).map(|number| Agent::start(&engine, &format!("vm-{number}"), &disk)).collect();
    while agents.iter().any(|agent| agent.done.is_none()) {
        for (number, agent) in agents.iter_mut().enumerate() {
            // Some are faster than others.
            for _ in 0..=number % 5 {
                agent.step().unwrap();
            }
        }
    }
    let files = crate::container::list_containers(&volume).unwrap().containers;
    let data = files.iter().filter(|(name, _)| name.class == ContainerClass::Data).count();
    // One each at their end, and another of those that others waited for before.
    assert!((1..=100).contains(&data), "{data} containers of data");
    assert!(copies(&engine, &volume).values().all(|copies| *copies == 1));
}

#[test]
fn an_agent_that_stands_still_is_not_waited_for_when_its_chunks_have_arrived() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut first = Agent::start(&engine, "first", &[vec![1, 2], vec![3]]);
    first.until(&Next::Query(1));
    arrive(&engine, &first, 2);
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.until(&Next::Done);
    assert_eq!((second.pending, &second.again), (2, &Vec::new()));
    // It goes on in a container of its own.
    first.until(&Next::Done);
    assert!(copies(&engine, &volume).values().all(|copies| *copies == 1));
    let (first, second) = (first.done.unwrap().details[0].clone(), second.done.unwrap().details[0].clone());
    assert_eq!((first.new_chunks, first.dup_bytes), (3, 0));
    assert_eq!((second.new_chunks, second.new_bytes, second.post_lc), (0, 0, 0));
    assert!(first.post_lc > 0, "who brought it pays");
}

#[test]
fn an_agent_that_does_not_take_pending_sends_what_another_brings() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut first = Agent::start(&engine, "first", &[vec![1, 2]]);
    first.until(&Next::Describe(0));
    let mut second = Agent::start(&engine, "second", &[vec![1, 2]]);
    second.takes_pending = false;
    second.open().unwrap();
    second.until(&Next::Done);
    assert_eq!(second.done.unwrap().details[0].new_chunks, 2);
    first.until(&Next::Done);
    assert!(copies(&engine, &volume).values().all(|copies| *copies == 2));
}
