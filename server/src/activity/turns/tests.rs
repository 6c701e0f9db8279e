use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn tenant(namespace: u8, token: u8) -> Tenant {
    Tenant { namespace: NamespaceId::from_bytes([namespace; 16]), token: TokenId::from_bytes([token; 16]) }
}

fn line(turns: &Turns) -> Vec<Number> {
    turns.line().collect()
}

/// Enters streams of one tenant, with these numbers.
fn enter(turns: &mut Turns, tenant: Tenant, numbers: std::ops::Range<Number>) {
    for number in numbers {
        turns.enter(number, tenant, true, NOW).unwrap();
    }
}

fn admitted(turns: &mut Turns, ended: Number) -> Vec<Number> {
    turns.leave(ended).into_iter().map(|(number, _)| number).collect()
}

#[test]
fn a_tenant_that_is_alone_has_all_slots() {
    let mut turns = Turns::new(3);
    enter(&mut turns, tenant(1, 1), 0..5);
    assert_eq!((turns.held(), line(&turns)), (3, vec![3, 4]));
    assert_eq!(admitted(&mut turns, 1), [3]);
    assert!(admitted(&mut turns, 4).is_empty(), "it waited");
    assert_eq!((turns.held(), turns.waiting()), (3, 0));
}

#[test]
fn forty_that_wait_do_not_delay_a_tenant_with_one() {
    let mut turns = Turns::new(2);
    enter(&mut turns, tenant(1, 1), 0..42);
    enter(&mut turns, tenant(2, 2), 100..101);
    // Another token of the busy namespace comes before the rest of the busy token.
    enter(&mut turns, tenant(1, 3), 200..202);
    assert_eq!(line(&turns)[..5], [100, 200, 201, 2, 3]);
    assert_eq!(admitted(&mut turns, 0), [100]);
    assert_eq!(admitted(&mut turns, 1), [200]);
}

#[test]
fn tenants_that_hold_as_many_take_turns() {
    let mut turns = Turns::new(1);
    enter(&mut turns, tenant(9, 9), 99..100);
    enter(&mut turns, tenant(1, 1), 0..3);
    enter(&mut turns, tenant(2, 2), 10..13);
    let mut order = Vec::new();
    let mut ended = 99;
    while let [next] = admitted(&mut turns, ended)[..] {
        order.push(next);
        ended = next;
    }
    assert_eq!(order, [0, 10, 1, 11, 2, 12]);
}

#[test]
fn the_queue_is_bounded_in_all_and_for_each_token() {
    let mut turns = Turns::new(1);
    let first = WAITING_PER_TOKEN_MAX as Number + 1;
    enter(&mut turns, tenant(1, 1), 0..first);
    assert_eq!(turns.enter(first, tenant(2, 1), true, NOW), Err(Refusal::TokenQueueFull), "of any namespace");
    for token in 2..=4 {
        enter(&mut turns, tenant(1, token), Number::from(token) * 1000..Number::from(token) * 1000 + 256);
    }
    assert_eq!(turns.waiting(), WAITING_MAX);
    assert_eq!(turns.enter(first, tenant(5, 5), true, NOW), Err(Refusal::QueueFull));
    assert_eq!(turns.enter(first, tenant(5, 5), false, NOW), Err(Refusal::NoSlot));
    assert_eq!(admitted(&mut turns, 0).len(), 1);
    turns.enter(first, tenant(5, 5), true, NOW).unwrap();
}

