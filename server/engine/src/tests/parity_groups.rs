//! A second fault in a group of parity while the first one is repaired, and parity that rots itself.

use std::sync::Arc;

use holdfast_catalog::ParityGroup;
use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::testing::{list, put};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{backup, restore, restore_past_damage};
use super::bad_sector::{Bad, BadSector};
use super::parity::{MIB, disk, flip, names, protected, scheme, scrub, whole, work};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, OpenContainer};
use crate::engine::Engine;
use crate::format::container::REGION_HEADER_BYTES;
use crate::format::parity::{HEADER_BYTES, ParityHeader, ParityTable, WINDOW_BYTES};
use crate::jobs::NoProgress;

/// Offset in a container's header: damage there keeps it from being opened.
const IN_HEADER: usize = 20;

/// A reader meets what is wrong with a container as a whole.
fn meet(engine: &Engine, name: ContainerName) {
    let (core, _) = engine.parts();
    let record = core.catalog.container(name.id).unwrap().unwrap();
    let error = core.store.open_afresh(&record).unwrap_err();
    core.store.note_failure(name.id, None, &error);
}

fn is_protected(engine: &Engine, id: ContainerId) -> bool {
    engine.catalog().parity_group_of(id).unwrap().is_some()
}

/// Returns true if the restore points are whole without parity.
fn whole_without_parity(engine: &Engine, volume: &MemoryVolume, ids: &[String]) -> bool {
    for blob in list(volume, "parity") {
        volume.remove(&blob.name).unwrap();
    }
    whole(engine, ids)
}

/// (E7) One container cannot be opened, and another has rotted elsewhere, which no one has seen yet.
#[test]
fn what_rotted_elsewhere_is_made_again_before_a_container_leaves_its_group() {
    for late in [1, 3] {
        let (bench, volume, engine, ids) = protected(1);
        let all = names(&volume, ContainerClass::Data);
        flip(&volume, all[0], IN_HEADER);
        flip(&volume, all[late], MIB);
        meet(&engine, all[0]);
        work(&bench, &engine, None);
        assert!(!names(&volume, ContainerClass::Data).contains(&all[0]), "it left");
        assert!(whole_without_parity(&engine, &volume, &ids), "{late}");
        assert!(engine.parts().0.store.open_damage().is_empty());
    }
}

/// (E7) As above where both cannot be opened, and one of them is not there at all.
#[test]
fn two_that_cannot_be_opened_are_both_made_again() {
    let (bench, volume, engine, ids) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    flip(&volume, all[1], IN_HEADER);
    let last = volume.get(&all[3].blob()).unwrap().len() - 10;
    flip(&volume, all[3], last);
    assert_eq!(scrub(&engine), 2);
    work(&bench, &engine, scheme(4, 1));
    assert!(whole_without_parity(&engine, &volume, &ids));
    assert!(engine.parts().0.store.open_damage().is_empty());
}

/// (E7) One of two spares is used up by what was deleted; the other repairs before it is given up.
#[test]
fn a_group_repairs_what_no_one_has_read_before_it_is_given_up() {
    let (bench, volume, engine, ids) = protected(2);
    let all = names(&volume, ContainerClass::Data);
    flip(&volume, all[0], MIB);
    engine.delete_backups(&[ids[2].parse().unwrap()], "test", "not needed").unwrap();
    super::reclaim::reclaim(&engine);
    assert!(!names(&volume, ContainerClass::Data).contains(&all[2]));
    work(&bench, &engine, None);
    assert!(!is_protected(&engine, all[1].id), "given up");
    assert!(restore(&engine, &ids[0], "root").unwrap() == disk(0));
    assert!(engine.parts().0.store.open_damage().is_empty());
}

