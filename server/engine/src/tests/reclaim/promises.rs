//! Chunks that are named before they are looked up for good: promises, and what was never asked about.

use parking_lot::Mutex;

use super::*;
use crate::tests::in_flight::agent::{Agent, Next, image};
use crate::tests::in_flight::arrive;

/// Two extents, one of which has chunks of the other.
fn extents() -> Vec<Vec<u64>> {
    vec![vec![1, 2, 3], vec![2, 4]]
}

/// Lets `agent` go on at each step of a round, which is about to condemn what restore point `dead` has. `prepare` brings
/// both about.
fn goes_on_within_a_round(prepare: impl for<'a> Fn(&'a Scene) -> (String, Agent<'a>)) {
    for step in RoundStep::ALL {
        let scene = Scene::new();
        let (dead, agent) = prepare(&scene);
        scene.delete(&dead);
        let agent = Mutex::new(agent);
        scene.reclaim_with(|at| {
            if at == step {
                agent.lock().until(&Next::Done);
            }
        });
        let mut agent = agent.into_inner();
        agent.until(&Next::Done);
        let was_there =
            matches!(step, RoundStep::Begun | RoundStep::Listed | RoundStep::Rooted | RoundStep::Marked);
        agent.again.sort_unstable();
        let again = if was_there { Vec::new() } else { vec![1, 2, 3, 4] };
        assert_eq!(agent.again, again, "{step:?}");
        let done = agent.done.take().unwrap();
        drop(agent);
        for round in 0..2 {
            assert!(scene.restores(&done.backup_id, &image(&extents())), "{step:?}, round {round}");
            scene.is_sound();
            scene.reclaim();
        }
    }
}

/// Row: a promise. Nothing holds what it is for until a look-up settles it (C1); what went before is asked for again (C2).
#[test]
fn a_promise_is_settled_within_a_round() {
    goes_on_within_a_round(|scene| {
        let mut first = Agent::start(&scene.engine, "first", &extents());
        first.until(&Next::Describe(1));
        arrive(&scene.engine, &first, 4);
        let mut second = Agent::start(&scene.engine, "second", &extents());
        second.until(&Next::Finish);
        assert_eq!(second.pending, 5, "all of it is promised");
        first.until(&Next::Done);
        (first.done.take().unwrap().backup_id, second)
    });
}

/// Row: a chunk named without a query. Accepting the extent is what looks it up.
#[test]
fn a_chunk_that_was_never_asked_about_is_named_within_a_round() {
    goes_on_within_a_round(|scene| {
        let mut first = Agent::start(&scene.engine, "first", &extents());
        first.until(&Next::Done);
        let mut second = Agent::start(&scene.engine, "second", &extents());
        for next in &mut second.next {
            if let Next::Query(extent) = *next {
                *next = Next::Describe(extent);
            }
        }
        (first.done.take().unwrap().backup_id, second)
    });
}
