//! The part of a folder tree that makes one page of a listing.
//!
//! Folders are visited in the order of the names in them, and those that lie wholly before the page are not
//! opened. Memory: the entries of the folders on the path to the current one (a folder of containers holds at
//! most 4,096 of each class), and the page.

use std::io::{self, ErrorKind};
use std::path::Path;

use crate::{BlobEntry, BlobName};

/// The first `wanted` blobs inside `prefix` that come after `after`, ascending by name.
pub(super) fn first_blobs(
    root: &Path,
    prefix: &BlobName,
    after: Option<&BlobName>,
    wanted: usize,
) -> io::Result<Vec<BlobEntry>> {
    let mut walk = Walk { root, after: after.map_or("", BlobName::as_str), wanted, found: Vec::new() };
    walk.folder(prefix)?;
    Ok(walk.found)
}

struct Walk<'a> {
    root: &'a Path,
    /// Position; empty: from the beginning.
    after: &'a str,
    wanted: usize,
    found: Vec<BlobEntry>,
}

/// A file or folder. The order of the keys is the order of the names: names in a folder begin with its name
/// and a slash, and a slash is not the smallest character of a name (`c-1` comes before `c/1`).
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Child {
    key: String,
    name: BlobName,
    is_folder: bool,
}

impl Walk<'_> {
    fn folder(&mut self, name: &BlobName) -> io::Result<()> {
        for child in self.children(name)? {
            if self.found.len() >= self.wanted {
                return Ok(());
            }
            if child.is_folder {
                self.folder(&child.name)?;
            } else {
                self.file(child.name)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, name: BlobName) -> io::Result<()> {
        match self.root.join(name.as_str()).symlink_metadata() {
            Ok(metadata) => self.found.push(BlobEntry { name, len: metadata.len() }),
            // Removed since its folder was read.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Children of a folder that can be on the page, ascending.
    fn children(&self, folder: &BlobName) -> io::Result<Vec<Child>> {
        let entries = match std::fs::read_dir(self.root.join(folder.as_str())) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(Vec::new());
            }
            other => other?,
        };
        let mut children = Vec::new();
        for entry in entries {
            let entry = entry?;
            // Files whose names no blob can have were put there by others (`lost+found`, an editor's backup).
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|segment| BlobName::new(format!("{folder}/{segment}")));
            let Some(name) = name else { continue };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                let key = format!("{name}/");
                if key.as_str() > self.after || self.after.starts_with(&key) {
                    children.push(Child { key, name, is_folder: true });
                }
            } else if kind.is_file() && name.as_str() > self.after {
                children.push(Child { key: name.to_string(), name, is_folder: false });
            }
        }
        children.sort_unstable();
        Ok(children)
    }
}
