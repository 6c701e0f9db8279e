//! The lease of the bucket in the record (`lease.rs`): texts, as stored in the bucket.

use rusqlite::params;

use super::{Record, RecordError, sql};

/// Separator of texts: none contains it.
const BETWEEN: &str = "\u{1e}";

/// Most texts kept of attempts without an answer. No request stays on its way for so many.
const WRITING_MAX: usize = 64;

fn split(texts: Option<&str>) -> Vec<String> {
    texts.into_iter().flat_map(|texts| texts.split(BETWEEN)).map(str::to_owned).collect()
}

/// Recorded state of the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownLease {
    /// Id of this data folder.
    pub(crate) server: String,
    /// The text written last, unless another server has written since.
    pub(crate) written: Option<String>,
    /// Texts of attempts since then without an answer: one of them may have been written, however late.
    pub(crate) writing: Vec<String>,
    /// Text that may be replaced, although another server wrote it; empty: a missing lease, although the bucket has
    /// changed.
    pub(crate) take_over: Option<String>,
}

impl KnownLease {
    /// Returns true if this data folder wrote `text`.
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

    /// Durably records a text before it is written to the bucket.
    pub(crate) fn lease_writing(&self, text: &str) -> Result<(), RecordError> {
        // A request that has timed out may be carried out after the one that followed it.
        let mut writing = self.lease()?.writing;
        writing.push(text.to_owned());
        let from = writing.len().saturating_sub(WRITING_MAX);
        let kept = writing.split_off(from).join(BETWEEN);
        self.lease_set("UPDATE lease SET writing = ?1 WHERE id = 1", &kept)
    }

    /// Records that a text was written to the bucket.
    pub(crate) fn lease_written(&self, text: &str) -> Result<(), RecordError> {
        let set = "UPDATE lease SET written = ?1, writing = NULL, seen = NULL, take_over = NULL WHERE id = 1";
        self.lease_set(set, text)
    }

    /// Records the lease of another server; empty: the lease is missing. If there is one, this server is not the last
    /// writer, and a permission to write a missing lease ends: unlike that to replace a text, which is never written
    /// twice, it would hold for the next time as well.
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

    /// The lease of another server, as this one read it last.
    pub(crate) fn lease_of_other(&self) -> Result<Option<String>, RecordError> {
        let read = "SELECT seen FROM lease WHERE id = 1";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// Permits replacing the lease that was seen, unless it changes.
    pub(crate) fn lease_take_over(&self) -> Result<(), RecordError> {
        let set = "UPDATE lease SET take_over = seen WHERE id = 1";
        self.0.lock().execute(set, []).map(|_| ()).map_err(sql("write"))
    }

    /// Returns 16 random hexadecimal digits.
    pub(crate) fn random_text(&self) -> Result<String, RecordError> {
        let read = "SELECT lower(hex(randomblob(8)))";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request without an answer may be carried out after a later one.
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
