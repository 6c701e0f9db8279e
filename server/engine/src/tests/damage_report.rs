//! Damage is named by VM, disk, restore point and byte range, and no longer once it has healed.

use std::sync::Arc;

use holdfast_catalog::{ByteRange, DamagedDisk, PageRequest};
use holdfast_types::ids::ContainerClass;
use holdfast_volume::{MemoryVolume, Volume as _};

use super::agent::{backup, restore, restore_past_damage};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Job, Step, StepLimits, StopFlag};
use holdfast_volume::testing::ManualTimer;

const MIB: usize = 1 << 20;

fn look(bench: &Bench, job: &dyn Job) {
    // Longer than any pause between two walks.
    bench.clock.advance_ms(3_600_000);
    while job.step(&Budget::unlimited()).unwrap() == Step::More {}
}

fn damaged(engine: &Engine) -> Vec<DamagedDisk> {
    engine.catalog().damaged_disks(None, None, 1000).unwrap()
}

/// Ranges that a restore past damage cannot read, neighbours joined.
fn bad_ranges(engine: &Engine, id: &str, disk: &str) -> Vec<ByteRange> {
    let (_, bad) = restore_past_damage(engine, id, disk).unwrap();
    let mut ranges: Vec<ByteRange> = Vec::new();
    for bad in bad {
        let (start, bytes) = (bad.offset as u64, bad.len as u64);
        match ranges.last_mut() {
            Some(last) if last.start + last.bytes == start => last.bytes += bytes,
            _ => ranges.push(ByteRange { start, bytes }),
        }
    }
    ranges
}

fn spoil(volume: &MemoryVolume, class: ContainerClass, change: impl Fn(&mut Vec<u8>)) {
    let all = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    let name = all.filter(|name| name.class == class).map(ContainerName::blob).next().unwrap();
    let mut bytes = volume.get(&name).unwrap().to_vec();
    change(&mut bytes);
    if bytes.is_empty() {
        volume.remove(&name).unwrap();
    } else {
        volume.replace(&name, bytes);
    }
}

fn flip(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
}

fn told(engine: &Engine, id: &str) -> Vec<String> {
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    let of = log.into_iter().filter(|record| record.entry.object == id).map(|record| record.entry.action);
    of.filter(|action| action != "backup.commit").collect()
}

/// Two restore points of one VM that share the damaged extent, one of another VM that is spared; then the next backup
/// brings it again, and both are whole.
fn named_and_healed(class: ContainerClass, change: impl Fn(&mut Vec<u8>)) {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let mut disk = noise(1, 10 * MIB);
    let first = backup(&engine, "web", &[("boot", &noise(7, 5000)), ("root", &disk)]).unwrap().backup_id;
    disk[9 * MIB..].copy_from_slice(&noise(3, MIB));
    let second = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    backup(&engine, "db", &[("root", &noise(2, 5 * MIB))]).unwrap();
    let job = engine.damage_report_job();
    look(&bench, &*job);
    assert_eq!(damaged(&engine), []);
    spoil(&volume, class, change);
    engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
    look(&bench, &*job);
    let found = damaged(&engine);
    let ids: Vec<String> = found.iter().map(|disk| disk.backup.to_string()).collect();
    assert!(ids.contains(&first), "{class:?}: {found:?}");
    for disk in &found {
        assert_eq!(disk.vm, "web", "{class:?}");
        let id = disk.backup.to_string();
        if let Ok(told) =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bad_ranges(&engine, &id, &disk.disk)))
        {
            assert_eq!(disk.lost.listed, told, "{class:?}, {}: as a restore past it says", disk.disk);
        }
        assert_eq!(disk.lost.bytes, disk.lost.listed.iter().map(|range| range.bytes).sum::<u64>());
        assert_eq!(told(&engine, &id), ["backup.damaged"]);
    }
    let hurt = engine.catalog().damage_totals(None).unwrap().restore_points;
    let mut distinct = ids.clone();
    distinct.dedup();
    assert_eq!(hurt, distinct.len() as u64);

    // The first disk is only in the first restore point: it heals by a backup that has it.
    backup(&engine, "web", &[("boot", &noise(7, 5000)), ("root", &disk)]).unwrap();
    let mut old = disk.clone();
    old[9 * MIB..].copy_from_slice(&noise(1, 10 * MIB)[9 * MIB..]);
    backup(&engine, "old", &[("boot", &noise(7, 5000)), ("root", &old)]).unwrap();
    look(&bench, &*job);
    assert_eq!(damaged(&engine), [], "{class:?}");
    assert!(
        restore(&engine, &first, "root").unwrap() == old
            && restore(&engine, &second, "root").unwrap() == disk
    );
    for id in ids {
        assert_eq!(told(&engine, &id), ["backup.healed", "backup.damaged"]);
    }
}

