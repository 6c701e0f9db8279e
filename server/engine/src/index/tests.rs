//! The index as a whole: against a model, across crashes, damage and failures.

use std::collections::BTreeMap;

use holdfast_proto::fingerprint::Fingerprint;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::MemoryVolume;
use ulid::Ulid;

use super::options::LiveFn;
use super::*;

mod crash;
mod damage;
mod model;

const REPOSITORY: RepositoryId = RepositoryId(Ulid(7));

/// The smallest memtables, early splits, everything in the caller's thread.
fn tiny() -> IndexOptions {
    IndexOptions {
        write_buffer_bytes: 0,
        split_entries: 600,
        background: false,
        new_secret: Some([3; 32]),
        ..IndexOptions::default()
    }
}

fn container(number: u64) -> ContainerId {
    ContainerId::new(number).unwrap()
}

fn location(number: u64, slot: u16) -> Location {
    Location { container: container(number), region: slot / 100, slot: slot % 100 }
}

/// The key of chunk `chunk`: uniform, as real ones are.
fn key(chunk: u64) -> IndexKey {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *Fingerprint::of(&chunk.to_le_bytes()).as_bytes();
    IndexKey([a, b, c, d, e, f, g, h, i, j, k, l])
}

/// Every candidate the index has for a key.
fn candidates(index: &Index, key: &IndexKey) -> Vec<Location> {
    let mut found = Vec::new();
    let answer = index.get(key, |location| {
        found.push(location);
        false
    });
    assert_eq!(answer.unwrap(), None, "nothing was accepted");
    found
}

/// Container directories: what an index can always be fed from.
type Directories = BTreeMap<u64, Vec<(IndexKey, Location)>>;

/// `count` containers of `chunks` chunks each.
fn directories(count: u64, chunks: u16) -> Directories {
    let chunk = |number: u64, slot: u16| (key(number << 16 | u64::from(slot)), location(number, slot));
    (1..=count).map(|number| (number, (0..chunks).map(|slot| chunk(number, slot)).collect())).collect()
}

fn insert(index: &Index, directories: &Directories, number: u64) -> Result<(), IndexError> {
    index.insert_container(container(number), directories[&number].iter().copied())
}

/// Replays uncovered containers, as recovery does.
fn replay(index: &Index, directories: &Directories) {
    for &number in directories.keys() {
        if !index.is_covered(container(number)) {
            insert(index, directories, number).unwrap();
        }
    }
}

fn assert_all_found(index: &Index, directories: &Directories) {
    for (key, location) in directories.values().flatten() {
        assert_eq!(index.get(key, |_| true).unwrap(), Some(*location), "{key:?}");
    }
}

fn open(volume: &MemoryVolume, options: IndexOptions) -> Index {
    Index::open(Arc::new(volume.clone()), REPOSITORY, options).unwrap()
}

/// (I2) Entries that are only in memory would be lost with the process, and must be replayed by the next.
#[test]
fn a_container_counts_as_covered_once_its_entries_are_in_sorted_runs() {
    let (volume, directories) = (MemoryVolume::new(), directories(2, 16));
    let index = open(&volume, tiny());
    insert(&index, &directories, 1).unwrap();
    assert!(!index.is_covered(container(1)));
    index.checkpoint().unwrap();
    insert(&index, &directories, 2).unwrap();
    assert!(index.is_covered(container(1)) && !index.is_covered(container(2)));
}

#[test]
fn namespaces_never_meet() {
    let index = open(&MemoryVolume::new(), tiny());
    let [ours, theirs] = [1, 2].map(|n| index.key_for(NamespaceId(Ulid(n)), ContainerClass::Data));
    let fingerprint = Fingerprint::of(b"secret");
    index.insert_container(container(1), [(ours.of(&fingerprint), location(1, 0))]).unwrap();
    assert_eq!(index.get(&ours.of(&fingerprint), |_| true).unwrap(), Some(location(1, 0)));
    assert_eq!(index.get(&theirs.of(&fingerprint), |_| true).unwrap(), None);
}

