//! Random lives of a repository against a plain model of what must be restorable: backups of several VMs message by
//! message, deletions, locks and holds, rounds of reclaim (stopped, crashed and overtaken at every step) and of
//! compressing anew, scrubs, parity, snapshots, lack of room, kills, power failures, recoveries from nothing but the
//! volume, and, where [`Hazards`] say so, containers that rot, get lost and come back.
//!
//! After each step: the restore points that were acknowledged are listed, the deleted ones are not, and all that each
//! needs has a sound copy on the volume, as plain bytes and without asking the engine. Now and then everything is
//! restored and compared. At the end everything is deleted, and nothing may be left.
//!
//! A sequence follows from its seed, but for the order in which threads seal containers. `HOLDFAST_MODEL_SEED` tries one
//! again, `HOLDFAST_MODEL_SEQUENCES` says how many are tried from there on.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | which sequences there are |
//! | `disks` | what disks are made of |
//! | `agent` | a backup, message by message |
//! | `truth` | what must be, and what is on the volume |
//! | `world` | a repository from start to start, and what is checked after each step |
//! | `hidden` | what cannot be read for a while, across restarts |
//! | `acts` | what happens in a step |
//! | `groups` | what happens to groups of parity |
//! | `damage` | what disks do to what is stored |
//! | `verify` | restoring everything, and the end |

mod acts;
mod agent;
mod damage;
mod disks;
mod groups;
mod hidden;
mod truth;
mod verify;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use world::{Hazards, World};

/// Steps of a sequence.
const STEPS: usize = 160;

/// Sequences of each test, unless told otherwise. One takes half a second of a core in a debug build, so the four tests take
/// some fifteen together.
const SEQUENCES: u64 = 8;

/// Maximum number of steps shown: mostly all of them.
const TOLD_MAX: usize = 600;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

fn run(hazards: Hazards) {
    let first = number("HOLDFAST_MODEL_SEED");
    let count = number("HOLDFAST_MODEL_SEQUENCES").unwrap_or(if first.is_some() { 1 } else { SEQUENCES });
    for seed in (first.unwrap_or(0)..).take(usize::try_from(count).unwrap()) {
        sequence(seed, hazards);
    }
}

fn sequence(seed: u64, hazards: Hazards) {
    let mut world = World::new(seed, hazards);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        for _ in 0..STEPS {
            if world.is_over {
                return;
            }
            world.act();
        }
        world.end();
    }));
    if let Err(panic) = tried {
        let first = world.trace.len().saturating_sub(TOLD_MAX);
        for (place, told) in world.trace.iter().enumerate().skip(first) {
            println!("{place:5} {told}");
        }
        println!("the last of this failed; to try it again: HOLDFAST_MODEL_SEED={seed}, with this test");
        // Its folder, and the threads of its engine, end with the process.
        std::mem::forget(world);
        resume_unwind(panic);
    }
}

#[test]
fn people_and_rounds_beside_each_other() {
    run(Hazards { crashes: false, damage: false });
}

#[test]
fn power_fails_and_catalogs_are_lost() {
    run(Hazards { crashes: true, damage: false });
}

#[test]
fn containers_rot_and_get_lost() {
    run(Hazards { crashes: false, damage: true });
}

#[test]
fn containers_rot_and_power_fails() {
    run(Hazards { crashes: true, damage: true });
}
