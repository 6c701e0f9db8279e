use holdfast_volume::testing::{Damage, Fault, FaultyVolume, OpKind};
use holdfast_volume::{Blob, BlobName, MemoryVolume, Volume, VolumeError};
use proptest::prelude::*;

use super::super::testing::{id, open, seal};
use super::*;

type Faulty = FaultyVolume<MemoryVolume>;

/// Regions of one chunk of so many bytes that do not compress.
fn noise_regions(seed: u8, count: u8, bytes: usize) -> Vec<Vec<Vec<u8>>> {
    let noise = |salt| {
        let mut noise = vec![0; bytes];
        blake3::Hasher::new().update(&[seed, salt]).finalize_xof().fill(&mut noise);
        noise
    };
    (0..count).map(|salt| vec![noise(salt)]).collect()
}

fn faulty() -> Arc<Faulty> {
    Arc::new(FaultyVolume::new(MemoryVolume::new()))
}

fn payloads(found: Vec<Result<StoredRegion, ContainerError>>) -> Vec<Bytes> {
    found.into_iter().map(|region| region.unwrap().payload).collect()
}

#[test]
fn what_one_read_another_has() {
    let volume = faulty();
    seal(&*volume, 1, &noise_regions(1, 6, 1000));
    let open = open(&*volume, 1);
    let truth = payloads((0..6).map(|region| open.read_region(region)).collect());
    let shared = SharedRegions::new(1 << 20);
    let reads = || volume.count(OpKind::Read);
    let before = reads();
    assert_eq!(payloads(shared.read(&open, 0..6)), truth);
    assert_eq!(reads() - before, 1);
    let again = payloads(shared.read(&open, 0..6));
    assert_eq!((reads() - before, &again), (1, &truth));
    // All of the run is the same memory; a part of it is a copy, so that it holds no more than it is.
    let kept = payloads(shared.read(&open, 0..6));
    assert!(kept.iter().zip(&again).all(|(one, other)| one.as_ptr() == other.as_ptr()));
    let part = payloads(shared.read(&open, 2..4));
    assert!(part == truth[2..4] && part[0].as_ptr() != again[2].as_ptr());
    assert_eq!(reads() - before, 1);
    let stats = shared.stats();
    assert_eq!((stats.read_regions, stats.read_bytes), (6, 6000));
    assert_eq!((stats.shared_regions, stats.shared_bytes), (14, 14_000));
}

#[test]
fn what_is_there_in_part_is_read_in_part() {
    let volume = faulty();
    seal(&*volume, 1, &noise_regions(1, 8, 1000));
    let open = open(&*volume, 1);
    let truth = payloads((0..8).map(|region| open.read_region(region)).collect());
    let shared = SharedRegions::new(1 << 20);
    drop(shared.read(&open, 3..5));
    let before = volume.count(OpKind::Read);
    assert_eq!(payloads(shared.read(&open, 0..8)), truth);
    assert_eq!(volume.count(OpKind::Read) - before, 2, "0..3 and 5..8");
    assert_eq!(shared.stats().shared_regions, 2);
}

#[test]
fn switched_off_everyone_reads_for_itself() {
    let volume = faulty();
    seal(&*volume, 1, &noise_regions(1, 3, 1000));
    let open = open(&*volume, 1);
    let shared = SharedRegions::new(0);
    let before = volume.count(OpKind::Read);
    assert_eq!(payloads(shared.read(&open, 0..3)), payloads(shared.read(&open, 0..3)));
    assert_eq!(volume.count(OpKind::Read) - before, 2);
    assert_eq!((shared.stats().shared_regions, shared.stats().held_bytes), (0, 0));
}

#[test]
fn a_failure_is_not_kept_and_takes_no_neighbour_with_it() {
    let volume = faulty();
    let sealed = seal(&*volume, 1, &noise_regions(1, 4, 1000));
    let open = open(&*volume, 1);
    let offset = sealed.directory.region(2).unwrap().payload_offset();
    let name = open.name().clone();
    volume.damage(&name, &Damage::FlipBit { offset: offset + 5, bit: 1 }).unwrap();
    let shared = SharedRegions::new(1 << 20);
    for _ in 0..2 {
        let found = shared.read(&open, 0..4);
        let sound: Vec<bool> = found.iter().map(Result::is_ok).collect();
        assert_eq!(sound, [true, true, false, true]);
        assert!(found[2].as_ref().unwrap_err().is_damage());
    }
    assert_eq!((shared.stats().held_bytes, shared.stats().shared_regions), (0, 0));
    // A read that fails once is tried again, by itself and then region by region.
    volume.damage(&name, &Damage::FlipBit { offset: offset + 5, bit: 1 }).unwrap();
    volume.fail_next(OpKind::Read, 1, Fault::NotReadableNow);
    assert!(shared.read(&open, 0..4).iter().all(Result::is_ok));
    assert_eq!(shared.stats().held_bytes, 0, "only what was read at once");
}