#[test]
fn the_secret_outlives_a_restart_and_a_new_index_has_another() {
    let fingerprint = Fingerprint::of(b"x");
    let options = || IndexOptions { new_secret: None, ..tiny() };
    let of = |index: &Index| index.key_for(NamespaceId(Ulid(1)), ContainerClass::Data).of(&fingerprint);
    let volume = MemoryVolume::new();
    let index = open(&volume, options());
    index.insert_container(container(1), [(of(&index), location(1, 0))]).unwrap();
    index.checkpoint().unwrap();
    let again = open(&volume, options());
    assert_eq!(of(&index), of(&again));
    assert_ne!(of(&index), of(&open(&MemoryVolume::new(), options())));
}

#[test]
fn the_accepted_candidate_wins_and_the_newest_is_asked_first() {
    let index = open(&MemoryVolume::new(), tiny());
    for number in 1..=5 {
        index.insert_container(container(number), [(key(9), location(number, 0))]).unwrap();
        if number % 2 == 0 {
            index.checkpoint().unwrap();
        }
    }
    assert_eq!(index.get(&key(9), |_| true).unwrap(), Some(location(5, 0)));
    assert_eq!(index.get(&key(9), |at| at.container.get() == 2).unwrap(), Some(location(2, 0)));
    assert_eq!(candidates(&index, &key(9)).len(), 5);
    assert_eq!(index.get(&key(10), |_| true).unwrap(), None);
}

#[test]
fn a_key_with_more_copies_than_a_page_holds_keeps_them_all() {
    let volume = MemoryVolume::new();
    let index = open(&volume, IndexOptions { write_buffer_bytes: 4 << 20, ..tiny() });
    for number in 1..=1000 {
        let others = (0..3).map(|slot| (key(number << 16 | slot), location(number, 1)));
        index.insert_container(container(number), others.chain([(key(0), location(number, 0))])).unwrap();
    }
    index.checkpoint().unwrap();
    let found = candidates(&index, &key(0));
    let newest_first: Vec<_> = (1..=1000).rev().map(|number| location(number, 0)).collect();
    assert_eq!(found, newest_first);
    assert_eq!(index.stats().memtable_entries, 0, "they were read from pages");
}

/// (I5) Pages are read as long as nothing was accepted, one at a time.
#[test]
fn copies_are_asked_for_page_by_page() {
    use holdfast_volume::testing::{FaultyVolume, OpKind};
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let options = IndexOptions { write_buffer_bytes: 4 << 20, ..tiny() };
    let index = Index::open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume), REPOSITORY, options).unwrap();
    for number in 1..=2000 {
        index.insert_container(container(number), [(key(0), location(number, 0))]).unwrap();
    }
    index.checkpoint().unwrap();
    let reads = |wanted: u64| {
        let before = volume.count(OpKind::Read);
        assert_eq!(index.get(&key(0), |at| at.container.get() == wanted).unwrap(), Some(location(wanted, 0)));
        volume.count(OpKind::Read) - before
    };
    assert_eq!(reads(2000), 1);
    assert!(reads(1) >= 2000 / 204, "a page has some 200 entries");
}

#[test]
fn shards_fill_and_merges_keep_everything() {
    let volume = MemoryVolume::new();
    let directories = directories(120, 100);
    let index = open(&volume, tiny());
    replay(&index, &directories);
    index.checkpoint().unwrap();
    let stats = index.stats();
    assert!(stats.runs > 64 && stats.depth <= 3 + 4, "{stats:?}");
    assert!(stats.merged_entries > 0);
    assert_eq!(stats.entries, 12_000);
    assert_eq!(stats.covered_containers, 120);
    assert_eq!(index.verify().unwrap(), 12_000);
    assert_all_found(&index, &directories);
    drop(index);
    let index = open(&volume, tiny());
    assert_eq!(index.covered().len(), 120);
    assert_all_found(&index, &directories);
    let passed = (1 << 40..(1 << 40) + 2000).filter(|&n| index.get(&key(n), |_| true).unwrap().is_some());
    assert_eq!(passed.count(), 0);
}

#[test]
fn merges_drop_what_is_not_live_and_exact_duplicates() {
    let live: LiveFn = Arc::new(|id| id.get() % 2 == 0);
    let index = open(&MemoryVolume::new(), IndexOptions { live, ..tiny() });
    let directories = directories(4, 5);
    for _ in 0..5 {
        replay_all(&index, &directories);
        index.checkpoint().unwrap();
    }
    assert_eq!(index.verify().unwrap(), 10 + 20, "four runs merged, then one more");
}

