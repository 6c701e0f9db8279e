//! Fills a new repository's catalog with plausible compression details, so that tables, charts and queries can
//! be tried and measured at the size of a large site.
//!
//! `cargo run --release -p holdfast-engine --example fill_details -- DIR ROWS`
//!
//! DIR must have no catalog yet. A server can be started on it afterwards: it shows the rows, VMs, jobs and
//! restore points. There is no data behind them: every row is written by the catalog's own commit, which asks
//! for the containers the bytes are in; these records are dropped at the end, because no such files exist and a
//! server would take that for damage. So the sums over containers are zero, nothing can be restored, and a new
//! backup of one of these VMs is a full one.
#![expect(clippy::print_stdout, reason = "says what it made")]

mod fleet;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use holdfast_catalog::{
    Attempt, BackupCommit, Catalog, ContainerRecord, ContainerState, DetailRow, DiskRecord, FailedRun,
    NamespaceRecord, RowStatus,
};
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;
use holdfast_types::clock::{Clock, ManualClock, SystemClock};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, RunId, SessionId};
use ulid::Ulid;

use fleet::{Dice, Fleet, Outcome, Vm};

const USAGE: &str = "usage: fill_details DIR ROWS
Makes a repository's catalog in DIR with ROWS rows of compression details of the last 60 days (a
million or more: of the last year),
for trying and measuring tables, charts and queries. There is no data behind the rows.";

/// Days of history.
const DAYS: u64 = 60;
/// From so many rows on it is a year of a large site: thousands of VMs of one disk, half of them with runs of their own. Only
/// the last days are committed; those before are copies of their rows, without restore points, as if these were deleted.
const LARGE_ROWS: u64 = 1_000_000;
const LARGE_DAYS: u64 = 365;
const COMMITTED_DAYS: u64 = 7;
const DAY_MS: i64 = 86_400_000;
/// Between the starts of two VMs of a day.
const STAGGER_MS: i64 = 15_000;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, rows] = arguments.as_slice() else {
        println!("{USAGE}");
        if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
            return Ok(());
        }
        bail!("two arguments are needed");
    };
    let rows: u64 = rows.parse().context("ROWS must be a number")?;
    let dir = Path::new(dir);
    std::fs::create_dir_all(dir)?;
    let path = dir.join("catalog.db");
    ensure!(!path.exists(), "{} is there already; name another folder", path.display());
    let began = Instant::now();
    // In memory where there is such a folder: thousands of commits, each on the disk before the next, would
    // take minutes.
    let place = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir_in(dir))?;
    let filled = place.path().join("catalog.db");
    let mut made = fill(&filled, rows)?;
    made.containers = drop_containers(&filled)?;
    std::fs::copy(&filled, &path)?;
    std::fs::File::open(&path)?.sync_all()?;
    let seconds = began.elapsed().as_secs_f64();
    println!("{}: {made:#?} in {seconds:.1} s", path.display());
    Ok(())
}

/// What was made.
#[derive(Debug, Default)]
#[expect(dead_code, reason = "printed")]
struct Made {
    rows: u64,
    sessions: u64,
    restore_points: u64,
    failed_sessions: u64,
    vms: usize,
    /// VM and day (counted from the first) of sudden drops of the factor.
    drops: Vec<String>,
    /// Records dropped again: there are no such files.
    containers: usize,
}

