//! Contents of points, and the effect of hostile ones.

use holdfast_catalog::{
    Attempt, Catalog, DetailRow, DiskRecord, NamespaceRecord, PointRecord, RetentionLock, RowStatus,
};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId, RunId, SessionId};
use holdfast_volume::{BlobName, MemoryVolume, Volume as _};
use ulid::Ulid;

use super::read;
use super::record::decode;
use super::*;
use crate::error::EngineError;
use crate::format::point::Point;
use crate::jobs::NoProgress;
use crate::tests::Bench;

const REPOSITORY: RepositoryId = RepositoryId(Ulid(0xA1));

/// A restore point of one disk; `number` makes it different from others.
pub(super) fn point(number: u64, namespace: &str) -> PointRecord {
    let backup = BackupId(Ulid::from_parts(1_700_000_000_000, number.into()));
    let attempt = Attempt {
        session: SessionId(Ulid::from_parts(1, number.into())),
        run: RunId(Ulid::from_parts(2, number.into())),
        namespace: NamespaceId(Ulid(77)),
        vm: "web".into(),
        job: "nightly".into(),
        client_host: "hv1".into(),
        owner: "ops".into(),
        vm_owner: "dba".into(),
        who: "agent".into(),
        started_ms: 1000,
        finished_ms: 2000,
        accepted_change: true,
    };
    let row = DetailRow {
        namespace: namespace.into(),
        job: "nightly".into(),
        run: attempt.run.to_string(),
        vm: "web".into(),
        disk: "sda".into(),
        backup: backup.to_string(),
        status: RowStatus::Done,
        started_ms: 1100,
        finished_ms: 1900,
        virtual_bytes: 8 << 20,
        bytes: 600,
        read_bytes: 700,
        unchanged_bytes: 100,
        dup_bytes: 200,
        new_bytes: 300,
        post_lc: 55,
        meta_bytes: 44,
        wire_bytes: 66,
        chunks: 9,
        new_chunks: 3,
        error: String::new(),
        first_full: number == 1,
        level: 3,
        host: attempt.client_host.clone(),
        agent: "1.2.3".into(),
        reading_ms: 5,
        compressing_ms: 6,
        waiting_ms: 7,
        // The others are in the catalog, not in a point.
        ..DetailRow::default()
    };
    let root = Fingerprint::of(&number.to_le_bytes());
    let disk = DiskRecord { name: "sda".into(), size_bytes: 8 << 20, data_bytes: 600, extent_count: 2, root };
    PointRecord {
        number,
        namespace: NamespaceRecord {
            id: attempt.namespace,
            name: namespace.into(),
            created_ms: 5,
            key_id: None,
        },
        attempt,
        backup,
        parent: (number > 1).then_some(BackupId(Ulid(3))),
        disks: vec![disk],
        missing_disks: vec!["sdb".into()],
        details: vec![row],
        next_container: 64,
        revision: 1,
        lock: RetentionLock::default(),
        lock_time_ms: None,
    }
}

fn sealed(volume: &MemoryVolume, point: &PointRecord, revision: u32) -> BlobName {
    let name = PointName { backup: point.backup, revision }.blob(point);
    seal(volume, point.namespace.id, &name, &encode(REPOSITORY, revision, point).unwrap()).unwrap();
    name
}

fn catalog(bench: &Bench) -> Catalog {
    bench.catalog(&std::sync::Arc::default()).unwrap()
}

fn ids(catalog: &Catalog) -> Vec<BackupId> {
    catalog.all_backup_ids().map(Result::unwrap).collect()
}

fn compared(volume: &MemoryVolume, catalog: &Catalog) -> Result<Comparison, EngineError> {
    let between = Between { volume, catalog, repository: REPOSITORY, recovered: false, only: None };
    compare(between, &mut |error| Err(error.into()), &NoProgress)
}

#[test]
fn what_is_sealed_reads_back() {
    let volume = MemoryVolume::new();
    for number in [1, 2] {
        let point = point(number, "default");
        let name = sealed(&volume, &point, 1);
        assert_eq!(read(&volume, REPOSITORY, &name).unwrap(), point);
        assert_eq!(read_header(&volume, &name).unwrap(), REPOSITORY);
        // A second try of the same is the same.
        sealed(&volume, &point, 1);
        let mut other = point.clone();
        other.attempt.finished_ms += 1;
        seal(&volume, other.namespace.id, &name, &encode(REPOSITORY, 1, &other).unwrap()).unwrap_err();
    }
}

#[test]
fn a_point_under_another_name_or_of_another_repository_is_not_believed() {
    let volume = MemoryVolume::new();
    let (one, two) = (point(1, "default"), point(2, "default"));
    let bytes = encode(REPOSITORY, 1, &one).unwrap();
    let name = PointName { backup: two.backup, revision: 1 }.blob(&two);
    seal(&volume, two.namespace.id, &name, &bytes).unwrap();
    assert!(matches!(read(&volume, REPOSITORY, &name), Err(EngineError::Damaged(_))));
    let right = sealed(&volume, &one, 1);
    let other = RepositoryId(Ulid(0xA2));
    let error = read(&volume, other, &right).unwrap_err();
    assert!(error.to_string().contains(&REPOSITORY.to_string()), "{error}");
}

