//! Retention in the record: until when each object is to stay, until when the bucket said that it does, the restore
//! points that need it, and removals that the bucket refused.
//!
//! Tables of their own, created when the record is opened: a record of an earlier version has none of it, and
//! retention is requested for everything.

use holdfast_volume::{BlobName, Hold};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::{Record, RecordError, named, sql, to_u64};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS retained (
        name TEXT PRIMARY KEY,
        -- How long it is to stay, at least.
        wanted_ms INTEGER NOT NULL,
        -- How long it does, as the bucket said; 0: that was not asked for yet.
        until_ms INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS retained_behind ON retained (name) WHERE wanted_ms > until_ms;
    -- Locked restore points, as they were looked at last.
    CREATE TABLE IF NOT EXISTS locked_points (
        backup TEXT PRIMARY KEY,
        -- The blob that it is.
        blob TEXT NOT NULL,
        until_ms INTEGER NOT NULL,
        -- Of what it needs, blobs that are not in the bucket.
        missing INTEGER NOT NULL,
        -- All it needs stays that long.
        is_kept INTEGER NOT NULL CHECK (is_kept IN (0, 1)),
        -- When it is to be looked at again.
        again_ms INTEGER NOT NULL,
        looks INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS locked_points_by_blob ON locked_points (blob);
    -- What is to go, and must stay for now: when that is tried again.
    CREATE TABLE IF NOT EXISTS held (
        name TEXT PRIMARY KEY,
        again_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    -- (T18) What was to stay went here, or is another object there: what locked restore points need is looked at again. A
    -- trigger that changes gets another name: those of an earlier version are in records that are there.
    INSERT OR REPLACE INTO said (key, value)
        SELECT 'retention_moved', '1' WHERE EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'retained_goes');
    DROP TRIGGER IF EXISTS retained_goes;
    CREATE TRIGGER IF NOT EXISTS retained_leaves AFTER INSERT ON removals
        WHEN EXISTS (SELECT 1 FROM retained WHERE name = new.name) BEGIN
        INSERT OR REPLACE INTO said (key, value)
            SELECT 'retention_moved', '1' WHERE new.name GLOB 'containers/*' OR new.name GLOB 'keys/*';
        UPDATE locked_points SET is_kept = 0, again_ms = 0 WHERE blob = new.name;
    END;
    -- Of every restore point the newest table is needed.
    CREATE TRIGGER IF NOT EXISTS keys_come AFTER INSERT ON copied
        WHEN new.name GLOB 'keys/*' AND EXISTS (SELECT 1 FROM locked_points) BEGIN
        INSERT OR REPLACE INTO said (key, value) VALUES ('retention_moved', '1');
    END;
    CREATE TRIGGER IF NOT EXISTS retained_anew AFTER INSERT ON copied
        WHEN EXISTS (SELECT 1 FROM retained WHERE name = new.name AND until_ms > 0) BEGIN
        INSERT OR REPLACE INTO said (key, value) VALUES ('retention_moved', '1');
        UPDATE retained SET until_ms = 0 WHERE name = new.name;
    END;
    CREATE TRIGGER IF NOT EXISTS retained_lost AFTER DELETE ON copied BEGIN
        INSERT OR REPLACE INTO said (key, value)
            SELECT 'retention_moved', '1' WHERE EXISTS (SELECT 1 FROM retained WHERE name = old.name AND until_ms > 0);
        UPDATE retained SET until_ms = 0 WHERE name = old.name;
        DELETE FROM held WHERE name = old.name;
    END;
";

pub(super) const MOVED: &str = "retention_moved";
const PASS_BEGAN: &str = "retention_pass_began_ms";

/// Objects that are not due for removal and whose retention is too short. Containers that may be cold have ends beside
/// them.
const BEHIND: &str = "
    FROM retained WHERE wanted_ms > until_ms AND wanted_ms > ?1 AND name > ?2
        AND (EXISTS (SELECT 1 FROM copied WHERE copied.name = retained.name)
            OR EXISTS (SELECT 1 FROM cold WHERE cold.name = substr(retained.name, 6) AND retained.name GLOB 'ends/*'))
        AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = retained.name)";

/// Totals of retention in the bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetentionTotals {
    /// Objects under retention.
    pub objects: u64,
    /// Earliest and latest end of their retention.
    pub first_ms: Option<i64>,
    pub last_ms: Option<i64>,
    /// Objects whose retention is shorter than it should be.
    pub behind: u64,
    /// Locked restore points that were checked, and those among them that are kept as a whole.
    pub points: u64,
    pub kept_points: u64,
    /// Objects due for removal that the bucket retains for now.
    pub held: u64,
}

