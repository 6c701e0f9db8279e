//! Pseudorandom choices that are the same for the same seed.

/// Environment variable: the number of seeds a test tries, or a range of seeds: `20`, or `7..9`, where 9 is the last.
const SEEDS: &str = "HOLDFAST_FAULT_SEEDS";

/// The seeds of one test: `own`, and as many more as `HOLDFAST_FAULT_SEEDS` says, or just those in its range. Each is
/// printed before it is tried, so a failing test shows it. A seed decides where and when something is to happen; the
/// threads of the programs under test are not controlled by it.
///
/// # Panics
/// When the variable is neither a number nor a range.
pub fn seeds(own: u64) -> impl Iterator<Item = u64> {
    let said = std::env::var(SEEDS).unwrap_or_else(|_| "1".to_owned());
    let number = |text: &str| -> u64 {
        text.parse().unwrap_or_else(|_| panic!("{SEEDS} is {said:?}: give a number, or a range such as 7..9"))
    };
    let seeds: Vec<u64> = match said.split_once("..") {
        Some((first, last)) => (number(first)..=number(last)).collect(),
        // Far apart, so that no two tests share one.
        None => (0..number(&said)).map(|nth| own + nth * 1000).collect(),
    };
    seeds.into_iter().inspect(|seed| eprintln!("seed {seed}; alone: {SEEDS}={seed}..{seed}"))
}

/// A source of choices (SplitMix64).
#[derive(Debug, Clone)]
pub struct Chance(u64);

impl Chance {
    /// Creates a source from a seed.
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

    /// Returns true with a probability of 1 in `times`.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Picks one of `all`.
    ///
    /// # Panics
    /// When `all` is empty.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        let number = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all.get(number).expect("something to choose from")
    }
}
