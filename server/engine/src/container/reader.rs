//! Reading a container.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_proto::region::sealed::check_sealed;
use holdfast_proto::region::{Codec, Decoder, RegionError, check_fingerprints};
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::{Blob, BlobName, ColdPlace, Ends, Volume};

use super::{ChunkRef, ContainerError, ContainerName, Directory};
use crate::format::container::{
    CONTAINER_MIN_BYTES, FOOTER_BYTES, Footer, HEADER_BYTES, Header, REGION_HEADER_BYTES, RegionRecord,
    decode_directory,
};
use crate::format::crc32c;
use crate::format::{Defect, FormatError, check_limit};

/// Read from the end at first: footer and, for 4,800 chunks in 128 regions, the whole directory.
const TAIL_BYTES: u64 = 168 << 10;

thread_local! {
    /// zstd's working memory, kept between regions.
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
}

/// A container whose header, directory and footer are whole.
#[derive(Debug)]
pub struct OpenContainer {
    header: Header,
    parts: Parts,
    directory: Directory,
    salvaged: bool,
}

/// A region's payload, which is what was once written, and how to decode it.
#[derive(Debug, Clone)]
pub struct StoredRegion {
    pub region: u16,
    pub codec: Codec,
    pub plain_bytes: u32,
    pub payload: Bytes,
}

/// The parts of opening a container, each by itself, so that a scan can go on after one failed.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) name: BlobName,
    pub(super) blob: Arc<dyn Blob>,
}

impl Parts {
    pub(super) fn open(volume: &dyn Volume, wanted: ContainerName) -> Result<Self, ContainerError> {
        let name = wanted.blob();
        let open = || volume.open(&name).map_err(|error| ContainerError::reading(&name, None, error));
        let blob = twice(open, || {})?;
        Ok(Self { name, blob })
    }

    /// As [`twice`], the second time from where it lies.
    pub(super) fn twice<T>(
        &self,
        read: impl FnMut() -> Result<T, ContainerError>,
    ) -> Result<T, ContainerError> {
        twice(read, || self.blob.drop_cached())
    }

    pub(super) fn read(
        &self,
        region: Option<u16>,
        offset: u64,
        len: usize,
    ) -> Result<Vec<u8>, ContainerError> {
        let read = self.blob.read_vec(&self.name, offset, len);
        read.map_err(|error| ContainerError::reading(&self.name, region, error))
    }

    fn structure(&self, source: FormatError) -> ContainerError {
        ContainerError::in_region(&self.name, None, source)
    }

    pub(super) fn read_array<const N: usize>(
        &self,
        region: Option<u16>,
        offset: u64,
    ) -> Result<[u8; N], ContainerError> {
        let mut bytes = [0; N];
        let read = self.blob.read_at(offset, &mut bytes);
        read.map_err(|error| ContainerError::reading(&self.name, region, error))?;
        Ok(bytes)
    }

    /// The header, which must be that of this container.
    pub(super) fn header(
        &self,
        repository: RepositoryId,
        wanted: ContainerName,
    ) -> Result<Header, ContainerError> {
        let header = self.any_header()?;
        let foreign = |field, found: &dyn std::fmt::Display, expected: &dyn std::fmt::Display| {
            let (found, expected) = (found.to_string(), expected.to_string());
            self.structure(FormatError::corrupt("header", Defect::Foreign { field, found, expected }))
        };
        if header.repository != repository {
            return Err(foreign("repository", &header.repository, &repository));
        }
        if header.id != wanted.id {
            return Err(foreign("container", &header.id, &wanted.id));
        }
        if header.class != wanted.class {
            return Err(foreign("class", &format!("{:?}", header.class), &format!("{:?}", wanted.class)));
        }
        Ok(header)
    }

    /// The header of whichever container it is.
    pub(super) fn any_header(&self) -> Result<Header, ContainerError> {
        self.twice(|| {
            let bytes = self.read_array::<HEADER_BYTES>(None, 0)?;
            Header::decode(&bytes).map_err(|source| self.structure(source))
        })
    }

    /// Footer and directory, which must be those of container `id`.
    pub(super) fn directory(&self, id: ContainerId) -> Result<Directory, ContainerError> {
        self.twice(|| self.read_directory(id))
    }

