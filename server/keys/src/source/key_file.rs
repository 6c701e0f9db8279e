//! A key file: one line with 256 random bits, which only its owner can read.
//!
//! `holdfast-key-1`, a blank, the bits as 64 hexadecimal digits, a blank, a checksum of 8, a line feed.
//!
//! A crash during creation leaves no key file, and perhaps a file `.NAME.….tmp` beside it with bits that nothing uses:
//! the file is renamed, so its bits never have two names, where the file system can rename without replacing. If two
//! processes create the same file at the same time, one succeeds, and the other gets [`KeyFileError::Exists`].

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_types::owner::adopt;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::layout::crc32c;
use crate::secret::{KEY_BYTES, RandomError, Secret, SecretRandom};

const BEGIN: &str = "holdfast-key-1 ";
/// Length of a key file's line.
const LINE_BYTES: usize = checked_line_bytes(BEGIN, KEY_BYTES);
const MODE: u32 = 0o600;
/// Permissions that others must not have.
const OTHERS: u32 = 0o077;

/// Errors of reading or creating a key file.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("the key file {path} cannot be {action}: {source}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error("the key file {path} exists already")]
    Exists { path: PathBuf },
    #[error("there is no key file {path}")]
    Missing { path: PathBuf },
    #[error("{path} is no regular file, so it is no key file")]
    NoFile { path: PathBuf },
    #[error("others may use the key file {path} (mode {mode:04o}): run chmod 600 on it")]
    Mode { path: PathBuf, mode: u32 },
    #[error("the key file {path} is no key file, or damaged: use a copy of it, or another source of the key")]
    Damaged { path: PathBuf },
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// Durably creates a key file with new bits. Its folder must exist.
///
/// # Errors
/// [`KeyFileError::Exists`]: the existing file is unchanged. Any other: there is no file, or it is intact and its name
/// may not be durable.
pub fn create(path: &Path, random: &dyn SecretRandom) -> Result<Secret, KeyFileError> {
    let secret = Secret::random(random)?;
    make(path, &line(&secret), random)?;
    Ok(secret)
}

/// Durably creates a file with this line that only its owner can read. Same errors as [`create`].
pub(super) fn make(path: &Path, line: &[u8], random: &dyn SecretRandom) -> Result<(), KeyFileError> {
    let temporary = temporary(path, random)?;
    let made = write(&temporary, line).and_then(|()| rename_new(&temporary, path));
    if made.is_err() {
        // Its bits are unused.
        let _ = fs::remove_file(&temporary);
    }
    made.and_then(|()| sync_folder(path)).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => KeyFileError::Io { path: path.to_owned(), action: "made", source },
    })
}

/// Reads a key file.
///
/// # Errors
/// [`KeyFileError`].
pub fn read(path: &Path) -> Result<Secret, KeyFileError> {
    let bytes = read_up_to(path, LINE_BYTES)?;
    parse(&bytes).ok_or_else(|| KeyFileError::Damaged { path: path.to_owned() })
}

/// Reads a file that others cannot access: up to `most` bytes, and one more if it is longer.
pub(super) fn read_up_to(path: &Path, most: usize) -> Result<Zeroizing<Vec<u8>>, KeyFileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => KeyFileError::Missing { path: path.to_owned() },
        _ => KeyFileError::Io { path: path.to_owned(), action: "read", source },
    };
    // Without this flag a pipe without a writer would block.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        return Err(KeyFileError::NoFile { path: path.to_owned() });
    }
    let mode = found.permissions().mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyFileError::Mode { path: path.to_owned(), mode });
    }
    // Capacity for one byte more, so that it is never reallocated, and a longer file is detected.
    let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Encodes a secret as a line.
fn line(secret: &Secret) -> Zeroizing<Vec<u8>> {
    checked_line(BEGIN, secret.expose())
}

/// Encodes a line: `begin`, the bytes as hexadecimal digits, a blank, the checksum of all that, a line feed.
pub(super) fn checked_line(begin: &str, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut line = Zeroizing::new(Vec::with_capacity(checked_line_bytes(begin, bytes.len())));
    line.extend_from_slice(begin.as_bytes());
    push_hex(&mut line, bytes);
    let checksum = crc32c(&line);
    line.push(b' ');
    push_hex(&mut line, &checksum.to_be_bytes());
    line.push(b'\n');
    line
}

/// Length of such a line.
pub(super) const fn checked_line_bytes(begin: &str, bytes: usize) -> usize {
    begin.len() + 2 * bytes + 1 + 8 + 1
}

/// Decodes such a line, with or without its line feed, into all of `bytes`. `None`: it is something else, or damaged.
pub(super) fn parse_checked_line(line: &[u8], begin: &str, bytes: &mut [u8]) -> Option<()> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (digits, checksum) = line.strip_prefix(begin.as_bytes())?.split_at_checked(2 * bytes.len())?;
    let checked = line.get(..begin.len() + 2 * bytes.len())?;
    let mut stored = [0; 4];
    from_hex(checksum.strip_prefix(b" ")?, &mut stored)?;
    if u32::from_be_bytes(stored) != crc32c(checked) {
        return None;
    }
    from_hex(digits, bytes)
}

/// Decodes a secret from a line, with or without its line feed; `None`: it is something else, or damaged.
pub fn parse(line: &[u8]) -> Option<Secret> {
    let mut secret = Secret::zero();
    parse_checked_line(line, BEGIN, secret.expose_mut())?;
    Some(secret)
}

fn push_hex(to: &mut Vec<u8>, bytes: &[u8]) {
    let digit = |value: u8| if value < 10 { b'0' + value } else { b'a' + value - 10 };
    bytes.iter().for_each(|byte| to.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]));
}

/// Returns `None` unless the digits encode exactly that many bytes.
fn from_hex(digits: &[u8], to: &mut [u8]) -> Option<()> {
    let (pairs, rest) = digits.as_chunks::<2>();
    if pairs.len() != to.len() || !rest.is_empty() {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
    for (to, [high, low]) in to.iter_mut().zip(pairs) {
        *to = value(*high)? << 4 | value(*low)?;
    }
    Some(())
}

/// A unique name beside `path`.
fn temporary(path: &Path, random: &dyn SecretRandom) -> Result<PathBuf, RandomError> {
    let mut number = [0; 8];
    random.fill(&mut number)?;
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{:016x}.tmp", u64::from_le_bytes(number)));
    Ok(path.with_file_name(name))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    adopt(&file, path)?;
    // Exactly this mode, whatever the process's umask.
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Renames a file without replacing another. Unlike a file created under its final name, it is never incomplete.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Fallback of file systems without that: it has two names for a moment.
        Err(Errno::INVAL | Errno::NOSYS) => fs::hard_link(from, to).and_then(|()| fs::remove_file(from)),
        renamed => Ok(renamed?),
    }
}

/// Makes the name of `path` durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

#[cfg(test)]
mod tests;
