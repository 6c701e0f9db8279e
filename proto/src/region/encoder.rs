//! Compressing regions.

use zstd::zstd_safe::{CParameter, Strategy, compress_bound};

use super::{Codec, EncodedRegion, RegionError};
use crate::limits::REGION_PLAIN_MAX_BYTES;

/// zstd level agents use unless told otherwise. On regions of 256 KiB of VM disks level 2 takes a fifth less
/// CPU time than 3 and stores 1 % more; level 1 takes a fifth less again and stores 2 % more.
pub const DEFAULT_LEVEL: i32 = 2;

/// A frame must save at least 1/32 (3 %) of the plain bytes, or the region is stored as it is: reading it
/// back then costs nothing.
const WORTHWHILE_DIVISOR: usize = 32;

/// Search of the probe: for anything of 4 bytes that comes twice.
const PROBE_SEARCH: [CParameter; 3] =
    [CParameter::Strategy(Strategy::ZSTD_fast), CParameter::HashLog(16), CParameter::MinMatch(4)];

/// From this level on zstd searches noise as long as anything else, a few megabytes a second; below, it gives up on
/// it at gigabytes a second.
const PROBED_FROM_LEVEL: i32 = 13;

/// When the probe saves less than 1/128 of a region, it is stored as it is, without a search. Of the regions of three VM
/// disks, none of which that is true saved the 1/32 that makes a frame worthwhile at any level. What the probe cannot
/// see is noise in which words of 3 bytes come again and again.
const HOPELESS_DIVISOR: usize = 128;

type Compressor = zstd::bulk::Compressor<'static>;

/// Compresses regions; keeps zstd's working memory between them.
pub struct Encoder {
    zstd: Compressor,
    /// For levels at which it pays to look first.
    probe: Option<Compressor>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

impl Encoder {
    /// An encoder at `level` (1 to 19).
    ///
    /// # Errors
    /// When zstd refuses the level.
    pub fn new(level: i32) -> Result<Self, RegionError> {
        let zstd = Compressor::new(level).map_err(failed)?;
        let probe = (level >= PROBED_FROM_LEVEL).then(probe).transpose()?;
        Ok(Self { zstd, probe })
    }

    /// Encodes `plain`, at most [`REGION_PLAIN_MAX_BYTES`] long.
    ///
    /// # Errors
    /// [`RegionError::PlainTooLong`], or zstd out of memory.
    pub fn encode(&mut self, plain: &[u8]) -> Result<EncodedRegion, RegionError> {
        let plain_bytes = u32::try_from(plain.len()).unwrap_or(u32::MAX);
        if plain_bytes > REGION_PLAIN_MAX_BYTES {
            return Err(RegionError::PlainTooLong { plain_bytes });
        }
        let mut frame = Vec::new();
        if self.compress(plain, &mut frame)? {
            Ok(EncodedRegion { codec: Codec::Zstd, plain_bytes, payload: frame })
        } else {
            Ok(EncodedRegion { codec: Codec::Stored, plain_bytes, payload: plain.to_vec() })
        }
    }

    /// Compresses `plain`, of any length, to `frame`, whose memory is used again. False when it is better stored as
    /// it is; `frame` then holds nothing of use.
    ///
    /// # Errors
    /// [`RegionError::Frame`] when zstd is out of memory.
    pub fn compress(&mut self, plain: &[u8], frame: &mut Vec<u8>) -> Result<bool, RegionError> {
        if let Some(probe) = &mut self.probe
            && !pass(probe, plain, frame, HOPELESS_DIVISOR)?
        {
            return Ok(false);
        }
        pass(&mut self.zstd, plain, frame, WORTHWHILE_DIVISOR)
    }
}

fn probe() -> Result<Compressor, RegionError> {
    let mut zstd = Compressor::new(1).map_err(failed)?;
    for parameter in PROBE_SEARCH {
        zstd.set_parameter(parameter).map_err(failed)?;
    }
    Ok(zstd)
}

/// Compresses `plain` to `frame`; whether that saves more than one part in `divisor`.
fn pass(
    zstd: &mut Compressor,
    plain: &[u8],
    frame: &mut Vec<u8>,
    divisor: usize,
) -> Result<bool, RegionError> {
    frame.clear();
    frame.reserve_exact(compress_bound(plain.len()));
    zstd.compress_to_buffer(plain, frame).map_err(failed)?;
    Ok(frame.len() + plain.len() / divisor < plain.len())
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn failed(error: std::io::Error) -> RegionError {
    RegionError::Frame(error.to_string())
}

#[cfg(test)]
mod tests;
