//! Crashes: what is on the disk at any moment opens to whole commits, and to every one acknowledged.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;
use crate::sqlite::{BUSY_TIMEOUT, connection};
use crate::{DetailFilter, PageRequest};

/// How many commits the catalog at `path` holds; asserts that each is whole.
fn whole_commits(path: &Path) -> usize {
    let fixture = open(path).unwrap();
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
    let backups: std::collections::BTreeSet<_> =
        fixture.all_roots().map(|root| root.unwrap().backup).collect();
    for id in &backups {
        let backup = fixture.backup(*id).unwrap().unwrap();
        assert_eq!(backup.disks.len(), 2);
        let filter = DetailFilter { run: Some(backup.run), ..DetailFilter::default() };
        let rows = fixture.details(&filter, PageRequest::FIRST).unwrap().items;
        assert_eq!(rows.len(), 2);
        let of_run = |c: &crate::ContainerRecord| c.run == Some(backup.run);
        assert_eq!(fixture.all_containers().map(|c| c.unwrap()).filter(of_run).count(), 4);
    }
    assert_eq!(rows(&fixture).len(), backups.len() * 2);
    assert_eq!(fixture.all_containers().count(), backups.len() * 4);
    assert_eq!(fixture.list_audit(PageRequest { size: 1000, token: "" }).unwrap().items.len(), backups.len());
    // And it goes on: no number is given out again.
    let used = fixture.all_containers().last().map_or(0, |c| c.unwrap().id.get());
    assert!(fixture.reserve_container_numbers(1).unwrap().start > used);
    fixture.committed("after", "crash");
    backups.len()
}

/// A crash image: the database and its log as they are now, the log cut to `wal_bytes`.
fn image(home: &Home, wal_bytes: Option<usize>) -> Home {
    let copy = Home::new();
    std::fs::copy(&home.path, &copy.path).unwrap();
    let mut wal = std::fs::read(wal_of(&home.path)).unwrap_or_default();
    wal.truncate(wal_bytes.unwrap_or(usize::MAX));
    std::fs::write(wal_of(&copy.path), wal).unwrap();
    copy
}

#[test]
fn images_between_commits_hold_exactly_these() {
    let home = Home::new();
    let fixture = home.create();
    for done in 0..8 {
        assert_eq!(whole_commits(&image(&home, None).path), done);
        if done == 4 {
            fixture.checkpoint().unwrap();
            assert_eq!(whole_commits(&image(&home, None).path), done);
        }
        fixture.committed("web", "nightly");
    }
}

/// (W6) SQLite does not flush it when it cuts its log off. Of a log that a crash leaves half there, the next start would
/// take the beginning, and put pages back that the database has newer.
#[test]
fn a_log_that_was_folded_in_is_whole_or_begun_anew() {
    let home = Home::new();
    let fixture = home.create();
    let log = || std::fs::read(wal_of(&home.path)).unwrap();
    for _ in 0..3 {
        fixture.committed("web", "nightly");
    }
    let whole = log();
    fixture.checkpoint().unwrap();
    assert!(log() == whole, "cut off or changed");
    let commits = whole_commits(&image(&home, None).path);
    assert_eq!(commits, 3);
    // The next change begins at the front again: the log does not grow.
    fixture.committed("web", "nightly");
    assert_eq!(log().len(), whole.len());
    assert_eq!(whole_commits(&image(&home, None).path), 4);
}

/// Returns the image of a process that was killed, its log not written for long.
fn left(home: &Home) -> (Home, Vec<u8>) {
    let left = image(home, None);
    let log = wal_of(&left.path);
    let file = std::fs::File::options().write(true).open(&log).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let bytes = std::fs::read(&log).unwrap();
    (left, bytes)
}

/// Returns true if the log was written since [`left`], and begins as it was.
fn is_written_again(left: &Home, bytes: &[u8]) -> bool {
    let log = wal_of(&left.path);
    assert!(std::fs::read(&log).unwrap().starts_with(bytes), "changed");
    std::fs::metadata(&log).unwrap().modified().unwrap() > std::time::SystemTime::UNIX_EPOCH
}

/// (W13) Its pages may be nowhere but in memory, if a flush failed before. The next change writes them again.
#[test]
fn the_log_is_written_again_as_it_is_before_the_first_change() {
    let home = Home::new();
    let fixture = home.create();
    for _ in 0..3 {
        fixture.committed("web", "nightly");
    }
    let (left, bytes) = left(&home);
    let opened = Catalog::open(&left.path, Arc::new(ManualClock::new(START_MS))).unwrap();
    assert_eq!(opened.all_containers().count(), 12);
    assert!(!is_written_again(&left, &bytes), "to read needs none of it");
    // A change that changes nothing.
    opened.write(|_| Ok(())).unwrap();
    assert!(is_written_again(&left, &bytes));
    assert!(std::fs::read(wal_of(&left.path)).unwrap() == bytes, "nothing was added");
    drop(opened);
    assert_eq!(whole_commits(&left.path), 3);
}

