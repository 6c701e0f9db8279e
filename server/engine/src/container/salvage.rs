//! Salvage: reading the rest of a container that cannot be opened.
//!
//! Header, directory and footer together are some 70 KiB of 32 MiB, and damage in any of them must not cost the rest.
//! Their contents are recovered: the regions by walking them, their chunks from the rest of the directory or by cutting
//! again, their names by hashing their bytes, and their owner from the catalog.

use holdfast_proto::Fingerprint;
use holdfast_proto::region::sealed::check_sealed;
use holdfast_proto::region::{Codec, Decoder, check_chunks};
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::Volume;

use super::directory::{Cut, Hints, cut};
use super::reader::Parts;
use super::scan::{Walked, read_all, walk};
use super::{ContainerError, ContainerName, Directory, OpenContainer};
use crate::format::FormatError;
use crate::format::container::{
    Contents, DirectoryHints, FOOTER_BYTES, Footer, Header, RegionRecord, begins_directory, directory_bytes,
    directory_hints,
};
use crate::format::crc32c;

/// Identity and owner of a container, known without reading it.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    pub id: ContainerId,
    pub class: ContainerClass,
    pub namespace: NamespaceId,
    /// Milliseconds since the Unix epoch.
    pub created_ms: i64,
}

/// Readable parts of a damaged container.
#[derive(Debug)]
pub struct Salvaged {
    /// Regions are numbered as they were found, which need not be as they once were.
    pub open: OpenContainer,
    /// Set if every byte that belongs to regions was found in one, and every region was cut into the chunks that were
    /// stored in it.
    pub complete: bool,
}

/// Finds all chunks that can still be read of a container which is damaged as a whole. Reads all of it.
///
/// # Errors
/// When there is nothing to be found: it cannot be opened, is another container, or was written by a newer version.
pub fn salvage(
    volume: &dyn Volume,
    repository: RepositoryId,
    owner: Owner,
) -> Result<Salvaged, ContainerError> {
    let Owner { id, class, namespace, created_ms } = owner;
    let wanted = ContainerName { id, class };
    let parts = Parts::open(volume, wanted)?;
    check_identity(&parts, repository, wanted)?;
    let header = Header { class, repository, namespace, id, created_ms, sealed: false };
    // Only the header is damaged, or only its length is not what the catalog says.
    if let Ok(directory) = parts.directory(id) {
        let header = Header { sealed: directory.is_sealed(), ..header };
        let open = OpenContainer::salvaged(header, parts, directory);
        return Ok(Salvaged { open, complete: true });
    }
    let bytes = read_all(&parts)?;
    let walked = walk(&bytes);
    let (contents, lost) = contents(&bytes, &walked, class)?;
    let complete = !lost && !walked.gaps && ends_at_directory(&bytes, id, &walked);
    let header = Header { sealed: contents.is_sealed(), ..header };
    Ok(Salvaged { open: OpenContainer::salvaged(header, parts, Directory::new(contents)), complete })
}

/// A whole header or footer that names another container is no damage that could be walked around: the file is in
/// the wrong place. A newer version means something else by what follows.
fn check_identity(
    parts: &Parts,
    repository: RepositoryId,
    wanted: ContainerName,
) -> Result<(), ContainerError> {
    match parts.header(repository, wanted) {
        Err(error) if error.is_foreign() || error.is_unsupported() => return Err(error),
        _ => {}
    }
    match parts.directory(wanted.id) {
        Err(error) if error.is_foreign() || error.is_unsupported() => Err(error),
        _ => Ok(()),
    }
}

/// Returns true if no region is missing behind the last one: a directory begins there, by its magic number, by the
/// footer, or by the lengths.
fn ends_at_directory(bytes: &[u8], id: ContainerId, walked: &Walked) -> bool {
    let footer = bytes.last_chunk::<FOOTER_BYTES>();
    let footer = footer.and_then(|footer| Footer::decode(footer, bytes.len() as u64).ok());
    if let Some(footer) = footer.filter(|footer| footer.id == id) {
        return footer.directory_offset as usize == walked.end;
    }
    let chunks = walked.regions.iter().map(|(record, _)| usize::from(record.chunk_count)).sum();
    let directory = directory_bytes(walked.regions.len(), chunks);
    bytes.get(walked.end..).is_some_and(begins_directory)
        || walked.end + directory + FOOTER_BYTES == bytes.len()
}

