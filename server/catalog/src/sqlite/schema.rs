//! The schema. `application_id` says that a database is ours, `user_version` which schema it has. Both are written in the
//! transaction that makes the tables, so a crash leaves a whole catalog or an empty database. A catalog of another version is
//! refused and left as it is.

use std::path::Path;

use holdfast_proto::chunker;
use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::convert::OrCatalogError;
use super::namespaces;
use crate::{
    CatalogError, ChunkerParams, DEFAULT_NAMESPACE, REPOSITORY_FORMAT, RepositoryRecord, Result, new_id,
};

/// "HFct".
pub(crate) const APPLICATION_ID: i32 = 0x4846_6374;

const SCHEMA: &str = include_str!("../../schema.sql");

/// Goes up with every change of the schema. No catalog of an earlier version was released.
pub(crate) const VERSION: i32 = 33;

/// Returns the statements that make `table` and its indexes.
pub(crate) fn statements(table: &str) -> &'static str {
    let begins = format!("CREATE TABLE {table} (");
    #[expect(clippy::expect_used, reason = "both are constants of this crate")]
    SCHEMA.split("\n\n").find(|part| part.contains(&begins)).expect("a table of the schema")
}

/// Makes an empty database a catalog: schema, repository and default namespace in one transaction. `false`:
/// it is not empty.
pub(crate) fn create(writer: &mut Connection, clock: &dyn Clock) -> Result<bool> {
    let id = RepositoryId(new_id(clock)?);
    create_of(writer, id, clock.now_ms(), |tx| namespaces::ensure(tx, clock, DEFAULT_NAMESPACE).map(drop))
}

/// As [`create`], of a repository that has its id already; `finish` adds what belongs to it.
pub(crate) fn create_of(
    writer: &mut Connection,
    id: RepositoryId,
    created_ms: i64,
    finish: impl FnOnce(&Transaction<'_>) -> Result<()>,
) -> Result<bool> {
    let tx = begin(writer)?;
    if read_version(&tx)? != 0 || read_application(&tx)? != 0 || has_tables(&tx)? {
        return Ok(false);
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID).or_error("create")?;
    tx.pragma_update(None, "user_version", VERSION).or_error("create")?;
    tx.execute_batch(SCHEMA).or_error("create")?;
    let chunker = chunker::params();
    tx.execute(
        "INSERT INTO repository (only_row, id, created_ms, format_version, chunker_algorithm, \
         chunker_min_bytes, chunker_avg_bytes, chunker_max_bytes, chunker_extent_bytes, \
         chunker_region_bytes, next_container) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
        params![
            id.to_bytes(),
            created_ms,
            REPOSITORY_FORMAT,
            chunker.algorithm,
            chunker.min_bytes,
            chunker.avg_bytes,
            chunker.max_bytes,
            chunker.extent_bytes,
            chunker.region_bytes,
        ],
    )
    .or_error("create")?;
    finish(&tx)?;
    tx.commit().or_error("create")?;
    Ok(true)
}

/// Makes the table of a connection that has the order of sorted rows.
pub(crate) fn make_sorted(connection: &Connection) -> Result<()> {
    connection
        .execute_batch("CREATE TEMP TABLE sorted (place INTEGER PRIMARY KEY, row INTEGER NOT NULL)")
        .or_error("sort")
}

/// Refuses a repository that this build would not continue in the same way.
pub(crate) fn check_parameters(repository: &RepositoryRecord) -> Result<()> {
    if repository.format_version > REPOSITORY_FORMAT {
        return Err(CatalogError::Unsupported {
            what: "the repository's format",
            found: repository.format_version.to_string(),
            known: REPOSITORY_FORMAT.to_string(),
        });
    }
    let known = chunker::params();
    if repository.chunker != known {
        return Err(CatalogError::Unsupported {
            what: "the repository's chunker",
            found: describe(&repository.chunker),
            known: describe(&known),
        });
    }
    Ok(())
}

fn begin(writer: &mut Connection) -> Result<Transaction<'_>> {
    writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("open")
}

/// (S16) Refuses what is not a catalog of this version's schema.
pub(crate) fn check(connection: &Connection, path: &Path) -> Result<()> {
    let found = read_version(connection)?;
    match (read_application(connection)?, found) {
        (APPLICATION_ID, VERSION) => Ok(()),
        (APPLICATION_ID, 1..VERSION) => Err(CatalogError::Outdated { found, known: VERSION }),
        (APPLICATION_ID, 1..) => Err(CatalogError::Unsupported {
            what: "the catalog's schema",
            found: format!("version {found}"),
            known: format!("version {VERSION}"),
        }),
        (0, 0) if !has_tables(connection)? => Err(CatalogError::not_found("catalog", path.display())),
        (0, _) => Err(CatalogError::invalid(format!(
            "{} is a database, but no Holdfast catalog; check the data folder",
            path.display()
        ))),
        (application, _) => Err(CatalogError::invalid(format!(
            "{} is a database of another application ({application:#x}); check the data folder",
            path.display()
        ))),
    }
}

fn read_version(connection: &Connection) -> Result<i32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0)).or_error("open")
}

fn read_application(connection: &Connection) -> Result<i32> {
    connection.pragma_query_value(None, "application_id", |row| row.get(0)).or_error("open")
}

fn has_tables(connection: &Connection) -> Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_schema)", [], |row| row.get(0)).or_error("open")
}

fn describe(params: &ChunkerParams) -> String {
    let ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } = params;
    format!(
        "{algorithm} {min_bytes}/{avg_bytes}/{max_bytes} in extents of {extent_bytes} and regions of {region_bytes} bytes"
    )
}
