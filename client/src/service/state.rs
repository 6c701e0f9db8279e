//! What the agent must remember over a restart, in one small file: up to when each entry's times are done, which VMs were
//! begun and not finished, and attempts that the server has not been told of.
//!
//! Each change is a new file, renamed: a crash leaves the old one or the new one. A file that cannot be read is begun anew; then
//! nothing that was missed is made up.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use holdfast_proto::limits::REASON_MAX_BYTES;
use serde::{Deserialize, Serialize};

use crate::connect::profile::{read_small, write_private};
use crate::error::ClientError;

/// Attempts that wait to be told to the server at most; the oldest gives way.
const ATTEMPTS_MAX: usize = 100;

/// Bytes of the file at most: 100 attempts of 3 KiB, and 4096 names of 200 bytes.
const FILE_MAX_BYTES: u64 = 2 << 20;

/// An attempt that ended before the server knew of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Untold {
    pub(super) namespace: String,
    pub(super) vm: String,
    pub(super) job: String,
    pub(super) run: String,
    pub(super) disks: Vec<String>,
    pub(super) reason: String,
    pub(super) at_ms: i64,
}

/// What is known of an entry's times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Everything that was due up to then has been begun.
    pub(super) at_ms: i64,
    /// VMs begun then that have not ended. Those of a restart are made up once.
    pub(super) unfinished: BTreeSet<String>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    entries: BTreeMap<String, Mark>,
    untold: Vec<Untold>,
}

/// The file and its content.
#[derive(Debug)]
pub(super) struct State {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
    kept: Kept,
    /// Why the latest change is not in the file.
    pub(super) problem: Option<String>,
    /// Keeps other agents from this folder.
    _lock: Option<std::fs::File>,
}

impl State {
    /// A state that ends with this process.
    pub(super) fn forgetful() -> Self {
        Self { path: None, kept: Kept::default(), problem: None, _lock: None }
    }