fn replay_all(index: &Index, directories: &Directories) {
    directories.keys().for_each(|&number| insert(index, directories, number).unwrap());
}

#[test]
fn containers_without_entries_and_forgotten_ones_are_right_after_reopening() {
    let volume = MemoryVolume::new();
    let index = open(&volume, tiny());
    index.insert_container(container(1), []).unwrap();
    index.insert_container(container(2), [(key(2), location(2, 0))]).unwrap();
    index.checkpoint().unwrap();
    index.insert_container(container(3), []).unwrap();
    index.checkpoint().unwrap();
    assert_eq!(index.covered(), [1, 2, 3].map(container));
    index.forget_container(container(2));
    assert!(!index.is_covered(container(2)));
    drop(index);
    let index = open(&volume, tiny());
    assert!(index.is_covered(container(2)), "no manifest was written since");
    index.forget_container(container(2));
    index.checkpoint().unwrap();
    drop(index);
    assert_eq!(open(&volume, tiny()).covered(), [1, 3].map(container));
}

#[test]
fn entries_of_other_containers_are_refused() {
    let index = open(&MemoryVolume::new(), tiny());
    let error = index.insert_container(container(1), [(key(1), location(2, 0))]).unwrap_err();
    assert!(matches!(error, IndexError::OtherContainer { .. }), "{error}");
    let last = container((1 << 40) - 1);
    let error = index.insert_container(last, []).unwrap_err();
    assert!(matches!(error, IndexError::ReservedContainer(_)), "{error}");
}

#[test]
fn many_threads_insert_and_look_up_while_runs_merge() {
    let volume = MemoryVolume::new();
    let index = open(&volume, IndexOptions { background: true, merge_bytes_per_sec: u64::MAX, ..tiny() });
    let directories = directories(200, 100);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (index, directories) = (&index, &directories);
            scope.spawn(move || {
                for number in (1..=200).filter(|n| n % 4 == part) {
                    insert(index, directories, number).unwrap();
                    for earlier in (1..=number).filter(|n| n % 4 == part) {
                        let (key, location) = directories[&earlier][0];
                        assert_eq!(index.get(&key, |_| true).unwrap(), Some(location));
                    }
                }
            });
        }
    });
    index.checkpoint().unwrap();
    index.settle().unwrap();
    assert_eq!(index.stats().entries, 20_000);
    assert_eq!(index.covered().len(), 200);
    assert_all_found(&index, &directories);
    drop(index);
    let index = open(&volume, tiny());
    assert_eq!(index.covered().len(), 200);
    assert_all_found(&index, &directories);
}

#[test]
fn a_panic_in_the_background_is_an_error_in_the_foreground() {
    let live: LiveFn = Arc::new(|_| panic!("catalog is gone"));
    let index = open(&MemoryVolume::new(), IndexOptions { background: true, live, ..tiny() });
    let directories = directories(400, 20);
    let error = directories.keys().find_map(|&number| insert(&index, &directories, number).err());
    let text = error.or_else(|| index.settle().err()).unwrap().to_string();
    assert!(text.contains("catalog is gone"), "{text}");
    assert!(index.get(&key(1), |_| true).is_ok(), "lookups go on");
}

#[test]
fn keys_are_pinned_and_differ_by_namespace_and_secret() {
    let fingerprint = Fingerprint::of(b"chunk");
    let of = |secret: u8, namespace: u128| {
        NamespaceKey::derive(&[secret; 32], NamespaceId(Ulid(namespace)), ContainerClass::Data)
            .of(&fingerprint)
    };
    assert_eq!(of(1, 2), of(1, 2));
    assert_ne!(of(1, 2), of(1, 3), "namespaces must not meet");
    assert_ne!(of(1, 2), of(2, 2));
    let recipes = NamespaceKey::derive(&[1; 32], NamespaceId(Ulid(2)), ContainerClass::Recipe);
    assert_ne!(of(1, 2), recipes.of(&fingerprint), "a chunk must not be answered with a recipe");
    let hex: String = of(1, 2).0.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, "03349ea5b73c4a2d31bbe1dd");
}
