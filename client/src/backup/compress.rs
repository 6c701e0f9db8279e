//! Compressing and sealing regions on threads of their own; each keeps an encoder and its memory.

use std::sync::Arc;

use holdfast_proto::region::{EncodedRegion, Encoder};
use holdfast_proto::{Fingerprint, v1};
use tokio::sync::oneshot;

use super::message_builder::PlainRegion;
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::{ObjectPool, RegionBufferPool};
use crate::stages::{Stage, Stages};

/// A region that is being compressed. The channel closes without an answer when its thread panicked.
pub(crate) type Compressing = oneshot::Receiver<Result<v1::Region, ClientError>>;

/// Threads that compress and seal regions. At most one encoder per thread: some 1.5 MB at level 2 or 3, 6 MB
/// at level 19.
#[derive(Debug)]
pub(crate) struct Compressor {
    threads: rayon::ThreadPool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    encoders: ObjectPool<Encoder>,
    buffers: RegionBufferPool,
    level: i32,
    cipher: Cipher,
    stages: Arc<Stages>,
}

impl Compressor {
    /// A compressor of `threads` threads at zstd `level`, which seals with `cipher`.
    ///
    /// # Errors
    /// [`ClientError::Internal`] when threads cannot be started, [`ClientError::Region`] for a level zstd
    /// does not have.
    pub(crate) fn new(
        threads: usize,
        (level, cipher): (i32, Cipher),
        buffers: RegionBufferPool,
        stages: Arc<Stages>,
    ) -> Result<Self, ClientError> {
        let encoders = ObjectPool::default();
        encoders.put(Encoder::new(level)?);
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .thread_name(|number| format!("compress-{number}"))
            // The panic is reported already, and the region's channel closes: the backup ends with an error.
            .panic_handler(|_| {})
            .build()
            .map_err(|_| ClientError::Internal("the compressing threads could not be started"))?;
        Ok(Self { threads, shared: Arc::new(Shared { encoders, buffers, level, cipher, stages }) })
    }

    /// Begins to compress a region; the answer arrives in the channel.
    pub(crate) fn submit(&self, region: PlainRegion) -> Compressing {
        let (sender, receiver) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        self.threads.spawn_fifo(move || {
            // The stream may have ended meanwhile: then the result is not wanted.
            if !sender.is_closed() {
                drop(sender.send(shared.compress(region)));
            }
        });
        receiver
    }
}

impl Shared {
    fn compress(&self, region: PlainRegion) -> Result<v1::Region, ClientError> {
        region.assert_whole();
        let mut encoder = self.encoders.take_or(|| Encoder::new(self.level))?;
        let bytes = region.plain.len() as u64;
        let encoded = self.stages.measure(Stage::Compress, bytes, || encoder.encode(&region.plain));
        self.encoders.put(encoder);
        self.buffers.put(region.plain);
        let encoded = encoded?;
        assert_eq!(u64::from(encoded.plain_bytes), bytes, "plain bytes of an encoded region");
        let encoded = match &self.cipher {
            Cipher::Plain => encoded,
            Cipher::Sealed(_) => self.seal(encoded, &region.fingerprints, &region.lengths)?,
        };
        Ok(v1::Region {
            codec: encoded.codec as u32,
            plain_bytes: encoded.plain_bytes,
            fingerprints: region.fingerprints.into(),
            lengths: region.lengths,
            payload: encoded.payload.into(),
        })
    }

    fn seal(
        &self,
        encoded: EncodedRegion,
        fingerprints: &[u8],
        lengths: &[u32],
    ) -> Result<EncodedRegion, ClientError> {
        let cut_off = ClientError::Internal("a region's list of fingerprints is cut off");
        let fingerprints: Vec<Fingerprint> = Fingerprint::split_list(fingerprints).ok_or(cut_off)?.collect();
        let bytes = encoded.payload.len() as u64;
        self.stages.measure(Stage::Seal, bytes, || self.cipher.seal(encoded, &fingerprints, lengths))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_does_not_add_up_is_an_error_and_the_threads_live_on() {
        let compressor = Compressor::new(1, (2, Cipher::Plain), Arc::default(), Arc::default()).unwrap();
        let region = |lengths| PlainRegion { plain: vec![7; 10], fingerprints: vec![1; 32], lengths };
        assert!(compressor.submit(region(vec![9])).blocking_recv().is_err());
        let compressed = compressor.submit(region(vec![10])).blocking_recv().unwrap().unwrap();
        assert_eq!((compressed.plain_bytes, compressed.lengths), (10, vec![10]));
    }
}
