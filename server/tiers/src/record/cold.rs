//! Storage classes of objects in the record: those that differ from the usual one, archives among them, and thaws.

use holdfast_volume::BlobName;
use rusqlite::{OptionalExtension as _, params};

use super::{Record, RecordError, sql, to_u64};

/// In addition to the tables of the first version: a build that does not know it asks the bucket, which refuses reads.
const TABLE: &str = "
    -- Objects with a storage class of their own.
    CREATE TABLE IF NOT EXISTS cold (
        name TEXT PRIMARY KEY,
        class TEXT NOT NULL,
        -- 0: it was asked for, and may have been done.
        is_done INTEGER NOT NULL CHECK (is_done IN (0, 1)),
        -- When it was asked to be thawed, and until when it is.
        asked_ms INTEGER,
        until_ms INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER IF NOT EXISTS cold_goes AFTER DELETE ON copied BEGIN
        DELETE FROM cold WHERE name = OLD.name;
    END;
    -- The ends that lie beside one, in the usual class, are objects like others.
    CREATE TRIGGER IF NOT EXISTS ends_go AFTER DELETE ON copied BEGIN
        DELETE FROM copied WHERE name = 'ends/' || OLD.name;
    END;
";

/// Storage class of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ColdRow {
    pub(crate) class: String,
    /// `true` once the object is known to have the class; until then it may have it.
    pub(crate) is_done: bool,
    pub(crate) asked_ms: Option<i64>,
    pub(crate) until_ms: Option<i64>,
}

/// Totals of the objects in one storage class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassTotals {
    pub class: String,
    pub blobs: u64,
    pub bytes: u64,
    /// Number of these blobs that are thawed or being thawed.
    pub thawed: u64,
}

/// Totals by class: the `usual` class first, which is what remains of `all`, then the others.
fn by_class(all: (u64, u64), cold: Vec<ClassTotals>, usual: &str) -> Vec<ClassTotals> {
    let mut rest = ClassTotals { class: usual.to_owned(), blobs: all.0, bytes: all.1, thawed: 0 };
    let mut classes = Vec::new();
    for of_class in cold.into_iter().filter(|of_class| of_class.class != usual) {
        rest.blobs = rest.blobs.saturating_sub(of_class.blobs);
        rest.bytes = rest.bytes.saturating_sub(of_class.bytes);
        classes.push(of_class);
    }
    if rest.blobs > 0 {
        classes.insert(0, rest);
    }
    classes
}

impl Record {
    pub(super) fn make_cold(&self) -> Result<(), RecordError> {
        self.0.lock().execute_batch(TABLE).map_err(sql("open"))
    }

    pub(crate) fn cold(&self, name: &BlobName) -> Result<Option<ColdRow>, RecordError> {
        let read = "SELECT class, is_done, asked_ms, until_ms FROM cold WHERE name = ?1";
        self.0
            .lock()
            .prepare_cached(read)
            .and_then(|mut read| {
                read.query_row([name.as_str()], |row| {
                    Ok(ColdRow {
                        class: row.get(0)?,
                        is_done: row.get(1)?,
                        asked_ms: row.get(2)?,
                        until_ms: row.get(3)?,
                    })
                })
                .optional()
            })
            .map_err(sql("read"))
    }

    /// (T10) Records that an object may have the class from now on.
    pub(crate) fn note_freezing(&self, name: &BlobName, class: &str) -> Result<(), RecordError> {
        self.set_cold(name, class, false)
    }

    /// Records that an object has the class.
    pub(crate) fn note_frozen(&self, name: &BlobName, class: &str) -> Result<(), RecordError> {
        self.set_cold(name, class, true)
    }

