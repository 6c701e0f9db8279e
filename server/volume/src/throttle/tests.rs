use super::*;
use crate::MemoryVolume;
use crate::testing::{FaultyVolume, ManualTimer, list, passes_on_drop_cached, put, volume_suite};

fn name(text: &str) -> BlobName {
    BlobName::new(text).unwrap()
}

fn rates(bytes: u64, requests: u64) -> Rates {
    Rates { bytes_per_sec: NonZeroU64::new(bytes), requests_per_sec: NonZeroU64::new(requests) }
}

fn throttled(reads: Rates, writes: Rates) -> (Arc<ManualTimer>, ThrottleVolume) {
    let timer = Arc::new(ManualTimer::default());
    let volume =
        ThrottleVolume::new(Arc::new(MemoryVolume::new()), reads, writes, Arc::<ManualTimer>::clone(&timer));
    (timer, volume)
}

/// Total waits of a piece of work, from a full bucket.
fn waits(timer: &ManualTimer, work: impl FnOnce()) -> Duration {
    timer.advance(Duration::from_secs(1000));
    timer.take_sleeps();
    work();
    timer.take_sleeps().iter().sum()
}

#[test]
fn conforms() {
    volume_suite(|| Box::new(throttled(rates(1 << 20, 100), rates(1 << 20, 100)).1));
    let (below, timer) = (Arc::new(FaultyVolume::new(MemoryVolume::new())), Arc::new(ManualTimer::default()));
    let inner = Arc::<FaultyVolume<_>>::clone(&below);
    passes_on_drop_cached(&below, &ThrottleVolume::new(inner, Rates::default(), Rates::default(), timer));
}

#[test]
fn bytes_of_a_direction_are_paced_after_a_burst() {
    let (timer, volume) = throttled(rates(1000, 0), Rates::default());
    assert_eq!(waits(&timer, || put(&volume, "x", &[7; 10_000])), Duration::ZERO, "writing has no limit");
    let blob = volume.open(&name("x")).unwrap();
    // 250 bytes of burst; the call after the last of them waits for the debt of those before it.
    let read = |count: usize| (0..count).for_each(|_| blob.read_at(0, &mut [0; 100]).unwrap());
    assert_eq!(waits(&timer, || read(3)), Duration::ZERO);
    assert_eq!(waits(&timer, || read(4)), Duration::from_millis(50));
    assert_eq!(
        waits(&timer, || read(23)),
        Duration::from_millis(2200 - 250),
        "1,000 bytes a second from then on"
    );
    // A call larger than the bucket passes at once and is paid for by the next.
    assert_eq!(waits(&timer, || blob.read_at(0, &mut [0; 10_000]).unwrap()), Duration::ZERO);
    blob.read_at(0, &mut [0; 1]).unwrap();
    assert_eq!(timer.take_sleeps(), [Duration::from_millis(10_000 - 250)]);
}

#[test]
fn writing_is_charged_for_what_is_appended() {
    let (timer, volume) = throttled(Rates::default(), rates(1000, 0));
    let write = || {
        put(&volume, "x", &[7; 1250]);
        put(&volume, "y", &[7; 1]);
    };
    assert_eq!(waits(&timer, write), Duration::from_secs(1));
    assert_eq!(
        waits(&timer, || volume.open(&name("x")).unwrap().read_at(0, &mut [0; 1250]).unwrap()),
        Duration::ZERO
    );
}

#[test]
fn every_call_is_a_request_of_its_direction() {
    let none = Rates::default();
    // At 4 a second the burst is one request: n requests wait (n - 2) / 4 s, the first two not at all.
    let four = rates(0, 4);
    let quarters = |n: u32| Duration::from_millis(250) * n;
    let prepared = |reads, writes| {
        let (timer, volume) = throttled(reads, writes);
        put(&volume, "x", b"1");
        (timer, volume)
    };
    let (timer, volume) = prepared(four, none);
    let read = || {
        let blob = volume.open(&name("x")).unwrap();
        blob.read_at(0, &mut [0]).unwrap();
        list(&volume, "x");
        volume.space().unwrap();
    };
    assert_eq!(waits(&timer, read), quarters(2), "4 requests");
    let (timer, volume) = prepared(none, four);
    let write = || {
        volume.discard_unfinished().unwrap();
        put(&volume, "y", b"1");
        volume.remove(&name("y")).unwrap();
    };
    assert_eq!(waits(&timer, write), quarters(2), "discard, create, seal, remove");
}

#[test]
fn extreme_rates_and_amounts_do_not_overflow() {
    for (per_sec, amount) in [(1, u64::MAX), (u64::MAX, 1), (u64::MAX, u64::MAX)] {
        let bucket = TokenBucket::default();
        for _ in 0..3 {
            bucket.take(amount, NonZeroU64::new(per_sec).unwrap(), Duration::ZERO);
        }
    }
}

/// Rates that a test can change.
#[derive(Debug, Default)]
struct Changing(Mutex<Rates>);

impl RateSchedule for Changing {
    fn rates(&self) -> Rates {
        *self.0.lock()
    }
}

#[test]
fn another_rate_counts_from_the_next_call_on() {
    let timer = Arc::new(ManualTimer::default());
    let schedule = Arc::new(Changing(Mutex::new(rates(1000, 0))));
    let volume = ThrottleVolume::scheduled(
        Arc::new(MemoryVolume::new()),
        Arc::new(Rates::default()),
        Arc::<Changing>::clone(&schedule),
        Arc::<ManualTimer>::clone(&timer),
    );
    let write = |name: &str| put(&volume, name, &[7; 1250]);
    assert_eq!(waits(&timer, || (write("a"), write("b")).1), Duration::from_secs(1));
    *schedule.0.lock() = rates(100, 0);
    assert_eq!(waits(&timer, || (write("c"), write("d")).1), Duration::from_millis(12_250));
    *schedule.0.lock() = Rates::default();
    assert_eq!(waits(&timer, || (write("e"), write("f")).1), Duration::ZERO);
}
