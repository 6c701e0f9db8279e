//! A clock that a test sets while a server runs: `libfaketime`, preloaded, adds the offset in a file to the time of
//! day. The monotonic clock is unaffected.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::tools::lack;

/// Path below the folders of libraries; the version for programs with several threads.
const LIBRARY: &str = "faketime/libfaketimeMT.so.1";

/// A time of day for programs started with [`Clock::environment`]. Correct until it is set.
#[derive(Debug)]
pub struct Clock {
    folder: TempDir,
    library: PathBuf,
}

impl Clock {
    /// Creates a correct clock; `None`, with a message, if there is no `libfaketime`.
    ///
    /// # Panics
    /// When its file cannot be written; without `libfaketime`, unless skipped tests are counted.
    pub fn new() -> Option<Self> {
        let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(Path::new);
        let below = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
        let below = below.filter_map(Result::ok).map(|entry| entry.path());
        let all = folders.iter().map(|folder| (*folder).to_owned()).chain(below);
        let Some(library) = all.map(|folder| folder.join(LIBRARY)).find(|file| file.exists()) else {
            lack("libfaketime");
            return None;
        };
        let clock = Self { folder: tempfile::tempdir().expect("a temporary folder"), library };
        clock.set_days(0);
        Some(clock)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("time")
    }

    /// Sets the clock `days` days ahead, or behind if negative.
    ///
    /// # Panics
    /// When its file cannot be written.
    pub fn set_days(&self, days: i64) {
        // Programs may read it at any moment: it must be replaced atomically.
        let new = self.folder.path().join("new");
        std::fs::write(&new, format!("{days:+}d\n")).expect("the clock can be set");
        std::fs::rename(new, self.file()).expect("the clock can be set");
    }

    /// Environment variables for programs that are to use it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let (library, file) = (self.library.display().to_string(), self.file().display().to_string());
        let all = [
            ("LD_PRELOAD", library.as_str()),
            ("FAKETIME_TIMESTAMP_FILE", &file),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    /// The time by this clock, in seconds since 1970, in a program that is started now.
    ///
    /// # Panics
    /// When `date` cannot be run.
    pub fn now_secs(&self) -> i64 {
        let output =
            Command::new("date").arg("+%s").envs(self.environment()).output().expect("date can be run");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number of seconds")
    }
}
