//! The pass over the data, disk by disk: a thread reads batches ahead, the pool runs all variants over each,
//! then compresses what they want compressed.

use std::sync::Arc;
use std::time::Instant;

use super::pass::Pass;
use super::variant::Variant;
use super::{DiskFacts, Estimate, EstimateOptions};
use crate::cancel::Cancel;
use crate::error::ClientError;
use crate::estimate::pass::read_ahead;
use crate::progress::{Progress, Step};
use crate::source::Source;

pub(super) fn run(
    disks: &[Arc<dyn Source>],
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
    let mut pass = Pass::new(options, both_scopes);
    let mut facts = Vec::new();
    let mut figures = Vec::new();
    let mut before_bytes = 0;
    for (number, disk) in (0u32..).zip(disks) {
        progress.disk(disk.name(), before_bytes);
        before_bytes += disk.size_bytes();
        let data_bytes = read_disk(&mut pass, &threads, number, disk, progress, cancel)?;
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

/// Runs all variants over one disk. Returns its bytes without holes and runs of zeros.
fn read_disk(
    pass: &mut Pass<'_>,
    threads: &rayon::ThreadPool,
    number: u32,
    disk: &Arc<dyn Source>,
    progress: &dyn Progress,
    cancel: &Cancel,
) -> Result<u64, ClientError> {
    let (mut data_bytes, mut walked_bytes) = (0, 0);
    let (batches, reader) = read_ahead(Arc::clone(disk))?;
    for batch in batches {
        if cancel.is_cancelled() {
            return Err(ClientError::Interrupted);
        }
        let batch = batch?;
        let data = threads.install(|| pass.batch(number, &batch.extents))?;
        data_bytes += data;
        walked_bytes += batch.walked_bytes;
        progress.advance(Step { done_bytes: batch.walked_bytes, data_bytes: data, ..Step::default() });
    }
    reader.join().map_err(|_| ClientError::Internal("the reading thread panicked"))?;
    if walked_bytes != disk.size_bytes() {
        return Err(ClientError::Internal("reading ended before the disk's end"));
    }
    if disk.can_change() {
        disk.check_unchanged(disk.size_bytes())?;
    }
    Ok(data_bytes)
}
