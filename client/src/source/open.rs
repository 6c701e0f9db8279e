//! The one place that chooses how a disk is opened.

use std::sync::Arc;

use holdfast_proto::limits::DISK_MAX_BYTES;

use super::image_format::{HEAD_BYTES, image_format};
use super::{DiskArgument, RawDisk, Source, SourceError};

/// How the bytes of a path are to be taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// As those of the disk, unless they begin like an image of a disk.
    #[default]
    Detect,
    /// As those of the disk, whatever they begin with.
    Raw,
}

/// Opens what the command line names. Every path is read as a raw file or block device; another kind of
/// source is another arm here, chosen by what the path begins with.
///
/// # Errors
/// [`SourceError::Open`], [`SourceError::NotADisk`], [`SourceError::Image`] or [`SourceError::TooLarge`].
pub fn open(disk: &DiskArgument, format: Format) -> Result<Arc<dyn Source>, SourceError> {
    let source: Arc<dyn Source> = Arc::new(RawDisk::open(&disk.name, &disk.path)?);
    within_limits(&*source)?;
    if format == Format::Detect {
        refuse_image(&*source)?;
    }
    Ok(source)
}

/// Refuses an image of a disk: backed up byte by byte, it would be restored as a disk that no machine boots from.
/// Block devices are no exception: some hypervisors keep images on logical volumes.
fn refuse_image(source: &dyn Source) -> Result<(), SourceError> {
    let len = usize::try_from(source.size_bytes()).map_or(HEAD_BYTES, |size| size.min(HEAD_BYTES));
    let mut head = [0; HEAD_BYTES];
    let Some(head) = head.get_mut(..len) else { return Ok(()) };
    source.read_at(0, head)?;
    match image_format(head) {
        Some(format) => Err(SourceError::Image { location: source.location().to_owned(), format }),
        None => Ok(()),
    }
}

/// Opens all of a VM's disks.
///
/// # Errors
/// That of the first disk which cannot be opened.
pub fn open_all(disks: &[DiskArgument], format: Format) -> Result<Vec<Arc<dyn Source>>, SourceError> {
    disks.iter().map(|disk| open(disk, format)).collect()
}

/// A disk that could not be backed up, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDisk {
    /// Name of the disk.
    pub disk: String,
    /// What happened, with its location.
    pub error: String,
}

/// The disks that were opened, and those that could not be.
type OpenedDisks = (Vec<Arc<dyn Source>>, Vec<FailedDisk>);

/// Opens those of a VM's disks that can be opened; the others are returned beside them.
///
/// # Errors
/// That of the first disk, when none can be opened; that of an image, which is a mistake on the command line.
pub fn open_each(disks: &[DiskArgument], format: Format) -> Result<OpenedDisks, SourceError> {
    let (mut opened, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for disk in disks {
        match open(disk, format) {
            Ok(source) => opened.push(source),
            Err(error @ SourceError::Image { .. }) => return Err(error),
            Err(error) => {
                failed.push(FailedDisk { disk: disk.name.clone(), error: error.to_string() });
                first.get_or_insert(error);
            }
        }
    }
    match first {
        Some(error) if opened.is_empty() => Err(error),
        _ => Ok((opened, failed)),
    }
}

/// Holds for every kind of source: extent numbers and offsets are bounded by it.
fn within_limits(source: &dyn Source) -> Result<(), SourceError> {
    let size_bytes = source.size_bytes();
    if size_bytes > DISK_MAX_BYTES {
        return Err(SourceError::TooLarge { location: source.location().to_owned(), size_bytes });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::source::testing::MemorySource;

    fn refusal(path: &Path) -> SourceError {
        open(&argument(path), Format::Detect).unwrap_err()
    }

    fn argument(path: &Path) -> DiskArgument {
        DiskArgument { name: "d".into(), path: path.to_owned() }
    }

    #[test]
    fn an_image_of_a_disk_is_not_taken_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (image, good) = (folder.path().join("web.qcow2"), folder.path().join("good.raw"));
        std::fs::write(&image, b"QFI\xfb\0\0\0\x03").unwrap();
        std::fs::write(&good, b"").unwrap();
        let refused = refusal(&image).to_string();
        assert!(
            refused.contains("begins like a qcow2 image") && refused.contains("--format raw"),
            "{refused}"
        );
        assert_eq!(open(&argument(&image), Format::Raw).unwrap().size_bytes(), 8);
        // Not left out, as one that cannot be read is.
        let both = [argument(&good), argument(&image)];
        assert!(matches!(open_each(&both, Format::Detect), Err(SourceError::Image { .. })));
        assert_eq!(open_each(&both, Format::Raw).unwrap().0.len(), 2);
    }

    #[test]
    fn paths_that_are_not_disks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(refusal(folder.path()), SourceError::NotADisk { what: "a directory", .. }));
        assert!(matches!(refusal(&folder.path().join("none")), SourceError::Open { .. }));
        let device = refusal(Path::new("/dev/null"));
        assert!(matches!(device, SourceError::NotADisk { what: "a character device", .. }), "{device}");
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(matches!(refusal(&socket), SourceError::NotADisk { what: "a socket", .. }));
    }

    #[test]
    fn a_named_pipe_is_refused_without_waiting_for_a_writer() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = pipe.clone();
        std::thread::spawn(move || sender.send(refusal(&path)));
        // The time matters only when the rule is broken: opening the pipe for reading waits for ever.
        let refused = receiver.recv_timeout(std::time::Duration::from_secs(600)).expect("it does not wait");
        assert!(matches!(refused, SourceError::NotADisk { what: "a named pipe", .. }), "{refused}");
    }

    #[test]
    fn disks_that_cannot_be_opened_leave_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let argument = |name: &str| DiskArgument { name: name.into(), path: folder.path().join(name) };
        std::fs::write(folder.path().join("good"), [7; 10]).unwrap();
        let (opened, failed) = open_each(&[argument("bad"), argument("good")], Format::Detect).unwrap();
        assert_eq!(opened.iter().map(|disk| disk.name()).collect::<Vec<_>>(), ["good"]);
        assert_eq!(failed.len(), 1);
        assert!(failed[0].disk == "bad" && failed[0].error.contains("cannot open"), "{failed:?}");
        assert!(matches!(open_each(&[argument("bad")], Format::Detect), Err(SourceError::Open { .. })));
    }

    #[test]
    fn a_disk_over_the_limit_is_refused_with_both_sizes() {
        within_limits(&MemorySource::hole(DISK_MAX_BYTES)).unwrap();
        let text = within_limits(&MemorySource::hole(DISK_MAX_BYTES + 1)).unwrap_err().to_string();
        assert!(text.contains(&(DISK_MAX_BYTES + 1).to_string()), "{text}");
        assert!(text.contains(&format!("has {DISK_MAX_BYTES} bytes")), "{text}");
    }
}
