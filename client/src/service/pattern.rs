//! Paths with `*`: which files they mean now, and what their first `*` stands for.
//!
//! `*` stands for any characters of one part of a path, but for a `.` at its beginning.

use std::io;
use std::path::{Path, PathBuf};

/// Files that one path may mean at most: as many as a large folder of images has.
pub(super) const MATCHES_MAX: usize = 4096;

/// What stands for any characters.
pub(super) const ANY: char = '*';

/// A file that a path with `*` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    /// What the first `*` stands for.
    pub(super) part: String,
}

/// Returns the files that an absolute path with `*` means, by name.
///
/// # Errors
/// A folder cannot be read, or there are more than [`MATCHES_MAX`]. A folder that does not exist has no files.
pub(super) fn matches(path: &str) -> io::Result<Vec<Match>> {
    let mut found = vec![Match { path: PathBuf::from("/"), part: String::new() }];
    for name in path.split('/').filter(|name| !name.is_empty()) {
        found = below(found, name)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(found)
}

/// What is called `name` in these folders.
fn below(folders: Vec<Match>, name: &str) -> io::Result<Vec<Match>> {
    let mut found = Vec::new();
    for Match { path: folder, part } in folders {
        if !name.contains(ANY) {
            let path = folder.join(name);
            if path.exists() {
                found.push(Match { path, part });
            }
            continue;
        }
        for (own, own_part) in named(&folder, name)? {
            let part = if part.is_empty() { own_part } else { part.clone() };
            found.push(Match { path: folder.join(own), part });
        }
        if found.len() > MATCHES_MAX {
            let text = format!("more than {MATCHES_MAX} files match {}", folder.join(name).display());
            return Err(io::Error::other(text));
        }
    }
    Ok(found)
}

/// Names in a folder that fit, each with what the first `*` stands for. A name that is not UTF-8 names no disk.
fn named(folder: &Path, pattern: &str) -> io::Result<Vec<(String, String)>> {
    let in_folder = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(in_folder(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(in_folder)?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(part) = first_part(pattern, name) {
            found.push((name.to_owned(), part.to_owned()));
        }
    }
    Ok(found)
}

/// What the first `*` of a pattern stands for in `name`, the shortest that fits; `None`: the name does not fit.
fn first_part<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    let (head, rest) = pattern.split_once(ANY)?;
    if head.is_empty() && name.starts_with('.') {
        return None;
    }
    let after = name.strip_prefix(head)?;
    splits(after).find(|(_, left)| fits(rest, left)).map(|(part, _)| part)
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once(ANY) {
        None => pattern == name,
        Some((head, rest)) => {
            name.strip_prefix(head).is_some_and(|after| splits(after).any(|(_, left)| fits(rest, left)))
        }
    }
}

/// Each way to cut a text in two.
fn splits(text: &str) -> impl Iterator<Item = (&str, &str)> {
    (0..=text.len()).filter_map(|at| text.split_at_checked(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_part_of_a_name() {
        for (pattern, name, part) in [
            ("*.qcow2", "web.qcow2", Some("web")),
            ("*.qcow2", "web.raw", None),
            ("*.qcow2", ".hidden.qcow2", None),
            ("vm-*-disk-*", "vm-100-disk-0", Some("100")),
            ("*", "größer", Some("größer")),
            ("*.*", "a.b.c", Some("a")),
            ("vm*", "vm", Some("")),
        ] {
            assert_eq!(first_part(pattern, name), part, "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_found_in_folders_too() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["web/root.raw", "web/data.raw", "db/root.raw", "db/.old.raw", "notes.txt"] {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "x").unwrap();
        }
        let root = folder.path().to_str().unwrap();
        let found = |pattern: &str| -> Vec<(String, String)> {
            let found = matches(&format!("{root}/{pattern}")).unwrap();
            let name = |path: &Path| path.strip_prefix(root).unwrap().display().to_string();
            found.iter().map(|one| (name(&one.path), one.part.clone())).collect()
        };
        let pairs = |texts: &[(&str, &str)]| -> Vec<_> {
            texts.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        assert_eq!(found("*/root.raw"), pairs(&[("db/root.raw", "db"), ("web/root.raw", "web")]));
        assert_eq!(found("web/*.raw"), pairs(&[("web/data.raw", "data"), ("web/root.raw", "root")]));
        assert_eq!(found("*/*.raw").len(), 3, "the first star is the folder");
        assert!(found("*/*.raw").iter().all(|(path, part)| path.starts_with(part.as_str())));
        assert_eq!(found("none/*.raw"), []);
    }
}
