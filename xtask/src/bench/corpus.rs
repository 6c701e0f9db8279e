//! The disks that are backed up, and the steps taken with them.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::sparse;

/// A step that every tool takes.
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

/// Bytes of files: their lengths, and the blocks that the file system allocated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) apparent_bytes: u64,
    pub(super) allocated_bytes: u64,
}

/// Sums up all files below `folder` (without the folders themselves).
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

    /// Puts the step's disk where its VM's disk always is, reads it into the page cache and returns its path. Its
    /// contents are unchanged; its time is not, so that no tool takes it for the file it knows.
    pub(super) fn present(&self, step: &Step) -> Result<PathBuf> {
        let image = self.image(step);
        let folder = self.sources.join(step.vm);
        fs::create_dir_all(&folder)?;
        let disk = folder.join("disk.raw");
        if disk.exists() {
            fs::remove_file(&disk)?;
        }
        // The corpus may be on another file system.
        if fs::hard_link(&image, &disk).is_err() {
            sparse::copy(&image, &disk)?;
        }
        let file = File::open(&disk)?;
        file.set_modified(SystemTime::now()).with_context(|| format!("cannot touch {}", disk.display()))?;
        sparse::for_data(&file, |_, _| Ok(()))?;
        Ok(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_every_file_and_holes_apart() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), [7; 100_000]).unwrap();
        File::create(folder.path().join("hole")).unwrap().set_len(40 << 20).unwrap();
        let found = size(folder.path()).unwrap();
        assert_eq!(found.apparent_bytes, (40 << 20) + 100_000);
        assert!((100_000..10 << 20).contains(&found.allocated_bytes), "{}", found.allocated_bytes);
    }
}
