//! Merging keeps chunks together that are restored together.

use std::collections::BTreeSet;

use holdfast_types::ids::BackupId;
use holdfast_volume::MemoryVolume;

use super::*;
use crate::container::RecentDirectories;
use crate::engine::Engine;
use crate::reclaim::repack::{RepackOptions, copy_forward};
use crate::reclaim::roots::Roots;
use crate::tests::agent::{backup, restore};
use crate::tests::{Bench, namespace, noise};

const MIB: usize = 1 << 20;
const DAYS: u64 = 30;

/// Reads that a restore of a disk makes.
#[derive(Debug, Default)]
struct Locality {
    extents: u64,
    /// Regions that each extent needs, added up: what is read when nothing is kept.
    regions: u64,
    /// Number of regions that are neither the one before nor the one behind it.
    jumps: u64,
}

/// The measure of an order: which regions an extent is read from, in the order of the disk.
fn locality(core: &Core, root: &Root) -> Locality {
    let domain = core.store.domain(root.namespace);
    let source = NodeReader::new(Arc::clone(&core.store), domain.clone());
    let tree = TreeReader::open(source, root.fingerprint, root.size_bytes).unwrap();
    let (mut found, mut last) = (Locality::default(), None);
    for index in 0..tree.extent_count() {
        let Some(extent) = tree.extent(index).unwrap() else { continue };
        let mut regions = BTreeSet::new();
        for piece in extent.pieces().iter().filter(|piece| !piece.is_zero()) {
            let mut recent = RecentDirectories::default();
            let class = ContainerClass::Data;
            let hit = core.store.find(&domain, class, &piece.fingerprint, &mut recent).unwrap().unwrap();
            regions.insert((hit.location.container, hit.location.region));
        }
        found.extents += 1;
        found.regions += regions.len() as u64;
        for (container, region) in regions {
            let follows = last.is_some_and(|(of, before): (ContainerId, u16)| {
                of == container && (before == region || before + 1 == region)
            });
            found.jumps += u64::from(!follows);
            last = Some((container, region));
        }
    }
    found
}

/// A disk of which a little changes every day, here and there.
fn disk_of_day(day: u64) -> Vec<u8> {
    let mut disk = noise(1, 12 * MIB);
    for past in 1..=day {
        for change in 0..5 {
            let place = u64::from_le_bytes(*noise(past * 1000 + change, 8).first_chunk().unwrap());
            let at = usize::try_from(place % (disk.len() as u64 - 8192)).unwrap();
            disk[at..at + 8192].copy_from_slice(&noise(past * 7919 + change, 8192));
        }
    }
    disk
}

fn backed_up(bench: &Bench, engine: &Engine) -> Vec<BackupId> {
    (0..=DAYS)
        .map(|day| {
            bench.clock.advance_ms(86_400_000);
            let id = backup(engine, "web", &[("root", &disk_of_day(day))]).unwrap().backup_id;
            id.parse().unwrap()
        })
        .collect()
}

fn small_containers(engine: &Engine) -> Vec<Chosen> {
    let core = engine.parts().0;
    let all = core.catalog.containers(None, 1000).unwrap();
    let small = all.into_iter().filter(|row| row.class == ContainerClass::Data && row.stored_bytes < 2 << 20);
    small
        .map(|row| {
            let live = SlotSet::full(u32::try_from(row.chunk_count).unwrap());
            Chosen { id: row.id, class: row.class, namespace: row.namespace, vm: None, live }
        })
        .collect()
}

