//! Ownership of the files of a data folder.

use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::Path;

use rustix::fs::OFlags;

/// Gives a newly created file to the owner of its folder. An administrator (root) works on the data folder of a server
/// that runs as another user, which could not open files of root. A file created by another user is unchanged, and so
/// is one that has several names, or is neither file nor folder: it may be someone else's.
///
/// The caller must have opened it without following a link.
///
/// # Errors
/// The system's; a file system that refuses a change of owner to root is no error.
pub fn adopt(made: &File, path: &Path) -> io::Result<()> {
    let folder = folder_of(path)?;
    let found = made.metadata()?;
    let is_made_here = found.is_dir() || (found.is_file() && found.nlink() == 1);
    if folder.uid() == 0 || found.uid() != 0 || !is_made_here {
        return Ok(());
    }
    match fchown(made, Some(folder.uid()), Some(folder.gid())) {
        Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Creates an empty file and gives it to the owner of its folder as [`adopt`] does, for a database that is opened by
/// name next. An existing file is unchanged, unless it is empty: then a crash came before its owner was changed.
///
/// # Errors
/// The system's.
pub fn create(path: &Path) -> io::Result<()> {
    let made = match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = fs::symlink_metadata(path)?;
            // A database is not opened here: closing it would drop the locks that this process has on it.
            if !found.is_file() || found.len() > 0 || found.uid() != 0 {
                return Ok(());
            }
            File::options().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
        }
        made => made,
    };
    adopt(&made?, path)
}

/// Same as [`adopt`], for a newly created folder.
///
/// # Errors
/// Same as [`adopt`].
pub fn adopt_folder(path: &Path) -> io::Result<()> {
    if folder_of(path)?.uid() == 0 {
        return Ok(());
    }
    let flags = (OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed();
    adopt(&File::options().read(true).custom_flags(flags).open(path)?, path)
}

/// Metadata of the folder that contains it.
fn folder_of(path: &Path) -> io::Result<Metadata> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::metadata(parent.unwrap_or(Path::new(".")))
}
