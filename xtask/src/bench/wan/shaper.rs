//! Simulates a line: the delay of a packet, or its loss. Time is passed in.

use std::time::Duration;

use crate::splitmix::SplitMix64;

/// Properties of one direction of a line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quality {
    pub(super) bits_per_sec: u64,
    /// Delay one way.
    pub(super) delay: Duration,
    /// Share of packets that are lost: 0 to 1.
    pub(super) loss: f64,
    /// Capacity of the router's queue before the line. Packets that do not fit are dropped.
    pub(super) queue_bytes: u64,
}

/// Fate of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrives at the other end at this time.
    Arrives(Duration),
    /// It was lost on the line.
    Lost,
    /// The router's queue was full.
    Dropped,
}

/// Simulates one direction of a line.
#[derive(Debug)]
pub(super) struct Shaper {
    quality: Quality,
    random: SplitMix64,
    /// When the line will have sent all packets so far.
    free_at: Duration,
}

impl Shaper {
    /// An idle line. The same `seed` loses the same packets.
    pub(super) const fn new(quality: Quality, seed: u64) -> Self {
        Self { quality, random: SplitMix64(seed), free_at: Duration::ZERO }
    }

    /// A packet of `bytes` reaches the router at `now`.
    pub(super) fn packet(&mut self, now: Duration, bytes: u64) -> Fate {
        let begins = self.free_at.max(now);
        if self.time_for(self.quality.queue_bytes) < begins - now {
            return Fate::Dropped;
        }
        self.free_at = begins + self.time_for(bytes);
        // A lost packet took its time on the line, too.
        if self.random.share() < self.quality.loss {
            return Fate::Lost;
        }
        Fate::Arrives(self.free_at + self.quality.delay)
    }

    fn time_for(&self, bytes: u64) -> Duration {
        Duration::from_nanos(bytes.saturating_mul(8_000_000_000) / self.quality.bits_per_sec.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: Quality = Quality {
        bits_per_sec: 12_000_000,
        delay: Duration::from_millis(75),
        loss: 0.0,
        queue_bytes: 15_000,
    };

    #[test]
    fn packets_take_their_turn_at_the_rate_of_the_line() {
        let mut line = Shaper::new(LINE, 1);
        // 1,500 bytes take 1 ms.
        for number in 1..=10 {
            let due = Duration::from_millis(number + 75);
            assert_eq!(line.packet(Duration::ZERO, 1500), Fate::Arrives(due));
        }
        let later = Duration::from_secs(1);
        assert_eq!(line.packet(later, 1500), Fate::Arrives(later + Duration::from_millis(76)), "idle since");
    }

    #[test]
    fn a_full_queue_drops_until_there_is_room() {
        let mut line = Shaper::new(LINE, 1);
        let fates: Vec<Fate> = (0..20).map(|_| line.packet(Duration::ZERO, 1500)).collect();
        let taken = fates.iter().take_while(|fate| matches!(fate, Fate::Arrives(_))).count();
        assert_eq!(taken, 11, "ten in the queue, one on the line");
        assert!(fates.iter().skip(11).all(|fate| *fate == Fate::Dropped));
        assert!(matches!(line.packet(Duration::from_millis(1), 1500), Fate::Arrives(_)));
    }

    #[test]
    fn as_many_are_lost_as_was_asked_and_the_same_ones_again() {
        let lost = |seed| {
            let mut line = Shaper::new(Quality { loss: 0.005, queue_bytes: u64::MAX, ..LINE }, seed);
            let fates = (0..100_000u32).map(|_| line.packet(Duration::ZERO, 100));
            fates.enumerate().filter(|(_, fate)| *fate == Fate::Lost).map(|(n, _)| n).collect::<Vec<_>>()
        };
        assert!((400..600).contains(&lost(7).len()), "{}", lost(7).len());
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(8));
    }
}
