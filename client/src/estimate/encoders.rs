//! Compressing regions to see how small they get.

use holdfast_proto::region::Encoder;

use super::EstimateOptions;
use crate::error::ClientError;
use crate::pool::ObjectPool;

/// Encoders of every level, one per thread and level.
pub(super) struct Encoders {
    levels: Vec<(i32, ObjectPool<Encoder>)>,
    scratch: ObjectPool<Vec<u8>>,
}

impl Encoders {
    pub(super) fn new(options: &EstimateOptions) -> Self {
        let levels = options.levels.iter().map(|&level| (level, ObjectPool::default())).collect();
        Self { levels, scratch: ObjectPool::default() }
    }

    /// What `plain` takes at the level with this index, compressed or as it is, as in a region.
    pub(super) fn stored_bytes(&self, level: usize, plain: &[u8]) -> Result<u64, ClientError> {
        let Some((level, pool)) = self.levels.get(level) else {
            return Err(ClientError::Internal("a level that is not estimated"));
        };
        let mut encoder = pool.take_or(|| Encoder::new(*level))?;
        let mut frame = self.scratch.take_or(|| Ok::<_, ClientError>(Vec::new()))?;
        let worthwhile = encoder.compress(plain, &mut frame);
        let bytes = frame.len();
        pool.put(encoder);
        self.scratch.put(frame);
        Ok(if worthwhile? { bytes } else { plain.len() } as u64)
    }
}
