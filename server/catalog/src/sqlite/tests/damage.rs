//! A damaged database is told from a newer one and from a missing one, and never ends the process.

use super::*;
use crate::{BackupFilter, CatalogWalk, DetailFilter, PageRequest, Reports as _};

fn built() -> Home {
    let home = Home::new();
    let fixture = home.create();
    for _ in 0..40 {
        fixture.committed("web", "nightly");
    }
    home
}

fn is_corrupt(error: &CatalogError) {
    assert!(matches!(error, CatalogError::Corrupt { .. }), "{error:?}");
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Damaged);
}

#[test]
fn a_file_that_is_no_database_is_damage() {
    let home = built();
    let mut bytes = std::fs::read(&home.path).unwrap();
    bytes[..16].copy_from_slice(b"no database file");
    std::fs::write(&home.path, bytes).unwrap();
    is_corrupt(&home.open().unwrap_err());
}

#[test]
fn references_to_nothing_are_found_by_the_check() {
    let home = built();
    let raw = home.raw();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    raw.execute("DELETE FROM vms", []).unwrap();
    drop(raw);
    let problems = home.open().unwrap().integrity_check().unwrap();
    assert!(problems.iter().any(|p| p.contains("backups") && p.contains("vms")), "{problems:?}");
    assert!(problems.len() <= 100);
}

#[test]
fn a_missing_repository_row_is_damage() {
    let home = built();
    home.raw().execute("DELETE FROM repository", []).unwrap();
    is_corrupt(&home.open().unwrap_err());
}

/// Pages overwritten anywhere: every call gives an answer or an error, and the check tells.
#[test]
fn overwritten_pages_are_noticed() {
    let whole = built();
    let bytes = std::fs::read(&whole.path).unwrap();
    let pages = bytes.len() / 4096;
    assert!(pages > 20);
    let mut noticed = 0;
    for page in 1..pages {
        let home = Home::new();
        let mut damaged = bytes.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xA5);
        std::fs::write(&home.path, damaged).unwrap();
        let fixture = match open_any(&home.path) {
            Ok(catalog) => catalog,
            Err(error) => {
                is_corrupt(&error);
                noticed += 1;
                continue;
            }
        };
        for result in [
            fixture.list_backups(&BackupFilter::default(), PageRequest::FIRST).map(|_| ()),
            fixture.details(&DetailFilter::default(), PageRequest::FIRST).map(|_| ()),
            fixture.all_containers().try_for_each(|c| c.map(|_| ())),
            fixture.all_roots().try_for_each(|c| c.map(|_| ())),
            fixture.reserve_container_numbers(1).map(|_| ()),
        ] {
            if let Err(error) = result {
                is_corrupt(&error);
            }
        }
        match fixture.integrity_check() {
            Ok(problems) => assert!(!problems.is_empty(), "page {page} was overwritten"),
            Err(error) => is_corrupt(&error),
        }
        noticed += 1;
    }
    assert_eq!(noticed, pages - 1);
}

fn open_any(path: &Path) -> Result<SqliteCatalog, CatalogError> {
    SqliteCatalog::open(path, Arc::new(ManualClock::new(START_MS)))
}
