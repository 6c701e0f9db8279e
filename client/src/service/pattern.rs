//! Paths with `*`: which files they mean now, and what their first `*` stands for.
//!
//! `*` stands for any characters of one part of a path, but for a `.` at its beginning.

use std::io;
use std::path::{Path, PathBuf};

/// Files that one path may mean at most: as many as a large folder of images has.
pub(super) const MATCHES_MAX: usize = 4096;

/// The character that stands for any others.
pub(super) const ANY: char = '*';

/// A file that a path with `*` means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) path: PathBuf,
    /// The text that the first `*` stands for.
    pub(super) part: String,
    /// Why it cannot be told what is there: `path` is the folder, or the file, that cannot be looked at.
    pub(super) problem: Option<String>,
}

impl Match {
    /// The same, but for what is known of it.
    fn failing(self, path: &Path, error: &io::Error) -> Self {
        Self { problem: Some(format!("{}: {error}", path.display())), ..self }
    }
}

/// Returns the files that an absolute path with `*` means, by name. A folder below the first `*` that cannot be read is among
/// them, with its problem: it costs no other.
///
/// # Errors
/// A folder above that cannot be read, or there are more than [`MATCHES_MAX`]. A folder that does not exist has no files.
pub(super) fn matches(path: &str) -> io::Result<Vec<Match>> {
    let mut found = vec![Match { path: PathBuf::from("/"), part: String::new(), problem: None }];
    for name in path.split('/').filter(|name| !name.is_empty()) {
        found = below(found, name)?;
        found.sort_by(|a, b| a.path.cmp(&b.path));
    }
    Ok(found)
}

/// Entries called `name` in these folders.
fn below(folders: Vec<Match>, name: &str) -> io::Result<Vec<Match>> {
    let mut found = Vec::new();
    for folder in folders {
        if folder.problem.is_some() {
            found.push(folder);
            continue;
        }
        let looked_at = if name.contains(ANY) { folder.path.clone() } else { folder.path.join(name) };
        match inside(&folder, name) {
            Ok(inside) => found.extend(inside),
            Err(error) if folder.part.is_empty() => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", looked_at.display())));
            }
            Err(error) => found.push(folder.failing(&looked_at, &error)),
        }
        if found.len() > MATCHES_MAX {
            return Err(io::Error::other(format!(
                "more than {MATCHES_MAX} files match {}",
                looked_at.display()
            )));
        }
    }
    Ok(found)
}

/// Matches of `name` in one folder.
fn inside(folder: &Match, name: &str) -> io::Result<Vec<Match>> {
    let one = |name: &str, part: String| Match { path: folder.path.join(name), part, problem: None };
    if name.contains(ANY) {
        let part = |own: String| if folder.part.is_empty() { own } else { folder.part.clone() };
        let named = named(&folder.path, name)?;
        return Ok(named.into_iter().map(|(own, found)| one(&own, part(found))).collect());
    }
    // Only what is known not to be there is left out: a file system that fails has not lost its files.
    match folder.path.join(name).try_exists() {
        Ok(exists) => Ok(exists.then(|| one(name, folder.part.clone())).into_iter().collect()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Names in a folder that fit, each with what the first `*` stands for. A name that is not UTF-8 names no disk.
fn named(folder: &Path, pattern: &str) -> io::Result<Vec<(String, String)>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        let Some(name) = name.to_str() else { continue };
        if let Some(part) = first_part(pattern, name) {
            found.push((name.to_owned(), part.to_owned()));
        }
    }
    Ok(found)
}

/// The part of `name` that the first `*` of a pattern stands for, the shortest that fits; `None`: the name does not fit.
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

    #[test]
    fn a_folder_that_cannot_be_read_costs_no_other() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("web")).unwrap();
        std::fs::write(folder.path().join("web/root.raw"), "x").unwrap();
        // It cannot be followed, whoever reads.
        std::os::unix::fs::symlink("loop", folder.path().join("loop")).unwrap();
        let root = folder.path().to_str().unwrap();
        for pattern in ["*/root.raw", "*/*.raw"] {
            let found = matches(&format!("{root}/{pattern}")).unwrap();
            let problems: Vec<_> =
                found.iter().map(|one| (one.part.as_str(), one.problem.is_some())).collect();
            assert_eq!(problems, [("loop", true), ("web", false)], "{pattern}");
            assert!(found[0].problem.as_ref().unwrap().contains("/loop"), "{found:?}");
        }
        let above = matches(&format!("{root}/loop/*.raw")).unwrap_err().to_string();
        assert!(above.contains("/loop"), "{above}");
    }
}
