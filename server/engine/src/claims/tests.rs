use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerId, NamespaceId};

use super::*;
use super::{ASKED_MAX, WAITED_FOR_MS};

#[derive(Debug, Default)]
struct Sealer(AtomicUsize);

impl Output for Sealer {
    fn seal(self: Arc<Self>, _: ContainerId) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn names(numbers: impl IntoIterator<Item = u64>) -> Vec<Fingerprint> {
    numbers.into_iter().map(|number| Fingerprint::of(&number.to_le_bytes())).collect()
}

fn container(number: u64) -> ContainerId {
    ContainerId::new(number).unwrap()
}

/// Streams of one namespace, and what seals for them.
fn streams<const N: usize>(tables: &ClaimTables, namespace: u8) -> [(Arc<StreamClaims>, Arc<Sealer>); N] {
    std::array::from_fn(|_| {
        let sealer = Arc::new(Sealer::default());
        let output: Weak<Sealer> = Arc::downgrade(&sealer);
        (tables.enter(NamespaceId::from_bytes([namespace; 16]), output), sealer)
    })
}

fn ask(stream: &StreamClaims, chunks: &[Fingerprint], now_ms: i64) -> Vec<Asked> {
    stream.ask(chunks, true, (now_ms, stream.concluded())).0
}

#[test]
fn a_chunk_is_asked_of_one_stream() {
    let tables = ClaimTables::default();
    let [(one, _), (two, _)] = streams(&tables, 1);
    let chunks = names(0..2);
    assert_eq!(ask(&one, &chunks, 0), [Asked::Claimed; 2]);
    assert_eq!(ask(&one, &chunks, 1), [Asked::Send; 2], "its own");
    assert_eq!(ask(&two, &chunks, 1), [Asked::Pending; 2]);
    assert_eq!(two.ask(&chunks, false, (1, 0)).0, [Asked::Send; 2], "an agent that does not know of it");
    // (A6) Namespaces know nothing of each other.
    let [(other, _)] = streams(&tables, 2);
    assert_eq!(ask(&other, &chunks, 1), [Asked::Claimed; 2]);
    one.forget_asked();
    assert_eq!(ask(&two, &chunks, 2), [Asked::Claimed; 2]);
    two.withdraw(&chunks[..1]);
    assert_eq!(ask(&one, &chunks, 2), [Asked::Claimed, Asked::Pending]);
    drop((one, two, other));
    assert_eq!(tables.count(), 0);
}

#[test]
fn claims_are_bounded() {
    let tables = ClaimTables::default();
    let [(one, _), (two, _)] = streams(&tables, 1);
    let chunks = names(0..ASKED_MAX as u64 + 1);
    let answers = ask(&one, &chunks, 0);
    assert_eq!(answers.iter().filter(|asked| **asked == Asked::Claimed).count(), ASKED_MAX);
    assert_eq!(answers[ASKED_MAX], Asked::Send);
    assert_eq!(ask(&two, &chunks[ASKED_MAX..], 0), [Asked::Claimed]);
    assert!(one.memory_bytes() >= 64 * ASKED_MAX as u64);
}

#[test]
fn what_arrives_is_sealed_once_all_that_is_awaited_has() {
    let tables = ClaimTables::default();
    let [(one, sealer), (two, _)] = streams(&tables, 1);
    let chunks = names(0..3);
    assert_eq!(ask(&one, &chunks, 0), [Asked::Claimed; 3]);
    let mut arrivals = one.arrivals(container(1));
    arrivals.add(&chunks[..1]);
    assert!(!arrivals.are_awaited());
    let outlook = two.outlook(&chunks[..2], 0, 0);
    assert_eq!((outlook.awaited, outlook.to_seal.len(), outlook.unclaimed.len()), (2, 0, 0));
    assert!(arrivals.are_awaited());
    arrivals.add(&chunks[1..2]);
    // The third is of no interest.
    let outlook = two.outlook(&chunks[..2], 0, 0);
    for (output, id) in outlook.to_seal {
        assert_eq!(id, container(1));
        output.seal(id);
    }
    assert_eq!(sealer.0.load(Ordering::SeqCst), 1);
    drop(arrivals);
    let outlook = two.outlook(&chunks[..2], 0, 0);
    assert_eq!((outlook.awaited, outlook.unclaimed.as_slice()), (0, &chunks[..2]));
    drop((one, two));
    assert_eq!(tables.count(), 0);
}

#[test]
fn a_wait_ends_with_the_change_it_waits_for() {
    let tables = ClaimTables::default();
    let [(one, _), (two, _)] = streams(&tables, 1);
    let chunks = names(0..2);
    assert!(!two.wait(Duration::MAX), "it waits for nothing");
    ask(&one, &chunks, 0);
    type Change<'a> = Box<dyn FnOnce() + Send + 'a>;
    let mut arrivals = one.arrivals(container(1));
    let arrive: Change<'_> = Box::new(|| arrivals.add(&chunks));
    two.outlook(&chunks, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(arrive);
        assert!(two.wait(Duration::from_secs(3600)), "all that is awaited has arrived");
    });
    two.outlook(&chunks, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| drop(arrivals));
        assert!(two.wait(Duration::from_secs(3600)), "the container is indexed, or is not going to be");
    });
    let chunks = names(5..6);
    ask(&one, &chunks, 0);
    two.outlook(&chunks, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| one.forget_asked());
        assert!(two.wait(Duration::from_secs(3600)), "its agent is gone");
    });
}

#[test]
fn what_was_indexed_between_look_up_and_question_is_looked_for_again() {
    let tables = ClaimTables::default();
    let [(one, _), (two, _)] = streams(&tables, 1);
    let chunks = names(0..1);
    ask(&one, &chunks, 0);
    let mut arrivals = one.arrivals(container(1));
    arrivals.add(&chunks);
    let concluded = two.concluded();
    drop(arrivals);
    assert_eq!(two.ask(&chunks, true, (0, concluded)), (vec![Asked::Claimed], true));
    assert!(!two.ask(&chunks, true, (0, two.concluded())).1);
}

#[test]
fn what_arrives_is_of_the_stream_that_brought_it() {
    let tables = ClaimTables::default();
    let [(one, _), (two, _), (three, _)] = streams(&tables, 1);
    let chunks = names(0..1);
    ask(&one, &chunks, 0);
    // Taken over after a minute, and then both come.
    assert_eq!(ask(&two, &chunks, WAITED_FOR_MS), [Asked::Claimed]);
    let (mut of_one, mut of_two) = (one.arrivals(container(1)), two.arrivals(container(2)));
    of_one.add(&chunks);
    of_two.add(&chunks);
    assert_eq!(ask(&three, &chunks, 0), [Asked::Pending]);
    drop(of_two);
    assert!(of_one.are_awaited());
    assert_eq!(ask(&three, &chunks, 0), [Asked::Pending]);
    drop(of_one);
    assert_eq!(ask(&three, &chunks, 0), [Asked::Claimed]);
    drop((one, two, three));
    assert_eq!(tables.count(), 0);
}
