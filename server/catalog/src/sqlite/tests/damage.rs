//! A damaged database is told from a newer one and from a missing one, and never ends the process.

use super::*;
use crate::{BackupFilter, DetailFilter, PageRequest};

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

fn open_any(path: &Path) -> Result<Catalog, CatalogError> {
    Catalog::open(path, Arc::new(ManualClock::new(START_MS)))
}

/// A bit of every part of the file: nothing that hides a row passes, and what was healed is whole.
#[test]
fn a_flipped_bit_that_hides_a_restore_point_is_noticed() {
    let whole = built();
    let bytes = std::fs::read(&whole.path).unwrap();
    let all: Vec<_> = whole.open().unwrap().all_backup_ids().map(Result::unwrap).collect();
    let joined = |catalog: &Catalog| -> Result<Vec<_>, CatalogError> {
        let rows = |id: &holdfast_types::ids::BackupId| catalog.backup(*id).transpose();
        all.iter().filter_map(rows).collect()
    };
    let rows = joined(&open_any(&whole.path).unwrap()).unwrap();
    let (mut hidden, mut noticed, mut healed) = (0, 0, 0);
    // Every 1,511th byte, a different bit each; and some of what names restore points, in tables and indexes.
    let names = all[0].to_bytes();
    let named = (0..bytes.len() - 6).filter(|at| bytes[*at..at + 6] == names[..6]).map(|at| at + 3);
    for at in (100..bytes.len()).step_by(1511).chain(named.step_by(6)) {
        let home = Home::new();
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&home.path, damaged).unwrap();
        let Ok(catalog) = open_any(&home.path) else { continue };
        let is_hidden = joined(&catalog).map_or(true, |found| found.len() < all.len());
        let found = catalog.damage_check(Box::new(|| true)).unwrap_or(Some(vec!["error".into()])).unwrap();
        hidden += u32::from(is_hidden);
        noticed += u32::from(!found.is_empty());
        assert!(!is_hidden || !found.is_empty(), "byte {at} hides a restore point: {:?}", joined(&catalog));
        if !found.is_empty() && catalog.heal().is_ok_and(|left| left.is_empty()) {
            healed += 1;
            assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new(), "byte {at}");
            for row in joined(&catalog).unwrap() {
                assert!(rows.contains(&row), "byte {at}: {row:?}");
            }
        }
    }
    assert!(hidden > 2 && healed > 20, "{hidden} hid a row, {noticed} were noticed, {healed} healed");
    println!("{hidden} hid a row, {noticed} were noticed, {healed} healed");
}

#[test]
fn a_look_for_damage_can_be_stopped() {
    let home = built();
    let catalog = home.open().unwrap();
    assert_eq!(catalog.damage_check(Box::new(|| false)).unwrap(), None);
    let mut left = 1;
    let go_on = move || std::mem::replace(&mut left, 0) > 0;
    // It is small: so few steps are one piece, and it ends.
    assert_eq!(catalog.damage_check(Box::new(go_on)).unwrap(), Some(Vec::new()));
}

/// Lost entries of an index, and leftovers of a restore point whose row is gone, are healed.
#[test]
fn indexes_and_rests_of_restore_points_are_healed() {
    let home = built();
    let raw = home.raw();
    let id: [u8; 16] = raw.query_row("SELECT id FROM backups LIMIT 1", [], |row| row.get(0)).unwrap();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    raw.execute("DELETE FROM backups WHERE id = ?", [id]).unwrap();
    drop(raw);
    let catalog = home.open().unwrap();
    let found = catalog.damage_check(Box::new(|| true)).unwrap().unwrap();
    assert!(found.iter().any(|one| one.contains("disks")), "{found:?}");
    assert_eq!(catalog.heal().unwrap(), Vec::<String>::new());
    assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new());
    assert_eq!(catalog.all_backup_ids().count(), 39);
}

/// Statistics: where SQLite can drop their table, it is made anew, and else the catalog counts as damaged.
#[test]
fn sums_whose_pages_are_damaged_are_made_anew() {
    let home = built();
    let raw = home.raw();
    let page = |name: &str| -> usize {
        let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?";
        raw.query_row(sql, [name], |row| row.get::<_, i64>(0)).unwrap().try_into().unwrap()
    };
    let pages = ["detail_sums", "detail_sums_of_vm"].map(page);
    drop(raw);
    let bytes = std::fs::read(&home.path).unwrap();
    let mut healed = 0;
    // Bytes of the cells, from the end of the page; some are beyond what is used.
    for at in pages.iter().flat_map(|page| (page * 4096 - 90)..page * 4096) {
        let home = Home::new();
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&home.path, damaged).unwrap();
        let catalog = open_any(&home.path).unwrap();
        if !catalog.damage_check(Box::new(|| true)).unwrap().unwrap().is_empty() {
            match catalog.heal() {
                Ok(left) => assert_eq!(left, Vec::<String>::new(), "byte {at}"),
                // SQLite drops no table whose cells it cannot tell apart.
                Err(error) => {
                    is_corrupt(&error);
                    continue;
                }
            }
            healed += 1;
        }
        catalog.correct_sums(Box::new(|| true)).unwrap().unwrap();
        assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new(), "byte {at}");
    }
    assert!(healed > 0);
}

/// A disk that is gone takes its restore point along: the point brings both back.
#[test]
fn a_restore_point_that_lost_a_disk_is_incomplete() {
    let home = built();
    home.raw().execute("DELETE FROM disks WHERE backup_id = (SELECT id FROM backups LIMIT 1)", []).unwrap();
    let catalog = home.open().unwrap();
    assert!(!catalog.damage_check(Box::new(|| true)).unwrap().unwrap().is_empty());
    assert_eq!(catalog.heal().unwrap(), Vec::<String>::new());
    assert_eq!(catalog.all_backup_ids().count(), 39);
}

/// Rows that no point tells of cannot be healed from points.
#[test]
fn rows_that_only_the_catalog_had_are_not_healed() {
    let home = built();
    let raw = home.raw();
    raw.pragma_update(None, "foreign_keys", false).unwrap();
    raw.execute("DELETE FROM vms", []).unwrap();
    drop(raw);
    let catalog = home.open().unwrap();
    assert!(!catalog.heal().unwrap().is_empty());
    assert_eq!(catalog.all_backup_ids().count(), 40, "nothing was changed");
}

/// Healing forgets what is about a restore point that is not there, in whichever table.
#[test]
fn every_table_of_restore_points_is_known_to_healing() {
    let home = built();
    let raw = home.raw();
    let sql = "SELECT m.name FROM sqlite_schema m JOIN pragma_foreign_key_list(m.name) f \
               WHERE f.\"table\" = 'backups' AND f.on_delete = 'CASCADE' ORDER BY m.name";
    let mut statement = raw.prepare(sql).unwrap();
    let tables: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let mut known = crate::sqlite::heal::OF_BACKUPS.to_vec();
    known.sort_unstable();
    assert_eq!(tables, known);
}
