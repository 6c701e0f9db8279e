//! `cargo xtask soak`: many more power failures than `cargo xtask test` tries, on the same simulated disk.
//!
//! The test `power_loss` of the storage engine does the work; this sets how much. It stops by itself at the first
//! crash that loses something, and reports how to repeat that one.

use anyhow::Result;
use clap::Args;

use crate::shell::{self, cargo};

/// About three hours on two cores.
const CRASHES: u64 = 1_000_000;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Crashes to try; each has a seed of its own, one after the other
    #[arg(long, default_value_t = CRASHES)]
    crashes: u64,
    /// The first seed; another one tries other crashes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Try only this seed again, with several recordings of what led to it
    #[arg(long, conflicts_with_all = ["crashes", "seed"])]
    replay: Option<u64>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = cargo();
    command.args(["test", "-p", "holdfast-engine", "--test", "power_loss", "--"]);
    command.args(["--nocapture", "tests::nothing_promised_is_lost_wherever_power_fails", "--exact"]);
    match options.replay {
        Some(seed) => command.env("HOLDFAST_REPLAY", seed.to_string()),
        None => command
            .env("HOLDFAST_CRASHES", options.crashes.to_string())
            .env("HOLDFAST_SEED", options.seed.to_string()),
    };
    shell::run(&mut command)
}