    fn read_directory(&self, id: ContainerId) -> Result<Directory, ContainerError> {
        let len = self.blob.len();
        // (R3) The file's length bounds every length in it, and with them every allocation.
        check_limit("file", "length", len, CONTAINER_MAX_BYTES.into())
            .map_err(|source| self.structure(source))?;
        let needed = const { CONTAINER_MIN_BYTES as u64 };
        if len < needed {
            return Err(self.structure(FormatError::corrupt("file", Defect::TooShort { len, needed })));
        }
        let tail_offset = len.saturating_sub(TAIL_BYTES);
        let tail = self.read(None, tail_offset, length(len - tail_offset))?;
        let footer = tail.last_chunk::<FOOTER_BYTES>().map(|bytes| Footer::decode(bytes, len));
        let footer = match footer {
            Some(footer) => footer.map_err(|source| self.structure(source))?,
            None => {
                return Err(self.structure(FormatError::corrupt("file", Defect::TooShort { len, needed })));
            }
        };
        if footer.id != id {
            let (found, expected) = (footer.id.to_string(), id.to_string());
            let defect = Defect::Foreign { field: "container", found, expected };
            return Err(self.structure(FormatError::corrupt("footer", defect)));
        }
        // Within the file, as the footer was checked against its length.
        let offset = u64::from(footer.directory_offset);
        let directory_len = footer.directory_bytes as usize;
        let in_tail = offset.checked_sub(tail_offset).and_then(|start| usize::try_from(start).ok());
        let in_tail = in_tail.and_then(|start| tail.get(start..start.checked_add(directory_len)?));
        let read;
        let bytes = match in_tail {
            Some(bytes) => bytes,
            None => {
                read = self.read(None, offset, directory_len)?;
                &read
            }
        };
        decode_directory(bytes, id, footer.directory_offset)
            .map(Directory::new)
            .map_err(|source| self.structure(source))
    }

    /// (R2) Reads a payload and checks it against its record's CRC.
    pub(super) fn stored_region(
        &self,
        region: u16,
        record: &RegionRecord,
    ) -> Result<StoredRegion, ContainerError> {
        self.twice(|| {
            let payload = self.read(Some(region), record.payload_offset(), record.stored_bytes as usize)?;
            self.checked(region, record, payload.into())
        })
    }

    fn checked(
        &self,
        region: u16,
        record: &RegionRecord,
        payload: Bytes,
    ) -> Result<StoredRegion, ContainerError> {
        let computed = crc32c(&payload);
        if computed != record.payload_crc {
            let defect = Defect::Checksum { stored: record.payload_crc.into(), computed: computed.into() };
            let source = FormatError::corrupt("payload", defect);
            return Err(ContainerError::in_region(&self.name, Some(region), source));
        }
        Ok(StoredRegion { region, codec: record.codec, plain_bytes: record.plain_bytes, payload })
    }
}

/// The header of the container called `name`, whichever repository it belongs to.
pub fn read_header(volume: &dyn Volume, name: ContainerName) -> Result<Header, ContainerError> {
    Parts::open(volume, name)?.any_header()
}

impl OpenContainer {
    /// Opens a container. (R1) Header, footer and directory are checked against their checksums, against each
    /// other and against the name before anything is believed. Payloads are checked when they are read.
    ///
    /// # Errors
    /// [`ContainerError::Volume`] and [`ContainerError::Structure`].
    pub fn open(
        volume: &dyn Volume,
        repository: RepositoryId,
        id: ContainerId,
        class: ContainerClass,
    ) -> Result<Self, ContainerError> {
        let wanted = ContainerName { id, class };
        let parts = Parts::open(volume, wanted)?;
        let header = parts.header(repository, wanted)?;
        let directory = parts.directory(id)?;
        Ok(Self { header, parts, directory, salvaged: false })
    }

    /// Assembles the readable parts of a container that cannot be opened.
    pub(super) const fn salvaged(header: Header, parts: Parts, directory: Directory) -> Self {
        Self { header, parts, directory, salvaged: true }
    }

    /// Returns true if it could not be opened, so that its regions may have other numbers than in the index.
    pub const fn is_salvaged(&self) -> bool {
        self.salvaged
    }

    /// The container's number.
    pub const fn id(&self) -> ContainerId {
        self.header.id
    }

    /// The namespace its chunks belong to.
    pub const fn namespace(&self) -> NamespaceId {
        self.header.namespace
    }

    /// Class of its contents: data or recipe.
    pub const fn class(&self) -> ContainerClass {
        self.header.class
    }

