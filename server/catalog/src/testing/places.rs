//! Tiers in which the data of restore points lies.

use holdfast_types::ids::BackupId;
use ulid::Ulid;

use super::cases;
use super::fixture::Fixture;
use crate::{BACKUPS_PER_PAGE_MAX, BackupPlaces, CatalogError};

cases![places_are_those_of_the_last_look, places_of_what_has_gone_are_left_out];

fn places(backup: BackupId, at_ms: i64, bytes: [u64; 3]) -> BackupPlaces {
    let [here_bytes, bucket_bytes, archive_bytes] = bytes;
    BackupPlaces { backup, at_ms, here_bytes, bucket_bytes, archive_bytes }
}

fn places_are_those_of_the_last_look(f: &Fixture) {
    let [one, two, later] = [(); 3].map(|()| f.committed("web", "nightly").backup);
    assert_eq!(f.backup_places(&[one]).unwrap(), []);
    let first = [places(one, 17, [1, 2, 3]), places(two, 17, [9, 0, 0])];
    f.record_places(&first).unwrap();
    assert_eq!(f.backup_places(&[two, later, one]).unwrap(), [first[1], first[0]]);
    let next = places(later, 18, [0, 0, 7]);
    f.record_places(&[next]).unwrap();
    assert_eq!(f.backup_places(&[one, two, later]).unwrap(), [next]);
    f.record_places(&[]).unwrap();
    assert_eq!(f.backup_places(&[later]).unwrap(), []);
}

fn places_of_what_has_gone_are_left_out(f: &Fixture) {
    let made = f.committed("web", "nightly").backup;
    let gone = BackupId(Ulid(9));
    f.record_places(&[places(gone, 17, [1, 1, 1]), places(made, 17, [1, 0, 0])]).unwrap();
    assert_eq!(f.backup_places(&[gone, made]).unwrap(), [places(made, 17, [1, 0, 0])]);
    let many = vec![made; BACKUPS_PER_PAGE_MAX as usize + 1];
    assert!(matches!(f.backup_places(&many), Err(CatalogError::Invalid { .. })));
}
