//! The line itself: takes packets out of one device and puts them into the other when they are due.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::shaper::{Fate, Quality, Shaper};
use super::tun::Tun;

/// Larger than any packet of a device with an MTU of 1,500.
const PACKET_MAX_BYTES: usize = 4096;

/// A packet and when it arrives.
type Travelling = (Duration, Vec<u8>);

/// Both directions. Ends with the devices.
#[derive(Debug)]
pub(super) struct Line {
    directions: [Arc<Direction>; 2],
}

#[derive(Debug)]
struct Direction {
    shaper: Mutex<Shaper>,
    counts: Counts,
}

/// Counts of packets since the line was created.
#[derive(Debug, Default)]
struct Counts {
    sent: AtomicU64,
    lost: AtomicU64,
    dropped: AtomicU64,
}

impl Line {
    /// Joins two devices.
    pub(super) fn join(one: &Tun, other: &Tun, quality: Quality, seed: u64) -> Result<Self> {
        let epoch = Instant::now();
        let start = |from: &File, to: &File, seed: u64| -> Result<Arc<Direction>> {
            let direction =
                Direction { shaper: Shaper::new(quality, seed).into(), counts: Counts::default() };
            let direction = Arc::new(direction);
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (queue, arrivals) = channel();
            let shared = Arc::clone(&direction);
            std::thread::spawn(move || take(from, &shared, &queue, epoch));
            std::thread::spawn(move || give(to, &arrivals, epoch));
            Ok(direction)
        };
        let there = start(&one.file, &other.file, seed)?;
        let back = start(&other.file, &one.file, !seed)?;
        Ok(Self { directions: [there, back] })
    }

    /// Changes the line; packets in transit are unaffected.
    pub(super) fn set(&self, quality: Quality, seed: u64) {
        for (direction, seed) in self.directions.iter().zip([seed, !seed]) {
            *direction.shaper.lock().unwrap_or_else(PoisonError::into_inner) = Shaper::new(quality, seed);
        }
    }

    /// Packets sent, lost and dropped, both ways.
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        let sum = |count: fn(&Counts) -> &AtomicU64| {
            self.directions.iter().map(|one| count(&one.counts).load(Ordering::Relaxed)).sum()
        };
        (sum(|counts| &counts.sent), sum(|counts| &counts.lost), sum(|counts| &counts.dropped))
    }
}

/// Takes packets until the device is gone.
fn take(mut from: File, direction: &Direction, queue: &Sender<Travelling>, epoch: Instant) {
    let mut buffer = [0; PACKET_MAX_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let packet = buffer.get(..read).unwrap_or_default();
        let fate = {
            let mut shaper = direction.shaper.lock().unwrap_or_else(PoisonError::into_inner);
            shaper.packet(epoch.elapsed(), packet.len() as u64)
        };
        let counts = &direction.counts;
        let count = match fate {
            Fate::Arrives(due) => {
                if queue.send((due, packet.to_vec())).is_err() {
                    return;
                }
                &counts.sent
            }
            Fate::Lost => &counts.lost,
            Fate::Dropped => &counts.dropped,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Gives packets when they are due.
fn give(mut to: File, arrivals: &Receiver<Travelling>, epoch: Instant) {
    while let Ok((due, packet)) = arrivals.recv() {
        if let Some(wait) = due.checked_sub(epoch.elapsed()) {
            std::thread::sleep(wait);
        }
        // A device that is down or full loses it, as any would.
        drop(to.write_all(&packet));
    }
}
