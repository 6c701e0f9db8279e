//! The record: blobs in the bucket, and blobs due for removal from it. A small SQLite database of its own, beside the
//! catalog: the catalog holds restore points, the record holds blobs.
//!
//! A crash leaves whole transactions (`synchronous=FULL`). Blobs that were copied but not recorded are found when the
//! local listing is compared with it. If the record is lost, it is rebuilt from a listing of the bucket
//! ([`crate::survey`]).

mod cold;
mod lease;
mod objects;
mod retention;

use std::path::Path;
use std::time::Duration;

use holdfast_types::owner;
use holdfast_volume::{BlobEntry, BlobName, ListPage, VolumeError};
use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, params};

pub use cold::ClassTotals;
pub(crate) use cold::ColdRow;
pub use objects::Flaw;
pub(crate) use objects::Known;
pub use retention::RetentionTotals;
pub(crate) use retention::{Behind, PromisedPoint};

/// SQLite application id: "HFTR".
const APPLICATION_ID: i32 = 0x4846_5452;
const VERSION: i32 = 1;
/// Busy timeout: the command line may read the record beside a server.
const BUSY: Duration = Duration::from_secs(10);

const SCHEMA: &str = "
    -- Which bucket, and whose.
    CREATE TABLE place (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        location TEXT NOT NULL
    ) STRICT;
    -- What lies there.
    CREATE TABLE copied (
        name TEXT PRIMARY KEY,
        len INTEGER NOT NULL CHECK (len >= 0)
    ) STRICT, WITHOUT ROWID;
    -- What is to go from there; numbers ascend and are not used twice.
    CREATE TABLE removals (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE
    ) STRICT;
    -- This data folder among those that would write there, and texts of the lease.
    CREATE TABLE lease (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        server TEXT NOT NULL,
        written TEXT,
        writing TEXT,
        seen TEXT,
        take_over TEXT
    ) STRICT;
    INSERT INTO lease (id, server) VALUES (1, lower(hex(randomblob(16))));
    -- What the last process said of itself, for the command line.
    CREATE TABLE said (
        key TEXT PRIMARY KEY,
        value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
";

const TABLES: &str = "SELECT count(*) FROM sqlite_schema";

/// Names in `folder` that are in the bucket and not due for removal.
const VISIBLE_IN: &str = "
    SELECT name, len FROM copied
    WHERE name > ?1 AND name < ?2 AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = copied.name)
    ORDER BY name LIMIT ?3";

/// Names of a folder due for removal that sort before the last one that stays.
const OLDER: &str = "
    SELECT number, name FROM removals
    WHERE name > ?1 AND name < ?2
        AND NOT EXISTS (SELECT 1 FROM held WHERE held.name = removals.name AND again_ms > ?4)
        AND name < (
        SELECT max(name) FROM copied
        WHERE name > ?1 AND name < ?2 AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = copied.name))
    ORDER BY number LIMIT ?3";

/// Errors of the record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("cannot {action} the record of what lies in the bucket: {source}")]
    Sql { action: &'static str, source: rusqlite::Error },
    #[error("the record of what lies in the bucket is not one: {0}")]
    Foreign(String),
    #[error(
        "the record of what lies in the bucket was written by a newer version (format {0}; this build knows {VERSION}): upgrade"
    )]
    Newer(i32),
    #[error(
        "the data folder has its copies in {recorded}, and the settings say {wanted}. Name the same place, or, to begin new \
         copies elsewhere while everything is still in the data folder, move the record (tiers.db) away first"
    )]
    OtherPlace { recorded: String, wanted: String },
}

impl RecordError {
    /// Converts it to a failure to do `action` with the blob `name`: the record is on a local disk, but its failure
    /// concerns no blob, and nothing was changed.
    pub(crate) fn of_blob(self, action: &'static str, name: &BlobName) -> VolumeError {
        if self.is_full() {
            return VolumeError::Full { name: name.to_string(), source: self.into() };
        }
        VolumeError::Unavailable { action, name: name.to_string(), source: self.into() }
    }

    /// Returns true if the disk is full.
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Sql { source: rusqlite::Error::SqliteFailure(failure, _), .. }
                if failure.code == rusqlite::ErrorCode::DiskFull
        )
    }
}

fn sql(action: &'static str) -> impl FnOnce(rusqlite::Error) -> RecordError {
    move |source| RecordError::Sql { action, source }
}

/// Totals of one kind of blobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Folder of the kind.
    pub folder: String,
    pub blobs: u64,
    pub bytes: u64,
}