/// (E7) Reclaim takes a container of which nothing is needed, and which is damaged, no sooner.
#[test]
fn reclaim_reads_the_others_before_a_damaged_container_goes() {
    let (bench, volume, engine, ids) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    flip(&volume, all[2], IN_HEADER);
    flip(&volume, all[0], MIB);
    meet(&engine, all[2]);
    engine.delete_backups(&[ids[2].parse().unwrap()], "test", "not needed").unwrap();
    for _ in 0..3 {
        super::reclaim::reclaim(&engine);
    }
    assert!(!names(&volume, ContainerClass::Data).contains(&all[2]), "it goes all the same");
    work(&bench, &engine, None);
    for vm in [0, 1, 3] {
        assert!(restore(&engine, &ids[vm], "root").unwrap() == disk(vm as u64), "{vm}");
    }
}

/// Containers of different lengths in one group, shortest first.
fn of_lengths() -> (Bench, MemoryVolume, Engine, Vec<(String, Vec<u8>)>) {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let disks = [5, 6, 7].map(|half: usize| noise(half as u64, half * MIB / 2));
    let made = disks.into_iter().enumerate().map(|(vm, disk)| {
        (backup(&engine, &format!("vm-{vm}"), &[("root", &disk)]).unwrap().backup_id, disk)
    });
    let made = made.collect();
    work(&bench, &engine, scheme(3, 1));
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 2);
    (bench, volume, engine, made)
}

/// (E2) Damage in other members past the end of a lost container costs that container nothing.
#[test]
fn a_container_is_made_again_of_its_own_windows() {
    let (bench, volume, engine, made) = of_lengths();
    let all = names(&volume, ContainerClass::Data);
    volume.remove(&all[0].blob()).unwrap();
    flip(&volume, all[2], 3 * MIB + MIB / 4);
    assert!(restore(&engine, &made[0].0, "root").unwrap() == made[0].1);
    scrub(&engine);
    work(&bench, &engine, None);
    for (id, disk) in &made {
        assert!(restore(&engine, id, "root").unwrap() == *disk);
    }
    assert!(engine.parts().0.store.open_damage().is_empty());
}

/// (E2) Where a window cannot be made again, the others are.
#[test]
fn a_container_is_made_again_in_part() {
    // In the middle, and where its header and its directory are.
    for place in ["middle", "header", "directory"] {
        let (bench, volume, engine, ids) = protected(1);
        let all = names(&volume, ContainerClass::Data);
        let len = volume.get(&all[1].blob()).unwrap().len();
        let at = match place {
            "middle" => MIB + 77,
            "header" => WINDOW_BYTES as usize / 2,
            _ => len - 5000,
        };
        volume.remove(&all[1].blob()).unwrap();
        flip(&volume, all[2], at);
        let lost = |engine: &Engine| {
            let (image, bad) = restore_past_damage(engine, &ids[1], "root").unwrap();
            let mut wanted = disk(1);
            for range in &bad {
                wanted[range.offset..][..range.len].fill(0);
            }
            assert!(image == wanted, "{place}: wrong bytes");
            bad.iter().map(|range| range.len).sum::<usize>()
        };
        assert!(lost(&engine) < MIB, "{place}: {} bytes are lost", lost(&engine));
        scrub(&engine);
        work(&bench, &engine, None);
        assert!(lost(&engine) < MIB, "{place}: {} bytes are lost", lost(&engine));
        // Chunks that could be reconstructed count for backups.
        let before = names(&volume, ContainerClass::Data).len();
        assert!(before > 3, "{place}: it was written anew");
        let again = backup(&engine, "vm-1", &[("root", &disk(1))]).unwrap().backup_id;
        assert!(restore(&engine, &again, "root").unwrap() == disk(1));
        assert!(restore(&engine, &ids[1], "root").unwrap() == disk(1), "{place}: healed");
    }
}

