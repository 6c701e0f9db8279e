//! Choices that look random and are the same for the same seed: what failed once fails again.

/// A source of choices (SplitMix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ (x >> 31)) % bound
    }

    /// Whether something happens that does once in `times`.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of `all`.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let number = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all.get(number).expect("something to choose from")
    }
}
