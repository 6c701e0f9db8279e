//! Decoding one region and checking its chunks. Runs on a decoding thread.

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::{Decoder, RegionError};
use holdfast_proto::v1;

use super::bad::BadRange;
use super::poison::FalseChunk;
use super::window::{CheckedRegion, Placed};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::ObjectPool;
use crate::slices::part;
use crate::stages::{Stage, Stages, Stopwatch};

/// Decoder and buffers to decode regions with.
#[derive(Debug)]
pub(crate) struct Tools {
    decoder: Decoder,
    plain: Vec<u8>,
    /// Buffer that a sealed region is opened in.
    opened: Vec<u8>,
}

impl Tools {
    fn new() -> Result<Self, RegionError> {
        Ok(Self { decoder: Decoder::new()?, plain: Vec::new(), opened: Vec::new() })
    }
}

/// Does all of it: `sink` gets each chunk once for each of its places, after all of the region was checked; without
/// `is_checked`, chunks are not compared with their fingerprints, but only with what the region says of its length. Returns
/// the bytes handed out.
///
/// # Errors
/// [`ClientError::Damaged`] naming the extent and the chunk; then nothing was handed out.
pub(crate) fn run(
    region: &CheckedRegion,
    (disk, is_checked): (&str, bool),
    (cipher, tools): (&Cipher, &ObjectPool<Tools>),
    stages: &Stages,
    sink: &dyn Fn(u64, &[u8]),
) -> Result<u64, ClientError> {
    let mut kit = tools.take_or(Tools::new)?;
    let mut watch = Stopwatch::start();
    let decoded = decode(region, disk, cipher, &mut kit);
    stages.add(Stage::Decompress, watch.lap(), u64::from(region.plain_bytes));
    let outcome = decoded.and_then(|()| {
        let cipher = is_checked.then_some(cipher);
        let delivered = chunks(region, disk, cipher, &kit.plain).map(|chunks| deliver(&chunks, sink));
        stages.add(Stage::Check, watch.lap(), kit.plain.len() as u64);
        delivered
    });
    tools.put(kit);
    outcome
}

/// As [`run`] for a region that is not what it should be: hands out the chunks that are right. Returns the ranges
/// of the others, and the first of them when an agent sealed it so.
///
/// # Errors
/// None of the region: only what keeps it from being looked at.
pub(crate) fn run_past_damage(
    region: &CheckedRegion,
    (cipher, tools): (&Cipher, &ObjectPool<Tools>),
    sink: &dyn Fn(u64, &[u8]),
) -> Result<(Vec<BadRange>, Option<FalseChunk>), ClientError> {
    let mut kit = tools.take_or(Tools::new)?;
    let decoded = decode(region, "", cipher, &mut kit).is_ok();
    let mut bad = Vec::new();
    let mut false_chunk = None;
    for &(index, offset) in &region.chunks {
        let chunk = region.window.chunk(index);
        let placed =
            chunk.ok_or(ClientError::Internal("a region delivers a chunk its window does not have"))?;
        if decoded {
            let bytes = part(&kit.plain, offset as usize, placed.len as usize);
            if cipher.fingerprint(bytes) == placed.fingerprint {
                placed.places.iter().for_each(|place| sink(*place, bytes));
                continue;
            }
        }
        false_chunk = false_chunk.or_else(|| FalseChunk::of(region, placed));
        bad.extend(bad_ranges(placed));
    }
    tools.put(kit);
    Ok((bad, false_chunk))
}

fn decode(region: &CheckedRegion, disk: &str, cipher: &Cipher, kit: &mut Tools) -> Result<(), ClientError> {
    let Tools { decoder, plain, opened } = kit;
    let sent = (region.codec, &*region.payload, region.plain_bytes);
    let decoded = cipher.decode_into(decoder, sent, plain, opened);
    decoded.map_err(|error| {
        let first = region.chunks.first().and_then(|(chunk, _)| region.window.chunk(*chunk));
        damaged(disk, first, &error.to_string())
    })?;
    assert_eq!(kit.plain.len(), region.plain_bytes as usize, "bytes of a decoded region");
    Ok(())
}

/// Returns the ranges of the disk that a wrong chunk belongs to.
pub(crate) fn bad_ranges(chunk: Placed<'_>) -> impl Iterator<Item = BadRange> {
    let reason = format!("chunk {}: what the server sent does not match its fingerprint", chunk.fingerprint);
    let damage = v1::Damage { reason, container: String::new() };
    chunk.places.iter().map(move |&place| BadRange::said(place, chunk.len.into(), &damage))
}

/// A chunk hashes to `actual`.
pub(crate) fn wrong(disk: &str, chunk: Placed<'_>, actual: Fingerprint) -> ClientError {
    damaged(disk, Some(chunk), &format!("the data hashes to {actual}"))
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

/// The chunks of a region; with a cipher, each was compared with its fingerprint.
fn chunks<'a>(
    region: &'a CheckedRegion,
    disk: &str,
    cipher: Option<&Cipher>,
    plain: &'a [u8],
) -> Result<Vec<(Placed<'a>, &'a [u8])>, ClientError> {
    let mut chunks = Vec::with_capacity(region.chunks.len());
    for &(index, offset) in &region.chunks {
        let chunk = region.window.chunk(index);
        let placed =
            chunk.ok_or(ClientError::Internal("a region delivers a chunk its window does not have"))?;
        let bytes = part(plain, offset as usize, placed.len as usize);
        // Data from the server is believed only now (R2).
        if let Some(actual) = cipher.map(|cipher| cipher.fingerprint(bytes))
            && actual != placed.fingerprint
        {
            return Err(wrong(disk, placed, actual));
        }
        chunks.push((placed, bytes));
    }
    Ok(chunks)
}

/// Hands every chunk out, once for each of its places. Returns the bytes.
fn deliver(chunks: &[(Placed<'_>, &[u8])], sink: &dyn Fn(u64, &[u8])) -> u64 {
    let mut delivered = 0;
    for (placed, bytes) in chunks {
        placed.places.iter().for_each(|place| sink(*place, bytes));
        delivered += bytes.len() as u64 * placed.places.len() as u64;
    }
    delivered
}