fn fill(path: &Path, rows: u64) -> Result<Made> {
    let large = rows >= LARGE_ROWS;
    let (all_days, days) = if large { (LARGE_DAYS, COMMITTED_DAYS) } else { (DAYS, DAYS) };
    let first_ms = SystemClock.now_ms() - i64::try_from(days)? * DAY_MS;
    let clock = Arc::new(ManualClock::new(first_ms));
    let catalog = Catalog::create(path, Arc::<ManualClock>::clone(&clock))?;
    let namespaces = [catalog.ensure_namespace("default")?, catalog.ensure_namespace("lab")?];
    let of_day = rows.div_ceil(all_days);
    let fleet = Fleet::new(of_day, days, large);
    let stagger_ms = STAGGER_MS.min(DAY_MS / 2 / i64::try_from(fleet.vms.len().max(1))?);
    let mut filler = Filler {
        catalog: &catalog,
        clock: &clock,
        namespaces,
        dice: Dice::new(1),
        left: rows - (all_days - days) * of_day,
        serial: 0,
        made: Made { vms: fleet.vms.len(), drops: fleet.drops(), ..Made::default() },
    };
    for day in 0..days {
        let day_ms = first_ms + i64::try_from(day)? * DAY_MS;
        let mut runs = std::collections::HashMap::new();
        for (place, vm) in (0i64..).zip(&fleet.vms) {
            let started_ms = day_ms + place * stagger_ms;
            let own = if large && place % 2 == 0 { place } else { -1 };
            let run = *runs.entry((vm.job, own)).or_insert_with(|| filler.run(started_ms));
            filler.session(vm, day, run, started_ms)?;
        }
    }
    // What the division left over.
    let archive = fleet.archive();
    while filler.left > 0 {
        let now_ms = clock.now_ms();
        let run = filler.run(now_ms);
        filler.session(&archive, filler.made.sessions, run, now_ms)?;
    }
    for day in 1..=all_days - days {
        filler.made.rows += copy(path, of_day, i64::try_from(day)? * DAY_MS)?;
    }
    Ok(filler.made)
}

/// Adds the rows of the first day as those of an earlier one. Identifiers begin with their time.
fn copy(path: &Path, rows: u64, earlier_ms: i64) -> Result<u64> {
    let rows = i64::try_from(rows)?;
    let connection = rusqlite::Connection::open(path)?;
    connection.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144")?;
    let moved = |column: &str| {
        format!("CAST(unhex(printf('%012x', d.started_ms - ?2)) || substr(d.{column}, 7) AS BLOB)")
    };
    let (session, backup) = (moved("session_id"), moved("backup_id"));
    // That of a run has the run's own time.
    let run = "CAST(unhex(printf('%012x', r.started_ms - ?2)) || substr(r.id, 7) AS BLOB)";
    let runs = format!(
        "INSERT OR IGNORE INTO runs (id, namespace_id, job_id, started_ms, finished_ms, owner) \
         SELECT {run}, r.namespace_id, r.job_id, \
         r.started_ms - ?2, r.finished_ms - ?2, r.owner FROM runs r \
         WHERE r.id IN (SELECT d.run_id FROM details d WHERE d.number <= ?1)"
    );
    let rows_sql = format!(
        "INSERT INTO details SELECT NULL, {session}, d.position, d.namespace_id, d.job_id, \
         {run}, d.vm_id, d.disk, \
         iif(d.backup_id IS NULL, NULL, {backup}), d.status, d.started_ms - ?2, d.finished_ms - ?2, d.virtual_bytes, \
         d.bytes, d.read_bytes, d.unchanged_bytes, d.dup_bytes, d.new_bytes, d.post_lc, d.meta_bytes, d.wire_bytes, \
         d.chunks, d.new_chunks, d.error, d.retried_new_bytes, d.retried_post_lc, \
         d.first_full, d.level, d.host, d.agent, d.reading_ms, d.compressing_ms, d.waiting_ms FROM details d JOIN runs r ON r.id = d.run_id WHERE d.number <= ?1"
    );
    connection.execute(&runs, rusqlite::params![rows, earlier_ms])?;
    Ok(connection.execute(&rows_sql, rusqlite::params![rows, earlier_ms])? as u64)
}

struct Filler<'a> {
    catalog: &'a Catalog,
    clock: &'a ManualClock,
    namespaces: [NamespaceRecord; 2],
    dice: Dice,
    left: u64,
    serial: u128,
    made: Made,
}

