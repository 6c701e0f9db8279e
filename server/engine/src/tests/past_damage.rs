//! A restore that goes on past damage: everything else comes back, and what is missing is named.

use std::sync::Arc;

use holdfast_proto::ErrorCode;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};

use super::agent::{Bad, backup, restore, restore_past_damage};
use super::parity::{disk, names, protected, scrub};
use super::{Bench, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;

const MIB: usize = 1 << 20;

/// Two backups' worth of containers, spoilt as asked, and the engine over them.
fn spoilt(disk: &[u8], class: ContainerClass, change: impl Fn(&mut Vec<u8>)) -> (Bench, Engine, String) {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let id = backup(&engine, "web", &[("root", disk)]).unwrap().backup_id;
    engine.shutdown().unwrap();
    drop(engine);
    let all = list_containers(&volume).unwrap().containers.into_iter().map(|(name, _)| name);
    let name: BlobName = all.filter(|name| name.class == class).map(ContainerName::blob).next().unwrap();
    let mut bytes = volume.get(&name).unwrap().to_vec();
    change(&mut bytes);
    volume.replace(&name, bytes);
    let engine = bench.open(Arc::new(volume));
    (bench, engine, id)
}

/// Returns `disk` with zeros in the bad ranges.
fn without(disk: &[u8], bad: &[Bad]) -> Vec<u8> {
    let mut left = disk.to_vec();
    bad.iter().for_each(|range| left[range.offset..][..range.len].fill(0));
    left
}

#[test]
fn a_damaged_region_costs_its_chunks_and_no_more() {
    let disk = noise(1, 6 * MIB);
    let (_bench, engine, id) = spoilt(&disk, ContainerClass::Data, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
    });
    assert!(restore(&engine, &id, "root").is_err(), "without being asked to go on");
    let (image, bad) = restore_past_damage(&engine, &id, "root").unwrap();
    let lost: usize = bad.iter().map(|range| range.len).sum();
    assert!(lost > 0 && lost <= 256 << 10, "{lost} bytes lost of one region");
    assert!(image == without(&disk, &bad));
    for Bad { damage, .. } in &bad {
        assert!(!damage.container.is_empty() && damage.reason.contains("region"), "{damage:?}");
    }
    // Known by now, so that nothing is read to find it; the answer is the same.
    assert_eq!(restore_past_damage(&engine, &id, "root").unwrap(), (image, bad));
}

#[test]
fn a_lost_container_costs_what_was_in_it() {
    let disk = noise(2, 40 * MIB);
    let (_bench, engine, id) = spoilt(&disk, ContainerClass::Data, Vec::clear);
    let (image, bad) = restore_past_damage(&engine, &id, "root").unwrap();
    assert!(image == without(&disk, &bad) && bad.iter().all(|range| !range.damage.container.is_empty()));
    assert!(image[36 * MIB..] == disk[36 * MIB..], "the second container is whole");
}

#[test]
fn a_lost_root_is_an_error_that_names_the_disk() {
    let disk = noise(3, 6 * MIB);
    let (_bench, engine, id) = spoilt(&disk, ContainerClass::Recipe, Vec::clear);
    let error = restore_past_damage(&engine, &id, "root").unwrap_err();
    assert_eq!(error.code(), ErrorCode::Damaged);
    assert!(error.to_string().contains("\"root\"") && error.to_string().contains(&id), "{error}");
}

type Faulty = Arc<FaultyVolume<MemoryVolume>>;

/// A second process over what `volume` has.
fn faulty(bench: &Bench, engine: Engine, volume: MemoryVolume) -> (Faulty, Engine) {
    engine.shutdown().unwrap();
    drop(engine);
    let faulty = Arc::new(FaultyVolume::new(volume));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty));
    (faulty, engine)
}

/// (R4) If any read of the volume fails, nothing is passed off as lost, and nothing is recorded.
#[test]
fn what_cannot_be_read_at_the_moment_ends_it_and_is_not_lost() {
    let disk = noise(4, 6 * MIB);
    for fault in [Fault::Unavailable, Fault::NotReadableNow] {
        for kind in [OpKind::Open, OpKind::Read] {
            let mut failed = 0;
            for nth in 1..40 {
                let (bench, volume) = (Bench::new(), MemoryVolume::new());
                let engine = bench.open(Arc::new(volume.clone()));
                let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
                let (faulty, engine) = faulty(&bench, engine, volume);
                let before = faulty.count(kind);
                faulty.fail_next(kind, nth, fault);
                match restore_past_damage(&engine, &id, "root") {
                    Ok((image, bad)) => assert!(bad.is_empty() && image == disk, "{kind:?} {nth}: {bad:?}"),
                    Err(error) => {
                        failed += 1;
                        assert_eq!(error.code(), ErrorCode::Unavailable, "{kind:?} {nth}: {error}");
                    }
                }
                assert_eq!(engine.catalog().damaged().unwrap(), [], "{kind:?} {nth}");
                if faulty.count(kind) - before < nth {
                    break;
                }
                assert!(restore(&engine, &id, "root").unwrap() == disk);
            }
            assert!(failed > 0, "{fault:?} of {kind:?} was never met");
        }
    }
}

/// (R4) Chunks that parity would reconstruct are not lost while the other members cannot be read.
#[test]
fn what_parity_makes_again_is_not_lost_while_the_others_are_away() {
    let (bench, volume, engine, ids) = protected(1);
    let data = names(&volume, ContainerClass::Data);
    volume.remove(&data[0].blob()).unwrap();
    assert_eq!(scrub(&engine), 1);
    let (faulty, engine) = faulty(&bench, engine, volume);
    faulty.refuse(&data[1].blob(), Fault::Unavailable);
    for read in
        [restore(&engine, &ids[0], "root"), restore_past_damage(&engine, &ids[0], "root").map(|read| read.0)]
    {
        assert_eq!(read.unwrap_err().code(), ErrorCode::Unavailable);
    }
    faulty.give();
    assert!(restore(&engine, &ids[0], "root").unwrap() == disk(0));
}
