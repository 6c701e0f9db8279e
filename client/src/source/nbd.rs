//! Disks that are read over NBD: an export that an address names, and an image that a child of ours opens.

use std::io;
use std::ops::Range;

use holdfast_nbd::{Address, Export, NbdError};

use super::chain::Chain;
use super::qemu::{self, QemuNbd};
use super::{Content, RawDisk, Segment, Source, SourceError, WriteTimes};

/// A disk behind an NBD server, open for reading.
#[derive(Debug)]
pub struct NbdDisk {
    name: String,
    location: String,
    /// Before `image`: the child ends by itself when its clients are gone.
    export: Export,
    image: Option<Image>,
}

/// An image and the `qemu-nbd` that serves the disk in it.
#[derive(Debug)]
struct Image {
    child: QemuNbd,
    /// All files of the image, and when they were written to last, as they were before they were read.
    files: Vec<(RawDisk, Option<WriteTimes>)>,
}

impl NbdDisk {
    /// Connects to the export at an address.
    ///
    /// # Errors
    /// [`SourceError::Argument`] for an address that cannot be followed, [`SourceError::Open`].
    pub(super) fn connect(name: &str, address: &str) -> Result<Self, SourceError> {
        let parsed: Address =
            address.parse().map_err(|error: NbdError| SourceError::Argument(error.to_string()))?;
        let location = address.to_owned();
        let export = Export::connect(&parsed)
            .map_err(|error| SourceError::Open { location: location.clone(), source: error.into() })?;
        Ok(Self { name: name.to_owned(), location, export, image: None })
    }

    /// Opens the disk in an image.
    ///
    /// # Errors
    /// [`SourceError::NoProgram`] without `qemu-nbd`, [`SourceError::Open`] with its reason.
    pub(super) fn open(name: &str, location: &str, chain: Chain) -> Result<Self, SourceError> {
        let location = location.to_owned();
        let times = |file: RawDisk| file.write_times().map(|times| (file, times));
        let files: Vec<_> = chain.files.into_iter().map(times).collect::<Result<_, _>>()?;
        let direct = files.iter().all(|(file, _)| file.is_read_directly());
        let served = qemu::check(&chain.node).and_then(|()| QemuNbd::serve(&chain.node, direct));
        let (child, export) = served.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SourceError::NoProgram { location: location.clone() },
            _ => SourceError::Open { location: location.clone(), source },
        })?;
        Ok(Self { name: name.to_owned(), location, export, image: Some(Image { child, files }) })
    }

    fn failed(&self, offset: u64, error: NbdError) -> SourceError {
        match (error, &self.image) {
            (NbdError::PastEnd(size), _) => SourceError::resized(self, size, offset),
            (error, Some(image)) => SourceError::read(self, offset, image.child.explain(error)),
            (error, None) => SourceError::read(self, offset, error.into()),
        }
    }

    fn files(&self) -> impl Iterator<Item = &(RawDisk, Option<WriteTimes>)> {
        self.image.iter().flat_map(|image| &image.files)
    }
}

impl Source for NbdDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn size_bytes(&self) -> u64 {
        self.export.size_bytes()
    }

    fn segments(&self, range: Range<u64>) -> Result<Vec<Segment>, SourceError> {
        let mut start = range.start;
        let extents = self.export.extents(range).map_err(|error| self.failed(start, error))?;
        let segment = |extent: holdfast_nbd::Extent| {
            let content = if extent.zero { Content::Hole } else { Content::Data };
            let segment = Segment { start, end: start + extent.len, content };
            start = segment.end;
            segment
        };
        Ok(extents.into_iter().map(segment).collect())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        self.export.read_at(offset, buffer).map_err(|error| self.failed(offset, error))
    }

    /// A server does not say; an image may be written to by what does not ask QEMU's locks.
    fn can_change(&self) -> bool {
        true
    }

    /// The tables of an image are kept in memory while it is read: one that was written to may have been misread.
    fn check_unchanged(&self, offset: u64) -> Result<(), SourceError> {
        for (file, before) in self.files() {
            file.check_unchanged(offset)?;
            let is_same = |now: WriteTimes| before.is_some_and(|before| before.is_same_write(now));
            if file.write_times()?.is_some_and(|now| !is_same(now)) {
                return Err(SourceError::changed(file, offset));
            }
        }
        Ok(())
    }

    fn write_times(&self) -> Result<Option<WriteTimes>, SourceError> {
        let mut latest: Option<WriteTimes> = None;
        for (file, _) in self.files() {
            let times = file.write_times()?;
            latest = latest.into_iter().chain(times).reduce(WriteTimes::latest);
        }
        Ok(latest)
    }
}
