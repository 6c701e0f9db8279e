//! Small files that must survive a crash whole: the token and the certificate.
//!
//! A crash leaves either the old file or the new one, and perhaps a `.tmp` beside it that the next write
//! replaces.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use holdfast_engine::owner;

/// Readable by the owner alone.
pub const MODE_SECRET: u32 = 0o600;
/// Readable by every user.
pub const MODE_PUBLIC: u32 = 0o644;

/// Writes `bytes` to `path` with `mode`: temporary file, fsync, rename, fsync of the folder.
///
/// # Errors
/// Any I/O error; the old file is then untouched.
pub fn write_durably(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".tmp");
    let temporary = Path::new(&temporary);
    // One left by a crash might have another mode, which `mode` would not change.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
    owner::adopt(&file, temporary)?;
    // Exactly this mode, whatever the process's mask takes away.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(temporary, path)?;
    sync_folder(path)
}

/// Creates a folder that only the server's user can read, with its parents. A folder that exists stays as it is.
///
/// # Errors
/// Any I/O error but "exists".
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    if !path.is_dir() {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        owner::adopt_folder(path)?;
    }
    sync_folder(path)
}

/// Takes from others what they may do with a folder, and from its group that it may write. The group may read, if it
/// could: no one has that by accident but those of the server's user's own group. Returns true if anything was taken.
///
/// # Errors
/// Any I/O error; the folder of another user most of all.
pub fn close_to_others(path: &Path) -> io::Result<bool> {
    const OPEN: u32 = 0o027;
    let mode = fs::metadata(path)?.permissions().mode();
    if mode & OPEN == 0 {
        return Ok(false);
    }
    fs::set_permissions(path, Permissions::from_mode(mode & 0o7777 & !OPEN))?;
    Ok(true)
}

/// Gives the file `from`, which is durable, the name `to`, durably, in place of what has it.
///
/// # Errors
/// Any I/O error; `to` is then either of the two.
pub fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_folder(to)
}

/// Makes the name of `path` durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_whole_and_keeps_secrets_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        // Left by an earlier crash.
        fs::write(folder.path().join("secret.tmp"), "half").unwrap();
        write_durably(&path, b"one", MODE_SECRET).unwrap();
        write_durably(&path, b"two", MODE_SECRET).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn folders_are_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        create_private_folder(&path).unwrap();
        create_private_folder(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
