//! Compressing regions on a pool of their own threads; each keeps an encoder and its memory.

use std::sync::Arc;

use holdfast_proto::region::{Encoder, RegionError};
use holdfast_proto::v1;
use tokio::sync::oneshot;

use super::outbox::PlainRegion;
use super::packer::RegionBufferPool;
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::stages::{Stage, Stages};

/// A region on its way.
pub(crate) type Compressing = oneshot::Receiver<Result<v1::Region, RegionError>>;

/// See the module. At most one encoder a thread: some 1.5 MB at level 2 or 3, 6 MB at level 19.
#[derive(Debug)]
pub(crate) struct Compressor {
    threads: rayon::ThreadPool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    encoders: ObjectPool<Encoder>,
    plain: RegionBufferPool,
    level: i32,
    stages: Arc<Stages>,
}

impl Compressor {
    /// A compressor of `threads` threads at zstd `level`.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started, [`ClientError::Region`] for a level zstd
    /// does not have.
    pub(crate) fn new(
        threads: usize,
        level: i32,
        plain: RegionBufferPool,
        stages: Arc<Stages>,
    ) -> Result<Self, ClientError> {
        let encoders = ObjectPool::default();
        encoders.put(Encoder::new(level)?);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("compress-{number}"))
            .build()
            .map_err(|_| ClientError::Internal("the compressing threads could not be started"))?;
        Ok(Self { threads, shared: Arc::new(Shared { encoders, plain, level, stages }) })
    }

    /// Begins to compress a region; the answer arrives in the channel.
    pub(crate) fn submit(&self, region: PlainRegion) -> Compressing {
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        self.threads.spawn_fifo(move || {
            // Whoever waited may have given up: then nobody wants the result.
            if !sender.is_closed() {
                drop(sender.send(shared.compress(region)));
            }
        });
        receiver
    }
}

impl Shared {
    fn compress(&self, region: PlainRegion) -> Result<v1::Region, RegionError> {
        let mut encoder = self.encoders.take_or(|| Encoder::new(self.level))?;
        let bytes = region.plain.len() as u64;
        let encoded = self.stages.measure(Stage::Compress, bytes, || encoder.encode(&region.plain));
        self.encoders.put(encoder);
        self.plain.put(region.plain);
        let encoded = encoded?;
        Ok(v1::Region {
            codec: encoded.codec as u32,
            plain_bytes: encoded.plain_bytes,
            fingerprints: region.fingerprints.into(),
            lengths: region.lengths,
            payload: encoded.payload.into(),
        })
    }
}
