//! Parity that rots or gets lost. Containers of the model are shorter than a window of parity: what rots in two windows of a
//! group, `tests::parity_groups` tries by chance.

use holdfast_volume::Volume as _;
use holdfast_volume::testing::Damage;

use super::world::World;
use crate::jobs::Budget;
use crate::jobs::NoProgress;
use crate::parity;

impl World {
    /// (V6, E8) Parity rots or gets lost. A scrub finds it, and it is made anew.
    pub(super) fn spoil_parity(&mut self) {
        let blobs = holdfast_volume::testing::list(&self.memory, "parity");
        if blobs.is_empty() {
            return;
        }
        let blob = self.random.pick(&blobs).name.clone();
        let mut bytes = self.memory.get(&blob).expect("listed").to_vec();
        let lost = self.random.one_in(3);
        self.told(format!("{blob} rots, or is lost: {lost}"));
        if lost {
            self.memory.remove(&blob).unwrap();
        } else {
            let at = self.random.below(bytes.len());
            bytes[at] ^= 1 << self.random.below(8);
            self.memory.replace(&blob, bytes.clone());
            let _ = self.volume.damage(&blob, &Damage::Replace { bytes });
        }
        if self.random.one_in(2) || !self.census.hurt.is_empty() || self.in_round {
            return;
        }
        let was_full = std::mem::take(&mut self.was_full);
        // The first may only end a pass that was under way.
        for _ in 0..2 {
            let _ = self.engine().scrub(&Budget::unlimited(), &NoProgress);
        }
        self.bench.clock.advance_ms(3_700_000);
        self.protect();
        let engine = self.engine();
        for (number, _) in engine.catalog().parity_groups(None, 100).unwrap() {
            let proved = parity::prove(&self.memory, self.repository, number, &mut |_| true);
            assert!(
                self.has_crashed() || self.was_full || matches!(proved, Ok(true)),
                "the parity of group {number} was not made anew: {proved:?}"
            );
        }
        self.was_full |= was_full;
    }
}
