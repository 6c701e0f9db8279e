//! Decoding one region, checking its chunks and writing them where they belong. Runs on a decoding thread.

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::{Decoder, RegionError};
use holdfast_proto::{Fingerprint, v1};

use super::bad::BadRange;
use super::target::Target;
use super::window::{CheckedRegion, Placed};
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::slices::part;
use crate::stages::{Stage, Stages, Stopwatch};

/// What decoding a region needs: a decoder, and memory for the plain bytes.
#[derive(Debug)]
pub(crate) struct Tools {
    decoder: Decoder,
    plain: Vec<u8>,
}

/// Plain bytes of chunks whose fingerprints were checked; only these are written.
struct Verified<'a> {
    chunks: Vec<(Placed<'a>, &'a [u8], u32)>,
}

/// Does all of it. `checked` is told of each place of each chunk once it was checked. Returns the bytes written,
/// without zeros.
///
/// # Errors
/// [`ClientError::Damaged`] naming the extent and the chunk, or an error of the target.
pub(crate) fn run(
    region: &CheckedRegion,
    disk: &str,
    target: &dyn Target,
    tools: &ObjectPool<Tools>,
    stages: &Stages,
    checked: &dyn Fn(u64, &[u8]),
) -> Result<u64, ClientError> {
    let make = || Ok::<_, RegionError>(Tools { decoder: Decoder::new()?, plain: Vec::new() });
    let mut kit = tools.take_or(make)?;
    let mut watch = Stopwatch::start();
    let decoded = decode(region, disk, &mut kit);
    stages.add(Stage::Decompress, watch.lap(), u64::from(region.plain_bytes));
    let outcome = decoded.and_then(|()| {
        let verified = verify(region, disk, &kit.plain);
        for (placed, bytes, _) in verified.iter().flat_map(|verified| &verified.chunks) {
            placed.places.iter().for_each(|place| checked(*place, bytes));
        }
        stages.add(Stage::Check, watch.lap(), kit.plain.len() as u64);
        let written = verified.and_then(|verified| write(&verified, &kit.plain, target));
        stages.add(Stage::Write, watch.lap(), written.as_ref().map_or(0, |bytes| *bytes));
        written
    });
    tools.put(kit);
    outcome
}

/// As [`run`] for a region that is not what it should be: writes the chunks that are right. Returns the bytes
/// written and the ranges that none were written to.
///
/// # Errors
/// Errors of the target only.
pub(crate) fn run_past_damage(
    region: &CheckedRegion,
    target: &dyn Target,
    tools: &ObjectPool<Tools>,
    checked: &dyn Fn(u64, &[u8]),
) -> Result<(u64, Vec<BadRange>), ClientError> {
    let make = || Ok::<_, RegionError>(Tools { decoder: Decoder::new()?, plain: Vec::new() });
    let mut kit = tools.take_or(make)?;
    let decoded = decode(region, "", &mut kit).is_ok();
    let mut bad = Vec::new();
    let mut chunks = Vec::new();
    for &(index, offset) in &region.chunks {
        let chunk = region.window.chunk(index);
        let placed =
            chunk.ok_or(ClientError::Internal("a region delivers a chunk its window does not have"))?;
        if decoded {
            let bytes = part(&kit.plain, offset as usize, placed.len as usize);
            if Fingerprint::of(bytes) == placed.fingerprint {
                placed.places.iter().for_each(|place| checked(*place, bytes));
                chunks.push((placed, bytes, offset));
                continue;
            }
        }
        let reason =
            format!("chunk {}: what the server sent does not match its fingerprint", placed.fingerprint);
        let damage = v1::Damage { reason, container: String::new() };
        bad.extend(placed.places.iter().map(|&place| BadRange::said(place, placed.len.into(), &damage)));
    }
    let written = write(&Verified { chunks }, &kit.plain, target)?;
    tools.put(kit);
    Ok((written, bad))
}

fn decode(region: &CheckedRegion, disk: &str, kit: &mut Tools) -> Result<(), ClientError> {
    let decoded = kit.decoder.decode_into(region.codec, &region.payload, region.plain_bytes, &mut kit.plain);
    decoded.map_err(|error| {
        let first = region.chunks.first().and_then(|(chunk, _)| region.window.chunk(*chunk));
        damaged(disk, first, &error.to_string())
    })?;
    assert_eq!(kit.plain.len(), region.plain_bytes as usize, "bytes of a decoded region");
    Ok(())
}

fn damaged(disk: &str, chunk: Option<Placed<'_>>, what: &str) -> ClientError {
    let place = chunk.and_then(|chunk| chunk.places.first().map(|offset| (offset, chunk)));
    let what = match place {
        Some((offset, chunk)) => format!(
            "extent {}, offset {offset}, chunk {}: {what}",
            offset / u64::from(EXTENT_BYTES),
            chunk.fingerprint
        ),
        None => what.to_owned(),
    };
    ClientError::Damaged { disk: disk.to_owned(), what }
}

fn verify<'a>(region: &'a CheckedRegion, disk: &str, plain: &'a [u8]) -> Result<Verified<'a>, ClientError> {
    let mut chunks = Vec::with_capacity(region.chunks.len());
    for &(index, offset) in &region.chunks {
        let chunk = region.window.chunk(index);
        let placed =
            chunk.ok_or(ClientError::Internal("a region delivers a chunk its window does not have"))?;
        let bytes = part(plain, offset as usize, placed.len as usize);
        // What the server sent is believed only now (R2).
        let actual = Fingerprint::of(bytes);
        if actual != placed.fingerprint {
            return Err(damaged(disk, Some(placed), &format!("the data hashes to {actual}")));
        }
        chunks.push((placed, bytes, offset));
    }
    Ok(Verified { chunks })
}

/// Writes chunks to all their places. Chunks next to each other both in the region and on the disk are
/// written with one call.
fn write(verified: &Verified<'_>, plain: &[u8], target: &dyn Target) -> Result<u64, ClientError> {
    let mut runs: Vec<(u64, usize, usize)> = Vec::new();
    for (placed, bytes, offset) in &verified.chunks {
        let start = *offset as usize;
        for (number, &place) in placed.places.iter().enumerate() {
            let last = runs
                .last_mut()
                .filter(|(at, from, to)| number == 0 && *to == start && *at + (*to - *from) as u64 == place);
            match last {
                Some((_, _, to)) => *to += bytes.len(),
                None => runs.push((place, start, start + bytes.len())),
            }
        }
    }
    for &(place, from, to) in &runs {
        target.write_at(place, part(plain, from, to - from))?;
    }
    let written: usize = runs.iter().map(|(_, from, to)| to - from).sum();
    let due: usize = verified.chunks.iter().map(|(placed, bytes, _)| placed.places.len() * bytes.len()).sum();
    assert_eq!(written, due, "bytes of a region written, bytes its chunks take on the disk");
    Ok(written as u64)
}
