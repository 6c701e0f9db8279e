//! The map of bad ranges as a file: the format of GNU ddrescue's mapfile, so that other tools can read it, with what
//! is wrong as comments.
//!
//! ```text
//! # Holdfast map of bad ranges
//! # disk "root" of backup 01JQ…, 1048576 bytes
//! # current_pos  current_status  current_pass
//! 0x00100000     +               1
//! #      pos        size  status
//! 0x00000000  0x00004000  +
//! # container 000000000a: region 3: …
//! 0x00004000  0x00001000  -
//! 0x00005000  0x000FB000  +
//! ```
//!
//! A map is there before the image that lacks this data gets its name. The one that tells of an older image is kept until then,
//! with `.before` added to its name: a crash in between leaves it there.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::{BadRange, DiskOfBackup};
use crate::error::ClientError;

/// The first line of every map.
const TITLE: &str = "# Holdfast map of bad ranges";

/// Suffix added to a target's name to get its map's.
pub const MAP_SUFFIX: &str = ".bad-ranges";

/// The map as text. `bad` is in order; where ranges overlap, the bytes are listed once.
pub(super) fn text(disk: &DiskOfBackup, bad: &[BadRange]) -> String {
    let mut text = format!(
        "{TITLE}\n# disk {:?} of backup {}, {} bytes\n# current_pos  current_status  current_pass\n\
         {:#010X}     +               1\n#      pos        size  status\n",
        disk.disk, disk.backup_id, disk.size_bytes, disk.size_bytes
    );
    let mut position = 0;
    for range in bad {
        let start = range.offset.max(position);
        let end = range.offset.saturating_add(range.len).max(start);
        push_block(&mut text, position, start - position, '+');
        let container = if range.container.is_empty() {
            String::new()
        } else {
            format!("container {}: ", range.container)
        };
        text.extend(["# ", &container, &range.reason, "\n"]);
        push_block(&mut text, start, end - start, '-');
        position = end;
    }
    push_block(&mut text, position, disk.size_bytes.saturating_sub(position), '+');
    text
}

fn push_block(text: &mut String, offset: u64, len: u64, status: char) {
    if len > 0 {
        text.extend([format!("{offset:#010X}  {len:#010X}  {status}\n")]);
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> ClientError {
    move |source| ClientError::File { what: "writing", path: path.to_owned(), source }
}

/// Checks that `path` is free, or a map of an earlier attempt.
///
/// # Errors
/// [`ClientError::Exists`] when it is anything else.
pub fn check_free(path: &Path, force: bool) -> Result<(), ClientError> {
    if force || is_map(path) || !path.exists() {
        return Ok(());
    }
    Err(ClientError::Exists(path.to_owned()))
}

fn is_map(path: &Path) -> bool {
    let mut start = vec![0; TITLE.len()];
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    is_file
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == TITLE.as_bytes()
}

/// Suffix added to the name of a map while it is not known yet whether the next one counts.
const BEFORE_SUFFIX: &str = ".before";

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Removes a map that an earlier attempt left: nothing is bad now.
pub(super) fn remove(path: &Path) -> Result<(), ClientError> {
    if is_map(path) { std::fs::remove_file(path).map_err(failed(path)) } else { Ok(()) }
}

/// A map that was written; [`Written::settle`] says whether it counts.
#[derive(Debug)]
#[must_use]
pub(super) struct Written {
    path: PathBuf,
    /// Name of what was there before.
    before: Option<PathBuf>,
}

impl Written {
    /// Keeps the map, or puts back what was there before, if there was anything.
    pub(super) fn settle(&self, put_back: bool) {
        let Some(before) = &self.before else { return };
        let settled =
            if put_back { std::fs::rename(before, &self.path) } else { std::fs::remove_file(before) };
        if let Err(error) = settled {
            tracing::warn!(%error, path = %before.display(), "an older map of bad ranges stays under this name");
        }
    }
}

/// Writes the map, durably: it must be there before a target with holes in its data gets its name.
pub(super) fn write(path: &Path, disk: &DiskOfBackup, bad: &[BadRange]) -> Result<Written, ClientError> {
    let partial = with_suffix(path, super::target::PARTIAL_SUFFIX);
    // Where it is a folder, renaming tells.
    let is_there = path.symlink_metadata().is_ok_and(|found| !found.is_dir());
    let before = is_there.then(|| with_suffix(path, BEFORE_SUFFIX));
    let written = Written { path: path.to_owned(), before };
    let done = (|| {
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        file.write_all(text(disk, bad).as_bytes())?;
        file.sync_all()?;
        if let Some(before) = &written.before {
            std::fs::rename(path, before)?;
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let renamed = std::fs::rename(&partial, path).and_then(|()| File::open(folder)?.sync_all());
        if renamed.is_err() {
            written.settle(true);
        }
        renamed
    })();
    done.map_err(failed(path))?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> DiskOfBackup {
        DiskOfBackup { backup_id: "01A".into(), disk: "root".into(), size_bytes: 0x10_0000 }
    }

    fn bad() -> Vec<BadRange> {
        let range = |offset, len, container: &str| BadRange {
            offset,
            len,
            reason: "region 3: checksum".into(),
            container: container.into(),
        };
        vec![range(0x4000, 0x1000, "000000000a"), range(0x5000, 0x200, ""), range(0xF_F000, 0x1000, "b")]
    }

    #[test]
    fn the_map_is_golden() {
        let expected = "\
# Holdfast map of bad ranges
# disk \"root\" of backup 01A, 1048576 bytes
# current_pos  current_status  current_pass
0x00100000     +               1
#      pos        size  status
0x00000000  0x00004000  +
# container 000000000a: region 3: checksum
0x00004000  0x00001000  -
# region 3: checksum
0x00005000  0x00000200  -
0x00005200  0x000F9E00  +
# container b: region 3: checksum
0x000FF000  0x00001000  -
";
        assert_eq!(text(&disk(), &bad()), expected);
    }

    #[test]
    fn bytes_of_several_ranges_are_listed_once() {
        let range = |offset, len| BadRange { offset, len, reason: "checksum".into(), container: "".into() };
        let text = text(&disk(), &[range(0x1000, 0x2000), range(0x1800, 0x100), range(0x2000, 0x1800)]);
        let blocks: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).skip(1).collect();
        let expected = [
            "0x00000000  0x00001000  +",
            "0x00001000  0x00002000  -",
            "0x00003000  0x00000800  -",
            "0x00003800  0x000FC800  +",
        ];
        assert_eq!(blocks, expected);
    }

    #[test]
    fn only_a_map_is_replaced_or_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.raw.bad-ranges");
        check_free(&path, false).unwrap();
        write(&path, &disk(), &bad()).unwrap().settle(false);
        check_free(&path, false).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists(), "it says nothing of this restore");
        std::fs::write(&path, "theirs").unwrap();
        assert!(matches!(check_free(&path, false), Err(ClientError::Exists(_))));
        remove(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        check_free(&path, true).unwrap();
    }

    #[test]
    fn the_map_of_an_image_that_stays_is_put_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("root.raw.bad-ranges");
        let read = || std::fs::read_to_string(&path).unwrap();
        write(&path, &disk(), &bad()).unwrap().settle(true);
        let older = read();
        let other = DiskOfBackup { backup_id: "02B".into(), ..disk() };
        for put_back in [true, false] {
            let written = write(&path, &other, &bad()).unwrap();
            assert_eq!(read(), text(&other, &bad()), "before the image has its name");
            written.settle(put_back);
            assert_eq!(read(), if put_back { older.clone() } else { text(&other, &bad()) });
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        }
    }
}