    /// Adds an archived blob together with its class: in between, a backup could count on it.
    pub(crate) fn add_cold(&self, name: &BlobName, len: u64, class: &str) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let insert = "INSERT OR REPLACE INTO copied (name, len) VALUES (?1, ?2)";
        tx.execute(insert, params![name.as_str(), len]).map_err(sql("write"))?;
        let insert = "INSERT OR REPLACE INTO cold (name, class, is_done) VALUES (?1, ?2, 1)";
        tx.execute(insert, params![name.as_str(), class]).map_err(sql("write"))?;
        tx.commit().map_err(sql("write"))
    }

    /// Sets the class of an object that is still recorded: one that is gone may leave its name to another.
    fn set_cold(&self, name: &BlobName, class: &str, is_done: bool) -> Result<(), RecordError> {
        let set = "INSERT OR REPLACE INTO cold (name, class, is_done)
            SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM copied WHERE name = ?1)";
        let set = self.0.lock().execute(set, params![name.as_str(), class, is_done]);
        set.map(|_| ()).map_err(sql("write"))
    }

    /// Records the class that the bucket reported to a request begun while the record said `seen`. If the row changed
    /// since, it is newer, and stays.
    pub(crate) fn note_seen(
        &self,
        name: &BlobName,
        seen: Option<&ColdRow>,
        class: &str,
    ) -> Result<(), RecordError> {
        let Some(seen) = seen else {
            let set = "INSERT OR IGNORE INTO cold (name, class, is_done)
                SELECT ?1, ?2, 1 WHERE EXISTS (SELECT 1 FROM copied WHERE name = ?1)";
            let set = self.0.lock().execute(set, params![name.as_str(), class]);
            return set.map(|_| ()).map_err(sql("write"));
        };
        let set = "UPDATE cold SET class = ?2, is_done = 1, asked_ms = NULL, until_ms = NULL
            WHERE name = ?1 AND class = ?3 AND is_done = ?4";
        let set = self.0.lock().execute(set, params![name.as_str(), class, seen.class, seen.is_done]);
        set.map(|_| ()).map_err(sql("write"))
    }

    /// Records that a thaw is about to be requested.
    pub(crate) fn note_asking(&self, name: &BlobName, asked_ms: i64) -> Result<(), RecordError> {
        let set = "UPDATE cold SET asked_ms = ?2, until_ms = NULL WHERE name = ?1";
        let set = self.0.lock().execute(set, params![name.as_str(), asked_ms]);
        set.map(|_| ()).map_err(sql("write"))
    }

    /// Records that a thaw was requested: now, unless an earlier time is known.
    pub(crate) fn note_thawing(&self, name: &BlobName, asked_ms: i64) -> Result<(), RecordError> {
        let set = "UPDATE cold SET asked_ms = coalesce(asked_ms, ?2), until_ms = NULL WHERE name = ?1";
        let set = self.0.lock().execute(set, params![name.as_str(), asked_ms]);
        set.map(|_| ()).map_err(sql("write"))
    }

    /// Records how long a thawed copy can be read; `None`: there is none, and none was requested.
    pub(crate) fn note_thawed(&self, name: &BlobName, until_ms: Option<i64>) -> Result<(), RecordError> {
        let set = "UPDATE cold SET until_ms = ?2, asked_ms = NULL WHERE name = ?1";
        let set = self.0.lock().execute(set, params![name.as_str(), until_ms]);
        set.map(|_| ()).map_err(sql("write"))
    }

    /// Returns a page of the names of all objects in these classes.
    pub(crate) fn names_in_classes(
        &self,
        classes: [&str; 2],
        after: &str,
        limit: u32,
    ) -> Result<Vec<BlobName>, RecordError> {
        let read = "SELECT name FROM cold WHERE class IN (?1, ?2) AND name > ?3 ORDER BY name LIMIT ?4";
        let [first, second] = classes;
        let connection = self.0.lock();
        let mut read = connection.prepare_cached(read).map_err(sql("read"))?;
        let rows = read
            .query_map(params![first, second, after, limit], |row| row.get::<_, String>(0))
            .map_err(sql("read"))?;
        let mut names = Vec::new();
        for row in rows {
            names.extend(BlobName::new(row.map_err(sql("read"))?));
        }
        Ok(names)
    }

    /// Totals by storage class, the usual class first. Includes blobs due for removal, and the ends beside cold
    /// containers. Reads the whole record.
    ///
    /// # Errors
    /// The database's.
    pub fn class_totals(&self, usual: &str) -> Result<Vec<ClassTotals>, RecordError> {
        let cold = self.cold_totals()?;
        let read = "SELECT count(*), coalesce(sum(len), 0) FROM copied";
        let all = self.0.lock().query_row(read, [], |row| Ok((to_u64(row.get(0)?), to_u64(row.get(1)?))));
        Ok(by_class(all.map_err(sql("read"))?, cold, usual))
    }

    /// Storage classes other than the usual one that any object has.
    pub(crate) fn cold_classes(&self) -> Result<Vec<String>, RecordError> {
        let read = "SELECT DISTINCT class FROM cold WHERE class <> 'STANDARD' ORDER BY class";
        let connection = self.0.lock();
        let mut read = connection.prepare_cached(read).map_err(sql("read"))?;
        let rows = read.query_map([], |row| row.get(0)).map_err(sql("read"))?;
        rows.collect::<Result<_, _>>().map_err(sql("read"))
    }

    /// Returns true if any object has a storage class other than the usual one.
    pub(crate) fn has_cold(&self) -> Result<bool, RecordError> {
        let read = "SELECT EXISTS (SELECT 1 FROM cold WHERE class <> 'STANDARD')";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// Totals by storage class of objects that are not in the usual one. Reads all of them.
    fn cold_totals(&self) -> Result<Vec<ClassTotals>, RecordError> {
        let connection = self.0.lock();
        let mut read = connection
            .prepare_cached(
                "SELECT class, count(*), coalesce(sum(len), 0), count(coalesce(asked_ms, until_ms))
                 FROM cold LEFT JOIN copied USING (name) WHERE class <> 'STANDARD' GROUP BY class ORDER BY class",
            )
            .map_err(sql("read"))?;
        let rows = read
            .query_map([], |row| {
                Ok(ClassTotals {
                    class: row.get(0)?,
                    blobs: to_u64(row.get(1)?),
                    bytes: to_u64(row.get(2)?),
                    thawed: to_u64(row.get(3)?),
                })
            })
            .map_err(sql("read"))?;
        rows.collect::<Result<_, _>>().map_err(sql("read"))
    }
}