#[test]
fn merging_thirty_days_of_small_runs_makes_the_restore_of_the_newest_better() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let points = backed_up(&bench, &engine);
    let core = engine.parts().0;
    let root_of = |backup: BackupId| Roots::of(core, &[backup]).unwrap().iter().next().unwrap().clone();
    let (first, newest) = (root_of(points[0]), root_of(*points.last().unwrap()));
    let (day0, before) = (locality(core, &first), locality(core, &newest));
    let chosen = small_containers(&engine);
    assert_eq!(chosen.len(), usize::try_from(DAYS).unwrap());
    let mut groups = batches(chosen);
    let batch = groups.pop().unwrap();
    assert!(groups.is_empty(), "all of it is one batch");
    let victims = batch.open(core).unwrap();
    let roots = Roots::load(core).unwrap();
    let control = Control::default();
    let order = batch.read_order(core, &victims, roots.iter(), &control).unwrap();
    let options = RepackOptions { order, ..RepackOptions::default() };
    let copied = copy_forward(core, &victims, &options, &control);
    assert!(copied.ended.is_none(), "{:?}", copied.ended);
    assert_eq!((copied.containers.len(), copied.complete.len()), (1, victims.len()));
    let after = locality(core, &newest);
    assert!(
        after.regions * 3 <= before.regions * 2 && after.jumps * 2 <= before.jumps,
        "{before:?} before, {after:?} after"
    );
    // The first restore point was written in one piece; the newest now reads a few regions more for each extent.
    assert!(after.regions * 3 <= day0.regions * 5, "{after:?} of the newest, {day0:?} of the first");
    core.catalog.add_containers(&copied.containers).unwrap();
    let restored = restore(&engine, &points.last().unwrap().to_string(), "root").unwrap();
    assert_eq!(restored, disk_of_day(DAYS));
}

/// Written as they come, small containers merge just as well into few containers, but not into few reads: the order is
/// what makes the difference.
#[test]
fn chunks_that_only_older_restore_points_read_are_behind_the_others() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let points = backed_up(&bench, &engine);
    let core = engine.parts().0;
    let batch = batches(small_containers(&engine)).pop().unwrap();
    let victims = batch.open(core).unwrap();
    let control = Control::default();
    let roots = Roots::load(core).unwrap();
    let order = batch.read_order(core, &victims, roots.iter(), &control).unwrap().unwrap();
    let read = order.len();
    let options = RepackOptions { order: Some(order), ..RepackOptions::default() };
    let copied = copy_forward(core, &victims, &options, &control);
    let new = core.store.containers.get(copied.containers[0].id, ContainerClass::Data).unwrap();
    let newest = Roots::of(core, &[*points.last().unwrap()]);
    let newest = newest.unwrap().iter().next().unwrap().clone();
    let source = NodeReader::new(Arc::clone(&core.store), core.store.domain(namespace(&engine)));
    let tree = TreeReader::open(source, newest.fingerprint, newest.size_bytes).unwrap();
    let mut wanted = BTreeSet::new();
    for index in 0..tree.extent_count() {
        if let Some(extent) = tree.extent(index).unwrap() {
            wanted.extend(extent.pieces().iter().map(|piece| piece.fingerprint));
        }
    }
    let is_wanted: Vec<bool> =
        new.directory().iter().map(|(fingerprint, _, _)| wanted.contains(&fingerprint)).collect();
    let read = usize::try_from(read).unwrap();
    let of_these = is_wanted[..read].iter().filter(|wanted| **wanted).count();
    // A region that is read together as a whole may bring a few chunks with it that are not read.
    assert!(of_these * 20 >= read * 19, "{of_these} of the first {read} are read");
    assert!(is_wanted.len() > read, "some chunks were changed again later");
}

#[test]
fn batches_are_of_one_namespace_class_and_vm_and_bounded() {
    let one = |number: u64, namespace: u8, class, vm: Option<u8>, live: u32| Chosen {
        id: ContainerId::new(number).unwrap(),
        class,
        namespace: NamespaceId::from_bytes([namespace; 16]),
        vm: vm.map(|vm| VmId::from_bytes([vm; 16])),
        live: SlotSet::full(live),
    };
    let (data, recipe) = (ContainerClass::Data, ContainerClass::Recipe);
    let mixed = vec![
        one(9, 1, data, Some(1), 5),
        one(1, 1, data, Some(2), 5),
        one(2, 1, recipe, Some(1), 5),
        one(3, 1, data, Some(1), 5),
        one(4, 2, data, Some(1), 5),
        one(5, 1, data, None, 5),
    ];
    let numbers = |batches: Vec<Batch>| -> Vec<Vec<u64>> {
        batches.iter().map(|batch| batch.chosen.iter().map(|one| one.id.get()).collect()).collect()
    };
    assert_eq!(numbers(batches(mixed)), [vec![5], vec![3, 9], vec![1], vec![2], vec![4]]);
    let many = (0..300).map(|number| one(number, 1, data, None, 1)).collect();
    assert_eq!(batches(many).iter().map(|batch| batch.chosen.len()).collect::<Vec<_>>(), [128, 128, 44]);
    let large = (0..3).map(|number| one(number, 1, data, None, 600_000)).collect();
    assert_eq!(batches(large).len(), 3);
}