/// (V6, E8) Damage anywhere in parity is found by the scrub, and the parity made anew before it is needed.
#[test]
fn parity_that_rots_or_is_lost_is_made_anew() {
    type Change = dyn Fn(&MemoryVolume, &BlobName, Vec<u8>);
    let flip_at = |place: fn(usize) -> usize| {
        move |volume: &MemoryVolume, name: &BlobName, mut bytes: Vec<u8>| {
            let at = place(bytes.len());
            bytes[at] ^= 1;
            volume.replace(name, bytes);
        }
    };
    let changes: [&Change; 5] = [
        &flip_at(|_| 20),
        &flip_at(|_| MIB),
        &flip_at(|len| len - 100),
        &|volume, name, bytes| volume.replace(name, bytes[..bytes.len() / 2].to_vec()),
        &|volume, name, _| volume.remove(name).unwrap(),
    ];
    for (place, change) in changes.iter().enumerate() {
        let (bench, volume, engine, ids) = protected(1);
        let lost = names(&volume, ContainerClass::Data)[1];
        let group = engine.catalog().parity_group_of(lost.id).unwrap().unwrap();
        let name = crate::parity::name(group);
        change(&volume, &name, volume.get(&name).unwrap().to_vec());
        let damaged = || engine.catalog().parity_totals().unwrap().damaged;
        let check = || engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        assert!(check().problems.iter().any(|one| one.object == format!("parity {group}")), "{place}");
        engine.catalog().mark_parity_group(group, false).unwrap();
        assert_eq!((scrub(&engine), damaged()), (0, 1), "{place}: no container is damaged");
        work(&bench, &engine, scheme(4, 1));
        assert_eq!(list(&volume, "parity").len(), 2, "{place}");
        let totals = engine.catalog().parity_totals().unwrap();
        assert_eq!((totals.groups, totals.containers, totals.damaged), (2, 8, 0), "{place}");
        assert!(check().is_sound(), "{place}");
        volume.remove(&lost.blob()).unwrap();
        assert!(whole(&engine, &ids), "{place}");
    }
}

/// (E4) Parity that cannot be read at the moment is not removed, and does not stop the other groups.
#[test]
fn parity_that_cannot_be_read_now_is_kept() {
    let (bench, memory) = (Bench::new(), MemoryVolume::new());
    let bad = Bad::default();
    let volume = Arc::new(BadSector { inner: memory.clone(), bad: Arc::clone(&bad) });
    let engine = bench.open(Arc::<BadSector>::clone(&volume));
    let ids = super::parity::backups(&engine);
    work(&bench, &engine, scheme(4, 1));
    let blobs = list(&memory, "parity");
    for blob in &blobs {
        engine.catalog().remove_parity_group(crate::parity::parse(&blob.name).unwrap()).unwrap();
    }
    engine.shutdown().unwrap();
    drop(engine);
    *bad.lock() = Some((blobs[0].name.clone(), 0..10, u32::MAX));
    let engine = bench.open(Arc::<BadSector>::clone(&volume));
    work(&bench, &engine, None);
    assert_eq!(list(&memory, "parity").len(), 2, "nothing was removed");
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 1, "the other one was entered");
    *bad.lock() = None;
    engine.shutdown().unwrap();
    drop(engine);
    let engine = bench.open(Arc::<BadSector>::clone(&volume));
    work(&bench, &engine, None);
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 2);
    memory.remove(&names(&memory, ContainerClass::Data)[0].blob()).unwrap();
    assert!(whole(&engine, &ids));
}

/// (E9) A region's header is needed only where there is no directory: a header that rotted is no damage for any reader.
#[test]
fn a_regions_header_that_rotted_is_no_damage() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = super::parity::backups(&engine);
    let name = names(&volume, ContainerClass::Data)[1];
    let (core, _) = engine.parts();
    let open = core.store.containers.get(name.id, name.class).unwrap();
    let at = open.directory().region(3).unwrap().offset as usize;
    flip(&volume, name, at + REGION_HEADER_BYTES / 2);
    let before = core.store.damage_generation(super::namespace(&engine));
    work(&bench, &engine, scheme(4, 1));
    assert_eq!(core.store.damage_generation(super::namespace(&engine)), before, "nothing was noted");
    assert!(is_protected(&engine, name.id), "and it is protected like any other");
    volume.remove(&name.blob()).unwrap();
    assert!(whole(&engine, &ids));
}

fn parity_of(volume: &MemoryVolume, group: ContainerId) -> (Vec<u8>, ParityHeader, ParityTable) {
    let bytes = volume.get(&crate::parity::name(group)).unwrap().to_vec();
    let header = ParityHeader::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let at = usize::try_from(header.table_offset()).unwrap();
    let table = ParityTable::decode(&header, &bytes[at..]).unwrap();
    (bytes, header, table)
}

