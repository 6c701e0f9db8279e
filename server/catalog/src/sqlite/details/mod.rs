//! Compression details. Kept as numbers and references, given as the rows that were committed.
//!
//! Read in this order: here (writing rows, and listing them by start, run, session and disk, for which each
//! filter has an index) → [`filter`] → [`sorted`] (any other order) → [`history`] (one disk's past) → [`sums`],
//! [`totals`], [`mod@days`], [`protected`] (rows added up), `used` (beside them), [`kept`] (sums that are kept), [`findings`]
//! (what is out of line).

pub(crate) mod days;
pub(crate) mod filter;
pub(crate) mod findings;
pub(crate) mod history;
pub(crate) mod kept;
pub(crate) mod protected;
pub(crate) mod sorted;
pub(crate) mod sums;
pub(crate) mod totals;
mod used;

pub(crate) use days::days;

use holdfast_types::ids::{BackupId, RunId, SessionId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};

use super::attempt_refs::AttemptRefs;
use super::convert::{OrCatalogError, bad_value, count, id, int};
use crate::limits::DETAILS_PER_PAGE;
use crate::page::{self, List};
use crate::{
    Attempt, CatalogError, DETAILS_PER_PAGE_MAX, DetailEntry, DetailFilter, DetailRow, Page, PageRequest,
    PointFate, Result, RowStatus, validate,
};

/// The fate of the restore point `b` of the row `d`, in the words of [`PointFate`].
macro_rules! fate {
    () => {
        "CASE WHEN d.backup_id IS NULL THEN 'none' WHEN b.id IS NULL THEN 'deleted' \
         WHEN b.missing_disks = '' THEN 'exists' ELSE 'partial' END"
    };
}

/// (L2) Tells if the restore point `b` is locked or held: as deletions are refused, also before the lock clock was first advanced.
macro_rules! locked {
    () => {
        "coalesce(b.hold_reason IS NOT NULL OR \
         b.locked_until_ms > coalesce((SELECT c.now_ms FROM lock_clock c), b.locked_until_ms - 1), false)"
    };
}

pub(super) use {fate, locked};

pub(super) const SELECT: &str = concat!(
    "SELECT d.*, n.name AS namespace, j.name AS job, v.name AS vm, ",
    fate!(),
    " AS point, ",
    locked!(),
    " AS locked, x.deleted_ms, x.deleted_by FROM details d \
     JOIN namespaces n ON n.id = d.namespace_id JOIN jobs j ON j.id = d.job_id \
     JOIN vms v ON v.id = d.vm_id LEFT JOIN backups b ON b.id = d.backup_id \
     LEFT JOIN deleted_backups x ON x.id = d.backup_id AND b.id IS NULL"
);

pub(super) const ORDER: &str = "ORDER BY d.started_ms, d.run_id, d.session_id, d.position";

/// Returns true if this session has rows already.
pub(crate) fn session_ended(connection: &Connection, session: SessionId) -> Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM details WHERE session_id = ? LIMIT 1")
        .and_then(|mut s| s.query_row([session.to_bytes()], |_| Ok(())).optional())
        .or_error("read")
        .map(|row| row.is_some())
}

/// The rows of a session, in the order of its disks.
pub(crate) fn of_session(connection: &Connection, session: SessionId) -> Result<Vec<DetailRow>> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE d.session_id = ? ORDER BY d.position"))
        .and_then(|mut s| s.query_map([session.to_bytes()], |row| Ok(read(row)?.0))?.collect())
        .or_error("read")
}

/// Removes the rows of a session.
pub(crate) fn remove_session(tx: &Transaction<'_>, session: SessionId) -> Result<()> {
    findings::remove(tx, session)?;
    kept::follow(tx, "d.session_id = ?", &[session.to_bytes()], || {
        tx.execute("DELETE FROM details WHERE session_id = ?", [session.to_bytes()])
            .or_error("write")
            .map(drop)
    })
}