/// (W13) Others have the log open and read from it, on a snapshot that is not the newest.
#[test]
fn readers_notice_nothing_when_the_log_is_written_again() {
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    let reader = connection::open_reader(&home.path, BUSY_TIMEOUT).unwrap();
    let snapshot = reader.unchecked_transaction().unwrap();
    let backups =
        || -> i64 { snapshot.query_row("SELECT count(*) FROM backups", [], |row| row.get(0)).unwrap() };
    assert_eq!(backups(), 1);
    fixture.committed("web", "nightly");
    let second = open(&home.path).unwrap();
    second.committed("web", "weekly");
    assert_eq!(backups(), 1);
    assert_eq!(connection::problems(&snapshot, 10).unwrap(), Vec::<String>::new());
    drop(second);
    fixture.committed("web", "nightly");
    drop(snapshot);
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
    assert_eq!(rows(&fixture).len(), 8);
}

/// (W13) A log that cannot be written again takes no change, and is not folded in either.
#[test]
fn a_log_that_cannot_be_written_again_stays_as_it_is() {
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    let (left, bytes) = left(&home);
    let database = std::fs::read(&left.path).unwrap();
    let opened = Catalog::open(&left.path, Arc::new(ManualClock::new(START_MS))).unwrap();
    // In its place: what cannot be opened for writing. SQLite has the file open.
    let (log, aside) = (wal_of(&left.path), left.path.with_file_name("aside"));
    std::fs::rename(&log, &aside).unwrap();
    std::fs::create_dir(&log).unwrap();
    let refused = opened.write(|_| Ok(())).unwrap_err();
    assert!(matches!(refused, CatalogError::WriteFailed { .. }), "{refused}");
    let refused = opened.write(|_| Ok(())).unwrap_err();
    assert!(matches!(refused, CatalogError::ReadOnly { .. }), "{refused}");
    drop(opened);
    std::fs::remove_dir(&log).unwrap();
    std::fs::rename(&aside, &log).unwrap();
    assert!(!is_written_again(&left, &bytes));
    assert!(std::fs::read(&left.path).unwrap() == database, "folded in");
    assert_eq!(whole_commits(&left.path), 1);
}

/// The log reaches the disk in any order; what is torn off its end takes whole commits with it.
#[test]
fn a_log_cut_anywhere_loses_whole_commits_only() {
    let home = Home::new();
    let fixture = home.create();
    fixture.checkpoint().unwrap();
    for _ in 0..3 {
        fixture.committed("web", "nightly");
    }
    let len = usize::try_from(std::fs::metadata(wal_of(&home.path)).unwrap().len()).unwrap();
    let mut seen = Vec::new();
    // Not the log's frames of 4,120 bytes: cuts fall everywhere in them.
    for cut in (0..len).step_by(3001).chain([len]) {
        let commits = whole_commits(&image(&home, Some(cut)).path);
        assert!(seen.last().is_none_or(|last| *last <= commits), "{seen:?} {commits}");
        seen.push(commits);
    }
    seen.dedup();
    assert_eq!(seen, [0, 1, 2, 3]);
}

/// A byte that changed in the log is noticed by its checksum and ends it there.
#[test]
fn a_flipped_bit_in_the_log_loses_whole_commits_only() {
    let home = Home::new();
    let fixture = home.create();
    fixture.checkpoint().unwrap();
    for _ in 0..3 {
        fixture.committed("web", "nightly");
    }
    let len = std::fs::metadata(wal_of(&home.path)).unwrap().len();
    for at in (0..len).step_by(9001) {
        let copy = image(&home, None);
        let mut wal = std::fs::read(wal_of(&copy.path)).unwrap();
        wal[usize::try_from(at).unwrap()] ^= 0x10;
        std::fs::write(wal_of(&copy.path), wal).unwrap();
        assert!(whole_commits(&copy.path) <= 3);
    }
}

const CHILD: &str = "HOLDFAST_TEST_CATALOG_CHILD";

/// Not a test of its own: the process that [`a_killed_process_loses_nothing_acknowledged`] kills.
#[test]
fn child_that_commits_until_killed() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let fixture = open(Path::new(&path)).unwrap();
    let mut stdout = std::io::stdout();
    loop {
        let commit = fixture.committed("web", "nightly");
        writeln!(stdout, "acknowledged {}", commit.backup).unwrap();
        stdout.flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let home = Home::new();
    drop(home.create());
    for wanted in [1, 7, 40] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", "sqlite::tests::crash::child_that_commits_until_killed"])
            .env(CHILD, &home.path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let acknowledged: Vec<String> = lines
            .filter_map(|line| Some(line.unwrap().split_once("acknowledged ")?.1.to_owned()))
            .take(wanted)
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(acknowledged.len(), wanted);

        let copy = image(&home, None);
        assert!(whole_commits(&copy.path) >= wanted);
        let fixture = home.open().unwrap();
        for id in acknowledged {
            assert!(fixture.backup(id.parse().unwrap()).unwrap().is_some(), "{id} was acknowledged");
        }
        drop(fixture);
        // Back to none, so that the next round's names are free.
        std::fs::remove_file(&home.path).unwrap();
        drop(home.create());
    }
}
