//! The agent's memory over a restart, in one small file: up to when each entry's times are done, which VMs were
//! begun and not finished, and attempts that the server has not been told of.
//!
//! Each change is a new file, renamed: a crash leaves the old one or the new one. A file that cannot be understood is put aside
//! and begun anew; then nothing that was missed is made up. One that cannot be read ends the start: it may be in order.

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

/// Time for which an entry that is in the file no more is remembered: a file may lack it by mistake, or while it is written.
const GONE_MAX_MS: i64 = 30 * 24 * 3_600_000;

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

/// State of an entry's times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Everything that was due up to then has been begun.
    pub(super) at_ms: i64,
    /// VMs begun then that have not ended. Those of a restart are made up once.
    pub(super) unfinished: BTreeSet<String>,
    /// Since when the entry is in the file no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) gone_ms: Option<i64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    entries: BTreeMap<String, Mark>,
    untold: Vec<Untold>,
}

/// Content of the file; the inner error says why it cannot be understood.
fn read(path: &Path) -> Result<Result<Kept, String>, ClientError> {
    let text = match read_small(path, FILE_MAX_BYTES) {
        Err(ClientError::File { source, .. }) if source.kind() == std::io::ErrorKind::InvalidData => {
            return Ok(Err(source.to_string()));
        }
        text => text?,
    };
    let Some(text) = text else { return Ok(Ok(Kept::default())) };
    Ok(serde_json::from_str(&text).map_err(|error| error.to_string()))
}

/// The file and its content.
#[derive(Debug)]
pub(super) struct State {
    /// `None`: nothing is kept.
    path: Option<PathBuf>,
    kept: Kept,
    /// Why the latest change is not in the file.
    pub(super) problem: Option<String>,
    /// Why it was begun anew, if it was.
    pub(super) begun_anew: Option<String>,
    /// Keeps other agents from this folder.
    _lock: Option<std::fs::File>,
}

impl State {
    /// A state that ends with this process.
    pub(super) fn forgetful() -> Self {
        Self { path: None, kept: Kept::default(), problem: None, begun_anew: None, _lock: None }
    }