#[cfg(test)]
mod tests {
    use holdfast_volume::BlobEntry;

    use super::*;

    fn totals(class: &str, blobs: u64, bytes: u64, thawed: u64) -> ClassTotals {
        ClassTotals { class: class.to_owned(), blobs, bytes, thawed }
    }

    #[test]
    fn every_blob_is_counted_once_in_its_class() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::open_or_create(&folder.path().join("tiers.db"), "s3://here").unwrap();
        assert_eq!(record.class_totals("STANDARD").unwrap(), []);
        assert_eq!((record.has_cold().unwrap(), record.cold_classes().unwrap()), (false, vec![]));
        let names: Vec<_> = (1..=6).map(|n| BlobName::new(format!("containers/{n}.data")).unwrap()).collect();
        record.add_all(names.iter().map(|name| BlobEntry { name: name.clone(), len: 100 })).unwrap();
        for name in &names[..3] {
            record.note_frozen(name, "DEEP_ARCHIVE").unwrap();
            record.add(&BlobName::new(format!("ends/{name}")).unwrap(), 7).unwrap();
        }
        record.note_thawing(&names[0], 1).unwrap();
        record.note_frozen(&names[3], "GLACIER").unwrap();
        record.note_frozen(&names[4], "STANDARD").unwrap();
        assert!(record.has_cold().unwrap());
        assert_eq!(record.cold_classes().unwrap(), ["DEEP_ARCHIVE", "GLACIER"]);
        let others = [totals("DEEP_ARCHIVE", 3, 300, 1), totals("GLACIER", 1, 100, 0)];
        let found = record.class_totals("STANDARD").unwrap();
        assert_eq!((&found[0], &found[1..]), (&totals("STANDARD", 2 + 3, 200 + 21, 0), &others[..]));
        // Objects in the usual class are not counted separately.
        let found = record.class_totals("GLACIER").unwrap();
        assert_eq!(found, [totals("GLACIER", 3 + 3, 300 + 21, 0), others[0].clone()]);
        // A removed container takes its ends along.
        record.removed(&[(1, names[0].clone())]).unwrap();
        let found = record.class_totals("STANDARD").unwrap();
        assert_eq!(found[..2], [totals("STANDARD", 2 + 2, 200 + 14, 0), totals("DEEP_ARCHIVE", 2, 200, 0)]);
    }
}
