//! Writing a container: header, regions as they come, directory, footer.

use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, BlobWriter, Owner, Volume};

use super::{ContainerError, ContainerName, Directory, VerifiedRegion};
use crate::format::container::{
    Contents, FIRST_REGION_OFFSET, FOOTER_BYTES, Footer, Header, REGION_HEADER_BYTES, REGIONS_MAX,
    directory_bytes, encode_directory,
};

/// A container being written. Dropping it discards it.
#[derive(Debug)]
pub struct ContainerWriter {
    header: Header,
    name: BlobName,
    blob: Box<dyn BlobWriter>,
    contents: Contents,
    /// Header and regions so far.
    offset: u32,
}

/// A container that survives any crash.
#[derive(Debug)]
pub struct SealedContainer {
    pub id: ContainerId,
    pub class: ContainerClass,
    pub namespace: NamespaceId,
    /// Length of the file: everything this container takes.
    pub stored_bytes: u64,
    /// Milliseconds since the Unix epoch, as in the header.
    pub created_ms: i64,
    pub directory: Directory,
}

/// Bytes that a region occupies in the file.
fn region_bytes(region: &VerifiedRegion) -> u64 {
    REGION_HEADER_BYTES as u64 + u64::from(region.stored_bytes())
}

impl ContainerWriter {
    /// Begins a container.
    ///
    /// # Errors
    /// [`ContainerError::Volume`].
    pub fn create(
        volume: &dyn Volume,
        repository: RepositoryId,
        namespace: NamespaceId,
        id: ContainerId,
        class: ContainerClass,
        created_ms: i64,
    ) -> Result<Self, ContainerError> {
        Self::begin(volume, Header { class, repository, namespace, id, created_ms, sealed: false })
    }

    /// Begins a container for `first` and others of its kind: sealed by agents, or not.
    ///
    /// # Errors
    /// As [`ContainerWriter::create`].
    pub fn create_for(
        volume: &dyn Volume,
        (repository, namespace): (RepositoryId, NamespaceId),
        id: ContainerId,
        class: ContainerClass,
        created_ms: i64,
        first: &VerifiedRegion,
    ) -> Result<Self, ContainerError> {
        let sealed = first.is_sealed();
        Self::begin(volume, Header { class, repository, namespace, id, created_ms, sealed })
    }

    fn begin(volume: &dyn Volume, header: Header) -> Result<Self, ContainerError> {
        let Header { class, namespace, id, .. } = header;
        let name = ContainerName { id, class }.blob();
        let mut blob = volume.create_for(&name, Owner::namespace(namespace.to_bytes()))?;
        blob.append(&header.encode())?;
        Ok(Self { header, name, blob, contents: Contents::default(), offset: FIRST_REGION_OFFSET })
    }

    /// The container's number.
    pub const fn id(&self) -> ContainerId {
        self.header.id
    }

    /// Class of its contents: data or recipe.
    pub const fn class(&self) -> ContainerClass {
        self.header.class
    }

    /// Length of the file if it were sealed now.
    pub const fn stored_bytes(&self) -> u64 {
        self.bytes_with(0, 0, 0)
    }

    /// Stored bytes, as [`ContainerWriter::stored_bytes`], with one more region.
    pub fn stored_bytes_with(&self, region: &VerifiedRegion) -> u64 {
        let region_bytes = REGION_HEADER_BYTES as u64 + u64::from(region.stored_bytes());
        self.bytes_with(region_bytes, 1, region.lengths().len())
    }

    /// Bytes handed to the volume so far.
    pub const fn written_bytes(&self) -> u64 {
        self.offset as u64
    }

    /// Returns true if `region` still fits, directory and footer included, and is of the container's kind.
    pub fn fits(&self, region: &VerifiedRegion) -> bool {
        region.is_sealed() == self.header.sealed
            && self.contents.regions.len() < REGIONS_MAX
            && self.stored_bytes_with(region) <= u64::from(CONTAINER_MAX_BYTES)
    }

    /// Bytes by which `region` makes the file longer, directory included.
    pub fn bytes_added_by(&self, region: &VerifiedRegion) -> u64 {
        self.stored_bytes_with(region) - self.stored_bytes()
    }

    /// Length of a file with nothing but `region` in it.
    pub fn bytes_of_first(region: &VerifiedRegion) -> u64 {
        let around = directory_bytes(1, region.lengths().len()) + FOOTER_BYTES;
        u64::from(FIRST_REGION_OFFSET) + region_bytes(region) + around as u64
    }

    const fn bytes_with(&self, region_bytes: u64, regions: usize, chunks: usize) -> u64 {
        let regions = self.contents.regions.len() + regions;
        let chunks = self.contents.fingerprints.len() + chunks;
        self.offset as u64 + region_bytes + (directory_bytes(regions, chunks) + FOOTER_BYTES) as u64
    }

    /// Appends a region and returns its number.
    ///
    /// # Errors
    /// [`ContainerError::NoRoom`] unless [`ContainerWriter::fits`]; then nothing was done.
    /// [`ContainerError::Volume`]; the container can then only be dropped.
    pub fn append(&mut self, region: &VerifiedRegion) -> Result<u16, ContainerError> {
        let no_room = || ContainerError::NoRoom { container: self.name.clone() };
        if !self.fits(region) {
            return Err(no_room());
        }
        let number = u16::try_from(self.contents.regions.len()).map_err(|_| no_room())?;
        let record = region.record_at(self.offset);
        let end = u32::try_from(record.end()).map_err(|_| no_room())?;
        assert!(end > self.offset, "{}: a region that ends where it begins", self.name);
        self.blob.append(&record.encode_header())?;
        self.blob.append(region.payload())?;
        self.offset = end;
        self.contents.regions.push(record);
        let mut chunk_end = 0;
        for length in region.lengths() {
            chunk_end += length;
            self.contents.ends.push(chunk_end);
        }
        assert_eq!(chunk_end, region.plain_bytes(), "{}: chunks do not fill their region", self.name);
        self.contents.fingerprints.extend_from_slice(region.fingerprints());
        Ok(number)
    }

    /// (W2) Writes directory and footer after the regions, then makes the container durable and visible, in
    /// this order. (A2) It is consumed: a container with a name never changes.
    ///
    /// # Errors
    /// [`ContainerError::Volume`]; see [`BlobWriter::seal`] for what is left then.
    pub fn seal(mut self) -> Result<SealedContainer, ContainerError> {
        let Header { class, namespace, id, created_ms, sealed, .. } = self.header;
        let total = self.stored_bytes();
        let no_room = || ContainerError::NoRoom { container: self.name.clone() };
        let directory = encode_directory(id, &self.contents)
            .map_err(|source| ContainerError::in_region(&self.name, None, source))?;
        let footer = Footer {
            directory_offset: self.offset,
            directory_bytes: u32::try_from(directory.len()).map_err(|_| no_room())?,
            id,
            total_bytes: u32::try_from(total).map_err(|_| no_room())?,
            sealed,
        };
        self.blob.append(&directory)?;
        self.blob.append(&footer.encode())?;
        self.blob.seal()?;
        let directory = Directory::new(self.contents);
        Ok(SealedContainer { id, class, namespace, stored_bytes: total, created_ms, directory })
    }
}
