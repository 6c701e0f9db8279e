//! Parity: a group of containers and a blob from which as many of them as it has spares can be made again.
//!
//! A blob is `parity/NUMBER`, ten hexadecimal digits. It is written for containers that were read and found sound, and
//! never changes (A2). What is made of it is checked window by window, and as a whole where all of it could be made, and is no
//! copy until it was read as the container it must be (R1, R2).
//!
//! Nothing here knows the catalog, which says which container is in which group. A crash leaves an unfinished blob, which
//! the start discards, or a blob that the catalog does not know.

mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_types::ids::{ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::{Blob, BlobName, Owner, Volume, VolumeError};
use reed_solomon_simd::ReedSolomonEncoder;

use crate::container::ContainerName;
use crate::error::EngineError;
use crate::format::parity::{ParityHeader, ParityMember, ParityTable, SHARD_UNIT_BYTES};
use crate::format::{Crc64, crc64};

pub use crate::format::parity::{MEMBERS_MAX, SPARES_MAX};
#[cfg(test)]
pub use read::reconstruct_bytes;
pub use read::{prove, read_members, reconstruct, repairable};

/// The folder of all parity.
#[expect(clippy::expect_used, reason = "a constant")]
pub fn folder() -> BlobName {
    BlobName::new("parity").expect("a valid name")
}

/// The blob of a group.
#[expect(clippy::expect_used, reason = "made of digits")]
pub fn name(number: ContainerId) -> BlobName {
    BlobName::new(format!("parity/{number}")).expect("a valid name")
}

/// The group of a blob.
pub fn parse(blob: &BlobName) -> Option<ContainerId> {
    let digits = blob.as_str().strip_prefix("parity/")?;
    let number = ContainerId::new(u64::from_str_radix(digits, 16).ok()?)?;
    (name(number) == *blob).then_some(number)
}

/// Counted while the engine runs.
#[derive(Debug, Default)]
pub struct ParityCounters {
    read: AtomicU64,
    repaired: AtomicU64,
}

/// Since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParityStats {
    /// Damaged containers made again in memory, because something was to be read of them.
    pub read: u64,
    /// Damaged containers of which everything damaged was written into sound ones.
    pub repaired: u64,
}

impl ParityCounters {
    pub fn read(&self) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    pub fn repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub fn stats(&self) -> ParityStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ParityStats { read: count(&self.read), repaired: count(&self.repaired) }
    }
}

/// A container to protect, and how long it is.
pub type Source = (ContainerName, u32);

/// A group to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub repository: RepositoryId,
    /// The namespace of all its containers.
    pub owner: NamespaceId,
    pub number: ContainerId,
    /// Milliseconds since the Unix epoch.
    pub created_ms: i64,
    /// Number of containers that may be lost.
    pub spares: u8,
}

/// Parity that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    pub stored_bytes: u64,
}

/// Writes the parity of `sources`, durably. `None`: `stop` said so, and nothing is left.
///
/// # Errors
/// The volume's; a container that is not as long as it should be.
pub fn write(
    volume: &dyn Volume,
    group: &Group,
    sources: &[Source],
    stop: &dyn Fn() -> bool,
) -> Result<Option<Written>, EngineError> {
    let Group { repository, owner, number, created_ms, spares } = *group;
    let longest = sources.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
    let header = ParityHeader {
        number: number.get(),
        repository,
        created_ms,
        members: u8::try_from(sources.len()).map_err(|_| internal("too many containers for parity"))?,
        spares,
        shard_bytes: longest.next_multiple_of(SHARD_UNIT_BYTES),
    };
    let mut blobs = Vec::with_capacity(sources.len());
    for (source, bytes) in sources {
        let blob = volume.open(&source.blob())?;
        if blob.len() != u64::from(*bytes) {
            let (name, len) = (source.blob(), blob.len());
            return Err(EngineError::Damaged(format!("{name} is {len} bytes long, not {bytes}")));
        }
        blobs.push((blob, *bytes));
    }
    let target = name(number);
    let mut out = volume.create_for(&target, Owner::namespace(owner.to_bytes()))?;
    out.append(&header.encode())?;
    let mut sums = vec![Vec::new(); sources.len() + usize::from(spares)];
    let mut crcs = vec![Crc64::default(); sources.len()];
    let mut encoder: Option<ReedSolomonEncoder> = None;
    for window in 0..header.windows() {
        if stop() {
            return Ok(None);
        }
        let (start, len) = header.window(window);
        let coder = match &mut encoder {
            Some(encoder) => {
                encoder.reset(sources.len(), spares.into(), len as usize).map_err(coding)?;
                encoder
            }
            empty => empty
                .insert(ReedSolomonEncoder::new(sources.len(), spares.into(), len as usize).map_err(coding)?),
        };
        for (place, (blob, bytes)) in blobs.iter().enumerate() {
            let (shard, own) = read_window(blob, *bytes, start, len)?;
            if let (Some(sums), Some(crc)) = (sums.get_mut(place), crcs.get_mut(place)) {
                sums.push(crc64(&shard));
                crc.update(shard.get(..own).unwrap_or_default());
            }
            coder.add_original_shard(&shard).map_err(coding)?;
        }
        let encoded = coder.encode().map_err(coding)?;
        for (place, parity) in encoded.recovery_iter().enumerate() {
            if let Some(sums) = sums.get_mut(sources.len() + place) {
                sums.push(crc64(parity));
            }
            out.append(parity)?;
        }
    }
    let members = sources.iter().zip(&crcs).map(|((source, bytes), crc)| ParityMember {
        id: source.id,
        class: source.class,
        stored_bytes: *bytes,
        crc: crc.finish(),
    });
    let table = ParityTable { members: members.collect(), sums: sums.concat() };
    let table = table.encode();
    assert_eq!(table.len(), header.table_bytes(), "the table of {target}");
    out.append(&table)?;
    // (E1) Durable before anything relies on it.
    out.seal()?;
    Ok(Some(Written { stored_bytes: header.table_offset() + table.len() as u64 }))
}

/// A window of a container, filled up with zeros, and how many bytes of it are its own.
fn read_window(
    blob: &Arc<dyn Blob>,
    stored_bytes: u32,
    start: u32,
    len: u32,
) -> Result<(Vec<u8>, usize), VolumeError> {
    let mut shard = vec![0; len as usize];
    let own = stored_bytes.saturating_sub(start).min(len) as usize;
    if let Some(bytes) = shard.get_mut(..own).filter(|bytes| !bytes.is_empty()) {
        blob.read_at(start.into(), bytes)?;
    }
    Ok((shard, own))
}

fn internal(what: &str) -> EngineError {
    EngineError::Internal(what.to_owned())
}

fn coding(error: reed_solomon_simd::Error) -> EngineError {
    EngineError::Internal(format!("parity: {error}"))
}
