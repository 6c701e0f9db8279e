//! Where the chunks of a region end, when its container's directory cannot be believed.
//!
//! Lengths and fingerprints that a damaged directory still has are hints: lengths count when they fill the region,
//! and a chunk that hashes to a fingerprint of the directory is proved. Where hints are missing, data is cut again,
//! as the agent once did, and recipe nodes say themselves how long they are. A wrong cut makes no wrong byte: chunks are
//! named by the hash of their bytes, so one that never was is never asked for. But what was there under its right name
//! is not found any more: only a proved cut says that nothing of a region is lost.

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::CHUNK_MAX_BYTES;
use holdfast_types::ids::ContainerClass;

use crate::format::recipe::node_bytes;

/// What is left of a directory about one region: as many lengths and fingerprints as it has chunks.
#[derive(Debug, Clone, Default)]
pub(super) struct Hints {
    pub(super) lengths: Vec<u32>,
    pub(super) fingerprints: Vec<Fingerprint>,
}

/// How a region is cut.
pub(super) struct Cut {
    /// The length of each chunk.
    pub(super) lengths: Vec<u32>,
    /// True when these are the chunks that were stored: the directory has their lengths, which fill the region, or the
    /// name of every one; or each is a recipe node, and there are as many as the region's header says.
    pub(super) is_proved: bool,
}

/// Cuts `plain`, which is not empty, into the chunks of a region whose header says `chunk_count`. They fill it.
pub(super) fn cut(plain: &[u8], class: ContainerClass, chunk_count: u16, hints: &Hints) -> Cut {
    let total: u64 = hints.lengths.iter().map(|length| u64::from(*length)).sum();
    if total == plain.len() as u64
        && hints.lengths.iter().all(|length| (1..=CHUNK_MAX_BYTES).contains(length))
    {
        let is_proved = hints.lengths.len() == usize::from(chunk_count);
        return Cut { lengths: hints.lengths.clone(), is_proved };
    }
    let mut lengths = Vec::new();
    let mut rest = plain;
    // One search that finds nothing means that the place is wrong, and so would be all that follow.
    let mut may_search = true;
    let (mut named, mut nodes) = (0, 0);
    while !rest.is_empty() {
        let slot = lengths.len();
        let guess = guess(rest, class);
        let length = match hints.fingerprints.get(slot) {
            Some(expected) => {
                let hinted = hints.lengths.get(slot).map(|length| *length as usize);
                let likely = hinted.into_iter().chain([guess]).find(|length| is(rest, *length, expected));
                let searched = || {
                    let found = may_search.then(|| search(rest, expected)).flatten();
                    may_search = found.is_some();
                    found
                };
                likely.or_else(searched).unwrap_or(guess)
            }
            None => guess,
        };
        let length = length.clamp(1, rest.len());
        named += usize::from(hints.fingerprints.get(slot).is_some_and(|name| is(rest, length, name)));
        nodes += usize::from(class == ContainerClass::Recipe && node_bytes(rest) == Some(length));
        lengths.push(u32::try_from(length).unwrap_or(CHUNK_MAX_BYTES));
        rest = rest.get(length..).unwrap_or_default();
    }
    let is_proved =
        lengths.len() == usize::from(chunk_count) && (lengths.len() == named || lengths.len() == nodes);
    Cut { lengths, is_proved }
}

fn guess(rest: &[u8], class: ContainerClass) -> usize {
    match class {
        ContainerClass::Data => Chunker::default().first_chunk(rest),
        ContainerClass::Recipe => node_bytes(rest).unwrap_or(rest.len().min(CHUNK_MAX_BYTES as usize)),
    }
}

fn is(rest: &[u8], length: usize, expected: &Fingerprint) -> bool {
    rest.get(..length).is_some_and(|chunk| Fingerprint::of(chunk) == *expected)
}

/// The length at which the bytes hash to `expected`: a chunk that ended with its extent, or before zeros. Each length
/// takes a microsecond.
fn search(rest: &[u8], expected: &Fingerprint) -> Option<usize> {
    let mut hasher = blake3::Hasher::new();
    let chunk = rest.iter().take(CHUNK_MAX_BYTES as usize).enumerate();
    for (place, byte) in chunk {
        hasher.update(std::slice::from_ref(byte));
        if hasher.finalize().as_bytes() == expected.as_bytes() {
            return Some(place + 1);
        }
    }
    None
}
