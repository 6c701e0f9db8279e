//! What `cargo xtask soak` says to this test.

use std::env::var;
use std::path::Path;

use tempfile::TempDir;

use crate::campaign::Plan;

/// Crashes of `cargo test`: a fortieth of a second of two cores each.
const CRASHES: u64 = 1_000;

/// The same with `HOLDFAST_SLOW_TESTS`.
const SLOW_CRASHES: u64 = 100_000;

/// A soak says how far it is twenty times, and at least after so many crashes: that is about two minutes' worth.
const REPORT_AT_LEAST_EVERY: u64 = 10_000;

/// Recordings made to try one seed again.
const REPLAYS: usize = 16;

fn number(name: &str) -> Option<u64> {
    let text = var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, which is no number")))
}

/// `HOLDFAST_CRASHES` from `HOLDFAST_SEED` on; or `HOLDFAST_EACH_EVENT` of them after every single event; or only the
/// seed `HOLDFAST_REPLAY`, with several recordings.
pub(crate) fn plans() -> Vec<Plan> {
    if let Some(first_seed) = number("HOLDFAST_REPLAY") {
        return vec![Plan { first_seed, crashes: 1, each: 0, report_every: None }; REPLAYS];
    }
    let crashes = number("HOLDFAST_CRASHES");
    let own = if var("HOLDFAST_SLOW_TESTS").is_ok() { SLOW_CRASHES } else { CRASHES };
    let each = number("HOLDFAST_EACH_EVENT").unwrap_or(0);
    let first_seed = if each > 0 { 0 } else { number("HOLDFAST_SEED").unwrap_or(0) };
    vec![Plan {
        first_seed,
        crashes: crashes.unwrap_or(own),
        each,
        report_every: match crashes {
            Some(crashes) => Some(crashes.div_ceil(20).clamp(1, REPORT_AT_LEAST_EVERY)),
            None => (each > 0).then_some(REPORT_AT_LEAST_EVERY),
        },
    }]
}

/// A folder in memory if there is one: nothing in it is to outlive the test.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    let made = tempfile::Builder::new().prefix("holdfast-power-loss-").tempdir_in(memory);
    made.or_else(|_| tempfile::tempdir()).unwrap()
}
