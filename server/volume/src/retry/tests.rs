use super::*;
use crate::testing::{
    Fault, FaultyVolume, FixedRandom, ManualTimer, OpKind, passes_on_drop_cached, put, volume_suite,
};
use crate::{LIST_PAGE_ENTRIES, MemoryVolume};

type Faulty = FaultyVolume<MemoryVolume>;

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn policy() -> RetryPolicy {
    RetryPolicy {
        attempts_max: NonZeroU32::new(4).unwrap(),
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(3),
        budget_retries: 100,
    }
}

/// A volume that fails as told, and one around it that retries, with the longest waits.
fn retrying(policy: RetryPolicy) -> (Arc<Faulty>, Arc<ManualTimer>, RetryVolume) {
    let faulty = Arc::new(Faulty::new(MemoryVolume::new()));
    let timer = Arc::new(ManualTimer::default());
    let random = Arc::new(FixedRandom(u64::MAX));
    let inner = Arc::<Faulty>::clone(&faulty);
    let volume = RetryVolume::new(inner, policy, Arc::<ManualTimer>::clone(&timer), random);
    (faulty, timer, volume)
}

/// A call of a kind that can be repeated, on a volume that has `x`.
fn call(volume: &RetryVolume, kind: OpKind) -> Result<(), VolumeError> {
    match kind {
        OpKind::Create => volume.create(&name("new")).map(drop),
        OpKind::Open => volume.open(&name("x")).map(drop),
        OpKind::Read => volume.open(&name("x"))?.read_at(0, &mut [0]),
        OpKind::List => volume.list(&name("x"), None, LIST_PAGE_ENTRIES).map(drop),
        OpKind::Remove => volume.remove(&name("x")),
        OpKind::Append | OpKind::Seal => unreachable!("not repeated"),
    }
}

const REPEATED: [OpKind; 5] = [OpKind::Create, OpKind::Open, OpKind::Read, OpKind::List, OpKind::Remove];

#[test]
fn conforms() {
    volume_suite(|| Box::new(retrying(policy()).2));
    let (below, _, volume) = retrying(policy());
    passes_on_drop_cached(&below, &volume);
}

#[test]
fn what_may_be_repeated_is_repeated_with_growing_waits() {
    for kind in REPEATED {
        let (faulty, timer, volume) = retrying(policy());
        put(&volume, "x", b"1");
        timer.take_sleeps();
        let before = faulty.count(kind);
        for nth in 1..=3 {
            faulty.fail_next(kind, nth, Fault::Unavailable);
        }
        call(&volume, kind).unwrap();
        assert_eq!(faulty.count(kind) - before, 4, "{kind:?}");
        assert_eq!(timer.take_sleeps(), [1, 2, 3].map(Duration::from_secs), "{kind:?}: doubled, then capped");
    }
}

#[test]
fn attempts_are_bounded() {
    for kind in REPEATED {
        let (faulty, timer, volume) = retrying(policy());
        put(&volume, "x", b"1");
        let before = faulty.count(kind);
        for nth in 1..=10 {
            faulty.fail_next(kind, nth, Fault::Unavailable);
        }
        let error = call(&volume, kind).unwrap_err();
        assert!(matches!(error, VolumeError::Unavailable { .. }), "{error}");
        assert_eq!(faulty.count(kind) - before, 4, "{kind:?}");
        assert_eq!(timer.take_sleeps().len(), 3);
    }
}

#[test]
fn what_time_does_not_cure_is_not_repeated() {
    let faults = [Fault::Io, Fault::Full, Fault::NotReadableNow, Fault::NotDurable { applied: false }];
    for fault in faults {
        for kind in REPEATED {
            let (faulty, timer, volume) = retrying(policy());
            put(&volume, "x", b"1");
            faulty.fail_next(kind, 1, fault);
            call(&volume, kind).unwrap_err();
            assert!(timer.take_sleeps().is_empty(), "{kind:?} {fault:?}");
        }
    }
}

#[test]
fn appends_and_seals_are_never_repeated() {
    for fault in [
        Fault::Unavailable,
        Fault::OutcomeUnknown { applied: true },
        Fault::OutcomeUnknown { applied: false },
    ] {
        for kind in [OpKind::Append, OpKind::Seal] {
            let (faulty, timer, volume) = retrying(policy());
            faulty.fail_next(kind, 1, fault);
            let mut writer = volume.create(&name("x")).unwrap();
            let result = writer.append(b"1").and_then(|()| writer.seal());
            assert!(result.unwrap_err().is_retryable(), "the caller is told");
            assert_eq!(faulty.count(kind), 1, "{kind:?} {fault:?}");
            assert!(timer.take_sleeps().is_empty());
        }
    }
}

#[test]
fn a_removal_whose_answer_was_lost_succeeds_once() {
    for applied in [true, false] {
        let (faulty, _, volume) = retrying(policy());
        put(&volume, "x", b"1");
        faulty.fail_next(OpKind::Remove, 1, Fault::OutcomeUnknown { applied });
        volume.remove(&name("x")).unwrap();
        assert!(faulty.survivor().get(&name("x")).is_none());
    }
    let (faulty, _, volume) = retrying(policy());
    faulty.fail_next(OpKind::Remove, 1, Fault::Unavailable);
    let error = volume.remove(&name("never")).unwrap_err();
    assert!(
        matches!(error, VolumeError::NotFound { .. }),
        "an attempt that did nothing excuses nothing: {error}"
    );
}

#[test]
fn the_budget_bounds_retries_of_all_calls_and_successes_refill_it() {
    let (faulty, _, volume) = retrying(RetryPolicy { budget_retries: 5, ..policy() });
    put(&volume, "x", b"1");
    for nth in 1..=12 {
        faulty.fail_next(OpKind::Open, nth, Fault::Unavailable);
    }
    // 1 + 3 retries, 1 + 2 retries, then one attempt each.
    for expected in [4, 3, 1, 1] {
        let before = faulty.count(OpKind::Open);
        volume.open(&name("x")).unwrap_err();
        assert_eq!(faulty.count(OpKind::Open) - before, expected);
    }
    faulty.heal();
    for _ in 0..10 {
        volume.open(&name("x")).unwrap();
    }
    faulty.fail_next(OpKind::Open, 1, Fault::Unavailable);
    volume.open(&name("x")).unwrap();
    faulty.fail_next(OpKind::Open, 1, Fault::Unavailable);
    volume.open(&name("x")).unwrap_err();
}

#[test]
fn jitter_covers_everything_from_nothing_to_the_ceiling() {
    let delay = |random, attempt| {
        let retries = Retries {
            policy: policy(),
            timer: Arc::new(ManualTimer::default()),
            random: Arc::new(FixedRandom(random)),
            budget: AtomicU32::new(0),
        };
        retries.delay(attempt)
    };
    assert_eq!(delay(0, 1), Duration::ZERO);
    assert_eq!(delay(1 << 63, 1), Duration::from_millis(500));
    assert_eq!(delay(u64::MAX, 1), Duration::from_secs(1));
    assert_eq!(delay(u64::MAX, 2), Duration::from_secs(2));
    for attempt in [3, 32, 33, u32::MAX] {
        assert_eq!(delay(u64::MAX, attempt), Duration::from_secs(3), "attempt {attempt}");
    }
}
