//! Opening connections, and what concerns the database as a whole.

use std::path::Path;
use std::sync::Once;
use std::time::{Duration, Instant};

use holdfast_types::owner;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::convert::OrCatalogError;
use super::details::sorted;
use crate::{CatalogError, Result};

/// Prepared statements kept by each connection: more than there are.
const STATEMENTS: usize = 64;

/// Opens the connection that writes.
pub(crate) fn open_writer(path: &Path, create: bool, busy_timeout: Duration) -> Result<Connection> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    if create {
        // Root's would be closed to the server. What fails here fails there, too, and is told then.
        let _ = owner::create(path);
    }
    let connection = open(path, flags, busy_timeout)?;
    // A transaction is on the disk when it returns: nothing else makes a backup exist.
    connection.pragma_update(None, "synchronous", "FULL").or_error("set up")?;
    connection.pragma_update(None, "foreign_keys", true).or_error("set up")?;
    // The journal of a statement that may be taken back: some hundred pages, which must not need room on a full disk.
    connection.pragma_update(None, "temp_store", "MEMORY").or_error("set up")?;
    Ok(connection)
}

/// Opens a connection that only reads.
pub(crate) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(path, flags, busy_timeout)?;
    sorted::add_number(&connection).or_error("set up")?;
    Ok(connection)
}

/// Has SQLite sort on the disk beside the first database of this process: `/tmp` may be memory. Such
/// files have no name once they are open.
fn sort_beside(path: &Path) {
    static ONCE: Once = Once::new();
    let folder = path.parent().and_then(Path::to_str).filter(|folder| !folder.is_empty());
    ONCE.call_once(|| {
        let Some(folder) = folder else { return };
        // Where SQLite cannot, it goes on to the folders that it knows.
        let _ = Connection::open_in_memory()
            .and_then(|connection| connection.pragma_update(None, "temp_store_directory", folder));
    });
}

fn open(path: &Path, flags: OpenFlags, busy_timeout: Duration) -> Result<Connection> {
    sort_beside(path);
    let connection = Connection::open_with_flags(path, flags).or_error("open")?;
    connection.busy_timeout(busy_timeout).or_error("set up")?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // A database that was tampered with must not run functions of ours, nor be made to damage itself.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false).or_error("set up")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).or_error("set up")?;
    connection.pragma_update(None, "cell_size_check", true).or_error("set up")?;
    Ok(connection)
}

/// Time between two tries of what SQLite does not wait for by itself.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Turns the write-ahead log on; the database remembers it. Needs the database for itself for a moment, and
/// where two ask at once SQLite answers `SQLITE_BUSY` at once instead of letting them wait for each other: so
/// this waits, as long as anything else would.
pub(crate) fn use_log(writer: &Connection, busy_timeout: Duration) -> Result<()> {
    let asked = Instant::now();
    loop {
        match try_log(writer) {
            Err(CatalogError::Busy) if asked.elapsed() < busy_timeout => std::thread::sleep(RETRY_INTERVAL),
            outcome => return outcome,
        }
    }
}

fn try_log(writer: &Connection) -> Result<()> {
    let mode: String = writer
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .or_error("turn on the log of")?;
    if mode == "wal" {
        return Ok(());
    }
    Err(CatalogError::io(
        "turn on the log of",
        format!("journal mode is {mode}; is the data folder on a network file system?"),
    ))
}

/// (W6) Folds the log into the database, as far as readers let it; the next change begins the log anew, by a header that
/// SQLite flushes before anything of the old log is overwritten. Never cut off: SQLite does not flush that, so a crash
/// could leave a log of the old length of which only the beginning can be read, and the next start would put pages
/// back to what they were at the end of that.
pub(crate) fn checkpoint(writer: &Connection) -> Result<()> {
    writer.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(())).or_error("checkpoint")
}

/// Lists problems of the database and its references.
pub(crate) fn problems(connection: &Connection, limit: u32) -> Result<Vec<String>> {
    let mut problems: Vec<String> = connection
        .prepare(&format!("PRAGMA integrity_check({limit})"))
        .and_then(|mut statement| statement.query_map([], |row| row.get(0))?.collect())
        .or_error("check")?;
    problems.retain(|problem| problem != "ok");
    let mut statement = connection.prepare("PRAGMA foreign_key_check").or_error("check")?;
    let mut rows = statement.query([]).or_error("check")?;
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    while let Some(row) = rows.next().or_error("check")? {
        if problems.len() >= limit {
            break;
        }
        let names: rusqlite::Result<(String, String)> = (|| Ok((row.get(0)?, row.get(2)?)))();
        let (table, parent) = names.or_error("check")?;
        problems.push(format!("a row of {table} refers to a row of {parent} that is not there"));
    }
    Ok(problems)
}

/// Pages of the database times their size.
pub(crate) fn size_bytes(connection: &Connection) -> Result<u64> {
    let number = |pragma: &str| -> Result<u64> {
        let value: i64 = connection.pragma_query_value(None, pragma, |row| row.get(0)).or_error("measure")?;
        u64::try_from(value).map_err(|_| CatalogError::Corrupt { detail: format!("{pragma} is {value}") })
    };
    Ok(number("page_count")?.saturating_mul(number("page_size")?))
}
