//! Properties of objects in the record besides their lengths: the checksum that was sent, the tag under which the
//! bucket had the object when it was verified, and its flaw, if any.
//!
//! Tables of their own, created when the record is opened: a record of an earlier version has none of it, and the
//! first audit fills in what it can.

use holdfast_types::clock::utc_text;
use holdfast_volume::{BlobChecksum, BlobName};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::retention::MOVED;
use super::{Record, RecordError, sql, to_u64};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS objects (
        name TEXT PRIMARY KEY,
        -- Of what was sent.
        sum TEXT,
        -- The object's, when it was found to be that.
        tag TEXT
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS findings (
        name TEXT PRIMARY KEY,
        what TEXT NOT NULL,
        -- The length, or the storage class.
        detail TEXT NOT NULL,
        found_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    -- A name may be used again, for other bytes.
    CREATE TRIGGER IF NOT EXISTS object_anew AFTER INSERT ON copied BEGIN
        DELETE FROM objects WHERE name = new.name;
        DELETE FROM findings WHERE name = new.name;
    END;
    CREATE TRIGGER IF NOT EXISTS object_gone AFTER DELETE ON copied BEGIN
        DELETE FROM objects WHERE name = old.name;
        DELETE FROM findings WHERE name = old.name;
    END;
";

/// A page of objects after a name.
const KNOWN: &str = "
    SELECT copied.name, len, sum, tag, what, detail FROM copied
    LEFT JOIN objects ON objects.name = copied.name LEFT JOIN findings ON findings.name = copied.name
    WHERE copied.name > ?1 AND (?2 IS NULL OR copied.name <= ?2)
        AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = copied.name)
    ORDER BY copied.name LIMIT ?3";

/// A single object.
const KNOWN_ONE: &str = "
    SELECT copied.name, len, sum, tag, what, detail FROM copied
    LEFT JOIN objects ON objects.name = copied.name LEFT JOIN findings ON findings.name = copied.name
    WHERE copied.name = ?1 AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = ?1)";

/// Flaw of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Flaw {
    /// It is missing.
    Missing,
    /// It has another length.
    Length { there: u64 },
    /// It has other content.
    Content,
    /// It is in an archive storage class and must be thawed before it can be read.
    Cold { class: String },
    /// Its retention is shorter than was promised: it ends then.
    Retention { until_ms: i64 },
}

impl Flaw {
    /// Returns true if the object's content is lost, and not merely archived or short of retention.
    pub const fn is_loss(&self) -> bool {
        !matches!(self, Self::Cold { .. } | Self::Retention { .. })
    }

    /// Returns true if the flaw keeps the object from being read.
    pub(crate) const fn is_of_content(&self) -> bool {
        !matches!(self, Self::Retention { .. })
    }

    /// Message for people.
    pub fn text(&self) -> String {
        match self {
            Self::Missing => "it is gone from the bucket".to_owned(),
            Self::Length { there } => format!("it has {there} bytes in the bucket, which is not its length"),
            Self::Content => "another content lies in the bucket under its name".to_owned(),
            Self::Cold { class } => {
                format!("it lies in the storage class {class}, an archive, where it cannot be read")
            }
            Self::Retention { until_ms: 0 } => {
                "it was to stay in the bucket, and may be deleted there at any time".to_owned()
            }
            Self::Retention { until_ms } => format!(
                "it need not stay in the bucket as long as it was to, but only until {}",
                utc_text(*until_ms)
            ),
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Length { .. } => "length",
            Self::Content => "content",
            Self::Cold { .. } => "cold",
            Self::Retention { .. } => "retention",
        }
    }

    fn detail(&self) -> String {
        match self {
            Self::Missing | Self::Content => String::new(),
            Self::Length { there } => there.to_string(),
            Self::Cold { class } => class.clone(),
            Self::Retention { until_ms } => until_ms.to_string(),
        }
    }

    fn parse(what: &str, detail: String) -> Self {
        match what {
            "missing" => Self::Missing,
            "length" => Self::Length { there: detail.parse().unwrap_or_default() },
            "cold" => Self::Cold { class: detail },
            "retention" => Self::Retention { until_ms: detail.parse().unwrap_or_default() },
            // Includes flaws recorded by a later version.
            _ => Self::Content,
        }
    }
}

