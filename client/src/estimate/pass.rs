//! One pass of all variants over the same data, and the figures that come of it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use holdfast_proto::chunker::{Chunker, is_zero};
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use rayon::prelude::*;

use crate::error::ClientError;
use crate::estimate::sample::{Compressed, Estimated};
use crate::estimate::variant::{Count, Encoders, Job, Variant};
use crate::estimate::{EstimateOptions, Figures, LevelFigures, factor};
use crate::pool::{Buffer, BufferPool};
use crate::slices::{part, part_mut};
use crate::source::walk::{ExtentWalk, Span};
use crate::source::{Source, extent_bytes, read};

/// All variants and what they need.
pub(super) struct Pass<'a> {
    pub(super) variants: Vec<Variant>,
    options: &'a EstimateOptions,
    encoders: Encoders,
}

impl<'a> Pass<'a> {
    /// With `both_scopes` every disk is also counted alone.
    pub(super) fn new(options: &'a EstimateOptions, both_scopes: bool) -> Self {
        Self { variants: Variant::all(options, both_scopes), options, encoders: Encoders::new(options) }
    }

    /// Runs all variants over a batch; returns its bytes without runs of zeros.
    pub(super) fn batch(&mut self, disk: u32, extents: &[Extent]) -> Result<u64, ClientError> {
        let data = extents.par_iter().map(|extent| {
            let pieces = Chunker::default().cut(extent.bytes());
            pieces.iter().filter(|piece| !piece.zero).map(|piece| u64::from(piece.len)).sum::<u64>()
        });
        let data = data.sum();
        let jobs = self.each(|variant, jobs| {
            for extent in extents {
                variant.extent(disk, extent.index, extent.bytes(), jobs);
            }
        });
        self.compress(jobs)?;
        Ok(data)
    }

    /// The disk ends.
    pub(super) fn end_disk(&mut self, disk: u32) -> Result<(), ClientError> {
        let jobs = self.each(|variant, jobs| variant.end_disk(disk, jobs));
        self.compress(jobs)
    }

    /// Ends the pass once all disks have been read.
    pub(super) fn end(&mut self) -> Result<(), ClientError> {
        let jobs = self.each(Variant::end);
        self.compress(jobs)
    }

    fn each(&mut self, work: impl Fn(&mut Variant, &mut Vec<Job>) + Sync) -> Vec<Job> {
        let jobs = self.variants.par_iter_mut().map(|variant| {
            let mut jobs = Vec::new();
            work(variant, &mut jobs);
            jobs
        });
        jobs.flatten().collect()
    }

    fn compress(&mut self, jobs: Vec<Job>) -> Result<(), ClientError> {
        let encoders = &self.encoders;
        let measure = |job: Job| {
            let stored =
                job.levels.iter().map(|&level| Ok((level, encoders.stored_bytes(level, &job.plain)?)));
            let stored = stored.collect::<Result<Vec<_>, ClientError>>()?;
            Ok((job.variant, job.scope, job.plain.len() as u64, stored))
        };
        let measured = jobs.into_par_iter().map(measure).collect::<Result<Vec<_>, ClientError>>()?;
        for (variant, scope, plain, stored) in measured {
            let Some(variant) = self.variants.get_mut(variant) else {
                unreachable!("a region of variant {variant}, which is not compared");
            };
            variant.measured(scope, plain, &stored);
        }
        Ok(())
    }

    /// Returns the figures of `disk` (`None`: of all together), of which `bytes` are data.
    pub(super) fn figures(&self, disk: Option<&str>, bytes: u64) -> Vec<Figures> {
        let share = self.options.share;
        let of = |variant: &Variant| {
            let count = if disk.is_some() { &variant.disk } else { &variant.together };
            let new_bytes = count.distinct.total_bytes(share);
            Figures {
                variant: variant.name,
                production: variant.production,
                disk: disk.map(ToOwned::to_owned),
                bytes,
                chunks: count.chunks,
                new_chunks: count.distinct.total_count(share),
                new_bytes,
                dedupe_factor: factor(bytes, new_bytes.value),
                levels: level_figures(variant, count, &self.options.levels, bytes, new_bytes),
            }
        };
        self.variants.iter().map(of).collect()
    }
}

fn level_figures(
    variant: &Variant,
    count: &Count,
    levels: &[i32],
    bytes: u64,
    new_bytes: Estimated,
) -> Vec<LevelFigures> {
    let base = variant.base_level().and_then(|index| Some((index, count.compressed.get(index)?)));
    let base = base.map(|(index, compressed)| (index, compressed.total_stored(new_bytes)));
    let of = |(index, (&level, compressed)): (usize, (&i32, &Compressed))| {
        let base_bytes = base.filter(|(base, _)| *base != index).map_or(new_bytes, |(_, stored)| stored);
        let stored_bytes = compressed.total_stored(base_bytes);
        LevelFigures {
            level,
            stored_bytes,
            compression_factor: factor(new_bytes.value, stored_bytes.value),
            total_factor: factor(bytes, stored_bytes.value),
            measured_bytes: compressed.plain,
        }
    };
    levels.iter().zip(&count.compressed).enumerate().map(of).collect()
}

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