#[test]
fn a_newcomer_that_has_waited_long_gets_a_slot_of_the_tenant_with_most() {
    let mut turns = Turns::new(4);
    enter(&mut turns, tenant(1, 1), 0..3);
    enter(&mut turns, tenant(2, 2), 10..11);
    enter(&mut turns, tenant(1, 1), 3..9);
    let patience = NOW + TURN_PATIENCE;
    assert_eq!(
        turns.make_way(patience, |_| false),
        None,
        "the next in line is of a namespace that holds most"
    );
    enter(&mut turns, tenant(3, 3), 20..22);
    assert_eq!(turns.make_way(patience - Duration::from_millis(1), |_| false), None);
    assert_eq!(turns.make_way(patience, |_| false), Some(2), "the newest");
    assert_eq!(turns.make_way(patience, |_| false), None, "one at a time");
    assert_eq!(admitted(&mut turns, 2), [20]);
    assert_eq!(turns.make_way(patience, |_| false), None, "2, 1 and 1 is fair");
    // It ends by itself before it is told to.
    assert_eq!(admitted(&mut turns, 10), [21]);
    assert_eq!(turns.make_way(patience, |_| false), None);
}

#[test]
fn a_token_gives_way_to_another_of_its_namespace() {
    let mut turns = Turns::new(3);
    enter(&mut turns, tenant(1, 1), 0..4);
    enter(&mut turns, tenant(1, 2), 10..11);
    let patience = NOW + TURN_PATIENCE;
    assert_eq!(turns.make_way(patience, |_| false), Some(2));
    assert_eq!(admitted(&mut turns, 2), [10]);
    // The one that gave way waits in its turn again.
    enter(&mut turns, tenant(1, 1), 2..3);
    assert_eq!((line(&turns), turns.make_way(patience, |_| false)), (vec![3, 2], None));
}

/// The rule of two more cannot apply to one slot, nor to as many tenants as slots.
#[test]
fn one_that_does_not_move_gives_way_where_all_hold_the_same() {
    let mut turns = Turns::new(2);
    enter(&mut turns, tenant(1, 1), 0..1);
    enter(&mut turns, tenant(2, 2), 10..11);
    enter(&mut turns, tenant(3, 3), 20..21);
    let patience = NOW + TURN_PATIENCE;
    assert_eq!(turns.make_way(patience, |_| false), None, "both move");
    assert_eq!(turns.make_way(patience - Duration::from_millis(1), |_| true), None);
    assert_eq!(turns.make_way(patience, |number| number == 0), Some(0));
    assert_eq!(turns.make_way(patience, |_| true), None, "one at a time");
    assert_eq!(admitted(&mut turns, 0), [20]);
}

#[derive(Debug, Clone)]
enum Step {
    Enter {
        tenant: Tenant,
        may_wait: bool,
    },
    /// The stream at this place among all that are there, as a share of 256.
    Leave(u8),
    MakeWay {
        secs: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0u8..4, 0u8..3, prop::bool::weighted(0.9))
            .prop_map(|(namespace, token, may_wait)| Step::Enter { tenant: tenant(namespace, token), may_wait }),
        4 => any::<u8>().prop_map(Step::Leave),
        1 => (0u64..100).prop_map(|secs| Step::MakeWay { secs }),
    ]
}

/// The model: all streams, as plain lists.
#[derive(Debug, Default)]
struct Model {
    held: Vec<(Number, Tenant)>,
    /// In order of arrival.
    waiting: Vec<(Number, Tenant)>,
}

impl Model {
    fn held_by(&self, is_own: impl Fn(&Tenant) -> bool) -> usize {
        self.held.iter().filter(|(_, tenant)| is_own(tenant)).count()
    }

    /// Asserts the rules for a stream that gets a slot.
    fn admit(&mut self, number: Number) {
        let place = self.waiting.iter().position(|(waiting, _)| *waiting == number).expect("it waited");
        let (_, tenant) = self.waiting.remove(place);
        let first = self.waiting.iter().take(place).all(|(_, before)| *before != tenant);
        assert!(first, "a tenant's streams are served in order");
        let of_namespace = |namespace| self.held_by(|held| held.namespace == namespace);
        let of_tenant = |wanted: Tenant| self.held_by(|held| *held == wanted);
        for (_, other) in &self.waiting {
            assert!(of_namespace(tenant.namespace) <= of_namespace(other.namespace), "fewest first");
            if other.namespace == tenant.namespace {
                assert!(of_tenant(tenant) <= of_tenant(*other), "fewest first among tokens");
            }
        }
        self.held.push((number, tenant));
    }