#[test]
fn what_is_forgotten_is_read_again() {
    let volume = faulty();
    seal(&*volume, 1, &noise_regions(1, 3, 1000));
    seal(&*volume, 2, &noise_regions(2, 3, 1000));
    let (one, two) = (open(&*volume, 1), open(&*volume, 2));
    let shared = SharedRegions::new(1 << 20);
    let read = |open: &OpenContainer| {
        let before = volume.count(OpKind::Read);
        payloads(shared.read(open, 0..3));
        volume.count(OpKind::Read) - before
    };
    assert_eq!((read(&one), read(&two)), (1, 1));
    shared.forget(one.id());
    assert_eq!((read(&one), read(&two)), (1, 0));
}

/// A volume whose reads wait until they are let go.
#[derive(Debug)]
struct Gated {
    inner: MemoryVolume,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    /// Reads begun; set to let them go on; set to make them panic.
    state: Mutex<(usize, bool, bool)>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock();
        state.0 += 1;
        self.changed.notify_all();
        while !state.1 {
            self.changed.wait(&mut state);
        }
        let panics = state.2;
        drop(state);
        assert!(!panics, "told to");
    }

    fn wait_for_reads(&self, count: usize) {
        let mut state = self.state.lock();
        while state.0 < count {
            self.changed.wait(&mut state);
        }
    }

    fn set(&self, open: bool, panics: bool) {
        let mut state = self.state.lock();
        (state.1, state.2) = (open, panics);
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct GatedBlob(Arc<dyn Blob>, Arc<Gate>);

impl Blob for GatedBlob {
    fn drop_cached(&self) {
        self.0.drop_cached();
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<(), VolumeError> {
        self.1.pass();
        self.0.read_at(offset, bytes)
    }
}

impl Volume for Gated {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        Ok(Arc::new(GatedBlob(self.inner.open(name)?, Arc::clone(&self.gate))))
    }
    fn handles_outlive_removal(&self) -> bool {
        true
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space to inner);
}

/// An open container over a gate that lets reads pass at first.
fn gated() -> (Arc<Gate>, Arc<OpenContainer>, Vec<Bytes>) {
    let gate = Arc::new(Gate::default());
    gate.set(true, false);
    let volume = Gated { inner: MemoryVolume::new(), gate: Arc::clone(&gate) };
    seal(&volume, 1, &noise_regions(1, 6, 1000));
    let open = open(&volume, 1);
    let truth = payloads((0..6).map(|region| open.read_region(region)).collect());
    gate.state.lock().0 = 0;
    gate.set(false, false);
    (gate, open, truth)
}

/// Waits until `count` flights are waited for or over: those who wait hold a reference.
fn wait_for_waiters(shared: &SharedRegions, count: usize) {
    let waiting = || {
        let table = shared.table.lock();
        // The table holds one for each region, its reader another.
        let of = |flight: &Arc<Flight>| Arc::strong_count(flight);
        let regions = table.flying.len();
        table.flying.values().next().map_or(usize::MAX, |flight| of(flight).saturating_sub(regions + 1))
    };
    while waiting() < count {
        std::thread::yield_now();
    }
}

#[test]
fn who_wants_the_same_at_the_same_time_reads_it_once() {
    let (gate, open, truth) = gated();
    let shared = SharedRegions::new(1 << 20);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| shared.read(&open, 0..6));
        gate.wait_for_reads(1);
        let others: Vec<_> = (0..7).map(|_| scope.spawn(|| shared.read(&open, 0..6))).collect();
        wait_for_waiters(&shared, 7 * 6);
        gate.set(true, false);
        assert_eq!(payloads(first.join().unwrap()), truth);
        for other in others {
            assert_eq!(payloads(other.join().unwrap()), truth);
        }
    });
    assert_eq!(gate.state.lock().0, 1);
    let stats = shared.stats();
    assert_eq!((stats.read_regions, stats.shared_regions), (6, 42));
}

