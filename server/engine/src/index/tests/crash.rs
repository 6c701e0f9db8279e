//! Power goes at every single volume operation; disks fill; writes fail.

use holdfast_volume::testing::{CrashPoint, Failure, Fault, FaultyVolume, InFlight, OpKind};

use super::*;
use crate::index::memtable::Memtable;
use crate::index::state::View;

type Faulty = Arc<FaultyVolume<MemoryVolume>>;

fn faulty() -> Faulty {
    Arc::new(FaultyVolume::new(MemoryVolume::new()))
}

fn open_on(volume: &Faulty) -> Result<Index, IndexError> {
    Index::open(volume.clone(), REPOSITORY, IndexOptions { split_entries: 100, ..tiny() })
}

/// Enough for flushes, wide merges, a split and shard merges; restarts in between. Stops at the first error.
fn workload(volume: &Faulty, directories: &Directories) -> Result<(), IndexError> {
    let mut index = open_on(volume)?;
    for &number in directories.keys() {
        insert(&index, directories, number)?;
        if number.is_multiple_of(3) {
            index.checkpoint()?;
        }
        if number.is_multiple_of(15) {
            index.forget_container(container(number - 1));
            insert(&index, directories, number - 1)?;
            drop(index);
            index = open_on(volume)?;
            (1..=number)
                .filter(|&n| !index.is_covered(container(n)))
                .try_for_each(|n| insert(&index, directories, n))?;
        }
    }
    index.checkpoint()
}

/// Asserts that a crash at `moment` left an index that opens, whose covered containers are all there, and that is
/// complete after replay.
fn assert_recovers(volume: &MemoryVolume, directories: &Directories, moment: &str) {
    let index = open(volume, tiny());
    index.verify().unwrap();
    for covered in index.covered() {
        for (key, location) in &directories[&covered.get()] {
            assert_eq!(index.get(key, |_| true).unwrap(), Some(*location), "{moment}: {covered} is covered");
        }
    }
    replay(&index, directories);
    assert_all_found(&index, directories);
    index.checkpoint().unwrap();
    drop(index);
    let blobs = holdfast_volume::testing::list(volume, "index");
    let manifests = blobs.iter().filter(|blob| blob.name.as_str().contains("manifest"));
    assert_eq!(manifests.count(), 1, "{moment}");
    let index = open(volume, tiny());
    assert_eq!(index.covered().len(), directories.len(), "{moment}");
    assert_eq!(blobs.len() as u64, index.stats().runs + 1, "{moment}: nothing is left over");
}

#[test]
fn power_loss_at_every_operation_is_recovered_from() {
    let directories = directories(90, 16);
    let whole = faulty();
    workload(&whole, &directories).unwrap();
    assert!(
        whole.count(OpKind::Remove) > 200,
        "{} removals: no shard was merged",
        whole.count(OpKind::Remove)
    );
    let mutations = whole.mutations();
    // Every point would be some 2,000 full runs; a stride coprime to the patterns visits every kind of step.
    let stride = (mutations / 150).max(1) | 1;
    for after_mutations in (0..mutations).filter(|n| n % stride == 0 || *n < 40) {
        for in_flight in [InFlight::Lost, InFlight::Done] {
            let volume = faulty();
            volume.crash_at(CrashPoint { after_mutations, in_flight });
            assert!(workload(&volume, &directories).is_err() && volume.has_crashed());
            let moment = format!("after {after_mutations} of {mutations}, {in_flight:?}");
            assert_recovers(&volume.survivor(), &directories, &moment);
        }
    }
}

#[test]
fn failed_writes_are_reported_and_lose_nothing() {
    let directories = directories(90, 16);
    for seed in 0..60 {
        let volume = faulty();
        Failure::seeded(seed, 3, 200).into_iter().for_each(|failure| volume.fail(failure));
        let outcome = workload(&volume, &directories);
        volume.heal();
        if let Err(error) = &outcome {
            assert!(!error.needs_rebuild(), "seed {seed}: {error}");
        }
        assert_recovers(&volume.survivor(), &directories, &format!("seed {seed}, {outcome:?}"));
    }
}

#[test]
fn a_write_that_may_not_be_durable_latches() {
    let directories = directories(20, 30);
    let volume = faulty();
    let index = open_on(&volume).unwrap();
    insert(&index, &directories, 1).unwrap();
    volume.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: true });
    let first = index.checkpoint().unwrap_err();
    assert!(!first.is_full() && first.to_string().contains("run-"), "{first}");
    volume.heal();
    let sealed = volume.count(OpKind::Seal);
    index.checkpoint().unwrap_err();
    assert_eq!(volume.count(OpKind::Seal), sealed, "nothing is retried");
    assert_eq!(index.get(&directories[&1][0].0, |_| true).unwrap(), Some(directories[&1][0].1));
}

/// A memtable fills while wide runs are distributed to the shards, and there is no room to write it.
#[test]
fn a_split_that_meets_a_full_disk_leaves_nothing_behind() {
    let directories = directories(4, 30);
    let volume = faulty();
    let options = IndexOptions { split_entries: u64::MAX, ..tiny() };
    let index = Index::open(volume.clone(), REPOSITORY, options).unwrap();
    for number in 1..=3 {
        insert(&index, &directories, number).unwrap();
        index.checkpoint().unwrap();
    }
    insert(&index, &directories, 4).unwrap();
    let shared = &index.shared;
    shared.change_view(|view| View {
        active: Arc::new(Memtable::new(view.active.generation + 1, 0).unwrap()),
        frozen: Some(Arc::clone(&view.active)),
        runs: Arc::clone(&view.runs),
    });
    let wide = shared.view().runs.wide.clone();
    let files = || holdfast_volume::testing::list(&*volume, "index").len();
    let before = files();
    // The run of the first shard, then the memtable.
    volume.fail_next(OpKind::Seal, 2, Fault::Full);
    let error = shared.split(&wide, 90).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(files(), before, "the run of the first shard is gone");
    volume.heal();
    shared.split(&wide, 90).unwrap();
    assert_all_found(&index, &directories);
    index.checkpoint().unwrap();
    drop(index);
    assert_recovers(&volume.survivor(), &directories, "after a split on a full disk");
}

#[test]
fn a_full_disk_is_tried_again_and_leaves_nothing_behind() {
    for background in [false, true] {
        let directories = directories(90, 16);
        let volume = faulty();
        let options = IndexOptions { background, ..tiny() };
        let index = Index::open(volume.clone(), REPOSITORY, options).unwrap();
        volume.limit_capacity(100_000);
        let failed = directories.keys().find(|&&number| {
            let full = insert(&index, &directories, number).and_then(|()| index.checkpoint());
            full.inspect_err(|error| assert!(error.is_full(), "{error}")).is_err()
        });
        let &failed = failed.expect("the disk is full");
        for _ in 0..3 {
            // Entries that are durable already may be checkpointed all the same.
            if let Err(error) = index.checkpoint().and_then(|()| insert(&index, &directories, failed)) {
                assert!(error.is_full(), "{error}");
            }
        }
        volume.heal();
        (failed..=90).for_each(|number| insert(&index, &directories, number).unwrap());
        index.checkpoint().unwrap();
        index.settle().unwrap();
        assert_all_found(&index, &directories);
        let blobs = holdfast_volume::testing::list(&*volume, "index");
        assert_eq!(blobs.len() as u64, index.stats().runs + 1);
        drop(index);
        assert_recovers(&volume.survivor(), &directories, "after a full disk");
    }
}
