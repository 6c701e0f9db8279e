//! Compressing regions to see how small they get.

use holdfast_proto::limits::REGION_STORED_MAX_BYTES;

use super::EstimateOptions;
use crate::error::ClientError;
use crate::pool::ObjectPool;

/// zstd at every level, with one context per thread and level.
pub(super) struct Encoders {
    levels: Vec<(i32, ObjectPool<zstd::bulk::Compressor<'static>>)>,
    scratch: ObjectPool<Vec<u8>>,
}

impl Encoders {
    pub(super) fn new(options: &EstimateOptions) -> Self {
        let levels = options.levels.iter().map(|&level| (level, ObjectPool::default())).collect();
        Self { levels, scratch: ObjectPool::default() }
    }

    /// What `plain` takes at the level with this index. As in a region, it is stored as it is when compression
    /// saves less than 1/32.
    pub(super) fn stored_bytes(&self, level: usize, plain: &[u8]) -> Result<u64, ClientError> {
        let failed = ClientError::Internal("zstd could not compress a region");
        let Some((level, pool)) = self.levels.get(level) else { return Err(failed) };
        let made = pool.take_or(|| zstd::bulk::Compressor::new(*level));
        let Ok(mut encoder) = made else { return Err(failed) };
        let mut frame = self.scratch.take_or(|| Ok::<_, ClientError>(Vec::new()))?;
        frame.clear();
        frame.reserve(zstd::zstd_safe::compress_bound(plain.len().max(REGION_STORED_MAX_BYTES as usize)));
        let compressed = encoder.compress_to_buffer(plain, &mut frame);
        pool.put(encoder);
        self.scratch.put(frame);
        let Ok(bytes) = compressed else { return Err(failed) };
        let worthwhile = bytes + plain.len() / 32 < plain.len();
        Ok(if worthwhile { bytes } else { plain.len() } as u64)
    }
}