impl Filler<'_> {
    fn ulid(&mut self, at_ms: i64) -> Ulid {
        self.serial += 1;
        Ulid::from_parts(u64::try_from(at_ms).unwrap_or(0), self.serial)
    }

    fn run(&mut self, started_ms: i64) -> RunId {
        RunId(self.ulid(started_ms))
    }

    /// One session, unless there are rows enough.
    fn session(&mut self, vm: &Vm, day: u64, run: RunId, started_ms: i64) -> Result<()> {
        let [default, lab] = &self.namespaces;
        let namespace = if vm.in_lab { lab } else { default }.clone();
        let disks = vm.disks.len().min(usize::try_from(self.left)?);
        if disks == 0 {
            return Ok(());
        }
        let outcome = if vm.fails_on(day) { self.dice.failure() } else { Outcome::Done };
        let mut rows = Vec::with_capacity(disks);
        let mut finished_ms = started_ms;
        for disk in vm.disks.iter().take(disks) {
            let row = vm.row(disk, day, &outcome, &mut self.dice);
            let row = DetailRow {
                namespace: namespace.name.clone(),
                run: run.to_string(),
                started_ms,
                finished_ms: started_ms + row.finished_ms,
                ..row
            };
            finished_ms = finished_ms.max(row.finished_ms);
            rows.push(row);
        }
        // Time goes on, never back: entries of the audit log are in order.
        self.clock.advance_ms((finished_ms - self.clock.now_ms()).max(0));
        let attempt = Attempt {
            session: SessionId(self.ulid(started_ms)),
            run,
            namespace: namespace.id,
            vm: vm.name.clone(),
            job: vm.job.to_owned(),
            owner: "default".into(),
            vm_owner: "default".into(),
            client_host: vm.host.clone(),
            who: "fill".to_owned(),
            started_ms,
            finished_ms,
            accepted_change: false,
        };
        self.left -= disks as u64;
        self.made.rows += disks as u64;
        self.made.sessions += 1;
        if matches!(outcome, Outcome::Done) {
            self.made.restore_points += 1;
            self.commit(attempt, rows)
        } else {
            self.made.failed_sessions += 1;
            Ok(self.catalog.record_failed_run(&FailedRun {
                attempt,
                details: rows,
                containers: Vec::new(),
            })?)
        }
    }

    fn commit(&mut self, attempt: Attempt, mut details: Vec<DetailRow>) -> Result<()> {
        let backup = BackupId(self.ulid(attempt.started_ms));
        for row in &mut details {
            row.backup = backup.to_string();
            row.status = RowStatus::Done;
        }
        let disk = |row: &DetailRow| DiskRecord {
            name: row.disk.clone(),
            size_bytes: row.virtual_bytes,
            data_bytes: row.bytes,
            extent_count: extent_count(row.virtual_bytes),
            root: Fingerprint::of(format!("no recipe {backup} {}", row.disk).as_bytes()),
        };
        let disks = details.iter().map(disk).collect();
        let mut containers = Vec::new();
        for (class, of) in [
            (ContainerClass::Data, (|row| row.post_lc) as fn(&DetailRow) -> u64),
            (ContainerClass::Recipe, |row| row.meta_bytes),
        ] {
            let stored_bytes: u64 = details.iter().map(of).sum();
            if stored_bytes > 0 {
                containers.push(self.container(&attempt, class, stored_bytes)?);
            }
        }
        Ok(self.catalog.commit_backup(&BackupCommit {
            attempt,
            number: 0,
            backup,
            disks,
            missing_disks: Vec::new(),
            details,
            containers,
            lock: holdfast_catalog::RetentionLock::default(),
        })?)
    }

    /// One record for all the containers of a session: it is dropped at the end.
    fn container(
        &mut self,
        attempt: &Attempt,
        class: ContainerClass,
        stored_bytes: u64,
    ) -> Result<ContainerRecord> {
        self.serial += 1;
        let number = u64::try_from(self.serial)?;
        Ok(ContainerRecord {
            id: ContainerId::new(number).context("too many containers")?,
            class,
            namespace: attempt.namespace,
            stored_bytes,
            plain_bytes: stored_bytes * 2,
            chunk_count: stored_bytes / 8192,
            created_ms: attempt.started_ms,
            run: Some(attempt.run),
            state: ContainerState::Live,
        })
    }
}

/// The catalog has no way to forget a live container, and must not have one. So sums are made anew.
fn drop_containers(path: &Path) -> Result<usize> {
    let dropped = rusqlite::Connection::open(path)?.execute("DELETE FROM containers", [])?;
    Catalog::open(path, Arc::new(SystemClock))?.add_up()?;
    Ok(dropped)
}