pub(crate) fn insert(
    tx: &Transaction<'_>,
    attempt: &Attempt,
    refs: &AttemptRefs,
    backup: Option<BackupId>,
    position: u32,
    row: &DetailRow,
) -> Result<()> {
    let place = Place {
        started_ms: row.started_ms,
        run: attempt.run.to_bytes(),
        session: attempt.session.to_bytes(),
        position,
    };
    let (retried_new_bytes, retried_post_lc) = match row.status {
        RowStatus::Done => history::retried(tx, refs.vm, &row.disk, &place)?,
        _ => (0, 0),
    };
    let row = &DetailRow { retried_new_bytes, retried_post_lc, ..row.clone() };
    let counts = [
        ("virtual_bytes", row.virtual_bytes),
        ("bytes", row.bytes),
        ("read_bytes", row.read_bytes),
        ("unchanged_bytes", row.unchanged_bytes),
        ("dup_bytes", row.dup_bytes),
        ("new_bytes", row.new_bytes),
        ("post_lc", row.post_lc),
        ("meta_bytes", row.meta_bytes),
        ("wire_bytes", row.wire_bytes),
        ("chunks", row.chunks),
        ("new_chunks", row.new_chunks),
        ("retried_new_bytes", retried_new_bytes),
        ("retried_post_lc", retried_post_lc),
        ("first_full", row.first_full.into()),
        ("level", row.level.into()),
        ("reading_ms", row.reading_ms),
        ("compressing_ms", row.compressing_ms),
        ("waiting_ms", row.waiting_ms),
    ];
    let mut columns = String::new();
    let mut values = vec![
        Value::Blob(attempt.session.to_bytes().to_vec()),
        Value::Integer(position.into()),
        Value::Blob(attempt.namespace.to_bytes().to_vec()),
        Value::Blob(refs.job.to_vec()),
        Value::Blob(attempt.run.to_bytes().to_vec()),
        Value::Blob(refs.vm.to_vec()),
        Value::Text(row.disk.clone()),
        backup.map_or(Value::Null, |id| Value::Blob(id.to_bytes().to_vec())),
        Value::Text(row.status.word().to_owned()),
        Value::Integer(row.started_ms),
        Value::Integer(row.finished_ms),
        Value::Text(validate::clip(&row.error).to_owned()),
        Value::Text(validate::clip(&row.host).to_owned()),
        Value::Text(validate::clip(&row.agent).to_owned()),
    ];
    for (column, value) in counts {
        columns.push_str(", ");
        columns.push_str(column);
        values.push(Value::Integer(int(column, value)?));
    }
    let marks = vec!["?"; values.len()].join(", ");
    let sql = format!(
        "INSERT INTO details (session_id, position, namespace_id, job_id, run_id, vm_id, disk, backup_id, \
         status, started_ms, finished_ms, error, host, agent{columns}) VALUES ({marks})"
    );
    tx.prepare_cached(&sql)
        .and_then(|mut s| s.execute(rusqlite::params_from_iter(values)))
        .or_error("write")?;
    kept::count(tx, refs, row)
}

pub(crate) fn list(
    connection: &Connection,
    filter: &DetailFilter,
    page: PageRequest<'_>,
) -> Result<Page<DetailRow>> {
    let after = page::decode(List::Details, filter, page.token)?;
    let Some(mut conditions) = filter::in_order(connection, filter)? else {
        return Ok(Page { items: Vec::new(), next: None });
    };
    if let Some(key) = after {
        let key =
            Place::from_bytes(&key).ok_or_else(|| CatalogError::invalid("the page token is too short"))?;
        conditions.push("(d.started_ms, d.run_id, d.session_id, d.position) > (?, ?, ?, ?)", key.values());
    }
    let limit = page.size_within(DETAILS_PER_PAGE, DETAILS_PER_PAGE_MAX);
    let (found, more) = conditions.page(
        connection,
        (SELECT, ORDER),
        limit,
        |row| read(row).or_error("read"),
        |(row, _)| weight(row),
    )?;
    let next =
        found.last().filter(|_| more).map(|(_, key)| page::encode(List::Details, filter, &key.to_bytes()));
    Ok(Page { items: found.into_iter().map(|(row, _)| row).collect(), next })
}

