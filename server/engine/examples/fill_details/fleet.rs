//! VMs as a site has them, and what backing them up costs on a given day.

use holdfast_catalog::{DetailRow, RowStatus};

/// Disks of a storage cluster's VM.
const CLUSTER_DISKS: usize = 120;
const GIB: u64 = 1 << 30;

/// A sequence of numbers without a pattern, the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Within `low..high`.
    pub(crate) fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        low + (self.0 >> 33) % (high - low)
    }

    pub(crate) fn failure(&mut self) -> Outcome {
        match self.roll(0, 3) {
            0 => Outcome::Failed(RowStatus::Expired, "no heartbeat from the agent for 120 s"),
            1 => Outcome::Failed(RowStatus::Aborted, "taken over by another agent"),
            _ => Outcome::Failed(RowStatus::Failed, "cannot read the disk at offset 734003200: I/O error"),
        }
    }
}

/// How a session ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    Done,
    Failed(RowStatus, &'static str),
}

#[derive(Debug)]
pub(crate) struct Disk {
    name: String,
    size_bytes: u64,
    data_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Vm {
    pub(crate) name: String,
    pub(crate) job: &'static str,
    pub(crate) host: String,
    pub(crate) in_lab: bool,
    pub(crate) disks: Vec<Disk>,
    /// Bytes that change a day, of 10,000.
    change: u64,
    /// Plain bytes for 100 stored ones.
    local_pct: u64,
    /// The day on which its data is rewritten and hardly compresses: it was encrypted.
    drop_day: Option<u64>,
    number: u64,
}

#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) vms: Vec<Vm>,
}

impl Fleet {
    /// About `rows` disks in all; `large`: each of a VM of its own.
    pub(crate) fn new(rows: u64, days: u64, large: bool) -> Self {
        let mut dice = Dice::new(42);
        let (mut vms, mut left) = (Vec::new(), usize::try_from(rows).unwrap_or(usize::MAX));
        while left > 0 {
            let number = vms.len() as u64;
            // Every sixteenth is a cluster's, so that most rows are of few VMs, as they are at most sites.
            let disks = match number % 16 {
                _ if large => 1,
                7 => CLUSTER_DISKS,
                _ => usize::try_from(dice.roll(1, 7)).unwrap_or(1),
            };
            let disks = disks.min(left);
            left -= disks;
            vms.push(Vm::new(number, disks, days, &mut dice));
        }
        Self { vms }
    }

    /// The VM that takes what is left over.
    pub(crate) fn archive(&self) -> Vm {
        let mut dice = Dice::new(9);
        let number = self.vms.len() as u64;
        Vm { name: "archive".to_owned(), job: "archive", ..Vm::new(number, 100, 0, &mut dice) }
    }

    /// VMs whose factor drops, and when.
    pub(crate) fn drops(&self) -> Vec<String> {
        let drop = |vm: &Vm| vm.drop_day.map(|day| format!("{} on day {day}", vm.name));
        self.vms.iter().filter_map(drop).collect()
    }
}

impl Vm {
    fn new(number: u64, disks: usize, days: u64, dice: &mut Dice) -> Self {
        let (kind, job) = match number % 8 {
            0 | 1 => ("web", "nightly"),
            2 => ("db", "databases"),
            3 => ("mail", "nightly"),
            4 => ("files", "file-servers"),
            5 => ("erp", "databases"),
            6 => ("build", "lab-nightly"),
            _ => ("ceph", "file-servers"),
        };
        let disk = |number: usize, dice: &mut Dice| {
            let size_bytes = dice.roll(8, 400) * GIB;
            let name = if number == 0 { "system".to_owned() } else { format!("data{number:03}") };
            Disk { name, size_bytes, data_bytes: size_bytes / 100 * dice.roll(30, 75) }
        };
        let change = dice.roll(30, 400);
        let local_pct = dice.roll(140, 420);
        let drop_day = (number % 37 == 5).then(|| days.saturating_sub(dice.roll(1, 6)));
        Self {
            name: format!("{kind}-{number:03}"),
            job,
            host: format!("hv-{}.example", number % 9),
            in_lab: job == "lab-nightly",
            disks: (0..disks).map(|number| disk(number, dice)).collect(),
            change,
            local_pct,
            drop_day,
            number,
        }
    }

    /// About one session of eighty; some VMs never work again.
    pub(crate) const fn fails_on(&self, day: u64) -> bool {
        (self.number * 31 + day * 17) % 83 == 3 || (self.number % 61 == 11 && day > 50)
    }

    /// The numbers and names of a disk's row, as far as they do not depend on the session: `finished_ms` is
    /// its duration.
    pub(crate) fn row(&self, disk: &Disk, day: u64, outcome: &Outcome, dice: &mut Dice) -> DetailRow {
        let dropped = self.drop_day == Some(day);
        let data = disk.data_bytes + disk.data_bytes / 2000 * day.min(200);
        let changed = match (day, dropped) {
            (0, _) => data,
            (_, true) => data / 2,
            (_, false) => data / 10_000 * dice.roll(self.change / 2, self.change * 3 / 2),
        };
        let dup = changed / 100 * if dropped { 1 } else { dice.roll(15, 45) };
        let local_pct = if dropped { 101 } else { dice.roll(self.local_pct - 15, self.local_pct + 15) };
        let new = changed - dup;
        let post_lc = new / local_pct * 100;
        let mut row = DetailRow {
            job: self.job.to_owned(),
            vm: self.name.clone(),
            disk: disk.name.clone(),
            virtual_bytes: disk.size_bytes,
            bytes: data,
            read_bytes: changed + data / 50,
            unchanged_bytes: data - changed,
            dup_bytes: dup,
            new_bytes: new,
            post_lc,
            meta_bytes: (dup + new) / 400 + 5000,
            chunks: changed / 16_384 + 1,
            new_chunks: new / 16_384,
            wire_bytes: post_lc + changed / 500,
            // 300 to 900 MB/s of what is read.
            finished_ms: i64::try_from((changed + data / 50) / dice.roll(300_000, 900_000)).unwrap_or(0),
            ..DetailRow::default()
        };
        if let Outcome::Failed(status, error) = outcome {
            row.status = *status;
            row.error = (*error).to_owned();
            // It stopped half way.
            row.new_bytes /= 2;
            row.new_chunks /= 2;
            row.post_lc /= 2;
            row.unchanged_bytes /= 2;
            row.meta_bytes = 0;
            row.bytes = row.unchanged_bytes + row.dup_bytes + row.new_bytes;
        }
        row
    }
}