#[test]
fn a_reader_that_panics_leaves_no_one_waiting() {
    let (gate, open, truth) = gated();
    let shared = SharedRegions::new(1 << 20);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| shared.read(&open, 0..6));
        gate.wait_for_reads(1);
        let other = scope.spawn(|| shared.read(&open, 0..6));
        wait_for_waiters(&shared, 6);
        gate.set(true, true);
        // One of its own reads may panic as well, as long as it does not wait for ever.
        drop((first.join().unwrap_err(), other.join()));
    });
    gate.set(true, false);
    assert!(shared.table.lock().flying.is_empty());
    assert_eq!(payloads(shared.read(&open, 0..6)), truth);
}

#[test]
fn what_is_forgotten_while_it_is_read_is_not_kept() {
    let (gate, open, truth) = gated();
    let shared = SharedRegions::new(1 << 20);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| shared.read(&open, 0..6));
        gate.wait_for_reads(1);
        shared.forget(open.id());
        let second = scope.spawn(|| shared.read(&open, 0..6));
        gate.wait_for_reads(2);
        gate.set(true, false);
        assert_eq!(payloads(reader.join().unwrap()), truth);
        assert_eq!(payloads(second.join().unwrap()), truth);
    });
    assert_eq!(gate.state.lock().0, 2, "the second did not take what was being read before");
    assert!(shared.stats().held_bytes > 0, "what the second read is kept");
}

/// A run of one region, of as many bytes as [`UNIT`] with what an entry takes.
fn run(container: u64, region: u16) -> Arc<Run> {
    let payload = Bytes::from(vec![0; UNIT - 256]);
    let codec = holdfast_proto::region::Codec::Stored;
    let regions = vec![StoredRegion { region, codec, plain_bytes: 1, payload }];
    Arc::new(Run { container: id(container), regions })
}

const UNIT: usize = 1000;

/// Readers that take turns, one run a turn each; each is a container and how far behind the first turn it starts.
/// Returns the runs read from the volume, by container.
fn simulate(limit_units: usize, readers: &[(u64, u16)], length: u16) -> HashMap<u64, u32> {
    let mut kept = Kept::default();
    let mut reads = HashMap::new();
    for turn in 0..length * 2 {
        for &(container, start) in readers {
            let Some(region) = turn.checked_sub(start).filter(|region| *region < length) else { continue };
            if kept.get(id(container), region).is_none() {
                *reads.entry(container).or_default() += 1;
                kept.insert(&run(container, region), limit_units * UNIT);
            }
            assert!(kept.bytes() <= limit_units * UNIT);
        }
    }
    reads
}

#[test]
fn restores_within_reach_of_each_other_read_once() {
    let side_by_side: Vec<(u64, u16)> = (0..20).map(|_| (1, 0)).collect();
    assert_eq!(simulate(64, &side_by_side, 1000)[&1], 1000);
    let staggered: Vec<(u64, u16)> = (0..20).map(|number| (1, number * 3)).collect();
    assert_eq!(simulate(64, &staggered, 1000)[&1], 1000, "the last is 57 behind the first");
    // Too far behind to share anything: everyone reads for itself.
    let apart: Vec<(u64, u16)> = (0..4).map(|number| (1, number * 100)).collect();
    assert_eq!(simulate(64, &apart, 1000)[&1], 4000);
}

#[test]
fn restores_that_share_nothing_do_not_push_out_what_others_share() {
    let mut readers: Vec<(u64, u16)> = (0..10).map(|number| (1, number * 2)).collect();
    readers.extend((2..12).map(|container| (container, 0)));
    let reads = simulate(64, &readers, 1000);
    assert_eq!(reads[&1], 1000, "what ten restores share");
    assert_eq!(reads[&2], 1000);
}

proptest! {
    /// After any sequence of steps the cache is within its bound, and a hit returns what was put in.
    #[test]
    fn never_more_than_the_bound(steps in proptest::collection::vec((0u8..3, 1u64..4, 0u16..40), 1..400)) {
        let mut kept = Kept::default();
        for (step, container, region) in steps {
            match (step, kept.get(id(container), region)) {
                (0, None) => kept.insert(&run(container, region), 20 * UNIT),
                (1, _) if region == 0 => kept.forget(id(container)),
                (_, Some(found)) => {
                    prop_assert_eq!((found.container, found[0].region), (id(container), region));
                }
                (_, None) => {}
            }
            prop_assert!(kept.bytes() <= 20 * UNIT);
        }
        (1..4).for_each(|container| kept.forget(id(container)));
        prop_assert_eq!(kept.bytes(), 0);
    }
}
