//! Estimates how disks deduplicate and compress, without a server: one pass over the data, all variants side
//! by side, every disk alone and all together.
//!
//! *What is exact.* Every chunk of every variant is cut and named, so deduplication is counted, not guessed
//! (names are 64 bits long: among a billion chunks the odds that any two collide are 3 %, and one collision
//! is one chunk). The variant Holdfast uses is compressed completely at its default level; the others, and
//! other levels, on every [`SAMPLE_STRIDE`]th region of new chunks, as a ratio estimate with its standard
//! error: to plain bytes, or where all regions were compressed at the default level, to what they took there.
//!
//! *With `--sample p`.* A chunk is looked at when another 64 bits of its name fall below `p`: all copies of
//! it or none, wherever they are. New bytes are then the Horvitz–Thompson estimate Σ length / p over the
//! distinct chunks looked at, unbiased, with variance Σ length² (1 − p) / p². Sampling *places* instead of
//! contents would miss duplicates of what it does not see, and no correction is known to be reliable; the
//! price is that the disks are still read, cut and hashed in full. Regions are made of the chunks looked at,
//! which are less alike than neighbours: compression comes out a little worse than it will be.
//!
//! *Memory.* Batches of 4 extents, two at a time (32 MiB); regions to compress of one batch (2 scopes × 8
//! variants × 16 MiB at the very worst); 12 to 40 bytes per distinct chunk and variant (times `p`).

mod pass;
mod run;
mod sample;
mod variant;

use std::sync::Arc;

use serde::Serialize;

use crate::cancel::Cancel;
use crate::error::ClientError;
use crate::progress::Progress;
use crate::source::Source;

pub use sample::Estimated;

/// Where not all regions are compressed, one in this many is; with `--sample p`, one in `p` times this many.
pub const SAMPLE_STRIDE: u64 = 16;

/// Options of an estimate.
#[derive(Debug, Clone)]
pub struct EstimateOptions {
    /// zstd levels.
    pub levels: Vec<i32>,
    /// Share of the chunks to look at; 1 for all.
    pub share: f64,
    /// `None`: one per core.
    pub threads: Option<usize>,
}

/// A disk as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskFacts {
    pub name: String,
    pub size_bytes: u64,
    /// Bytes without holes and runs of zeros, as `bytes` in compression details.
    pub data_bytes: u64,
}

/// One variant, over one disk or all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figures {
    /// Such as `fastcdc 16 KiB`.
    pub variant: &'static str,
    /// True if this is how Holdfast cuts.
    pub production: bool,
    /// A disk's name, or `None` for all together.
    pub disk: Option<String>,
    /// Bytes without holes and runs of zeros.
    pub bytes: u64,
    pub chunks: u64,
    pub new_chunks: u64,
    /// Bytes left after deduplication.
    pub new_bytes: Estimated,
    /// `bytes / new_bytes`.
    pub dedupe_factor: Option<f64>,
    pub levels: Vec<LevelFigures>,
}

/// One level of one variant, over one disk or all together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelFigures {
    pub level: i32,
    /// Bytes left after deduplication and compression, without metadata.
    pub stored_bytes: Estimated,
    /// `new_bytes / stored_bytes`.
    pub compression_factor: Option<f64>,
    /// `bytes / stored_bytes`.
    pub total_factor: Option<f64>,
    /// Plain bytes that were really compressed.
    pub measured_bytes: u64,
}

/// Result of an estimate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Estimate {
    pub disks: Vec<DiskFacts>,
    /// Share of the chunks looked at.
    pub share: f64,
    pub figures: Vec<Figures>,
    pub seconds: f64,
}

/// Reads all disks and compares all variants. Blocks; does its work on its own threads.
///
/// # Errors
/// [`ClientError::Source`] for a disk that cannot be read, [`ClientError::Interrupted`].
pub fn estimate(
    disks: &[Arc<dyn Source>],
    options: &EstimateOptions,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Estimate, ClientError> {
    run::run(disks, options, progress, cancel)
}

#[expect(clippy::cast_precision_loss, reason = "factors are shown with two decimals")]
pub(crate) fn factor(whole: u64, part: u64) -> Option<f64> {
    (part > 0).then(|| whole as f64 / part as f64)
}

#[cfg(test)]
mod tests;
