//! The one place that chooses how a disk is opened.

use std::sync::Arc;

use holdfast_proto::limits::DISK_MAX_BYTES;

use super::chain::Chain;
use super::format::Magic;
use super::{DiskArgument, Format, NbdDisk, RawDisk, Source, SourceError};

/// Options of opening disks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opening {
    /// `None`: as name and bytes together say.
    pub format: Option<Format>,
    /// An image may need files outside its folder.
    pub allow_backing: bool,
}

/// Opens what the command line names: an address, a raw file or block device, or an image.
///
/// # Errors
/// [`SourceError::Open`], [`SourceError::NotADisk`], [`SourceError::Image`], [`SourceError::Damaged`],
/// [`SourceError::NoProgram`], [`SourceError::TooLarge`], or [`SourceError::Argument`] for an address that is none.
pub fn open(disk: &DiskArgument, opening: Opening) -> Result<Arc<dyn Source>, SourceError> {
    open_as(disk, opening).map(|(source, _)| source)
}

/// As [`open`], with the format that the disk was opened in.
///
/// # Errors
/// As [`open`].
pub fn open_as(disk: &DiskArgument, opening: Opening) -> Result<(Arc<dyn Source>, Format), SourceError> {
    let opened: (Arc<dyn Source>, Format) = match disk.address() {
        Some(address) => (Arc::new(open_address(&disk.name, address, opening.format)?), Format::Raw),
        None => open_path(disk, opening)?,
    };
    within_limits(&*opened.0)?;
    Ok(opened)
}

fn open_path(disk: &DiskArgument, opening: Opening) -> Result<(Arc<dyn Source>, Format), SourceError> {
    let file = RawDisk::open(&disk.name, &disk.path)?;
    let format = opening.format.map_or_else(|| Format::of(&disk.path, &file), Ok)?;
    if format == Format::Raw {
        return Ok((Arc::new(file), format));
    }
    let location = file.location().to_owned();
    let chain = Chain::open(&disk.path, file, format, opening.allow_backing)?;
    Ok((Arc::new(NbdDisk::open(&disk.name, &location, chain)?), format))
}

/// Opens an export, whose bytes are those of the disk. Those of an image are refused: the server is to open it.
fn open_address(name: &str, address: &str, format: Option<Format>) -> Result<NbdDisk, SourceError> {
    let refused = |why: String| SourceError::Image { location: address.to_owned(), why };
    if let Some(format) = format.filter(|format| *format != Format::Raw) {
        let word = format.word();
        return Err(refused(format!(
            "is an address, at which a server opens images; --format {word} is for files and devices of this machine"
        )));
    }
    let disk = NbdDisk::connect(name, address)?;
    let mut head = [0; 512];
    let len = usize::try_from(disk.size_bytes()).map_or(512, |size| size.min(512));
    let head = head.get_mut(..len).unwrap_or_default();
    if format.is_none() && len > 0 {
        disk.read_at(0, head)?;
        if let Some(magic) = Magic::of_head(head) {
            return Err(refused(magic.refusal_of_export()));
        }
    }
    Ok(disk)
}

/// Opens all of a VM's disks.
///
/// # Errors
/// That of the first disk which cannot be opened.
pub fn open_all(disks: &[DiskArgument], opening: Opening) -> Result<Vec<Arc<dyn Source>>, SourceError> {
    disks.iter().map(|disk| open(disk, opening)).collect()
}

/// A disk that could not be backed up, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedDisk {
    /// Name of the disk.
    pub disk: String,
    /// The error, with the disk's location.
    pub error: String,
}

/// The disks that were opened, and those that could not be.
type OpenedDisks = (Vec<Arc<dyn Source>>, Vec<FailedDisk>);

/// Opens those of a VM's disks that can be opened; the others are returned beside them.
///
/// # Errors
/// That of the first disk, when none can be opened; that of an image, which is a mistake on the command line.
pub fn open_each<'a>(
    disks: impl IntoIterator<Item = (&'a DiskArgument, Opening)>,
) -> Result<OpenedDisks, SourceError> {
    let (mut opened, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for (disk, opening) in disks {
        match open(disk, opening) {
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
        open(&argument(path), Opening::default()).unwrap_err()
    }

    fn argument(path: &Path) -> DiskArgument {
        DiskArgument { name: "d".into(), path: path.to_owned() }
    }

    #[test]
    fn an_image_of_a_disk_is_not_taken_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (image, good) = (folder.path().join("web.img"), folder.path().join("good.raw"));
        std::fs::write(&image, b"QFI\xfb\0\0\0\x03").unwrap();
        std::fs::write(&good, b"").unwrap();
        let refused = refusal(&image).to_string();
        assert!(refused.contains("begins like a qcow2 image"), "{refused}");
        let raw = Opening { format: Some(Format::Raw), ..Opening::default() };
        assert_eq!(open(&argument(&image), raw).unwrap().size_bytes(), 8);
        // Not left out, as one that cannot be read is.
        let both = [argument(&good), argument(&image)];
        let each = |opening| open_each(both.iter().map(|disk| (disk, opening)));
        assert!(matches!(each(Opening::default()), Err(SourceError::Image { .. })));
        assert_eq!(each(raw).unwrap().0.len(), 2);
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
        let each = |names: &[&str]| {
            let disks: Vec<_> = names.iter().map(|name| argument(name)).collect();
            open_each(disks.iter().map(|disk| (disk, Opening::default())))
        };
        let (opened, failed) = each(&["bad", "good"]).unwrap();
        assert_eq!(opened.iter().map(|disk| disk.name()).collect::<Vec<_>>(), ["good"]);
        assert_eq!(failed.len(), 1);
        assert!(failed[0].disk == "bad" && failed[0].error.contains("cannot open"), "{failed:?}");
        assert!(matches!(each(&["bad"]), Err(SourceError::Open { .. })));
    }

    #[test]
    fn a_damaged_image_costs_its_disk_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (good, bad) = (folder.path().join("good.raw"), folder.path().join("bad.qcow2"));
        std::fs::write(&good, [7; 10]).unwrap();
        for bytes in [&b""[..], b"QFI\xfb\0\0\0\x03 and no more"] {
            std::fs::write(&bad, bytes).unwrap();
            let both = [argument(&bad), argument(&good)];
            let (opened, failed) = open_each(both.iter().map(|disk| (disk, Opening::default()))).unwrap();
            assert_eq!((opened.len(), failed.len()), (1, 1));
            assert!(failed[0].error.contains("damaged"), "{failed:?}");
        }
    }

    #[test]
    fn a_disk_over_the_limit_is_refused_with_both_sizes() {
        within_limits(&MemorySource::hole(DISK_MAX_BYTES)).unwrap();
        let text = within_limits(&MemorySource::hole(DISK_MAX_BYTES + 1)).unwrap_err().to_string();
        assert!(text.contains(&(DISK_MAX_BYTES + 1).to_string()), "{text}");
        assert!(text.contains(&format!("has {DISK_MAX_BYTES} bytes")), "{text}");
    }
}
