//! Valid commits, to be written, or broken first.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::extent_count;
use holdfast_types::clock::{Clock, ManualClock};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, RunId, SessionId};
use ulid::Ulid;

use crate::{
    Attempt, BackupCommit, Catalog, ContainerRecord, ContainerState, DEFAULT_NAMESPACE, DetailRow,
    DiskRecord, FailedRun, LegalHold, LockChange, NamespaceRecord, Page, PageRequest, PointFate, Result,
    RetentionLock, RowStatus,
};

pub const START_MS: i64 = 1_763_700_000_000;

/// A catalog with its clock, and names not used before.
#[derive(Debug)]
pub struct Fixture {
    pub catalog: Arc<Catalog>,
    pub clock: Arc<ManualClock>,
    pub default: NamespaceRecord,
    names: AtomicU64,
}

impl Deref for Fixture {
    type Target = Catalog;
    fn deref(&self) -> &Catalog {
        self.catalog.as_ref()
    }
}

impl Fixture {
    pub fn new(open: &dyn Fn(Arc<ManualClock>) -> Arc<Catalog>) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        Self::of(open(clock.clone()), clock)
    }

    pub fn of(catalog: Arc<Catalog>, clock: Arc<ManualClock>) -> Self {
        let default = catalog.namespace_by_name(DEFAULT_NAMESPACE).unwrap().unwrap();
        Self { catalog, clock, default, names: AtomicU64::new(0) }
    }

    /// A ULID of this moment; later calls give higher ones.
    pub fn ulid(&self) -> Ulid {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        Ulid::from_parts(self.clock.now_ms().try_into().unwrap(), number.into())
    }

    pub fn lock_backups(&self, ids: &[BackupId], until_ms: i64, who: &str) -> Result<Vec<BackupId>> {
        self.change_locks(ids, &LockChange::Lock { until_ms }, who)
    }

    pub fn hold_backups(&self, ids: &[BackupId], reason: &str, who: &str) -> Result<Vec<BackupId>> {
        let hold = LegalHold { reason: reason.into(), who: who.into(), since_ms: self.clock.now_ms() };
        self.change_locks(ids, &LockChange::Hold(hold), who)
    }

    pub fn release_holds(&self, ids: &[BackupId], reason: &str, who: &str) -> Result<Vec<BackupId>> {
        self.change_locks(ids, &LockChange::Release { reason: reason.into() }, who)
    }

    pub fn attempt(&self, vm: &str, job: &str) -> Attempt {
        self.clock.advance_ms(1000);
        let started_ms = self.clock.now_ms();
        Attempt {
            session: SessionId(self.ulid()),
            run: RunId(self.ulid()),
            namespace: self.default.id,
            vm: vm.into(),
            job: job.into(),
            client_host: "hv-1.example".into(),
            owner: "default".into(),
            vm_owner: "default".into(),
            who: "agent-1".into(),
            started_ms,
            finished_ms: started_ms + 500,
            accepted_change: false,
        }
    }

    /// A sealed container of this attempt, with a number of its own.
    pub fn sealed(&self, attempt: &Attempt, class: ContainerClass, stored_bytes: u64) -> ContainerRecord {
        ContainerRecord {
            id: ContainerId::new(self.reserve_container_numbers(1).unwrap().start).unwrap(),
            class,
            namespace: attempt.namespace,
            stored_bytes,
            plain_bytes: stored_bytes * 2,
            chunk_count: stored_bytes / 8192 + 1,
            created_ms: attempt.started_ms,
            run: Some(attempt.run),
            state: ContainerState::Live,
        }
    }

    /// A commit of two disks, three data containers and one recipe container in the default namespace.
    pub fn commit(&self, vm: &str, job: &str) -> BackupCommit {
        let attempt = self.attempt(vm, job);
        let backup = BackupId(self.ulid());
        let rows = [
            numbers(DetailRow {
                unchanged_bytes: 5 << 20,
                dup_bytes: 70_000,
                new_bytes: 300_000,
                post_lc: 150_000,
                meta_bytes: 900,
                ..row(&attempt, "system")
            }),
            numbers(DetailRow {
                new_bytes: 1 << 20,
                post_lc: 600_000,
                meta_bytes: 100,
                ..row(&attempt, "data")
            }),
        ];
        let containers = vec![
            self.sealed(&attempt, ContainerClass::Data, 150_000),
            self.sealed(&attempt, ContainerClass::Data, 500_000),
            self.sealed(&attempt, ContainerClass::Data, 100_000),
            self.sealed(&attempt, ContainerClass::Recipe, 1000),
        ];
        done(attempt, backup, rows.into(), containers)
    }

    /// Commits what [`Fixture::commit`] gives, and returns it.
    pub fn committed(&self, vm: &str, job: &str) -> BackupCommit {
        let commit = self.commit(vm, job);
        self.commit_backup(&commit).unwrap();
        commit
    }

    /// As [`Fixture::committed`] in another namespace.
    pub fn committed_in(&self, namespace: NamespaceId, vm: &str, job: &str) -> BackupCommit {
        let mut commit = self.commit(vm, job);
        commit.attempt.namespace = namespace;
        commit.containers.iter_mut().for_each(|container| container.namespace = namespace);
        let name = self.namespace(namespace).unwrap().unwrap().name;
        commit.details.iter_mut().for_each(|row| row.namespace.clone_from(&name));
        self.commit_backup(&commit).unwrap();
        commit
    }

    /// An attempt that failed after one container.
    pub fn failed(&self, vm: &str, job: &str, status: RowStatus) -> FailedRun {
        let attempt = self.attempt(vm, job);
        let containers = vec![self.sealed(&attempt, ContainerClass::Data, 4096)];
        let row = numbers(DetailRow {
            new_bytes: 8192,
            post_lc: 4096,
            status,
            error: "cannot read sda at offset 4096: Input/output error".into(),
            ..row(&attempt, "system")
        });
        FailedRun { attempt, details: vec![row], containers }
    }
}

