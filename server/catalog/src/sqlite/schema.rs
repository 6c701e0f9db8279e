//! The schema and its history. `application_id` says that a database is ours, `user_version` which
//! migrations it has had. Each migration and the version it leads to are one transaction, so a crash leaves
//! the database at one version or the next.

use std::path::Path;

use holdfast_proto::chunker;
use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use super::convert::OrCatalogError;
use super::{log, namespaces};
use crate::{
    CatalogError, ChunkerParams, DEFAULT_NAMESPACE, REPOSITORY_FORMAT, RepositoryRecord, Result, new_id,
};

/// "HFct".
pub(crate) const APPLICATION_ID: i32 = 0x4846_6374;

/// Step n of the history is element n − 1 and leads to `user_version` n.
const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_initial.sql"),
    include_str!("../../migrations/0002_web.sql"),
    include_str!("../../migrations/0003_processes.sql"),
    include_str!("../../migrations/0004_owners.sql"),
    include_str!("../../migrations/0005_points.sql"),
    include_str!("../../migrations/0006_partial.sql"),
    include_str!("../../migrations/0007_quotas.sql"),
    include_str!("../../migrations/0008_sessions.sql"),
    include_str!("../../migrations/0009_retention.sql"),
    include_str!("../../migrations/0010_tasks.sql"),
    include_str!("../../migrations/0011_scrub.sql"),
    include_str!("../../migrations/0012_attribution.sql"),
    include_str!("../../migrations/0013_squeezed.sql"),
    include_str!("../../migrations/0014_parity.sql"),
    include_str!("../../migrations/0015_end_to_end.sql"),
    include_str!("../../migrations/0016_agents_proofs.sql"),
    include_str!("../../migrations/0017_task_kinds.sql"),
    include_str!("../../migrations/0018_archive_by_policy.sql"),
    include_str!("../../migrations/0019_places.sql"),
    include_str!("../../migrations/0020_generation.sql"),
    include_str!("../../migrations/0021_in_doubt.sql"),
    include_str!("../../migrations/0022_accepted_change.sql"),
    include_str!("../../migrations/0023_pauses.sql"),
    include_str!("../../migrations/0024_detail_sums.sql"),
];

/// The version this build writes.
pub(crate) fn version() -> i32 {
    i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX)
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
    migrate(&tx, 0)?;
    let chunker = ChunkerParams::from(chunker::params());
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
    index_failures(writer);
    Ok(true)
}

/// Brings a catalog to this build's version.
pub(crate) fn upgrade(writer: &mut Connection, path: &Path) -> Result<()> {
    // Asked before anything is touched: a newer catalog must stay as it is.
    check_ours(writer, path)?;
    if read_version(writer)? == version() {
        // A kill, or a full disk, may have kept an earlier process from making it.
        if lacks_index(writer)? && log::write_again(writer, path).is_ok() {
            index_failures(writer);
        }
        return Ok(());
    }
    log::write_again(writer, path)?;
    let tx = begin(writer)?;
    // Another process may have been faster.
    check_ours(&tx, path)?;
    migrate(&tx, read_version(&tx)?)?;
    tx.commit().or_error("upgrade")?;
    index_failures(writer);
    Ok(())
}

/// Indexes the latest failures, which then are found without reading other rows. Making it reads all rows: what is damaged
/// there is for the look of a start to tell (S9), and answers take longer without.
fn index_failures(writer: &Connection) {
    let _ = writer.execute_batch(
        "CREATE INDEX IF NOT EXISTS details_failed_by_end \
         ON details (finished_ms DESC, started_ms, run_id, session_id, position) WHERE status <> 'done'",
    );
}

fn lacks_index(writer: &Connection) -> Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'details_failed_by_end')";
    writer.query_row(sql, [], |row| row.get(0)).or_error("open")
}

/// Returns true if the schema is an older version's.
pub(crate) fn is_older(reader: &Connection) -> Result<bool> {
    Ok(read_version(reader)? < version())
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
    let known = ChunkerParams::from(chunker::params());
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

fn check_ours(connection: &Connection, path: &Path) -> Result<()> {
    let found = read_version(connection)?;
    match (read_application(connection)?, found) {
        (APPLICATION_ID, 1..) if found <= version() => Ok(()),
        (APPLICATION_ID, 1..) => Err(CatalogError::Unsupported {
            what: "the catalog's schema",
            found: format!("version {found}"),
            known: format!("versions 1 to {}", version()),
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

fn migrate(tx: &Transaction<'_>, from: i32) -> Result<()> {
    for sql in MIGRATIONS.iter().skip(usize::try_from(from).unwrap_or(0)) {
        tx.execute_batch(sql).or_error("upgrade")?;
    }
    tx.pragma_update(None, "user_version", version()).or_error("upgrade")
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