/// (E2) Parity that says another length of a container is of one that had its number before: it is neither used nor
/// entered.
#[test]
fn parity_of_a_container_of_another_length_is_not_used() {
    let (bench, volume, engine, _) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    let (core, _) = engine.parts();
    let group = core.catalog.parity_group_of(all[3].id).unwrap().unwrap();
    let record = core.catalog.container(all[3].id).unwrap().unwrap();
    volume.remove(&all[3].blob()).unwrap();
    assert!(core.store.made_again(&record).unwrap().is_some());
    let longer = holdfast_catalog::ContainerRecord { stored_bytes: record.stored_bytes + 1, ..record };
    assert!(core.store.made_again(&longer).unwrap().is_none());
    let (mut bytes, header, mut table) = parity_of(&volume, group);
    bytes.truncate(usize::try_from(header.table_offset()).unwrap());
    table.members[0].stored_bytes -= 1;
    bytes.extend(table.encode());
    volume.replace(&crate::parity::name(group), bytes);
    engine.catalog().remove_parity_group(group).unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume.clone()));
    work(&bench, &engine, None);
    assert!(!engine.catalog().has_parity_group(group).unwrap(), "not entered");
}

/// (R1) A blob that says of itself that it is another group's, or another repository's, is neither used nor entered.
#[test]
fn parity_that_belongs_elsewhere_is_not_used() {
    let (bench, volume, engine, ids) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    let (core, _) = engine.parts();
    let group = core.catalog.parity_group_of(all[0].id).unwrap().unwrap();
    let (bytes, header, _) = parity_of(&volume, group);
    let another = ParityHeader { repository: holdfast_types::ids::RepositoryId(ulid::Ulid(5)), ..header };
    let elsewhere = ParityHeader { number: header.number + 1, ..header };
    for (header, put_as) in [(another, "parity/00000fffff"), (elsewhere, "parity/00000ffffe")] {
        let mut bytes = bytes.clone();
        bytes[..HEADER_BYTES].copy_from_slice(&header.encode());
        volume.replace(&crate::parity::name(group), bytes.clone());
        let read = || crate::parity::read_members(&volume, core.repository, group);
        assert!(read().unwrap_err().to_string().contains("another"), "{header:?}");
        put(&volume, put_as, &bytes);
    }
    volume.replace(&crate::parity::name(group), bytes);
    work(&bench, &engine, None);
    assert_eq!(list(&volume, "parity").len(), 2, "what belongs elsewhere was not entered");
    volume.remove(&all[2].blob()).unwrap();
    assert!(whole(&engine, &ids));
    assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).is_ok());
    let open = OpenContainer::open(&volume, core.repository, all[0].id, all[0].class);
    assert!(open.is_ok());
}

/// (E10) A container is lost, and the catalog that knew it is too: its parity is all that tells of it.
#[test]
fn what_was_lost_with_the_catalog_is_made_again() {
    for needed in [true, false] {
        let (bench, volume, engine, ids) = protected(1);
        let lost = names(&volume, ContainerClass::Data)[1];
        let group = engine.catalog().parity_group_of(lost.id).unwrap().unwrap();
        if !needed {
            engine.delete_backups(&[ids[1].parse().unwrap()], "test", "not needed").unwrap();
        }
        engine.catalog().remove_parity_group(group).unwrap();
        engine.catalog().condemn_containers(&[lost.id]).unwrap();
        engine.catalog().remove_condemned(&[lost.id]).unwrap();
        drop(engine);
        volume.remove(&lost.blob()).unwrap();
        let engine = bench.open(Arc::new(volume.clone()));
        work(&bench, &engine, None);
        assert!(!engine.catalog().has_parity_group(group).unwrap());
        assert!(volume.get(&crate::parity::name(group)).is_none(), "it goes once nothing is lacking");
        let containers = names(&volume, ContainerClass::Data).len();
        assert_eq!(containers, if needed { 4 } else { 3 }, "what was deleted does not come back");
        assert!(restore(&engine, &ids[0], "root").unwrap() == disk(0));
        if needed {
            assert!(whole(&engine, &ids));
        }
    }
}