#[test]
fn missing_rows_are_entered_and_nothing_twice() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let catalog = catalog(&bench);
    let points: Vec<PointRecord> = (1..=150).map(|number| point(number, "berlin")).collect();
    for point in &points {
        sealed(&volume, point, 1);
    }
    let found = compared(&volume, &catalog).unwrap();
    assert_eq!((found.entered_count, found.problem_count()), (150, 0));
    assert!(found.catalog_is_older && found.without_point.is_empty());
    assert_eq!(ids(&catalog), points.iter().map(|point| point.backup).collect::<Vec<_>>());
    assert_eq!(catalog.latest_backup(NamespaceId(Ulid(77)), "web").unwrap().unwrap().id, points[149].backup);
    let again = compared(&volume, &catalog).unwrap();
    assert_eq!(again, Comparison::default());
}

#[test]
fn the_highest_readable_revision_counts() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let catalog = catalog(&bench);
    let mut newer = point(1, "default");
    sealed(&volume, &newer, 1);
    newer.attempt.job = "weekly".into();
    newer.details[0].job = "weekly".into();
    sealed(&volume, &newer, 10);
    let damaged = sealed(&volume, &newer, 11);
    volume.replace(&damaged, &b"garbage"[..]);
    let found = compared(&volume, &catalog).unwrap();
    // (P7) The damaged one may have said more: it stays, and counts.
    assert_eq!((found.entered_count, found.problem_count()), (1, 1));
    assert_eq!(catalog.backup(newer.backup).unwrap().unwrap().job, "weekly");
    assert_eq!(catalog.stale_points(None, 10).unwrap(), []);
    // The row has the same contents already, so nothing is lost: it is sealed anew.
    catalog.note_point_sealed(newer.backup, 11).unwrap();
    assert_eq!(compared(&volume, &catalog).unwrap().problem_count(), 0);
    assert_eq!(catalog.stale_points(None, 10).unwrap(), [newer.backup]);
}

/// (L1) A restore point that is being deleted does not exist any more, whatever is left of its point.
#[test]
fn points_of_restore_points_that_are_being_deleted_are_not_looked_at() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let catalog = catalog(&bench);
    let point = point(1, "default");
    let name = sealed(&volume, &point, 1);
    compared(&volume, &catalog).unwrap();
    catalog.begin_deletion(&[point.backup], "op", "x").unwrap();
    volume.replace(&name, &b"garbage"[..]);
    assert_eq!(compared(&volume, &catalog).unwrap(), Comparison::default());
}

/// (L1) A catalog that did not know all points to be there says nothing by a row without one.
#[test]
fn a_row_without_a_point_is_dropped_only_if_every_row_had_its_point() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let catalog = catalog(&bench);
    let old = point(1, "default");
    let name = sealed(&volume, &old, 1);
    compared(&volume, &catalog).unwrap();
    volume.remove(&name).unwrap();
    for (number, written) in [(2, false), (3, true)] {
        catalog.set_points_written(written).unwrap();
        // These containers have numbers that the catalog never gave out.
        let newer = PointRecord { next_container: 1000 * number, ..point(number, "default") };
        sealed(&volume, &newer, 1);
        let found = compared(&volume, &catalog).unwrap();
        assert!(found.catalog_is_older);
        let (left, dropped) = (found.without_point, found.deleted);
        let expected = if written { (vec![], vec![old.backup]) } else { (vec![old.backup], vec![]) };
        assert_eq!((left, dropped), expected);
    }
}

#[test]
fn a_damaged_point_is_named_and_its_neighbours_are_entered() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let catalog = catalog(&bench);
    let names: Vec<BlobName> = (1..=5).map(|n| sealed(&volume, &point(n, "default"), 1)).collect();
    let mut bytes = volume.get(&names[2]).unwrap().to_vec();
    bytes[70] ^= 1;
    volume.replace(&names[2], bytes);
    // Whole, but the catalog refuses it: a fact that contradicts another.
    let mut wrong = point(6, "default");
    wrong.disks[0].extent_count = 7;
    sealed(&volume, &wrong, 1);
    let found = compared(&volume, &catalog).unwrap();
    assert_eq!((found.entered_count, found.problem_count()), (4, 2));
    let objects: Vec<&str> = found.problems.iter().map(|problem| problem.object.as_str()).collect();
    assert_eq!(objects, [names[2].as_str(), wrong.backup.to_string().as_str()]);
    assert_eq!(ids(&catalog).len(), 4);
}