    fn check(&self, turns: &Turns, limit: usize) {
        assert_eq!((turns.held(), turns.waiting()), (self.held.len(), self.waiting.len()));
        assert!(self.held.len() <= limit);
        assert!(self.waiting.is_empty() || self.held.len() == limit, "a slot is free while streams wait");
        let mut in_line: Vec<Number> = turns.line().collect();
        in_line.sort_unstable();
        let mut waiting: Vec<Number> = self.waiting.iter().map(|(number, _)| *number).collect();
        waiting.sort_unstable();
        assert_eq!(in_line, waiting, "each that waits has a place");
        let served = [turns.namespaces_served.len(), turns.tenants_served.len()];
        assert!(served.into_iter().all(|count| count <= self.held.len() + self.waiting.len()), "{served:?}");
    }
}

proptest! {
    /// Slots are never idle while streams wait, never more than there are, and go to those that hold fewest, in order of
    /// arrival; what is foretold comes true; who gives way held more than the next in line.
    #[test]
    fn turns_are_as_in_the_model(limit in 1u32..6, steps in prop::collection::vec(step(), 1..150)) {
        let mut turns = Turns::new(limit);
        let mut model = Model::default();
        let limit = limit as usize;
        for (number, step) in (0u64..).zip(steps) {
            match step {
                Step::Enter { tenant, may_wait } => match turns.enter(number, tenant, may_wait, NOW) {
                    Ok(Entered::Admitted) => model.held.push((number, tenant)),
                    Ok(Entered::Waits) => model.waiting.push((number, tenant)),
                    Err(refusal) => {
                        prop_assert_eq!(refusal, Refusal::NoSlot);
                        prop_assert!(!may_wait && model.held.len() == limit);
                    }
                },
                Step::Leave(share) => {
                    let there = model.held.len() + model.waiting.len();
                    let place = there * usize::from(share) / 256;
                    let all: Vec<Number> =
                        model.held.iter().chain(&model.waiting).map(|(number, _)| *number).collect();
                    let Some(number) = all.get(place) else { continue };
                    let held_one = model.held.iter().any(|(held, _)| held == number);
                    let next = turns.line().next().filter(|_| held_one);
                    model.held.retain(|(held, _)| held != number);
                    model.waiting.retain(|(waiting, _)| waiting != number);
                    let admitted = turns.leave(*number);
                    prop_assert!(admitted.len() <= 1);
                    if !held_one {
                        prop_assert!(admitted.is_empty());
                    }
                    // Only a slot of the next one's own tenant can change who is next.
                    prop_assert_eq!(admitted.is_empty(), next.is_none());
                    for (number, _) in admitted {
                        model.admit(number);
                    }
                }
                Step::MakeWay { secs } => {
                    let next = turns.line().next();
                    if let Some(number) = turns.make_way(NOW + Duration::from_secs(secs), |_| false) {
                        prop_assert!(secs >= TURN_PATIENCE.as_secs());
                        let of = |all: &[(Number, Tenant)], wanted| {
                            all.iter().find(|(number, _)| Some(*number) == wanted).map(|(_, tenant)| *tenant)
                        };
                        let next = of(&model.waiting, next).expect("one waits");
                        let gives = of(&model.held, Some(number)).expect("it has a slot");
                        let (mine, theirs) = if gives.namespace == next.namespace {
                            (model.held_by(|held| *held == next), model.held_by(|held| *held == gives))
                        } else {
                            let of = |wanted: Tenant| model.held_by(|held| held.namespace == wanted.namespace);
                            (of(next), of(gives))
                        };
                        prop_assert!(theirs >= mine + 2);
                    }
                }
            }
            model.check(&turns, limit);
        }
    }
}