/// An object whose retention is shorter than it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) name: BlobName,
    pub(crate) wanted_ms: i64,
}

pub(super) fn prepare(connection: &Connection) -> Result<(), RecordError> {
    connection.execute_batch(SCHEMA).map_err(sql("open"))
}

impl Record {
    /// (T17) Records until when these objects are to stay (never shortened), and that a restore point was checked, of
    /// which so many blobs are missing. (T18) Objects that are due for removal by now count as missing: nothing else
    /// would reveal it.
    pub(crate) fn promise(
        &self,
        point: &PromisedPoint<'_>,
        names: &[BlobName],
        now_ms: i64,
    ) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        let mut missing = i64::try_from(point.missing).unwrap_or(i64::MAX);
        for name in names {
            let is_to_go = "SELECT EXISTS (SELECT 1 FROM removals WHERE name = ?1)";
            let is_to_go: bool = tx
                .prepare_cached(is_to_go)
                .and_then(|mut read| read.query_row([name.as_str()], |row| row.get(0)))
                .map_err(sql("read"))?;
            missing = missing.saturating_add(i64::from(is_to_go));
            tx.prepare_cached(
                "INSERT INTO retained (name, wanted_ms) VALUES (?1, ?2)
                 ON CONFLICT (name) DO UPDATE SET wanted_ms = excluded.wanted_ms
                     WHERE excluded.wanted_ms > retained.wanted_ms",
            )
            .and_then(|mut insert| insert.execute(params![name.as_str(), point.until_ms]))
            .map_err(sql("write"))?;
        }
        let looks = "SELECT looks FROM locked_points WHERE backup = ?1 AND until_ms = ?2 AND missing > 0";
        let looks: i64 = tx
            .query_row(looks, params![point.backup, point.until_ms], |row| row.get(0))
            .optional()
            .map_err(sql("write"))?
            .unwrap_or(0);
        tx.execute(
            "INSERT OR REPLACE INTO locked_points (backup, blob, until_ms, missing, is_kept, again_ms, looks)
             VALUES (?1, ?2, ?3, ?4, 0, ?5, ?6)",
            params![
                point.backup,
                point.blob,
                point.until_ms,
                missing,
                now_ms.saturating_add(look_again_ms(looks)),
                looks.saturating_add(1)
            ],
        )
        .map_err(sql("write"))?;
        tx.commit().map_err(sql("write"))
    }

    /// Returns true if a locked restore point is due to be checked: not everything it needs is known to stay long
    /// enough, or it `may_lack` blobs although none is recorded as missing.
    pub(crate) fn is_point_due(
        &self,
        backup: &str,
        at_least_ms: i64,
        may_lack: bool,
        now_ms: i64,
    ) -> Result<bool, RecordError> {
        let read =
            "SELECT until_ms < ?2 OR (missing > 0 AND again_ms <= ?3) OR again_ms = 0 OR (?4 AND missing = 0)
            FROM locked_points WHERE backup = ?1";
        let connection = self.0.lock();
        let due = connection.prepare_cached(read).and_then(|mut read| {
            read.query_row(params![backup, at_least_ms, now_ms, may_lack], |row| row.get(0)).optional()
        });
        due.map(|due| due.unwrap_or(true)).map_err(sql("read"))
    }

    /// Begins a pass over all locked restore points. If objects moved, or `again_after_ms` have passed since the last
    /// full pass, each is checked again, and objects whose retention ended are forgotten. Restore points whose lock
    /// has ended always are forgotten.
    pub(crate) fn begin_pass(
        &self,
        now_ms: i64,
        moved_after_ms: i64,
        again_after_ms: i64,
    ) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        let began_ms: Option<i64> = said(&tx, PASS_BEGAN)?.and_then(|text| text.parse().ok());
        // A clock that was set back causes no delay.
        let since = began_ms.map(|began_ms| now_ms.saturating_sub(began_ms)).filter(|since| *since >= 0);
        let wait_ms = if said(&tx, MOVED)?.is_some() { moved_after_ms } else { again_after_ms };
        if since.is_none_or(|since| since >= wait_ms) {
            tx.execute("UPDATE locked_points SET is_kept = 0, again_ms = 0, looks = 0", [])
                .map_err(sql("write"))?;
            tx.execute("DELETE FROM said WHERE key = ?1", [MOVED]).map_err(sql("write"))?;
            // As many rows as objects, and no total counts expired ones: too much for every few seconds.
            tx.execute("DELETE FROM retained WHERE max(wanted_ms, until_ms) <= ?1", [now_ms])
                .map_err(sql("write"))?;
            say(&tx, PASS_BEGAN, now_ms)?;
        }
        tx.execute("DELETE FROM locked_points WHERE until_ms <= ?1", [now_ms]).map_err(sql("write"))?;
        tx.commit().map_err(sql("write"))
    }

    /// (T18) If no object is behind, all restore points that were checked and lack nothing count as kept.
    pub(crate) fn settle_points(&self, now_ms: i64) -> Result<(), RecordError> {
        let mut connection = self.0.lock();
        let tx = connection.transaction().map_err(sql("write"))?;
        let behind: bool = tx
            .query_row(&format!("SELECT EXISTS (SELECT 1 {BEHIND})"), params![now_ms, ""], |row| row.get(0))
            .map_err(sql("read"))?;
        if !behind {
            let keep =
                "UPDATE locked_points SET is_kept = 1 WHERE missing = 0 AND again_ms > 0 AND is_kept = 0";
            tx.execute(keep, []).map_err(sql("write"))?;
        }
        tx.commit().map_err(sql("write"))
    }

    /// Returns objects after `after` whose retention is shorter than it should be.
    pub(crate) fn behind(&self, after: &str, now_ms: i64, limit: usize) -> Result<Vec<Behind>, RecordError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let connection = self.0.lock();
        let mut read = connection
            .prepare_cached(&format!("SELECT wanted_ms, name {BEHIND} ORDER BY name LIMIT ?3"))
            .map_err(sql("read"))?;
        let rows = read
            .query_map(params![now_ms, after, limit], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
            .map_err(sql("read"))?;
        let found = named(rows)?;
        Ok(found.into_iter().map(|(wanted_ms, name)| Behind { name, wanted_ms }).collect())
    }

    /// Records until when the bucket retains an object.
    pub(crate) fn note_retained(&self, name: &BlobName, until_ms: i64) -> Result<(), RecordError> {
        let set = "UPDATE retained SET until_ms = ?2 WHERE name = ?1";
        let set = self
            .0
            .lock()
            .prepare_cached(set)
            .and_then(|mut set| set.execute(params![name.as_str(), until_ms]));
        set.map(|_| ()).map_err(sql("write"))
    }

    /// (T18) Records that retention is shorter than the bucket had said: restore points that need the object are
    /// checked again.
    pub(crate) fn note_short(&self, name: &BlobName, until_ms: i64) -> Result<(), RecordError> {
        self.note_retained(name, until_ms)?;
        let insert = "INSERT OR REPLACE INTO said (key, value) VALUES (?1, '1')";
        self.0.lock().execute(insert, [MOVED]).map(|_| ()).map_err(sql("write"))
    }

    /// Until when the bucket retains an object, if that is later than now.
    pub(crate) fn retained_until(&self, name: &BlobName, now_ms: i64) -> Result<Option<i64>, RecordError> {
        let read = "SELECT until_ms FROM retained WHERE name = ?1 AND until_ms > ?2";
        let connection = self.0.lock();
        let found = connection
            .prepare_cached(read)
            .and_then(|mut read| read.query_row(params![name.as_str(), now_ms], |row| row.get(0)).optional());
        found.map_err(sql("read"))
    }

    /// Returns true if an object is, or should be, under retention now.
    pub(crate) fn is_to_stay(&self, name: &BlobName, now_ms: i64) -> Result<bool, RecordError> {
        let read = "SELECT 1 FROM retained WHERE name = ?1 AND max(wanted_ms, until_ms) > ?2";
        let connection = self.0.lock();
        let found = connection.query_row(read, params![name.as_str(), now_ms], |_| Ok(())).optional();
        found.map(|found| found.is_some()).map_err(sql("read"))
    }

    /// Returns true if any object was ever put under retention.
    pub(crate) fn has_retained(&self) -> Result<bool, RecordError> {
        let read = "SELECT EXISTS (SELECT 1 FROM retained WHERE until_ms > 0)";
        self.0.lock().query_row(read, [], |row| row.get(0)).map_err(sql("read"))
    }

    /// The last name in `folder` that is in the bucket and not due for removal.
    pub(crate) fn newest_in(&self, folder: &BlobName) -> Result<Option<BlobName>, RecordError> {
        let read = "SELECT max(name) FROM copied WHERE name > ?1 AND name < ?2
            AND NOT EXISTS (SELECT 1 FROM removals WHERE removals.name = copied.name)";
        let (begin, end) = (format!("{folder}/"), format!("{folder}0"));
        let found = self.0.lock().query_row(read, [begin, end], |row| row.get::<_, Option<String>>(0));
        found.map(|name| name.and_then(BlobName::new)).map_err(sql("read"))
    }

    /// Records when the removal of a retained object may be retried; `soonest_ms`: not before.
    pub(crate) fn note_held(&self, name: &BlobName, hold: Hold, soonest_ms: i64) -> Result<(), RecordError> {
        let again_ms = match hold {
            Hold::Until(until_ms) => until_ms.max(soonest_ms),
            Hold::Endless => soonest_ms,
        };
        let insert = "INSERT OR REPLACE INTO held (name, again_ms) VALUES (?1, ?2)";
        self.0.lock().execute(insert, params![name.as_str(), again_ms]).map(|_| ()).map_err(sql("write"))
    }

    /// Makes a refused removal due again.
    pub(crate) fn try_held(&self, name: &BlobName) -> Result<(), RecordError> {
        let delete = "DELETE FROM held WHERE name = ?1";
        self.0.lock().execute(delete, [name.as_str()]).map(|_| ()).map_err(sql("write"))
    }

    /// Number of the last removal that can be carried out now; 0: there is none.
    pub(crate) fn last_due_removal(&self, now_ms: i64) -> Result<i64, RecordError> {
        let read = "SELECT coalesce(max(number), 0) FROM removals
            WHERE NOT EXISTS (SELECT 1 FROM held WHERE held.name = removals.name AND again_ms > ?1)";
        self.0.lock().query_row(read, [now_ms], |row| row.get(0)).map_err(sql("read"))
    }

    /// Totals of retention in the bucket. Reads all of it.
    ///
    /// # Errors
    /// The database's.
    pub fn retention_totals(&self, now_ms: i64) -> Result<RetentionTotals, RecordError> {
        let connection = self.0.lock();
        let has_moved = said(&connection, MOVED)?.is_some();
        let behind: i64 = connection
            .query_row(&format!("SELECT count(*) {BEHIND}"), params![now_ms, ""], |row| row.get(0))
            .map_err(sql("read"))?;
        let (points, kept): (i64, i64) = connection
            .query_row("SELECT count(*), coalesce(sum(is_kept), 0) FROM locked_points", [], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })
            .map_err(sql("read"))?;
        let held = "SELECT count(*) FROM held WHERE again_ms > ?1 AND name IN (SELECT name FROM removals)";
        let held: i64 = connection.query_row(held, [now_ms], |row| row.get(0)).map_err(sql("read"))?;
        let read = "SELECT count(*), min(until_ms), max(until_ms) FROM retained WHERE until_ms > ?1";
        connection
            .query_row(read, [now_ms], |row| {
                Ok(RetentionTotals {
                    objects: to_u64(row.get(0)?),
                    first_ms: row.get(1)?,
                    last_ms: row.get(2)?,
                    behind: to_u64(behind),
                    points: to_u64(points),
                    // (T18) Not known yet which of them need the objects that went.
                    kept_points: if has_moved { 0 } else { to_u64(kept) },
                    held: to_u64(held),
                })
            })
            .map_err(sql("read"))
    }
}