    /// Time when it was begun, in milliseconds since the Unix epoch.
    pub const fn created_ms(&self) -> i64 {
        self.header.created_ms
    }

    /// As [`holdfast_volume::Blob::drop_cached`].
    pub fn drop_cached(&self) {
        self.parts.blob.drop_cached();
    }

    /// Returns true if its regions can be read without asking the bucket.
    pub fn is_at_hand(&self) -> bool {
        self.parts.blob.is_at_hand()
    }

    /// Its place in the archive; `None` when it is not archived.
    pub fn cold(&self) -> Option<ColdPlace> {
        self.parts.blob.cold()
    }

    /// Lengths of its head and tail, which are read to open it.
    pub fn ends(&self) -> Ends {
        let regions = self.directory.regions_with_ends().map(|(record, _)| record);
        let directory_at = regions
            .last()
            .map_or(HEADER_BYTES as u64, |record| record.payload_offset() + u64::from(record.stored_bytes));
        let directory = self.stored_bytes().saturating_sub(directory_at);
        Ends { head: HEADER_BYTES as u64, tail: directory.max(TAIL_BYTES) }
    }

    /// Its blob's name.
    pub const fn name(&self) -> &BlobName {
        &self.parts.name
    }

    /// Length of its file.
    pub fn stored_bytes(&self) -> u64 {
        self.parts.blob.len()
    }

    /// Checks that the file is as long as it was sealed.
    ///
    /// # Errors
    /// [`ContainerError::Length`].
    pub fn check_length(&self, sealed: u64) -> Result<(), ContainerError> {
        let found = self.parts.blob.len();
        if found == sealed {
            return Ok(());
        }
        Err(ContainerError::Length { container: self.parts.name.clone(), found, sealed })
    }

    /// Its directory.
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Bytes of memory this takes.
    pub const fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.directory.memory_bytes()
    }

    /// Reads one region's payload and checks it.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn read_region(&self, region: u16) -> Result<StoredRegion, ContainerError> {
        self.parts.stored_region(region, self.record(region)?)
    }

    /// Reads neighbouring regions with one request; at most the container's length is held in memory. One
    /// damaged region fails them all: ask for each by itself then.
    ///
    /// # Errors
    /// [`ContainerError`].
    pub fn read_regions(&self, regions: Range<u16>) -> Result<Vec<StoredRegion>, ContainerError> {
        let Some(last) = regions.end.checked_sub(1).filter(|last| *last >= regions.start) else {
            return Ok(Vec::new());
        };
        let start = self.record(regions.start)?.payload_offset();
        let len = length(self.record(last)?.end() - start);
        let bytes = Bytes::from(self.parts.twice(|| self.parts.read(None, start, len))?);
        let mut stored = Vec::with_capacity(regions.len());
        let mut begin = 0;
        for region in regions {
            let record = self.record(region)?;
            let end = begin + record.stored_bytes as usize;
            // Regions lie end to end, as the directory was checked for, so that all of them were read.
            assert!(end <= bytes.len(), "{}, region {region}: ends past what was read", self.parts.name);
            stored.push(self.parts.checked(region, record, bytes.slice(begin..end))?);
            // The next region's header lies between.
            begin = end + REGION_HEADER_BYTES;
        }
        Ok(stored)
    }

    /// Range of a chunk of this container in the `plain_bytes` of its region.
    ///
    /// # Errors
    /// [`ContainerError::ChunkOutside`].
    pub fn chunk_range(
        &self,
        region: u16,
        chunk: &ChunkRef,
        plain_bytes: usize,
    ) -> Result<Range<usize>, ContainerError> {
        let ChunkRef { offset, bytes, .. } = *chunk;
        let start = offset as usize;
        let outside = || {
            let container = self.parts.name.clone();
            ContainerError::ChunkOutside { container, region, offset, bytes, plain_bytes }
        };
        start
            .checked_add(bytes as usize)
            .filter(|end| *end <= plain_bytes)
            .map(|end| start..end)
            .ok_or_else(outside)
    }

    fn record(&self, region: u16) -> Result<&RegionRecord, ContainerError> {
        self.directory.region(region).ok_or_else(|| {
            let count = self.directory.region_count();
            ContainerError::NoSuchRegion { container: self.parts.name.clone(), region, count }
        })
    }
}

