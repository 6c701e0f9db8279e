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

/// Writes the map, durably: it must be there before a target with holes in its data gets its name. Without bad
/// ranges a map that an earlier attempt left is removed.
pub(super) fn write(path: &Path, disk: &DiskOfBackup, bad: &[BadRange]) -> Result<(), ClientError> {
    if bad.is_empty() {
        if is_map(path) {
            std::fs::remove_file(path).map_err(failed(path))?;
        }
        return Ok(());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(super::target::PARTIAL_SUFFIX);
    let partial = PathBuf::from(partial);
    let written = (|| {
        match std::fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        file.write_all(text(disk, bad).as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&partial, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    })();
    written.map_err(failed(path))
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
        write(&path, &disk(), &bad()).unwrap();
        check_free(&path, false).unwrap();
        write(&path, &disk(), &[]).unwrap();
        assert!(!path.exists(), "it says nothing of this restore");
        std::fs::write(&path, "theirs").unwrap();
        assert!(matches!(check_free(&path, false), Err(ClientError::Exists(_))));
        write(&path, &disk(), &[]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        check_free(&path, true).unwrap();
    }
}