/// Recorded state of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: BlobName,
    pub(crate) len: u64,
    pub(crate) sum: Option<BlobChecksum>,
    pub(crate) tag: Option<String>,
    pub(crate) flaw: Option<Flaw>,
}

pub(super) fn prepare(connection: &Connection) -> Result<(), RecordError> {
    connection.execute_batch(SCHEMA).map_err(sql("open"))
}

fn text_of(sum: BlobChecksum) -> String {
    match sum {
        BlobChecksum::Crc64Nvme(sum) => format!("crc64nvme:{sum:016x}"),
        BlobChecksum::Crc32c(sum) => format!("crc32c:{sum:08x}"),
    }
}

fn sum_of(text: &str) -> Option<BlobChecksum> {
    match text.split_once(':')? {
        ("crc64nvme", sum) => u64::from_str_radix(sum, 16).ok().map(BlobChecksum::Crc64Nvme),
        ("crc32c", sum) => u32::from_str_radix(sum, 16).ok().map(BlobChecksum::Crc32c),
        _ => None,
    }
}

fn flaw_at(row: &Row<'_>, what: usize) -> rusqlite::Result<Option<Flaw>> {
    let (what, detail): (Option<String>, Option<String>) = (row.get(what)?, row.get(what + 1)?);
    Ok(what.map(|what| Flaw::parse(&what, detail.unwrap_or_default())))
}

/// Reads a row; `None`: the name is not a blob's.
fn known_at(row: &Row<'_>) -> rusqlite::Result<Option<Known>> {
    let (len, sum, tag): (_, Option<String>, _) = (to_u64(row.get(1)?), row.get(2)?, row.get(3)?);
    let (sum, flaw) = (sum.as_deref().and_then(sum_of), flaw_at(row, 4)?);
    let name = BlobName::new(row.get::<_, String>(0)?);
    Ok(name.map(|name| Known { name, len, sum, tag, flaw }))
}

impl Record {
    /// Adds a blob that the bucket has now, with the checksum it was sent with.
    pub(crate) fn add_sent(&self, name: &BlobName, len: u64, sum: BlobChecksum) -> Result<(), RecordError> {
        let len = i64::try_from(len).unwrap_or(i64::MAX);
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        let insert = "INSERT OR REPLACE INTO copied (name, len) VALUES (?1, ?2)";
        tx.execute(insert, params![name.as_str(), len]).map_err(sql("write"))?;
        let insert = "INSERT OR REPLACE INTO objects (name, sum) VALUES (?1, ?2)";
        tx.execute(insert, params![name.as_str(), text_of(sum)]).map_err(sql("write"))?;
        tx.commit().map_err(sql("write"))
    }

    /// Returns objects that are not due for removal, with names after `after` and up to `up_to`.
    pub(crate) fn known(
        &self,
        after: &str,
        up_to: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Known>, RecordError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let connection = self.0.lock();
        let mut read = connection.prepare_cached(KNOWN).map_err(sql("read"))?;
        let rows = read.query_map(params![after, up_to, limit], known_at).map_err(sql("read"))?;
        rows.filter_map(Result::transpose).collect::<Result<_, _>>().map_err(sql("read"))
    }

    /// Returns the recorded state of an object that is not due for removal.
    pub(crate) fn known_one(&self, name: &BlobName) -> Result<Option<Known>, RecordError> {
        self.0
            .lock()
            .prepare_cached(KNOWN_ONE)
            .and_then(|mut read| read.query_row([name.as_str()], known_at).optional())
            .map(Option::flatten)
            .map_err(sql("read"))
    }

    /// Records that the object was verified.
    pub(crate) fn proved(
        &self,
        name: &BlobName,
        sum: Option<BlobChecksum>,
        tag: Option<&str>,
    ) -> Result<(), RecordError> {
        let insert = "INSERT INTO objects (name, sum, tag) VALUES (?1, ?2, ?3)
            ON CONFLICT (name) DO UPDATE SET sum = coalesce(sum, excluded.sum), tag = excluded.tag";
        let sum = sum.map(text_of);
        self.0.lock().execute(insert, params![name.as_str(), sum, tag]).map(|_| ()).map_err(sql("write"))
    }

