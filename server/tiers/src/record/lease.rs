//! What the record knows of the lease of the bucket (`lease.rs`): texts, as they lie there.

use rusqlite::params;

use super::{Record, RecordError, sql};

/// What is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownLease {
    /// Of this data folder.
    pub(crate) server: String,
    /// What was written last.
    pub(crate) written: Option<String>,
    /// What was about to be: it may have been.
    pub(crate) writing: Option<String>,
    /// What may be replaced, although another server wrote it.
    pub(crate) take_over: Option<String>,
}

impl KnownLease {
    /// Whether this data folder wrote it.
    pub(crate) fn is_ours(&self, text: &str) -> bool {
        [&self.written, &self.writing].into_iter().any(|ours| ours.as_deref() == Some(text))
    }
}

impl Record {
    pub(crate) fn lease(&self) -> Result<KnownLease, RecordError> {
        let read = "SELECT server, written, writing, take_over FROM lease WHERE id = 1";
        let known = self.0.lock().query_row(read, [], |row| {
            Ok(KnownLease {
                server: row.get(0)?,
                written: row.get(1)?,
                writing: row.get(2)?,
                take_over: row.get(3)?,
            })
        });
        known.map_err(sql("read"))
    }

    /// Durably noted before it is written there.
    pub(crate) fn lease_writing(&self, text: &str) -> Result<(), RecordError> {
        self.lease_set("UPDATE lease SET writing = ?1 WHERE id = 1", text)
    }

    /// It lies there.
    pub(crate) fn lease_written(&self, text: &str) -> Result<(), RecordError> {
        let set = "UPDATE lease SET written = ?1, writing = NULL, seen = NULL, take_over = NULL WHERE id = 1";
        self.lease_set(set, text)
    }

    /// Another server wrote this.
    pub(crate) fn lease_seen(&self, text: &str) -> Result<(), RecordError> {
        self.lease_set("UPDATE lease SET seen = ?1 WHERE id = 1", text)
    }

    fn lease_set(&self, set: &str, text: &str) -> Result<(), RecordError> {
        self.0.lock().execute(set, params![text]).map(|_| ()).map_err(sql("write"))
    }

    /// What another server wrote there, as this one found it last.
    pub(crate) fn lease_of_other(&self) -> Result<Option<String>, RecordError> {
        let read = "SELECT seen FROM lease WHERE id = 1";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// What was seen may be replaced, unless it changes.
    pub(crate) fn lease_take_over(&self) -> Result<(), RecordError> {
        let set = "UPDATE lease SET take_over = seen WHERE id = 1";
        self.0.lock().execute(set, []).map(|_| ()).map_err(sql("write"))
    }

    /// 16 letters that no one had before.
    pub(crate) fn random_text(&self) -> Result<String, RecordError> {
        let read = "SELECT lower(hex(randomblob(8)))";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }
}