#[test]
fn a_flipped_bit() {
    named_and_healed(ContainerClass::Data, |bytes| flip(bytes));
}

#[test]
fn a_lost_container() {
    named_and_healed(ContainerClass::Data, Vec::clear);
}

#[test]
fn a_damaged_directory() {
    named_and_healed(ContainerClass::Data, |bytes| {
        let end = bytes.len() - 100;
        bytes[end..].fill(7);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    });
}

#[test]
fn a_damaged_recipe() {
    named_and_healed(ContainerClass::Recipe, |bytes| flip(bytes));
}

/// (V3) The copy that healed damage is lost in its turn: the first restore point, which was made before, lacks it, too.
#[test]
fn the_loss_of_what_made_up_for_damage_is_named() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 5 * MIB);
    let first = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let job = engine.damage_report_job();
    let newest = || {
        let all = list_containers(&volume).unwrap().containers.into_iter().map(|(name, _)| name);
        let newest = all.filter(|name| name.class == ContainerClass::Data).max_by_key(|name| name.id);
        newest.unwrap().blob()
    };
    let named = || {
        engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
        look(&bench, &*job);
        let mut named: Vec<_> = damaged(&engine).into_iter().map(|disk| disk.backup.to_string()).collect();
        named.sort();
        named
    };
    spoil(&volume, ContainerClass::Data, |bytes| flip(bytes));
    assert_eq!(named(), std::slice::from_ref(&first));
    // Another recipe, so that where the first one's chunks lie is not learnt anew.
    let other = [disk, noise(2, MIB)].concat();
    let second = backup(&engine, "db", &[("root", &other)]).unwrap().backup_id;
    assert_eq!(named(), [""; 0], "it has brought what was damaged");
    volume.remove(&newest()).unwrap();
    let mut both = [first, second];
    both.sort();
    assert_eq!(named(), both);
}

/// Stopped after every piece, it says the same.
#[test]
fn it_goes_on_between_any_two_pieces() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    for day in 0..3 {
        backup(&engine, "web", &[("a", &noise(day, 9 * MIB)), ("b", &noise(77, 5 * MIB))]).unwrap();
    }
    spoil(&volume, ContainerClass::Data, |bytes| flip(bytes));
    engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
    let job = engine.damage_report_job();
    look(&bench, &*job);
    let whole = damaged(&engine);
    assert!(!whole.is_empty());
    for disk in &whole {
        engine.catalog().set_lost(disk.backup, &[]).unwrap();
    }
    let small = StepLimits { items: 1, bytes: u64::MAX, time: std::time::Duration::from_secs(9) };
    let job = engine.damage_report_job();
    let mut steps = 0;
    while job.step(&Budget::new(small, Arc::new(ManualTimer::default()), StopFlag::default())).unwrap()
        == Step::More
    {
        steps += 1;
    }
    assert!(steps > 4, "{steps}");
    let again: Vec<_> = damaged(&engine).into_iter().map(|disk| (disk.backup, disk.lost)).collect();
    assert_eq!(again, whole.into_iter().map(|disk| (disk.backup, disk.lost)).collect::<Vec<_>>());
}

/// Containers that are only absent are not reported as lost.
#[test]
fn what_is_absent_is_not_named_as_lost() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    for vm in 0..12 {
        backup(&engine, &format!("vm-{vm}"), &[("root", &noise(vm, MIB))]).unwrap();
    }
    for (name, _) in list_containers(&volume).unwrap().containers {
        volume.remove(&name.blob()).unwrap();
    }
    engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
    assert!(engine.parts().0.store.absence().is_some());
    look(&bench, &*engine.damage_report_job());
    assert_eq!(damaged(&engine), []);
}
