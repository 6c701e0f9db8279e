//! Mutations that were killed, in a file below `target/`: a line each, written when it is known.
//!
//! A line begins with a digest of the mutation and of the file that it changes. While both are unchanged it is not
//! tried again; its test, or other files, may have changed meanwhile: `--fresh` tries everything. Mutations that were
//! not killed are tried each time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::table::Mutation;
use crate::shell;

/// Path below the repository's root.
const FILE: &str = "target/mutants/killed";

/// The record of killed mutations.
#[derive(Debug)]
pub(super) struct Record {
    known: HashSet<String>,
    file: File,
}

impl Record {
    /// Opens the record; empty if `fresh`.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(super) fn open(fresh: bool) -> Result<Self> {
        Self::open_at(&shell::root().join(FILE), fresh)
    }

    pub(super) fn open_at(path: &Path, fresh: bool) -> Result<Self> {
        let what = || format!("cannot use {}", path.display());
        fs::create_dir_all(path.parent().context("the file is in a folder")?).with_context(what)?;
        if fresh {
            File::create(path).with_context(what)?;
        }
        let file = File::options().create(true).append(true).open(path).with_context(what)?;
        let text = fs::read_to_string(path).with_context(what)?;
        let known = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
        Ok(Self { known, file })
    }

    /// Returns true if a mutation with this [`digest`] was killed.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.known.contains(digest)
    }

    /// Records that a mutation was killed.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(super) fn add(&mut self, digest: &str, mutation: &Mutation) -> Result<()> {
        writeln!(self.file, "{digest} {}", mutation.line()).context("cannot note what was killed")
    }
}

/// Digest of a mutation and the text of its file.
pub(super) fn digest(mutation: &Mutation, text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    (mutation, text).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    #[test]
    fn what_was_killed_is_known_until_it_or_its_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/killed");
        let table = Table::load().unwrap();
        let [one, other, ..] = table.mutations.as_slice() else { panic!("there are many") };
        let mut record = Record::open_at(&path, false).unwrap();
        record.add(&digest(one, "text"), one).unwrap();
        let again = Record::open_at(&path, false).unwrap();
        assert!(again.has(&digest(one, "text")));
        assert!(!again.has(&digest(one, "another text")) && !again.has(&digest(other, "text")));
        drop(Record::open_at(&path, true).unwrap());
        assert!(!Record::open_at(&path, false).unwrap().has(&digest(one, "text")));
    }
}