    /// Reads what is in `folder`, which is made if there is none.
    ///
    /// # Errors
    /// [`ClientError::File`]; also when another agent uses the folder, and when the file is there and cannot be read.
    pub(super) fn open(folder: &Path) -> Result<Self, ClientError> {
        let fail = |what| move |source| ClientError::File { what, path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(fail("making the agent's folder"))?;
        let lock = std::fs::File::create(folder.join("lock")).map_err(fail("locking the agent's folder"))?;
        lock.try_lock().map_err(|error| {
            let text = format!("{error}; does another 'holdfast agent' run? Stop it, or give --state");
            fail("locking the agent's folder")(std::io::Error::other(text))
        })?;
        let path = folder.join("state.json");
        let (kept, begun_anew) = match read(&path)? {
            Ok(kept) => (kept, None),
            Err(error) => {
                let aside = folder.join("state.json.bad");
                std::fs::rename(&path, &aside).map_err(fail("putting the agent's state aside in"))?;
                let why = format!(
                    "the agent's state was begun anew, and what was missed before is not made up: {}: {error}",
                    aside.display()
                );
                tracing::error!("{why}");
                (Kept::default(), Some(why))
            }
        };
        Ok(Self { path: Some(path), kept, problem: None, begun_anew, _lock: Some(lock) })
    }

    /// Up to when an entry's times are done; `None`: nothing is known of it.
    pub(super) fn mark_ms(&self, entry: &str) -> Option<i64> {
        self.kept.entries.get(entry).map(|mark| mark.at_ms)
    }

    /// VMs of each entry that were begun and have not ended.
    pub(super) fn unfinished(&self) -> BTreeMap<String, BTreeSet<String>> {
        let unfinished = |(entry, mark): (&String, &Mark)| {
            (!mark.unfinished.is_empty()).then(|| (entry.clone(), mark.unfinished.clone()))
        };
        self.kept.entries.iter().filter_map(unfinished).collect()
    }

    /// Takes out VMs of an entry that are made up for now: whatever comes of it, once.
    pub(super) fn take_unfinished(&mut self, entry: &str, vms: &BTreeSet<String>) {
        if let Some(mark) = self.kept.entries.get_mut(entry) {
            let before = mark.unfinished.len();
            mark.unfinished.retain(|vm| !vms.contains(vm));
            if mark.unfinished.len() < before {
                self.save();
            }
        }
    }

    /// Notes that everything of an entry that was due up to `at_ms` begins, with these VMs.
    pub(super) fn begin(&mut self, entry: &str, at_ms: i64, unfinished: BTreeSet<String>) {
        self.kept.entries.insert(entry.to_owned(), Mark { at_ms, unfinished, gone_ms: None });
        self.save();
    }

    /// Notes that a VM has ended.
    pub(super) fn end(&mut self, entry: &str, vm: &str) {
        let mark = self.kept.entries.get_mut(entry);
        if mark.is_some_and(|mark| mark.unfinished.remove(vm)) {
            self.save();
        }
    }

    /// Notes which entries are in the file now, and forgets those that have not been for 30 days.
    pub(super) fn keep_entries(&mut self, now_ms: i64, is_in_file: impl Fn(&str) -> bool) {
        let before = self.kept.entries.clone();
        for (entry, mark) in &mut self.kept.entries {
            mark.gone_ms = (!is_in_file(entry)).then(|| mark.gone_ms.unwrap_or(now_ms));
        }
        let is_kept =
            |mark: &Mark| mark.gone_ms.is_none_or(|gone_ms| now_ms.saturating_sub(gone_ms) <= GONE_MAX_MS);
        self.kept.entries.retain(|_, mark| is_kept(mark));
        if self.kept.entries != before {
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
            self.forget_oldest();
        }
        self.save();
    }

    fn forget_oldest(&mut self) {
        let gone = self.kept.untold.remove(0);
        tracing::error!(vm = gone.vm, reason = gone.reason, "an attempt was never told to the server");
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
        let Some(path) = self.path.clone() else { return };
        let saved = self.text().and_then(|text| {
            write_private("writing the agent's state to", &path, &text).map_err(|error| error.to_string())
        });
        if let Err(error) = &saved {
            tracing::error!(error, "the agent's state is not saved");
        }
        self.problem = saved.err();
    }

    /// The text of the file, which can be read again: the oldest attempts give way to that.
    fn text(&mut self) -> Result<String, String> {
        loop {
            let text = serde_json::to_string(&self.kept).map_err(|error| error.to_string())?;
            if text.len() as u64 <= FILE_MAX_BYTES {
                return Ok(text);
            }
            if self.kept.untold.is_empty() {
                return Err(format!(
                    "the agent's state has {} bytes; the limit is {FILE_MAX_BYTES}",
                    text.len()
                ));
            }
            self.forget_oldest();
        }
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
        assert_eq!(state.unfinished(), BTreeMap::from([("*".to_owned(), names(&["db", "web"]))]));
        state.take_unfinished("*", &names(&["db", "mail"]));
        drop(state);
        let state = open();
        assert_eq!(
            state.unfinished(),
            BTreeMap::from([("*".to_owned(), names(&["web"]))]),
            "one that is not there waits"
        );
    }

    #[test]
    fn an_entry_that_the_file_lacks_is_remembered_for_a_month() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(folder.path()).unwrap();
        state.begin("web", 100, names(&["web"]));
        state.keep_entries(1000, |_| false);
        drop(state);
        let mut state = State::open(folder.path()).unwrap();
        state.keep_entries(1000 + GONE_MAX_MS, |_| false);
        assert_eq!((state.mark_ms("web"), state.unfinished().len()), (Some(100), 1));
        state.keep_entries(1001 + GONE_MAX_MS, |_| true);
        state.keep_entries(1002 + GONE_MAX_MS, |_| false);
        assert_eq!(state.mark_ms("web"), Some(100), "it was in the file since");
        state.keep_entries(1003 + 2 * GONE_MAX_MS, |_| false);
        assert_eq!(state.mark_ms("web"), None);
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
        let state = State::open(folder.path()).unwrap();
        assert!(state.untold().is_empty() && state.begun_anew.as_ref().unwrap().contains("state.json.bad"));
        assert_eq!(std::fs::read_to_string(folder.path().join("state.json.bad")).unwrap(), "torn");
        drop(state);
        // It cannot be read, and is not taken for none.
        std::fs::create_dir(folder.path().join("state.json")).unwrap();
        assert!(State::open(folder.path()).unwrap_err().to_string().contains("state.json"));
    }

    #[test]
    fn a_state_that_grows_too_long_to_be_read_again_loses_its_oldest_attempts() {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(folder.path()).unwrap();
        let long = "\u{1}".repeat(200);
        for number in 0..30 {
            let disks = vec![long.clone(); 96];
            state.add_untold(Untold { disks, ..attempt(number) });
        }
        assert_eq!(state.problem, None);
        drop(state);
        let state = State::open(folder.path()).unwrap();
        let kept = state.untold().len();
        assert!((1..30).contains(&kept), "{kept}");
        assert_eq!(state.untold()[kept - 1].vm, "vm29");
    }
}
