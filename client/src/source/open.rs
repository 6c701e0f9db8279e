//! The one place that chooses how a disk is opened.

use std::sync::Arc;

use holdfast_proto::limits::DISK_MAX_BYTES;

use super::{DiskArgument, RawDisk, Source, SourceError};

/// Opens what the command line names. Every path is read as a raw file or block device; another kind of
/// source is another arm here, chosen by what the path begins with or by the file's first bytes.
///
/// # Errors
/// [`SourceError::Open`], [`SourceError::NotADisk`] or [`SourceError::TooLarge`].
pub fn open(disk: &DiskArgument) -> Result<Arc<dyn Source>, SourceError> {
    let source: Arc<dyn Source> = Arc::new(RawDisk::open(&disk.name, &disk.path)?);
    within_limits(&*source)?;
    Ok(source)
}

/// Opens all of a VM's disks.
///
/// # Errors
/// That of the first disk which cannot be opened.
pub fn open_all(disks: &[DiskArgument]) -> Result<Vec<Arc<dyn Source>>, SourceError> {
    disks.iter().map(open).collect()
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
        open(&DiskArgument { name: "d".into(), path: path.to_owned() }).unwrap_err()
    }

    #[test]
    fn paths_that_are_not_disks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(refusal(folder.path()), SourceError::NotADisk { what: "a directory", .. }));
        assert!(matches!(refusal(&folder.path().join("none")), SourceError::Open { .. }));
        assert!(matches!(refusal(Path::new("/dev/null")), SourceError::NotADisk { .. }));
    }

    #[test]
    fn a_disk_over_the_limit_is_refused_with_both_sizes() {
        within_limits(&MemorySource::hole(DISK_MAX_BYTES)).unwrap();
        let text = within_limits(&MemorySource::hole(DISK_MAX_BYTES + 1)).unwrap_err().to_string();
        assert!(text.contains(&(DISK_MAX_BYTES + 1).to_string()), "{text}");
        assert!(text.contains(&format!("has {DISK_MAX_BYTES} bytes")), "{text}");
    }
}
