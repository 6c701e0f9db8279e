use super::*;

fn id(number: u64) -> ContainerId {
    ContainerId::new(number).unwrap()
}

fn left(number: u64) -> Leftover {
    Leftover { id: id(number), class: ContainerClass::Data, stored_bytes: 1 }
}

#[test]
fn what_no_one_counts_on_is_given_up_once() {
    let leftovers = Arc::new(Leftovers::default());
    leftovers.leave([left(1), left(2)]);
    assert!(!leftovers.is_refused(id(1)));
    assert_eq!(leftovers.condemn(), [left(1), left(2)]);
    assert!(leftovers.is_refused(id(1)) && leftovers.is_refused(id(2)) && !leftovers.is_refused(id(3)));
    assert!(!leftovers.is_gone(id(1)), "readers go on until the catalog knows");
    assert_eq!(leftovers.condemn(), []);
    assert!(!leftovers.holds().hold(id(1), 0), "found too late");
    leftovers.note_gone(id(1));
    assert!(leftovers.is_gone(id(1)) && leftovers.is_refused(id(1)));
    leftovers.take_back(&[left(2)]);
    assert!(!leftovers.is_refused(id(2)) && leftovers.holds().hold(id(2), 0));
}

#[test]
fn claims_of_live_sessions_and_of_restore_points_hold() {
    let leftovers = Arc::new(Leftovers::default());
    let (mut live, mut failed, mut committed) = (leftovers.holds(), leftovers.holds(), leftovers.holds());
    // Held before their session ended.
    assert!(live.hold(id(1), 0) && failed.hold(id(2), 0) && committed.hold(id(3), 0));
    leftovers.leave([left(1), left(2), left(3)]);
    drop(committed);
    assert_eq!(leftovers.condemn(), []);
    failed.release();
    drop(failed);
    assert_eq!(leftovers.condemn(), [left(2)]);
    live.release();
    assert_eq!(leftovers.condemn(), [left(1)]);
}

#[test]
fn a_container_goes_when_what_is_held_in_it_is_found_elsewhere() {
    let leftovers = Arc::new(Leftovers::default());
    let mut holds = leftovers.holds();
    assert!(holds.hold(id(1), 3) && holds.hold(id(1), 4) && holds.hold(id(2), 9));
    assert!(!leftovers.condemn_one(id(1), |number| number == 3));
    assert!(!leftovers.is_refused(id(1)) && holds.hold(id(1), 5), "it stays and counts");
    assert!(leftovers.condemn_one(id(1), |number| (3..6).contains(&number)));
    assert!(!holds.hold(id(1), 4), "held before, and looked up again all the same");
    assert!(!leftovers.condemn_one(id(1), |_| true), "it goes already");
}

#[test]
fn an_earlier_answer_outlives_a_later_refusal() {
    let leftovers = Arc::new(Leftovers::default());
    let mut holds = leftovers.holds();
    assert!(holds.hold(id(1), 3));
    leftovers.condemn_unasked(id(1));
    assert!(!holds.hold(id(1), 3) && !holds.hold(id(1), 4));
    leftovers.take_back(&[left(1)]);
    assert!(!leftovers.condemn_one(id(1), |_| false), "the first answer counts");
    assert!(leftovers.condemn_one(id(1), |number| number == 3), "the last was none");
}

#[test]
fn what_sessions_found_that_end_during_a_round_is_kept_to_its_end() {
    let leftovers = Arc::new(Leftovers::default());
    let (mut before, mut committed, mut failed) = (leftovers.holds(), leftovers.holds(), leftovers.holds());
    assert!(before.hold(id(1), 0) && committed.hold(id(2), 0) && failed.hold(id(3), 0));
    drop(before);
    assert!(leftovers.begin_round() && !leftovers.begin_round());
    failed.release();
    drop((committed, failed));
    leftovers.leave([left(4), left(9)]);
    assert_eq!(leftovers.condemn(), [], "the round may count on them");
    assert!(leftovers.condemn_one(id(1), |_| false) && leftovers.condemn_one(id(3), |_| false));
    assert!(!leftovers.condemn_one(id(2), |_| false), "the round does not know this restore point");
    leftovers.end_round(8);
    leftovers.leave([left(5)]);
    assert_eq!(leftovers.condemn(), [left(9)], "older ones may hold the only copy");
    assert!(leftovers.condemn_one(id(2), |_| false) && leftovers.begin_round());
}

/// Holders and a condemner at the same time: never both succeed.
#[test]
fn either_the_holder_or_the_condemner_gives_way() {
    let leftovers = Arc::new(Leftovers::default());
    for round in 0..2000 {
        let mut holds = leftovers.holds();
        let (held, condemned) = std::thread::scope(|scope| {
            let holder = scope.spawn(|| holds.hold(id(round), 7));
            let condemned = leftovers.condemn_one(id(round), |_| false);
            (holder.join().unwrap(), condemned)
        });
        assert!(held != condemned || !held, "round {round}: held {held}, condemned {condemned}");
        holds.release();
    }
}