    /// (T14) Durably records the flaw of an object; `None`: it has none any more.
    pub(crate) fn note_flaw(
        &self,
        name: &BlobName,
        flaw: Option<&Flaw>,
        now_ms: i64,
    ) -> Result<(), RecordError> {
        let connection = self.0.lock();
        if let Some(flaw) = flaw.filter(|flaw| flaw.is_loss()) {
            // (T18) No restore point that needs it counts as kept until it was checked again.
            let moved = "INSERT OR REPLACE INTO said (key, value) SELECT ?3, '1'
                WHERE EXISTS (SELECT 1 FROM retained WHERE name = ?1)
                    AND NOT EXISTS (SELECT 1 FROM findings WHERE name = ?1 AND what = ?2)";
            connection.execute(moved, params![name.as_str(), flaw.word(), MOVED]).map_err(sql("write"))?;
        }
        let done = match flaw {
            Some(flaw) => connection.execute(
                "INSERT INTO findings (name, what, detail, found_ms) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name) DO UPDATE SET what = excluded.what, detail = excluded.detail",
                params![name.as_str(), flaw.word(), flaw.detail(), now_ms],
            ),
            None => connection.execute("DELETE FROM findings WHERE name = ?1", [name.as_str()]),
        };
        done.map(|_| ()).map_err(sql("write"))
    }

    /// The checksum that was sent, if known.
    pub(crate) fn sum(&self, name: &BlobName) -> Result<Option<BlobChecksum>, RecordError> {
        let read = "SELECT sum FROM objects WHERE name = ?1";
        self.0
            .lock()
            .prepare_cached(read)
            .and_then(|mut read| {
                read.query_row([name.as_str()], |row| row.get::<_, Option<String>>(0)).optional()
            })
            .map(|sum| sum.flatten().as_deref().and_then(sum_of))
            .map_err(sql("read"))
    }

    /// The flaw of an object, if it has one.
    pub(crate) fn flaw(&self, name: &BlobName) -> Result<Option<Flaw>, RecordError> {
        let read = "SELECT what, detail FROM findings WHERE name = ?1";
        self.0
            .lock()
            .prepare_cached(read)
            .and_then(|mut read| read.query_row([name.as_str()], |row| flaw_at(row, 0)).optional())
            .map(Option::flatten)
            .map_err(sql("read"))
    }

    /// The first `limit` objects with a flaw, and when it was found.
    ///
    /// # Errors
    /// The database's.
    pub fn flaws(&self, limit: u32) -> Result<Vec<(BlobName, Flaw, i64)>, RecordError> {
        let connection = self.0.lock();
        let mut read = connection
            .prepare_cached(
                "SELECT name, what, detail, found_ms FROM findings
                 WHERE name IN (SELECT name FROM copied) AND name NOT IN (SELECT name FROM removals)
                 ORDER BY name LIMIT ?1",
            )
            .map_err(sql("read"))?;
        let rows = read
            .query_map([limit], |row| {
                let name = BlobName::new(row.get::<_, String>(0)?);
                Ok(name.zip(flaw_at(row, 1)?).map(|(name, flaw)| (name, flaw, row.get(3))))
            })
            .map_err(sql("read"))?;
        let mut found = Vec::new();
        for row in rows {
            if let Some((name, flaw, at_ms)) = row.map_err(sql("read"))? {
                found.push((name, flaw, at_ms.map_err(sql("read"))?));
            }
        }
        Ok(found)
    }

    /// Number of objects with a flaw.
    ///
    /// # Errors
    /// The database's.
    pub fn flaws_count(&self) -> Result<u64, RecordError> {
        let read = "SELECT count(*) FROM findings
            WHERE name IN (SELECT name FROM copied) AND name NOT IN (SELECT name FROM removals)";
        self.0.lock().query_row(read, [], |row| row.get(0)).map(to_u64).map_err(sql("read"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_and_flaws_read_back() {
        for sum in [BlobChecksum::Crc64Nvme(7), BlobChecksum::Crc32c(u32::MAX)] {
            assert_eq!(sum_of(&text_of(sum)), Some(sum));
        }
        assert_eq!(sum_of("md5:00"), None);
        for flaw in [
            Flaw::Missing,
            Flaw::Length { there: 3 },
            Flaw::Content,
            Flaw::Cold { class: "X".to_owned() },
            Flaw::Retention { until_ms: 7 },
        ] {
            assert_eq!(Flaw::parse(flaw.word(), flaw.detail()), flaw);
        }
    }
}
