//! The disks that are backed up, and the steps taken with them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use rustix::fs::{SeekFrom, seek};

/// Something every tool does.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) vm: &'static str,
    image: &'static str,
    pub(super) restore: bool,
}

const fn backup(name: &'static str, vm: &'static str, image: &'static str) -> Step {
    Step { name, vm, image, restore: false }
}

/// All steps, in order.
pub(super) const STEPS: [Step; 11] = [
    backup("web-day0", "web", "web-day0.raw"),
    backup("db-day0", "db", "db-day0.raw"),
    backup("build-day0", "build", "build-day0.raw"),
    backup("web-day1", "web", "web-day1.raw"),
    backup("db-day1", "db", "db-day1.raw"),
    backup("build-day1", "build", "build-day1.raw"),
    backup("web-day2", "web", "web-day2.raw"),
    backup("db-day2", "db", "db-day2.raw"),
    backup("build-day2", "build", "build-day2.raw"),
    backup("build-day2-again", "build", "build-day2.raw"),
    Step { name: "restore", vm: "build", image: "build-day2.raw", restore: true },
];

/// Bytes of files, as their sizes say and as the file system gave them blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) apparent_bytes: u64,
    pub(super) allocated_bytes: u64,
}

/// Everything below `folder` (folders themselves not counted).
pub(super) fn size(folder: &Path) -> Result<Size> {
    let mut sum = Size::default();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_dir() {
            let inner = size(&entry.path())?;
            sum.apparent_bytes += inner.apparent_bytes;
            sum.allocated_bytes += inner.allocated_bytes;
        } else {
            sum.apparent_bytes += metadata.len();
            sum.allocated_bytes += metadata.blocks() * 512;
        }
    }
    Ok(sum)
}

/// The folder of disks, and the folder where they are presented to the tools.
#[derive(Debug)]
pub(super) struct Corpus {
    folder: PathBuf,
    sources: PathBuf,
}

impl Corpus {
    pub(super) fn open(folder: &Path, work: &Path) -> Result<Self> {
        let sources = work.join("src");
        super::remake(&sources)?;
        Ok(Self { folder: folder.to_owned(), sources })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn image(&self, step: &Step) -> PathBuf {
        self.folder.join(step.image)
    }

    /// Puts the step's disk where its VM's disk always is, reads it into the page cache and returns where
    /// that is. Its contents are not changed; its time is, so that no tool takes it for the file it knows.
    pub(super) fn present(&self, step: &Step) -> Result<PathBuf> {
        let image = self.image(step);
        let folder = self.sources.join(step.vm);
        fs::create_dir_all(&folder)?;
        let disk = folder.join("disk.raw");
        if disk.exists() {
            fs::remove_file(&disk)?;
        }
        // Another file system than the corpus's cannot link to it.
        if fs::hard_link(&image, &disk).is_err() {
            copy_sparse(&image, &disk)?;
        }
        let file = File::open(&disk)?;
        file.set_modified(SystemTime::now()).with_context(|| format!("cannot touch {}", disk.display()))?;
        for_data(&file, |_, _| Ok(()))?;
        Ok(disk)
    }
}

/// Calls `action` with the offset and bytes of all data of a file, leaving out holes.
fn for_data(file: &File, mut action: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    let mut position = 0;
    loop {
        let start = match seek(file, SeekFrom::Data(position)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = seek(file, SeekFrom::Hole(start))?;
        position = start;
        while position < end {
            let read = file.read_at(&mut buffer, position)?;
            action(position, buffer.get(..read).unwrap_or_default())?;
            position += read as u64;
        }
    }
}

fn copy_sparse(from: &Path, to: &Path) -> Result<()> {
    let (source, target) = (File::open(from)?, File::create(to)?);
    target.set_len(source.metadata()?.len())?;
    for_data(&source, |offset, bytes| Ok(target.write_all_at(bytes, offset)?))
}

/// Compares two sparse files byte for byte; holes are zeros.
///
/// # Errors
/// When they differ.
pub(super) fn same(one: &Path, other: &Path) -> Result<()> {
    let (a, b) = (File::open(one)?, File::open(other)?);
    let differ = || format!("{} and {} differ", one.display(), other.display());
    anyhow::ensure!(a.metadata()?.len() == b.metadata()?.len(), "{} in length", differ());
    let mut buffer = vec![0; 1 << 20];
    // Data of either must be what the other has; where both have holes both are zeros.
    for (this, that) in [(&a, &b), (&b, &a)] {
        for_data(this, |offset, bytes| {
            let there = buffer.get_mut(..bytes.len()).context("reads are at most 1 MiB")?;
            that.read_exact_at(there, offset)?;
            anyhow::ensure!(there == bytes, "{} within 1 MiB of byte {offset}", differ());
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_copies_are_the_same_and_a_flipped_byte_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let file = File::create(&one).unwrap();
        file.set_len(40 << 20).unwrap();
        file.write_all_at(&[7; 100_000], 10 << 20).unwrap();
        copy_sparse(&one, &other).unwrap();
        same(&one, &other).unwrap();
        assert!(size(folder.path()).unwrap().allocated_bytes < 10 << 20);
        assert_eq!(size(folder.path()).unwrap().apparent_bytes, 80 << 20);
        let file = File::options().write(true).open(&other).unwrap();
        file.write_all_at(&[1], 30 << 20).unwrap();
        assert!(same(&one, &other).is_err());
    }
}
