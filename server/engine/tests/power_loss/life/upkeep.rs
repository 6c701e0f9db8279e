//! Lives in which restore points are deleted, locked and held, what was stored is compressed anew, and what rots or gets
//! lost is made again.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_engine::clock::Clock as _;
use holdfast_engine::ids::BackupId;
use holdfast_engine::{
    Budget, EngineError, Load, NoProgress, ParityScheme, ReclaimControl, ReclaimOptions, ReclaimReport,
    Squeeze, Step,
};

use super::{Actor, disk};
use crate::facts::{Deletion, Kept};

const DAY_MS: i64 = 24 * 3600 * 1000;

/// How many restore points a group of parity protects, and from how many losses.
const SCHEME: Option<ParityScheme> = ParityScheme::new(3, 1);

/// As [`disk`], of text that compresses better at a higher level.
fn text(vm: u64, day: u64, len: usize) -> Arc<[u8]> {
    let mut bytes = Vec::with_capacity(len + 64);
    for three in disk(vm, day, len).chunks_exact(3) {
        if bytes.len() >= len {
            break;
        }
        let (a, b, c) = (u32::from(three[0]), u32::from(three[1]), three[2]);
        bytes.extend(format!("entry {} of disk{}: read {}\n", a * b / 64 * 7919, c % 16, a ^ b).bytes());
    }
    bytes.truncate(len);
    bytes.into()
}

/// No one else needs the disk.
#[derive(Debug)]
struct Idle;

impl Load for Idle {
    fn is_busy(&self) -> bool {
        false
    }
}

impl Actor<'_> {
    /// Runs a round.
    pub(crate) fn reclaim(&self) -> ReclaimReport {
        self.round(None)
    }

    fn round(&self, squeeze: Option<Squeeze>) -> ReclaimReport {
        let control = Arc::new(ReclaimControl::default());
        let options = ReclaimOptions { squeeze, ..ReclaimOptions::default() };
        self.engine().reclaim(&options, &control).unwrap()
    }

    /// Compresses everything anew; whether that gained anything.
    fn squeeze(&self) -> bool {
        let report = self.round(Some(Squeeze { level: 19, min_age_days: 0 }));
        report.squeezed_bytes_after < report.squeezed_bytes_before
    }

    /// The restore point made as the `number`th.
    fn point(&self, number: usize) -> BackupId {
        self.facts.points[number].id.parse().unwrap()
    }

    pub(crate) fn delete(&mut self, id: BackupId) -> Result<(), EngineError> {
        self.facts.deletions.push(Deletion { id, begun: (self.position)(), done: None });
        self.engine().delete_backups(&[id], "life", "not needed")?;
        let done = (self.position)();
        self.facts.deletions.last_mut().unwrap().done = Some(done);
        Ok(())
    }

    fn delete_point(&mut self, number: usize) {
        self.delete(self.point(number)).unwrap();
    }

    /// Locks a restore point for a year.
    fn lock(&mut self, number: usize) {
        let (id, until_ms) = (self.point(number), self.clock.now_ms() + 365 * DAY_MS);
        self.engine().lock_backups(&[id], until_ms, "life").unwrap();
        let acknowledged = (self.position)();
        self.facts.kept.push(Kept { id, acknowledged, until_ms: Some(until_ms), releasing: None });
    }

    fn hold(&mut self, number: usize) {
        let id = self.point(number);
        self.engine().hold_backups(&[id], "evidence", "life").unwrap();
        let acknowledged = (self.position)();
        self.facts.kept.push(Kept { id, acknowledged, until_ms: None, releasing: None });
    }

    fn release(&mut self, number: usize) {
        let (id, begun) = (self.point(number), (self.position)());
        self.facts.kept.iter_mut().filter(|one| one.id == id).for_each(|one| one.releasing = Some(begun));
        self.engine().release_holds(&[id], "over", "life").unwrap();
    }

    /// Reads everything again.
    pub(crate) fn scrub(&self) -> u64 {
        self.engine().scrub(&Budget::unlimited(), &NoProgress).unwrap().damaged_containers
    }

    /// The rest of a start, as the server does it in the background.
    pub(crate) fn audit(&self) {
        let job = self.engine().audit_job();
        while job.step(&Budget::unlimited()).unwrap() == Step::More {}
    }

    /// Makes parity of everything, and repairs what it can.
    pub(crate) fn protect(&self) {
        self.clock.advance_ms(2 * DAY_MS);
        let job = self.engine().parity_job(SCHEME, Arc::new(Idle));
        while job.step(&Budget::unlimited()).unwrap() == Step::More {}
    }

    /// The container files of a kind.
    fn containers(&self, kind: &str) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.root.join("blobs/containers/0000000")).unwrap();
        let files = files.map(|file| file.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|of| of == kind)).collect();
        files.sort();
        files
    }

    /// A container rots: that is on the disk at once.
    fn rot(&mut self) {
        let path = &self.containers("data")[1];
        self.facts.spoiling.get_or_insert((self.position)());
        let file = File::options().read(true).write(true).open(path).unwrap();
        let at = file.metadata().unwrap().len() / 2;
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
        file.sync_all().unwrap();
    }

    /// A container gets lost, at once.
    fn lose(&mut self) {
        let path = &self.containers("recipe")[0];
        self.facts.spoiling.get_or_insert((self.position)());
        std::fs::remove_file(path).unwrap();
        File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    }

    /// The parity of a group gets lost, at once.
    fn lose_parity(&mut self) {
        let folder = self.root.join("blobs/parity");
        let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
        self.facts.spoiling.get_or_insert((self.position)());
        std::fs::remove_file(files.min().unwrap()).unwrap();
        File::open(folder).unwrap().sync_all().unwrap();
    }
}

