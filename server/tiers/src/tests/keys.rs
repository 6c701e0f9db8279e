//! Tables of keys: the bucket always has one that opens everything there, and destroyed ones are removed.

use super::*;

fn keys(number: u32) -> String {
    format!("keys/{number:020}")
}

/// (T1) At no moment does the bucket have a container without its keys, or no table at all, however often the keys
/// change while a round is in progress, and whether or not intermediate tables were ever copied.
#[test]
fn the_keys_of_everything_there_are_there() {
    for is_whole in [true, false] {
        for changes_at in 0..12 {
            let world = World::new();
            let process = world.start();
            put(&process.volume, &keys(1), b"k");
            put(&process.volume, &container(1), b"of keys 1");
            if !is_whole {
                process.finish();
            }
            let mut newest = 1;
            let change = |newest: &mut u32| {
                *newest += 1;
                put(&process.volume, &keys(*newest), b"k");
                process.volume.remove(&name(&keys(*newest - 1))).unwrap();
                put(&process.volume, &container(*newest), b"of these keys");
                put(&process.volume, &format!("points/n/v/{newest}.1"), b"p");
            };
            change(&mut newest);
            for piece in 0.. {
                let worked = process.copies.work(&|| false).unwrap();
                if piece == changes_at || piece == changes_at + 1 {
                    change(&mut newest);
                }
                let there = world.there();
                let newest_of = |folder: &str| {
                    let of_folder = there.iter().filter_map(|key| key.strip_prefix(folder));
                    let number =
                        |rest: &str| rest.trim_end_matches(".data").trim_end_matches(".1").parse().ok();
                    of_folder.filter_map(number).max().unwrap_or(0_u32)
                };
                let (table, data) = (newest_of("keys/"), newest_of("containers/0000000/"));
                assert!(table > 0 || data == 0, "{there:?}");
                assert!(newest_of("points/n/v/") <= data.min(table), "{there:?}");
                if !worked.more && piece > changes_at {
                    break;
                }
            }
            process.finish();
            assert!(
                world.is_there(&keys(newest)) && !world.is_there(&keys(newest - 1)),
                "{:?}",
                world.there()
            );
        }
    }
}

/// (T7) Destroyed keys are removed first, whatever else waits.
#[test]
fn older_keys_do_not_wait_for_the_rest() {
    let world = World::new();
    let process = world.start();
    put(&process.volume, &keys(1), b"destroyed");
    process.finish();
    for number in 1..=100 {
        put(&process.volume, &container(number), b"bytes");
    }
    put(&process.volume, &keys(2), b"new");
    process.volume.remove(&name(&keys(1))).unwrap();
    while world.is_there(&keys(1)) {
        assert!(process.copies.work(&|| false).unwrap().more);
        assert!(world.is_there(&keys(1)) || world.is_there(&keys(2)), "never without any");
    }
    assert!(!world.is_there(&container(1)), "nothing else was copied yet");
    process.finish();
    assert!(world.is_there(&container(100)));
}