/// A row without numbers.
pub fn row(attempt: &Attempt, disk: &str) -> DetailRow {
    DetailRow {
        namespace: DEFAULT_NAMESPACE.into(),
        job: attempt.job.clone(),
        run: attempt.run.to_string(),
        vm: attempt.vm.clone(),
        disk: disk.into(),
        started_ms: attempt.started_ms,
        finished_ms: attempt.finished_ms,
        ..DetailRow::default()
    }
}

/// Fills in what follows from the parts.
pub fn numbers(row: DetailRow) -> DetailRow {
    let bytes = row.unchanged_bytes + row.dup_bytes + row.new_bytes;
    let new_chunks = row.new_bytes / 16384;
    DetailRow {
        bytes,
        virtual_bytes: bytes + (1 << 30),
        read_bytes: bytes,
        wire_bytes: row.post_lc + 77,
        chunks: new_chunks + row.dup_bytes / 16384,
        new_chunks,
        ..row
    }
}

/// Adds to each row that is done, in their order, what the attempts on its disk stored in vain before it.
pub fn add_retried<'a>(rows: impl IntoIterator<Item = &'a mut DetailRow>) {
    let mut failed: BTreeMap<(String, String, String), (u64, u64)> = BTreeMap::new();
    for row in rows {
        let disk = (row.namespace.clone(), row.vm.clone(), row.disk.clone());
        if row.status == RowStatus::Done {
            (row.retried_new_bytes, row.retried_post_lc) = failed.remove(&disk).unwrap_or_default();
        } else {
            let sums = failed.entry(disk).or_default();
            *sums = (sums.0 + row.new_bytes, sums.1 + row.post_lc);
        }
    }
}

/// The commit that fits these rows.
pub fn done(
    attempt: Attempt,
    backup: BackupId,
    mut details: Vec<DetailRow>,
    containers: Vec<ContainerRecord>,
) -> BackupCommit {
    for row in &mut details {
        row.backup = backup.to_string();
        row.status = RowStatus::Done;
        row.point = PointFate::Exists;
    }
    let disk = |row: &DetailRow| DiskRecord {
        name: row.disk.clone(),
        size_bytes: row.virtual_bytes,
        data_bytes: row.bytes,
        extent_count: extent_count(row.virtual_bytes),
        root: Fingerprint::of(format!("{backup} {}", row.disk).as_bytes()),
    };
    BackupCommit {
        attempt,
        number: 0,
        backup,
        disks: details.iter().map(disk).collect(),
        missing_disks: Vec::new(),
        details,
        containers,
        lock: RetentionLock::default(),
    }
}

/// Every item of a list, page by page; asserts that no page is larger than asked for, and none but the last
/// empty or smaller.
pub fn all_pages<T>(size: u32, list: impl Fn(PageRequest<'_>) -> Result<Page<T>>) -> Vec<T> {
    let (mut all, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(PageRequest { size, token: &token }).unwrap();
        assert!(page.items.len() <= size as usize);
        all.extend(page.items);
        match page.next {
            Some(next) => {
                assert_ne!(next, token, "the list does not move on");
                token = next;
            }
            None => return all,
        }
        assert_eq!(all.len() % size as usize, 0);
    }
}