/// Restore points are deleted, locked, held and released, and their space freed, between backups and beside one whose
/// parent goes.
pub(super) fn deletions(life: &mut Actor<'_>) {
    life.start();
    for day in 0..3 {
        life.backup("web", &vec![("root", disk(1, day, 60_000))]);
    }
    life.backup("db", &vec![("root", disk(3, 0, 60_000))]);
    life.lock(3);
    life.hold(1);
    life.delete_point(0);
    let session = life.send("web", &vec![("root", disk(1, 3, 60_000))], true);
    life.delete_point(2);
    life.reclaim();
    life.commit("web", session);
    assert!(life.engine().delete_backups(&[life.point(3)], "life", "it is locked").is_err());
    life.stop();
    life.start();
    life.release(1);
    life.delete_point(1);
    life.reclaim();
    // What went comes again.
    life.backup("web", &vec![("root", disk(1, 0, 60_000))]);
    life.delete_point(4);
    life.reclaim();
    life.stop();
}

/// What was stored is compressed anew, beside a backup.
pub(super) fn squeezes(life: &mut Actor<'_>) {
    life.start();
    for day in 0..3 {
        life.backup("web", &vec![("root", text(1, day, 90_000))]);
    }
    life.delete_point(0);
    let session = life.send("db", &vec![("root", text(3, 0, 60_000))], true);
    assert!(life.squeeze());
    life.commit("db", session);
    life.backup("web", &vec![("root", text(1, 3, 90_000))]);
    life.stop();
    life.start();
    life.delete_point(1);
    life.squeeze();
    life.backup("db", &vec![("root", text(3, 1, 60_000))]);
    life.stop();
}

/// What rots or gets lost is found, and made again by parity.
pub(super) fn repairs(life: &mut Actor<'_>) {
    life.start();
    for vm in 1..4 {
        life.backup(&format!("vm-{vm}"), &vec![("root", disk(vm, 0, 60_000))]);
    }
    life.protect();
    assert_eq!(life.scrub(), 0);
    life.lose_parity();
    assert_eq!(life.scrub(), 0);
    life.protect();
    life.rot();
    assert_eq!(life.scrub(), 1);
    life.protect();
    life.backup("vm-1", &vec![("root", disk(1, 1, 60_000))]);
    life.lose();
    life.stop();
    life.start();
    life.scrub();
    life.protect();
    life.delete_point(1);
    life.reclaim();
    life.protect();
    life.stop();
}