#[test]
fn hostile_bodies_are_refused_and_cost_little() {
    type Change = fn(&mut Point);
    let changes: [(&str, Change); 8] = [
        ("session", |p| p.body.session = vec![0; 17]),
        ("run", |p| p.body.run.clear()),
        ("namespace", |p| p.body.namespace = vec![0; 100_000]),
        ("parent", |p| p.body.parent = vec![1]),
        ("root", |p| p.body.disks[0].root = vec![1; 31]),
        ("time", |p| p.body.started_ms = i64::MIN),
        ("time", |p| p.body.disks[0].finished_ms = i64::MAX),
        ("cuts", |p| p.body.chunker = None),
    ];
    for (what, change) in changes {
        let (mut whole, _) = decode(&encode(REPOSITORY, 1, &point(1, "default")).unwrap()).unwrap();
        change(&mut whole);
        let error = decode(&whole.encode().unwrap()).unwrap_err();
        assert!(matches!(error, EngineError::Damaged(_) | EngineError::Unsupported(_)), "{error:?}");
        assert!(error.to_string().contains(what), "{what}: {error}");
    }
    // Numbers that the catalog's arithmetic could overflow on, and names that no agent may give.
    let bench = Bench::new();
    let catalog = catalog(&bench);
    let changes: [fn(&mut PointRecord); 5] = [
        |p| p.number = u64::MAX,
        |p| p.next_container = u64::MAX,
        |p| p.attempt.vm = "a\nb".into(),
        |p| p.namespace.name = String::new(),
        |p| p.details[0].bytes = u64::MAX,
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let volume = MemoryVolume::new();
        let mut hostile = point(1, "default");
        change(&mut hostile);
        sealed(&volume, &hostile, 1);
        let found = compared(&volume, &catalog).unwrap();
        assert_eq!((found.entered_count, found.problem_count()), (0, 1), "{n}");
    }
    let volume = MemoryVolume::new();
    let name = PointName { backup: point(1, "default").backup, revision: 1 }.blob(&point(1, "default"));
    let mut blob = volume.create(&name).unwrap();
    blob.append(&vec![0; (1 << 20) + 1]).unwrap();
    blob.seal().unwrap();
    assert!(matches!(read(&volume, REPOSITORY, &name), Err(EngineError::Damaged(_))));
}

#[test]
fn every_name_has_a_place_of_its_own_that_reads_back() {
    let mut places = std::collections::HashSet::new();
    let long = "é".repeat(100);
    for vm in
        ["web", "Web", "wEB", "..", ".", "a/b", "a_b", "ä", "ö", &long, &"x".repeat(200), "web-1", "日本"]
    {
        let mut point = point(1, "default");
        vm.clone_into(&mut point.attempt.vm);
        let name = PointName { backup: point.backup, revision: u32::MAX };
        let blob = name.blob(&point);
        assert_eq!(PointName::parse(&blob), Some(name), "{blob}");
        assert!(places.insert(blob.as_str().to_owned()), "{blob}");
    }
}

#[test]
fn the_place_is_stable() {
    let mut point = point(1, "Berlin & Köln");
    "Web-01.example".clone_into(&mut point.attempt.vm);
    let blob = PointName { backup: point.backup, revision: 1 }.blob(&point);
    assert_eq!(
        blob.as_str(),
        "points/fbba95c3072150b37c7f8873a280a82f/f0bced293751cbb05003659cf4fd744e/01hf7yat000000000000000001.1"
    );
}

#[test]
fn folders_that_show_names_are_told_from_hashes() {
    let is = |text: &str| is_hashed(&BlobName::new(text).unwrap());
    let (hash, id) = ("f0bced293751cbb05003659cf4fd744e", "01hf000000000000000000000z");
    assert!(is("points") && is(&format!("points/{hash}")) && is(&format!("points/{hash}/{hash}/{id}.1")));
    for (namespace, vm) in [("default-1c2d", hash), (hash, "web-1-3c4d"), (hash, "f0bc")] {
        assert!(!is(&format!("points/{namespace}/{vm}/{id}.1")), "{namespace}/{vm}");
    }
}

#[test]
fn nothing_else_is_a_point() {
    let id = "01hf000000000000000000000z";
    let is = |text: &str| PointName::parse(&BlobName::new(text).unwrap()).is_some();
    assert!(is(&format!("points/n/v/{id}.1")));
    for other in [
        format!("points/n/{id}.1"),
        format!("points/n/v/w/{id}.1"),
        format!("point/n/v/{id}.1"),
        format!("points/n/v/{id}"),
        format!("points/n/v/{id}.0"),
        format!("points/n/v/{id}.01"),
        format!("points/n/v/{id}.1.1"),
        format!("points/n/v/{id}.4294967296"),
        format!("points/n/v/9{}.1", id.get(1..).unwrap()),
        format!("points/n/v/{}.1", id.get(1..).unwrap()),
    ] {
        assert!(!is(&other), "{other}");
    }
}