/// (R9) Reads and checks, and does both once more where that tells of damage: a disk may fail once, and one answer of a
/// bucket may arrive altered.
fn twice<T>(
    mut read: impl FnMut() -> Result<T, ContainerError>,
    before_again: impl FnOnce(),
) -> Result<T, ContainerError> {
    match read() {
        Err(error) if error.is_damage() && !error.is_missing() => {
            before_again();
            read()
        }
        done => done,
    }
}

/// A length within a container, which is at most 32 MiB.
#[expect(clippy::cast_possible_truncation, reason = "bounded by CONTAINER_MAX_BYTES, which is asserted")]
pub(super) fn length(bytes: u64) -> usize {
    assert!(bytes <= u64::from(CONTAINER_MAX_BYTES), "{bytes} bytes of one container");
    bytes as usize
}

/// A region of which all was checked that can be.
#[derive(Debug, Clone)]
pub enum CheckedBytes {
    /// Its plain bytes, which hash to its fingerprints.
    Plain(Bytes),
    /// Its payload, sealed by an agent for exactly these fingerprints.
    Sealed(Bytes),
}

impl StoredRegion {
    /// (R2) Checks all that can be checked of the region of `container` it was read from: every fingerprint of what it
    /// decodes to or, when it is sealed, its commitment to them.
    ///
    /// # Errors
    /// [`ContainerError::Content`] when it does not hold what the directory says.
    pub fn checked(&self, container: &OpenContainer) -> Result<CheckedBytes, ContainerError> {
        self.checked_against(container.name(), container.directory())
    }

    /// Decodes the region of `container` it was read from, and checks every fingerprint.
    ///
    /// # Errors
    /// [`ContainerError::Content`] when it does not hold what the directory says, or is sealed.
    pub fn decode_checked(&self, container: &OpenContainer) -> Result<Bytes, ContainerError> {
        match self.checked(container)? {
            CheckedBytes::Plain(plain) => Ok(plain),
            // Says that it is sealed.
            CheckedBytes::Sealed(_) => self.plain(container.name()),
        }
    }

    pub(super) fn checked_against(
        &self,
        name: &BlobName,
        directory: &Directory,
    ) -> Result<CheckedBytes, ContainerError> {
        let region = self.region;
        let content = |source| ContainerError::Content { container: name.clone(), region, source };
        let (fingerprints, ends) = directory.region_chunks(region).ok_or_else(|| {
            let (container, count) = (name.clone(), directory.region_count());
            ContainerError::NoSuchRegion { container, region, count }
        })?;
        let mut start = 0;
        let lengths: Vec<u32> = ends.iter().map(|end| end - std::mem::replace(&mut start, *end)).collect();
        if self.codec == Codec::Sealed {
            // (N1)
            check_sealed(&self.payload, fingerprints, &lengths, self.plain_bytes).map_err(content)?;
            return Ok(CheckedBytes::Sealed(self.payload.clone()));
        }
        let plain = self.plain(name)?;
        check_fingerprints(&plain, fingerprints, &lengths).map_err(content)?;
        Ok(CheckedBytes::Plain(plain))
    }

    /// The plain bytes, as many as it should have; no fingerprint is looked at.
    ///
    /// # Errors
    /// [`ContainerError::Content`] when it cannot be decoded, or is sealed.
    pub(crate) fn plain(&self, name: &BlobName) -> Result<Bytes, ContainerError> {
        let content =
            |source| ContainerError::Content { container: name.clone(), region: self.region, source };
        let plain = match self.codec {
            // It is used where it lies.
            Codec::Stored => self.payload.clone(),
            Codec::Zstd => self.decode().map_err(content)?.into(),
            Codec::Sealed => return Err(content(RegionError::Sealed)),
        };
        let (expected, actual) = (self.plain_bytes, plain.len() as u64);
        if actual != u64::from(expected) {
            return Err(content(RegionError::DecodedLength { expected, actual }));
        }
        Ok(plain)
    }

    /// Decodes the payload without looking at fingerprints: for a caller whose receiver checks them.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn decode(&self) -> Result<Vec<u8>, RegionError> {
        DECODER.with_borrow_mut(|kept| {
            let mut decoder = match kept.take() {
                Some(decoder) => decoder,
                None => Decoder::new()?,
            };
            let plain = decoder.decode(self.codec, &self.payload, self.plain_bytes);
            *kept = Some(decoder);
            plain
        })
    }
}
