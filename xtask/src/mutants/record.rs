//! Mutations that were killed, in a file below `target/`: a line each, written when it is known.
//!
//! A line begins with a digest of the mutation and of the file that it changes. So long as both are as they were it is not
//! tried again; what its test is made of, or other files, may have changed meanwhile: `--fresh` tries everything. What was
//! not killed is tried each time.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};

use super::table::Mutation;
use crate::shell;

/// Below the repository's root.
const FILE: &str = "target/mutants/killed";

/// See the module's text.
#[derive(Debug)]
pub(super) struct Record {
    known: HashSet<String>,
    file: File,
}

impl Record {
    /// What is known; nothing when it is to be `fresh`.
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

    /// Returns whether a mutation of this [`digest`] was killed.
    pub(super) fn has(&self, digest: &str) -> bool {
        self.known.contains(digest)
    }

    /// Notes that it was killed.
    ///
    /// # Errors
    /// When the record cannot be written.
    pub(super) fn add(&mut self, digest: &str, mutation: &Mutation) -> Result<()> {
        writeln!(self.file, "{digest} {}", mutation.line()).context("cannot note what was killed")
    }
}

/// Of a mutation, and of what is in its file.
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