/// The record of blobs in the bucket. Shared by threads; calls block.
#[derive(Debug)]
pub struct Record(Mutex<Connection>);

impl Record {
    /// Opens the record at `path`, or creates it, for the copies in `location`.
    ///
    /// # Errors
    /// [`RecordError::OtherPlace`]; when the database cannot be used.
    pub fn open_or_create(path: &Path, location: &str) -> Result<Self, RecordError> {
        // A file created by root would be closed to the server. A failure here recurs below, and is reported there.
        let _ = owner::create(path);
        let mut connection =
            connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        let tables: i64 = connection.query_row(TABLES, [], |row| row.get(0)).map_err(sql("open"))?;
        if tables == 0 {
            let tx = connection.transaction().map_err(sql("create"))?;
            tx.execute_batch(SCHEMA).map_err(sql("create"))?;
            tx.pragma_update(None, "application_id", APPLICATION_ID).map_err(sql("create"))?;
            tx.pragma_update(None, "user_version", VERSION).map_err(sql("create"))?;
            tx.execute("INSERT INTO place (id, location) VALUES (1, ?1)", [location])
                .map_err(sql("create"))?;
            tx.commit().map_err(sql("create"))?;
        }
        let record = Self::checked(connection)?;
        match record.location()? {
            recorded if recorded == location => Ok(record),
            recorded => Err(RecordError::OtherPlace { recorded, wanted: location.to_owned() }),
        }
    }

    /// Returns true if there is a record at `path`: a file without any table does not count as one.
    ///
    /// # Errors
    /// When the database cannot be used.
    pub fn is_at(path: &Path) -> Result<bool, RecordError> {
        if !path.exists() {
            return Ok(false);
        }
        let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let tables: i64 = connection.query_row(TABLES, [], |row| row.get(0)).map_err(sql("open"))?;
        Ok(tables > 0)
    }