/// A locked restore point that was checked.
#[derive(Debug)]
pub(crate) struct PromisedPoint<'a> {
    pub(crate) backup: &'a str,
    pub(crate) blob: &'a str,
    pub(crate) until_ms: i64,
    pub(crate) missing: u64,
}

/// Backoff from ten seconds, doubling to an hour: missing objects are being copied, or cannot be.
fn look_again_ms(looks: i64) -> i64 {
    const FIRST_MS: i64 = 10_000;
    const LONGEST_MS: i64 = 3_600_000;
    let doubled = u32::try_from(looks).ok().and_then(|looks| FIRST_MS.checked_shl(looks.min(20)));
    doubled.unwrap_or(LONGEST_MS).min(LONGEST_MS)
}

fn said(connection: &Connection, key: &str) -> Result<Option<String>, RecordError> {
    let read = "SELECT value FROM said WHERE key = ?1";
    connection.query_row(read, [key], |row| row.get(0)).optional().map_err(sql("read"))
}

fn say(connection: &Connection, key: &str, value: i64) -> Result<(), RecordError> {
    let insert = "INSERT OR REPLACE INTO said (key, value) VALUES (?1, ?2)";
    connection.execute(insert, params![key, value.to_string()]).map(|_| ()).map_err(sql("write"))
}
