//! Reading a disk ahead, a few extents at a time.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use holdfast_proto::chunker::is_zero;
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};

use crate::error::ClientError;
use crate::pool::{Buffer, BufferPool};
use crate::slices::{part, part_mut};
use crate::source::walk::{ExtentWalk, Span};
use crate::source::{Source, extent_bytes, read};

/// Extents that are worked on at a time.
const BATCH_EXTENTS: usize = 4;

/// An extent that is not all zeros.
pub(super) struct Extent {
    pub(super) index: u64,
    len: usize,
    buffer: Buffer,
}

impl Extent {
    pub(super) fn bytes(&self) -> &[u8] {
        part(&self.buffer, 0, self.len)
    }
}

/// Extents with data, and how far the disk was walked with them.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) extents: Vec<Extent>,
    pub(super) walked_bytes: u64,
}

/// Ends after the batch that walks nothing, or the first error.
pub(super) type Batches = Receiver<Result<Batch, ClientError>>;

/// Reads a disk on a thread of its own, one batch ahead.
///
/// # Errors
/// [`ClientError::Internal`] when the thread cannot be started.
pub(super) fn read_ahead(disk: Arc<dyn Source>) -> Result<(Batches, JoinHandle<()>), ClientError> {
    let (sender, batches) = sync_channel(1);
    // One batch being worked on, one waiting, one being read.
    let pool = BufferPool::new(3 * BATCH_EXTENTS, EXTENT_BYTES as usize);
    let mut walk = ExtentWalk::new(&*disk, Vec::new(), None).map_err(ClientError::Protocol)?;
    let reader = std::thread::Builder::new()
        .name("read".to_owned())
        .spawn(move || {
            loop {
                let batch = read_batch(&*disk, &mut walk, &pool);
                let ended = match &batch {
                    Ok(batch) => batch.walked_bytes == 0,
                    Err(_) => true,
                };
                if sender.send(batch).is_err() || ended {
                    return;
                }
            }
        })
        .map_err(|_| ClientError::Internal("the reading thread could not be started"))?;
    Ok((batches, reader))
}

/// The next batch; it covers nothing at the disk's end.
fn read_batch(disk: &dyn Source, walk: &mut ExtentWalk, pool: &BufferPool) -> Result<Batch, ClientError> {
    let size_bytes = disk.size_bytes();
    let mut batch = Batch::default();
    while batch.extents.len() < BATCH_EXTENTS {
        match walk.next(disk)? {
            None => break,
            Some(Span::Zero { first, count } | Span::Accepted { first, count }) => {
                let range = extent_bytes(size_bytes, first, count);
                batch.walked_bytes += range.end - range.start;
            }
            Some(Span::Read { index, segments } | Span::Unchanged { index, segments }) => {
                let mut buffer = pool.take().ok_or(ClientError::Internal("the buffers were closed early"))?;
                let len = extent_len(size_bytes, index) as usize;
                let extent = part_mut(&mut buffer, 0, len);
                read(disk, &segments, extent_bytes(size_bytes, index, 1).start, extent)?;
                batch.walked_bytes += len as u64;
                if !is_zero(extent) {
                    batch.extents.push(Extent { index, len, buffer });
                }
            }
        }
    }
    Ok(batch)
}