/// (E8) A catalog that is older than the replacement of a group's parity takes the new one over, not the one that is gone.
#[test]
fn an_older_catalog_takes_over_parity_that_was_made_anew() {
    let (bench, volume, engine, ids) = protected(1);
    let first = names(&volume, ContainerClass::Data)[0];
    let group = engine.catalog().parity_group_of(first.id).unwrap().unwrap();
    volume.remove(&crate::parity::name(group)).unwrap();
    assert_eq!(scrub(&engine), 0);
    work(&bench, &engine, scheme(4, 1));
    let anew = engine.catalog().parity_group_of(first.id).unwrap().unwrap();
    assert_ne!(anew, group);
    let members = names(&volume, ContainerClass::Data).into_iter().map(|name| name.id).collect();
    let known = ParityGroup { number: group, members, stored_bytes: 1, created_ms: 0 };
    engine.catalog().add_parity_group(&known, Some(anew)).unwrap();
    drop(engine);
    let engine = bench.open(Arc::new(volume.clone()));
    work(&bench, &engine, None);
    assert_eq!(engine.catalog().parity_group_of(first.id).unwrap(), Some(anew));
    volume.remove(&first.blob()).unwrap();
    assert!(whole(&engine, &ids));
}

/// Lives tried, unless told otherwise.
const LIVES: u64 = 6;

/// (E7) With damage in different windows of a group, met in any order, nothing is lost; nor when one of two spares has
/// gone with a deleted container.
#[test]
fn what_rots_in_different_windows_is_made_again_in_whichever_order_it_is_met() {
    let told = std::env::var("HOLDFAST_MODEL_SEQUENCES").ok().and_then(|count| count.parse().ok());
    for seed in 0..told.unwrap_or(LIVES) {
        println!("seed {seed}");
        let bytes = noise(9000 + seed, 4096);
        let mut words = bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap()) as usize);
        let mut below = |bound: usize| words.next().unwrap() % bound;
        let spares = 1 + below(2);
        let (bench, volume, mut engine, ids) = protected(u8::try_from(spares).unwrap());
        let all = names(&volume, ContainerClass::Data);
        let mut hit = std::collections::BTreeSet::new();
        let mut deleted = false;
        for _ in 0..2 + below(4) {
            let name = all[below(all.len())];
            let Some(len) = volume.get(&name.blob()).map(|bytes| bytes.len()) else { continue };
            let at = [IN_HEADER, len - 1 - below(3000), below(len), below(len)][below(4)];
            // One that parity has not made again yet is enough for a window.
            if is_protected(&engine, name.id) && hit.insert(at / WINDOW_BYTES as usize) {
                println!("{} rots at {at} of {len}", name.blob());
                flip(&volume, name, at);
            }
            match below(7) {
                0 | 1 => drop(crate::container_repair::scan(engine.parts().0, name.id, name.class)),
                2 => drop(scrub(&engine)),
                3 | 4 => work(&bench, &engine, scheme(4, 1).filter(|_| at.is_multiple_of(2))),
                5 => {
                    drop(engine);
                    engine = bench.open(Arc::new(volume.clone()));
                }
                // Sound containers are deleted when nothing is known to need them (E5).
                _ if !deleted && scrub(&engine) < 9 => {
                    deleted = true;
                    engine.delete_backups(&[ids[3].parse().unwrap()], "test", "not needed").unwrap();
                    super::reclaim::reclaim(&engine);
                    if spares == 1 {
                        work(&bench, &engine, scheme(4, 1));
                    }
                }
                _ => {}
            }
        }
        scrub(&engine);
        work(&bench, &engine, scheme(4, 1));
        let left = &ids[..if deleted { 3 } else { 4 }];
        assert!(whole_without_parity(&engine, &volume, left), "seed {seed}");
    }
}