    /// Reads what is in `folder`, which is made if there is none.
    ///
    /// # Errors
    /// [`ClientError::File`]; also when another agent uses the folder.
    pub(super) fn open(folder: &Path) -> Result<Self, ClientError> {
        let fail = |what| move |source| ClientError::File { what, path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(fail("making the agent's folder"))?;
        let lock = std::fs::File::create(folder.join("lock")).map_err(fail("locking the agent's folder"))?;
        lock.try_lock().map_err(|error| {
            let text = format!("{error}; does another 'holdfast agent' run? Stop it, or give --state");
            fail("locking the agent's folder")(std::io::Error::other(text))
        })?;
        let path = folder.join("state.json");
        let read = read_small(&path, FILE_MAX_BYTES).map_err(|error| error.to_string());
        let kept = read.and_then(|text| {
            text.map_or(Ok(Kept::default()), |text| {
                serde_json::from_str(&text).map_err(|error| error.to_string())
            })
        });
        let kept = kept.unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), error, "the agent's state cannot be read and is begun anew");
            Kept::default()
        });
        Ok(Self { path: Some(path), kept, problem: None, _lock: Some(lock) })
    }

    /// Up to when an entry's times are done; `None`: nothing is known of it.
    pub(super) fn mark_ms(&self, entry: &str) -> Option<i64> {
        self.kept.entries.get(entry).map(|mark| mark.at_ms)
    }

    /// Takes out the VMs that an earlier process has begun and not finished.
    pub(super) fn take_unfinished(&mut self) -> Vec<(String, BTreeSet<String>)> {
        let unfinished = |(entry, mark): (&String, &mut Mark)| {
            let vms = std::mem::take(&mut mark.unfinished);
            (!vms.is_empty()).then(|| (entry.clone(), vms))
        };
        let found: Vec<_> = self.kept.entries.iter_mut().filter_map(unfinished).collect();
        if !found.is_empty() {
            self.save();
        }
        found
    }

    /// Notes that everything of an entry that was due up to `at_ms` begins, with these VMs.
    pub(super) fn begin(&mut self, entry: &str, at_ms: i64, unfinished: BTreeSet<String>) {
        self.kept.entries.insert(entry.to_owned(), Mark { at_ms, unfinished });
        self.save();
    }

    /// Notes that a VM has ended.
    pub(super) fn end(&mut self, entry: &str, vm: &str) {
        let mark = self.kept.entries.get_mut(entry);
        if mark.is_some_and(|mark| mark.unfinished.remove(vm)) {
            self.save();
        }
    }

    /// Forgets entries that are in the file no more.
    pub(super) fn keep_entries(&mut self, is_kept: impl Fn(&str) -> bool) {
        let before = self.kept.entries.len();
        self.kept.entries.retain(|entry, _| is_kept(entry));
        if self.kept.entries.len() < before {
            self.save();
        }
    }

    /// Attempts that the server has not been told of, oldest first.
    pub(super) fn untold(&self) -> &[Untold] {
        &self.kept.untold
    }

    /// Keeps an attempt until the server has been told of it.
    pub(super) fn add_untold(&mut self, mut attempt: Untold) {
        attempt.reason.truncate(attempt.reason.floor_char_boundary(REASON_MAX_BYTES));
        self.kept.untold.push(attempt);
        if self.kept.untold.len() > ATTEMPTS_MAX {
            let gone = self.kept.untold.remove(0);
            tracing::error!(vm = gone.vm, reason = gone.reason, "an attempt was never told to the server");
        }
        self.save();
    }

    /// The server has been told of these.
    pub(super) fn told(&mut self, told: &[Untold]) {
        if !told.is_empty() {
            self.kept.untold.retain(|attempt| !told.contains(attempt));
            self.save();
        }
    }

    /// A failure holds up nothing: after a restart, something may be done twice.
    fn save(&mut self) {
        let Some(path) = &self.path else { return };
        let text = serde_json::to_string(&self.kept).map_err(|error| error.to_string());
        let saved = text.and_then(|text| {
            write_private("writing the agent's state to", path, &text).map_err(|error| error.to_string())
        });
        if let Err(error) = &saved {
            tracing::error!(error, "the agent's state is not saved");
        }
        self.problem = saved.err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn attempt(number: usize) -> Untold {
        Untold {
            namespace: String::new(),
            vm: format!("vm{number}"),
            job: "nightly".into(),
            run: String::new(),
            disks: vec!["root".into()],
            reason: "x".repeat(REASON_MAX_BYTES + 1),
            at_ms: 1,
        }
    }

    #[test]
    fn what_was_not_finished_is_made_up_once() {
        let folder = tempfile::tempdir().unwrap();
        let open = || State::open(folder.path()).unwrap();
        let mut state = open();
        assert!(State::open(folder.path()).unwrap_err().to_string().contains("another 'holdfast agent'"));
        state.begin("*", 100, names(&["db", "mail", "web"]));
        state.end("*", "mail");
        drop(state);
        let mut state = open();
        assert_eq!(state.mark_ms("*"), Some(100));
        assert_eq!(state.take_unfinished(), [("*".to_owned(), names(&["db", "web"]))]);
        drop(state);
        let mut state = open();
        assert_eq!(state.take_unfinished(), [], "once, whatever came of it");
        state.keep_entries(|_| false);
        assert_eq!(state.mark_ms("*"), None);
    }

    #[test]
    fn untold_attempts_are_kept_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(folder.path()).unwrap();
        (0..ATTEMPTS_MAX + 2).for_each(|number| state.add_untold(attempt(number)));
        drop(state);
        let mut state = State::open(folder.path()).unwrap();
        let told = state.untold().to_vec();
        assert_eq!((told.len(), told[0].vm.as_str()), (ATTEMPTS_MAX, "vm2"), "the oldest gave way");
        assert_eq!(told[0].reason.len(), REASON_MAX_BYTES);
        state.told(&told[1..]);
        assert_eq!(state.untold(), &told[..1]);
        std::fs::write(folder.path().join("state.json"), "torn").unwrap();
        drop(state);
        assert!(State::open(folder.path()).unwrap().untold().is_empty());
    }
}
