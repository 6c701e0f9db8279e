//! What the record knows of the lease of the bucket (`lease.rs`): texts, as they lie there.

use rusqlite::params;

use super::{Record, RecordError, sql};

/// Between texts: none contains it.
const BETWEEN: &str = "\u{1e}";

/// Texts that are kept of tries that had no answer. No request stays on its way for so many.
const WRITING_MAX: usize = 64;

fn split(texts: Option<&str>) -> Vec<String> {
    texts.into_iter().flat_map(|texts| texts.split(BETWEEN)).map(str::to_owned).collect()
}

/// What is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownLease {
    /// Of this data folder.
    pub(crate) server: String,
    /// The text written last, unless another server has written since.
    pub(crate) written: Option<String>,
    /// What was about to be, since then: one of them may have been, however late.
    pub(crate) writing: Vec<String>,
    /// Text that may be replaced, although another server wrote it; empty: no lease, although the bucket has changed.
    pub(crate) take_over: Option<String>,
}

impl KnownLease {
    /// Whether this data folder wrote it.
    pub(crate) fn is_ours(&self, text: &str) -> bool {
        self.written.iter().chain(&self.writing).any(|ours| ours == text)
    }
}

impl Record {
    pub(crate) fn lease(&self) -> Result<KnownLease, RecordError> {
        let read = "SELECT server, written, writing, take_over FROM lease WHERE id = 1";
        let known = self.0.lock().query_row(read, [], |row| {
            Ok(KnownLease {
                server: row.get(0)?,
                written: row.get(1)?,
                writing: split(row.get_ref(2)?.as_str_or_null()?),
                take_over: row.get(3)?,
            })
        });
        known.map_err(sql("read"))
    }

    /// Durably noted before it is written there.
    pub(crate) fn lease_writing(&self, text: &str) -> Result<(), RecordError> {
        // A request that no one waits for any more may be carried out after the one that followed it.
        let mut writing = self.lease()?.writing;
        writing.push(text.to_owned());
        let from = writing.len().saturating_sub(WRITING_MAX);
        let kept = writing.split_off(from).join(BETWEEN);
        self.lease_set("UPDATE lease SET writing = ?1 WHERE id = 1", &kept)
    }

    /// It lies there.
    pub(crate) fn lease_written(&self, text: &str) -> Result<(), RecordError> {
        let set = "UPDATE lease SET written = ?1, writing = NULL, seen = NULL, take_over = NULL WHERE id = 1";
        self.lease_set(set, text)
    }

    /// Another server wrote this; empty: none lies there. Where one does, this server is not the last to have written, and a
    /// permission to write where none lay ends: unlike that to replace a text, which no one writes twice, it would hold for
    /// the next time as well.
    pub(crate) fn lease_seen(&self, text: &str) -> Result<(), RecordError> {
        let set = "UPDATE lease SET seen = ?1,
                written = CASE WHEN ?1 = '' THEN written END,
                take_over = CASE WHEN ?1 = '' OR take_over <> '' THEN take_over END
            WHERE id = 1";
        self.lease_set(set, text)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A request without an answer may be carried out after another one.
    #[test]
    fn every_text_that_may_lie_there_is_ours_until_one_does() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::open_or_create(&folder.path().join("tiers.db"), "s3://here").unwrap();
        assert_eq!(record.lease().unwrap().writing, [""; 0]);
        let texts: Vec<String> = (0..70).map(|number| format!("number {number}\nname x\n")).collect();
        for text in &texts {
            record.lease_writing(text).unwrap();
        }
        let known = record.lease().unwrap();
        assert!(texts[6..].iter().all(|text| known.is_ours(text)));
        assert!(!known.is_ours(&texts[5]) && !known.is_ours(""));
        record.lease_written(&texts[69]).unwrap();
        let known = record.lease().unwrap();
        assert!(known.is_ours(&texts[69]) && !known.is_ours(&texts[68]));
    }
}