/// Bytes of a row in a message, roughly and rather more.
fn weight(row: &DetailRow) -> usize {
    const NUMBERS: usize = 256;
    NUMBERS
        + row.namespace.len()
        + row.job.len()
        + row.vm.len()
        + row.disk.len()
        + row.error.len()
        + row.host.len()
        + row.agent.len()
        + row.deleted_by.len()
}

/// A row's place in the list; the fields are in the order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    started_ms: i64,
    run: [u8; 16],
    session: [u8; 16],
    position: u32,
}

impl Place {
    fn entry(self, row: DetailRow) -> DetailEntry {
        DetailEntry { session: SessionId::from_bytes(self.session), position: self.position, row }
    }

    fn to_bytes(self) -> Vec<u8> {
        let Self { started_ms, run, session, position } = self;
        [&started_ms.to_be_bytes()[..], &run, &session, &position.to_be_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (started_ms, rest) = bytes.split_first_chunk()?;
        let (run, rest) = rest.split_first_chunk()?;
        let (session, rest) = rest.split_first_chunk()?;
        Some(Self {
            started_ms: i64::from_be_bytes(*started_ms),
            run: *run,
            session: *session,
            position: u32::from_be_bytes(rest.try_into().ok()?),
        })
    }

    fn values(&self) -> [Value; 4] {
        [
            Value::Integer(self.started_ms),
            Value::Blob(self.run.to_vec()),
            Value::Blob(self.session.to_vec()),
            Value::Integer(self.position.into()),
        ]
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<(DetailRow, Place)> {
    let key = Place {
        started_ms: row.get("started_ms")?,
        run: id(row, "run_id")?,
        session: id(row, "session_id")?,
        position: row.get("position")?,
    };
    let backup: Option<[u8; 16]> = row.get("backup_id")?;
    let detail = DetailRow {
        namespace: row.get("namespace")?,
        job: row.get("job")?,
        run: RunId::from_bytes(key.run).to_string(),
        vm: row.get("vm")?,
        disk: row.get("disk")?,
        backup: backup.map_or_else(String::new, |id| BackupId::from_bytes(id).to_string()),
        status: word(row, "status", RowStatus::ALL, RowStatus::word)?,
        started_ms: key.started_ms,
        finished_ms: row.get("finished_ms")?,
        virtual_bytes: count(row, "virtual_bytes")?,
        bytes: count(row, "bytes")?,
        read_bytes: count(row, "read_bytes")?,
        unchanged_bytes: count(row, "unchanged_bytes")?,
        dup_bytes: count(row, "dup_bytes")?,
        new_bytes: count(row, "new_bytes")?,
        post_lc: count(row, "post_lc")?,
        meta_bytes: count(row, "meta_bytes")?,
        wire_bytes: count(row, "wire_bytes")?,
        chunks: count(row, "chunks")?,
        new_chunks: count(row, "new_chunks")?,
        error: row.get("error")?,
        retried_new_bytes: count(row, "retried_new_bytes")?,
        retried_post_lc: count(row, "retried_post_lc")?,
        first_full: row.get("first_full")?,
        level: row.get("level")?,
        host: row.get("host")?,
        agent: row.get("agent")?,
        reading_ms: count(row, "reading_ms")?,
        compressing_ms: count(row, "compressing_ms")?,
        waiting_ms: count(row, "waiting_ms")?,
        point: word(row, "point", PointFate::ALL, PointFate::word)?,
        locked: row.get("locked")?,
        deleted_ms: row.get::<_, Option<i64>>("deleted_ms")?.unwrap_or(0),
        deleted_by: row.get::<_, Option<String>>("deleted_by")?.unwrap_or_default(),
    };
    Ok((detail, key))
}

/// The value that the text of `column` is the word of.
fn word<T: Copy, const COUNT: usize>(
    row: &Row<'_>,
    column: &str,
    all: [T; COUNT],
    of: impl Fn(T) -> &'static str,
) -> rusqlite::Result<T> {
    let found = row.get_ref(column)?.as_str()?;
    all.into_iter().find(|one| of(*one) == found).ok_or_else(|| bad_value(column, found))
}