/// Decodes every region and names its chunks; says whether something of a region that was found is lost all the same.
fn contents(
    bytes: &[u8],
    walked: &Walked,
    class: ContainerClass,
) -> Result<(Contents, bool), ContainerError> {
    let hints = directory_hints(bytes, walked.end, &walked.regions);
    let mut decoder = Decoder::new().ok();
    let mut contents = Contents::default();
    let mut lost = false;
    for (record, number) in &walked.regions {
        if record.codec == Codec::Sealed {
            lost |= !take_sealed(bytes, record, hints_for(hints.as_ref(), record, *number), &mut contents);
            continue;
        }
        let plain = decoder.as_mut().and_then(|decoder| decode(bytes, record, decoder));
        let Some(plain) = plain.filter(|plain| !plain.is_empty()) else {
            lost = true;
            continue;
        };
        let hints = hints_for(hints.as_ref(), record, *number);
        let Cut { lengths, is_proved } = cut(&plain, class, record.chunk_count, &hints);
        // (R11) Chunks under other names than they were stored under are no proof that those are there.
        lost |= !is_proved;
        let Ok(chunk_count) = u16::try_from(lengths.len()) else {
            lost = true;
            continue;
        };
        let mut end = 0;
        for length in lengths {
            let start = end;
            end += length;
            let chunk = plain.get(start as usize..end as usize).unwrap_or_default();
            contents.ends.push(end);
            contents.fingerprints.push(Fingerprint::of(chunk));
        }
        contents.regions.push(RegionRecord { chunk_count, ..*record });
    }
    Ok((contents, lost))
}

/// Takes a sealed region, whose chunks are known only from the rest of the directory, to which it must be bound (N1).
/// Returns true if it was.
fn take_sealed(bytes: &[u8], record: &RegionRecord, hints: Hints, contents: &mut Contents) -> bool {
    let Hints { lengths, fingerprints } = hints;
    let sound = check_chunks(fingerprints.len(), &lengths, record.plain_bytes).is_ok()
        && payload(bytes, record).is_some_and(|payload| {
            check_sealed(payload, &fingerprints, &lengths, record.plain_bytes).is_ok()
        });
    if !sound {
        return false;
    }
    let mut end = 0;
    for length in lengths {
        end += length;
        contents.ends.push(end);
    }
    contents.fingerprints.extend(fingerprints);
    contents.regions.push(*record);
    true
}

fn hints_for(hints: Option<&DirectoryHints>, record: &RegionRecord, number: Option<usize>) -> Hints {
    let found = hints.and_then(|hints| hints.region(record, number));
    let (lengths, fingerprints) = found.unwrap_or_default();
    Hints { lengths, fingerprints }
}

fn decode(bytes: &[u8], record: &RegionRecord, decoder: &mut Decoder) -> Option<Vec<u8>> {
    decoder.decode(record.codec, payload(bytes, record)?, record.plain_bytes).ok()
}

/// (R2) A region's payload, unless it is damaged.
fn payload<'a>(bytes: &'a [u8], record: &RegionRecord) -> Option<&'a [u8]> {
    let start = usize::try_from(record.payload_offset()).ok()?;
    let payload = bytes.get(start..start + record.stored_bytes as usize)?;
    (crc32c(payload) == record.payload_crc).then_some(payload)
}

impl ContainerError {
    /// Returns true if an intact structure says that it belongs to another container or repository.
    fn is_foreign(&self) -> bool {
        use crate::format::Defect;
        matches!(
            self,
            Self::Structure { source: FormatError::Corrupt { defect: Defect::Foreign { .. }, .. }, .. }
        )
    }

    const fn is_unsupported(&self) -> bool {
        matches!(self, Self::Structure { source: FormatError::Unsupported { .. }, .. })
    }
}