    /// Opens an existing record, whatever its location.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        Self::checked(connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?)
    }

    fn checked(connection: Connection) -> Result<Self, RecordError> {
        match pragma(&connection, "application_id")? {
            APPLICATION_ID => {}
            other => return Err(RecordError::Foreign(format!("its application id is {other}"))),
        }
        match pragma(&connection, "user_version")? {
            VERSION => {
                objects::prepare(&connection)?;
                retention::prepare(&connection)?;
                let record = Self(Mutex::new(connection));
                record.make_cold()?;
                Ok(record)
            }
            newer if newer > VERSION => Err(RecordError::Newer(newer)),
            other => Err(RecordError::Foreign(format!("its version is {other}"))),
        }
    }

    /// Location of the copies.
    ///
    /// # Errors
    /// The database's.
    pub fn location(&self) -> Result<String, RecordError> {
        let read = "SELECT location FROM place WHERE id = 1";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// Adds a blob that the bucket has now.
    pub(crate) fn add(&self, name: &BlobName, len: u64) -> Result<(), RecordError> {
        self.add_all([BlobEntry { name: name.clone(), len }])
    }

    /// Adds blobs that the bucket has now.
    pub(crate) fn add_all(&self, entries: impl IntoIterator<Item = BlobEntry>) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        for BlobEntry { name, len } in entries {
            let len = i64::try_from(len).unwrap_or(i64::MAX);
            let insert = "INSERT OR REPLACE INTO copied (name, len) VALUES (?1, ?2)";
            tx.prepare_cached(insert)
                .and_then(|mut insert| insert.execute(params![name.as_str(), len]))
                .map_err(sql("write"))?;
        }
        tx.commit().map_err(sql("write"))
    }

    /// Removes a blob that the bucket proved not to have.
    pub(crate) fn forget(&self, name: &BlobName) -> Result<(), RecordError> {
        let delete = "DELETE FROM copied WHERE name = ?1";
        self.0.lock().execute(delete, [name.as_str()]).map(|_| ()).map_err(sql("write"))
    }

    /// Length of a blob in the bucket that is not due for removal.
    pub(crate) fn visible(&self, name: &BlobName) -> Result<Option<u64>, RecordError> {
        let read = "SELECT len FROM copied WHERE name = ?1
            AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = ?1)";
        self.0
            .lock()
            .prepare_cached(read)
            .and_then(|mut read| read.query_row([name.as_str()], |row| row.get::<_, i64>(0)).optional())
            .map(|found| found.and_then(|len| u64::try_from(len).ok()))
            .map_err(sql("read"))
    }

    /// Length of a blob in the bucket, even if it is due for removal.
    pub(crate) fn recorded(&self, name: &BlobName) -> Result<Option<u64>, RecordError> {
        let read = "SELECT len FROM copied WHERE name = ?1";
        let connection = self.0.lock();
        let found = connection
            .prepare_cached(read)
            .and_then(|mut read| read.query_row([name.as_str()], |row| row.get(0)).optional());
        found.map(|len| len.map(to_u64)).map_err(sql("read"))
    }

    /// Number of blobs of `folder` in the bucket, including those due for removal.
    pub(crate) fn recorded_in(&self, folder: &BlobName) -> Result<u64, RecordError> {
        let read = "SELECT count(*) FROM copied WHERE name > ?1 AND name < ?2";
        let (begin, end) = (format!("{folder}/"), format!("{folder}0"));
        self.0.lock().query_row(read, [begin, end], |row| row.get(0)).map(to_u64).map_err(sql("read"))
    }

    /// Returns a page of the blobs of `folder` in the bucket that are not due for removal.
    pub(crate) fn page(
        &self,
        folder: &BlobName,
        after: Option<&BlobName>,
        limit: usize,
    ) -> Result<ListPage, RecordError> {
        // `0` is the character after `/`: all names of the folder sort between the two.
        let (begin, end) = (format!("{folder}/"), format!("{folder}0"));
        let from = after.map_or(begin.as_str(), |after| after.as_str().max(&begin));
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let connection = self.0.lock();
        let mut read = connection.prepare_cached(VISIBLE_IN).map_err(sql("list"))?;
        let rows = read
            .query_map(params![from, end, wanted], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
            })
            .map_err(sql("list"))?;
        let mut entries = Vec::new();
        for row in rows {
            let (name, len) = row.map_err(sql("list"))?;
            if let (Some(name), Ok(len)) = (BlobName::new(name), u64::try_from(len)) {
                entries.push(BlobEntry { name, len });
            }
        }
        let more = entries.len() > limit;
        entries.truncate(limit);
        Ok(ListPage { entries, more })
    }

    /// (T3) Durably records that a blob is due for removal.
    pub(crate) fn note_removal(&self, name: &BlobName) -> Result<(), RecordError> {
        let insert = "INSERT OR IGNORE INTO removals (name) VALUES (?1)";
        self.0
            .lock()
            .prepare_cached(insert)
            .and_then(|mut insert| insert.execute([name.as_str()]))
            .map(|_| ())
            .map_err(sql("write"))
    }

    /// Cancels a removal: nothing was removed.
    pub(crate) fn cancel_removal(&self, name: &BlobName) -> Result<(), RecordError> {
        let delete = "DELETE FROM removals WHERE name = ?1";
        self.0.lock().execute(delete, [name.as_str()]).map(|_| ()).map_err(sql("write"))
    }

    /// Returns true if a blob is due for removal.
    ///
    /// # Errors
    /// The database's.
    pub fn is_to_go(&self, name: &BlobName) -> Result<bool, RecordError> {
        let read = "SELECT 1 FROM removals WHERE name = ?1";
        self.0
            .lock()
            .query_row(read, [name.as_str()], |_| Ok(()))
            .optional()
            .map(|row| row.is_some())
            .map_err(sql("read"))
    }

    /// Number of the last recorded removal; 0: there is none.
    ///
    /// # Errors
    /// The database's.
    pub fn last_removal(&self) -> Result<i64, RecordError> {
        let read = "SELECT coalesce(max(number), 0) FROM removals";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// Returns the oldest removals that can be carried out now, with numbers up to `number`.
    pub(crate) fn removals(
        &self,
        after: i64,
        up_to: i64,
        now_ms: i64,
        limit: usize,
    ) -> Result<Vec<(i64, BlobName)>, RecordError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let connection = self.0.lock();
        let mut read = connection
            .prepare_cached(
                "SELECT number, name FROM removals WHERE number > ?1 AND number <= ?2
                     AND NOT EXISTS (SELECT 1 FROM held WHERE held.name = removals.name AND again_ms > ?4)
                 ORDER BY number LIMIT ?3",
            )
            .map_err(sql("read"))?;
        let rows = read
            .query_map(params![after, up_to, limit, now_ms], |row| {
                Ok((row.get(0)?, row.get::<_, String>(1)?))
            })
            .map_err(sql("read"))?;
        named(rows)
    }

    /// Returns names in `folder` due for removal that sort before one that is in the bucket and stays.
    pub(crate) fn removals_before_newest(
        &self,
        folder: &BlobName,
        now_ms: i64,
        limit: usize,
    ) -> Result<Vec<(i64, BlobName)>, RecordError> {
        let (begin, end) = (format!("{folder}/"), format!("{folder}0"));
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let connection = self.0.lock();
        let mut read = connection.prepare_cached(OLDER).map_err(sql("read"))?;
        let rows = read
            .query_map(params![begin, end, limit, now_ms], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
            .map_err(sql("read"))?;
        named(rows)
    }

    /// Number of removals recorded up to `number` that were not carried out yet.
    ///
    /// # Errors
    /// The database's.
    pub fn removals_up_to(&self, number: i64) -> Result<u64, RecordError> {
        let read = "SELECT count(*) FROM removals WHERE number <= ?1";
        self.0.lock().query_row(read, [number], |row| row.get::<_, i64>(0)).map(to_u64).map_err(sql("read"))
    }

    /// Records that these blobs were removed from the bucket. A removal that was recorded again since stays.
    pub(crate) fn removed(&self, gone: &[(i64, BlobName)]) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        for (number, name) in gone {
            // None of these was needed, so no restore point is affected.
            tx.execute("DELETE FROM retained WHERE name = ?1", [name.as_str()]).map_err(sql("write"))?;
            tx.execute("DELETE FROM copied WHERE name = ?1", [name.as_str()]).map_err(sql("write"))?;
            tx.execute("DELETE FROM removals WHERE number = ?1", [number]).map_err(sql("write"))?;
        }
        tx.commit().map_err(sql("write"))
    }

    /// Number of removals not carried out yet.
    ///
    /// # Errors
    /// The database's.
    pub fn removals_count(&self) -> Result<u64, RecordError> {
        let read = "SELECT count(*) FROM removals";
        self.0.lock().query_row(read, [], |row| row.get::<_, i64>(0)).map(to_u64).map_err(sql("read"))
    }

    /// Totals of the blobs in the bucket, by kind. Reads the whole record.
    ///
    /// # Errors
    /// The database's.
    pub fn totals(&self) -> Result<Vec<KindTotals>, RecordError> {
        let connection = self.0.lock();
        let mut read = connection
            .prepare_cached(
                "SELECT CASE instr(name, '/') WHEN 0 THEN name ELSE substr(name, 1, instr(name, '/') - 1) END AS folder,
                     count(*), sum(len)
                 FROM copied GROUP BY folder ORDER BY folder",
            )
            .map_err(sql("read"))?;
        let rows = read
            .query_map([], |row| {
                Ok(KindTotals { folder: row.get(0)?, blobs: to_u64(row.get(1)?), bytes: to_u64(row.get(2)?) })
            })
            .map_err(sql("read"))?;
        rows.collect::<Result<_, _>>().map_err(sql("read"))
    }

    /// Stores facts about this process, for the command line.
    ///
    /// # Errors
    /// The database's.
    pub fn say(&self, said: &[(&str, String)]) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        for (key, value) in said {
            let insert = "INSERT OR REPLACE INTO said (key, value) VALUES (?1, ?2)";
            tx.execute(insert, params![key, value]).map_err(sql("write"))?;
        }
        tx.commit().map_err(sql("write"))
    }

    /// The value that the last process stored under `key`.
    ///
    /// # Errors
    /// The database's.
    pub fn said(&self, key: &str) -> Result<Option<String>, RecordError> {
        let read = "SELECT value FROM said WHERE key = ?1";
        self.0.lock().query_row(read, [key], |row| row.get(0)).optional().map_err(sql("read"))
    }
}

fn named(
    rows: impl Iterator<Item = rusqlite::Result<(i64, String)>>,
) -> Result<Vec<(i64, BlobName)>, RecordError> {
    let mut found = Vec::new();
    for row in rows {
        let (number, name) = row.map_err(sql("read"))?;
        found.extend(BlobName::new(name).map(|name| (number, name)));
    }
    Ok(found)
}

fn to_u64(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, RecordError> {
    let connection =
        Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX).map_err(sql("open"))?;
    connection.busy_timeout(BUSY).map_err(sql("open"))?;
    connection
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0))
        .map_err(sql("open"))?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(sql("open"))?;
    Ok(connection)
}

fn pragma(connection: &Connection, name: &str) -> Result<i32, RecordError> {
    connection.pragma_query_value(None, name, |row| row.get(0)).map_err(sql("open"))
}
