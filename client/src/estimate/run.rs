//! The pass over the data: a thread reads batches ahead, the pool runs all variants over each, then
//! compresses what they want compressed.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use holdfast_proto::chunker::{Chunker, is_zero};
use holdfast_proto::limits::{EXTENT_BYTES, REGION_STORED_MAX_BYTES, extent_len};
use rayon::prelude::*;

use super::sample::{Compressed, Estimated};
use super::variant::{Count, Job, Variant};
use super::{DiskFacts, Estimate, EstimateOptions, Figures, LevelFigures, factor};
use crate::cancel::Cancel;
use crate::error::ClientError;
use crate::pool::{Buffer, BufferPool, ObjectPool};
use crate::progress::{Progress, Step};
use crate::source::SourceDisk;
use crate::source::extents::{ExtentWalk, Span};

/// Extents worked on at a time.
const BATCH_EXTENTS: usize = 4;

/// An extent that is not all zeros.
struct Extent {
    index: u64,
    len: usize,
    buffer: Buffer,
}

/// Extents with data, and how far the disk was walked with them.
#[derive(Default)]
struct Batch {
    extents: Vec<Extent>,
    walked_bytes: u64,
}

pub(super) fn run(
    disks: &[Arc<SourceDisk>],
    options: &EstimateOptions,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<Estimate, ClientError> {
    let begun = Instant::now();
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(options.threads.unwrap_or(0))
        .thread_name(|number| format!("estimate-{number}"))
        .build()
        .map_err(|_| ClientError::Internal("the threads could not be started"))?;
    let both_scopes = disks.len() > 1;
    let mut pass =
        Pass { variants: Variant::all(options, both_scopes), options, encoders: Encoders::new(options) };
    let mut facts = Vec::new();
    let mut figures = Vec::new();
    let mut before_bytes = 0;
    for (number, disk) in (0u32..).zip(disks) {
        progress.disk(disk.name(), before_bytes);
        before_bytes += disk.size_bytes();
        let mut data_bytes = 0;
        let (batches, reader) = read_ahead(Arc::clone(disk))?;
        for batch in batches {
            if cancel.is_cancelled() {
                return Err(ClientError::Interrupted);
            }
            let batch = batch?;
            let data = threads.install(|| pass.batch(number, &batch.extents))?;
            data_bytes += data;
            let step = Step { done_bytes: batch.walked_bytes, data_bytes: data, ..Step::default() };
            progress.advance(step);
        }
        reader.join().map_err(|_| ClientError::Internal("the reading thread ended early"))?;
        disk.check_unchanged(disk.size_bytes())?;
        threads.install(|| pass.end_disk(number))?;
        let name = disk.name().to_owned();
        if both_scopes {
            figures.extend(pass.figures(Some(&name), data_bytes));
        }
        pass.variants.iter_mut().for_each(Variant::next_disk);
        facts.push(DiskFacts { name, size_bytes: disk.size_bytes(), data_bytes });
    }
    threads.install(|| pass.end())?;
    figures.extend(pass.figures(None, facts.iter().map(|disk| disk.data_bytes).sum()));
    Ok(Estimate { disks: facts, share: options.share, figures, seconds: begun.elapsed().as_secs_f64() })
}

type Batches = Receiver<Result<Batch, ClientError>>;

/// Reads a disk on a thread of its own, one batch ahead.
fn read_ahead(disk: Arc<SourceDisk>) -> Result<(Batches, std::thread::JoinHandle<()>), ClientError> {
    let (sender, batches) = sync_channel(1);
    // One batch being worked on, one waiting, one being read.
    let pool = BufferPool::new(3 * BATCH_EXTENTS, EXTENT_BYTES as usize);
    let mut walk = ExtentWalk::new(&disk, Vec::new()).map_err(ClientError::Protocol)?;
    let reader = std::thread::Builder::new()
        .name("read".to_owned())
        .spawn(move || {
            loop {
                let batch = read_batch(&disk, &mut walk, &pool);
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
fn read_batch(disk: &SourceDisk, walk: &mut ExtentWalk, pool: &BufferPool) -> Result<Batch, ClientError> {
    let mut batch = Batch::default();
    while batch.extents.len() < BATCH_EXTENTS {
        match walk.next(disk)? {
            None => break,
            Some(Span::Zero { first, count } | Span::Accepted { first, count }) => {
                let end = ((first + count) * u64::from(EXTENT_BYTES)).min(disk.size_bytes());
                batch.walked_bytes += end - first * u64::from(EXTENT_BYTES);
            }
            Some(Span::Read { index, .. }) => {
                let Some(mut buffer) = pool.take() else { break };
                let len = extent_len(disk.size_bytes(), index) as usize;
                let extent = buffer.get_mut(..len).unwrap_or_default();
                disk.read_at(index * u64::from(EXTENT_BYTES), extent)?;
                batch.walked_bytes += len as u64;
                if !is_zero(extent) {
                    batch.extents.push(Extent { index, len, buffer });
                }
            }
        }
    }
    Ok(batch)
}

/// All variants and what they need.
struct Pass<'a> {
    variants: Vec<Variant>,
    options: &'a EstimateOptions,
    encoders: Encoders,
}

impl Pass<'_> {
    /// Runs all variants over a batch; returns its bytes without runs of zeros.
    fn batch(&mut self, disk: u32, extents: &[Extent]) -> Result<u64, ClientError> {
        let bytes_of = |extent: &Extent| extent.buffer.get(..extent.len).unwrap_or_default().len();
        let data = extents.par_iter().map(|extent| {
            let pieces = Chunker::default().cut(extent.buffer.get(..bytes_of(extent)).unwrap_or_default());
            pieces.iter().filter(|piece| !piece.zero).map(|piece| u64::from(piece.len)).sum::<u64>()
        });
        let data = data.sum();
        let jobs = self.each(|variant, jobs| {
            for extent in extents {
                variant.extent(disk, extent.index, extent.buffer.get(..extent.len).unwrap_or_default(), jobs);
            }
        });
        self.compress(jobs)?;
        Ok(data)
    }

    fn end_disk(&mut self, disk: u32) -> Result<(), ClientError> {
        let jobs = self.each(|variant, jobs| variant.end_disk(disk, jobs));
        self.compress(jobs)
    }

    fn end(&mut self) -> Result<(), ClientError> {
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
            if let Some(variant) = self.variants.get_mut(variant) {
                variant.measured(scope, plain, &stored);
            }
        }
        Ok(())
    }

    fn figures(&self, disk: Option<&str>, bytes: u64) -> Vec<Figures> {
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

/// zstd at every level, one context a thread and level.
struct Encoders {
    levels: Vec<(i32, ObjectPool<zstd::bulk::Compressor<'static>>)>,
    scratch: ObjectPool<Vec<u8>>,
}

impl Encoders {
    fn new(options: &EstimateOptions) -> Self {
        let levels = options.levels.iter().map(|&level| (level, ObjectPool::default())).collect();
        Self { levels, scratch: ObjectPool::default() }
    }

    /// What `plain` takes at the level of this index; stored as it is when compression saves under 1/32,
    /// as in a region.
    fn stored_bytes(&self, level: usize, plain: &[u8]) -> Result<u64, ClientError> {
        let failed = ClientError::Internal("zstd could not compress a region");
        let Some((level, stock)) = self.levels.get(level) else { return Err(failed) };
        let made = stock.take_or(|| zstd::bulk::Compressor::new(*level));
        let Ok(mut encoder) = made else { return Err(failed) };
        let mut frame = self.scratch.take_or(|| Ok::<_, ClientError>(Vec::new()))?;
        frame.clear();
        frame.reserve(zstd::zstd_safe::compress_bound(plain.len().max(REGION_STORED_MAX_BYTES as usize)));
        let compressed = encoder.compress_to_buffer(plain, &mut frame);
        stock.put(encoder);
        self.scratch.put(frame);
        let Ok(bytes) = compressed else { return Err(failed) };
        let worthwhile = bytes + plain.len() / 32 < plain.len();
        Ok(if worthwhile { bytes } else { plain.len() } as u64)
    }
}
