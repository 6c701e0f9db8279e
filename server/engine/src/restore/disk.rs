//! Streams a whole disk, window by window, with reads in flight ahead of what is being sent.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::limits::{EXTENT_BYTES, WINDOW_EXTENTS, extent_count};
use holdfast_proto::region::sealed::Commitment;
use holdfast_proto::{KeyId, v1};
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId, TokenId};
use v1::read_disk_response::Kind;

use super::open::{OnDamage, OpenDisk};
use super::plan::{Lost, ReadJob};
use super::read::{self, Found};
use super::windows::Windows;
use crate::container::Proving;
use crate::core::Core;
use crate::error::EngineError;
use crate::fair::Tenant;
use crate::memory::ReaderShare;
use crate::task::{self, Task};

/// Jobs of one restore being read at most, while few restores share the read-ahead.
const JOBS_IN_FLIGHT_MAX: usize = 12;

/// A message is full when it has this many payload bytes; it has at most 256 KiB more. Waking the threads on
/// either side for every region of some 100 KB cost a tenth of a restore's CPU time.
const MESSAGE_BYTES: usize = 768 << 10;

type Outcome = Result<Found, EngineError>;

/// The messages that carry a disk. Ends after the last window, or after the first error.
pub struct DiskReader {
    disk: Arc<OpenDisk>,
    windows: Windows,
    planned: VecDeque<Planned>,
    begun: VecDeque<Begun>,
    /// Its share of the read-ahead of all restores: one read for each job in progress.
    ahead: ReaderShare,
    /// Read, not sent yet.
    ready: VecDeque<v1::RegionData>,
    ready_bytes: usize,
    /// Chunks of the window being sent that cannot be read, not said yet.
    lost: Vec<Lost>,
    /// Set once anything was lost.
    lacks: bool,
    on_damage: OnDamage,
    /// None: regions may come from memory.
    proving: Option<Proving>,
    failed: bool,
    /// On whose behalf it reads.
    tenant: Tenant,
}

/// The next messages and reads, not begun yet.
enum Planned {
    Message(Kind),
    Job(ReadJob),
}

/// Messages and reads in progress, in the order of sending.
enum Begun {
    Message(Kind),
    Job(Task<Outcome>),
}

impl std::fmt::Debug for DiskReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskReader")
            .field("disk", &self.disk.name)
            .field("next_extent", &self.windows.next_extent())
            .finish_non_exhaustive()
    }
}

impl DiskReader {
    /// Opens `count` extents from `first` on; a count of 0 means to the end.
    pub(crate) fn open(
        core: &Arc<Core>,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        (first, count): (u64, u64),
        on_damage: OnDamage,
    ) -> Result<Self, EngineError> {
        let disk = OpenDisk::open(core, namespace, backup, disk, on_damage)?;
        let extents = extent_count(disk.size_bytes);
        let end = if count == 0 { extents } else { first.saturating_add(count).min(extents) };
        let header = Begun::Message(Kind::Header(header(&disk)));
        let reader = Self::of(&Arc::new(disk), first.min(end)..end, 0..u64::MAX, on_damage);
        Ok(Self { begun: VecDeque::from([header]), ..reader })
    }

    /// Reads these extents, with the chunks that have any of the bytes `only` of the disk. Begins without a header.
    fn of(disk: &Arc<OpenDisk>, extents: Range<u64>, only: Range<u64>, on_damage: OnDamage) -> Self {
        Self {
            windows: Windows::new(disk, extents, only, on_damage),
            disk: Arc::clone(disk),
            planned: VecDeque::new(),
            begun: VecDeque::new(),
            ahead: disk.core.read_ahead.join(),
            ready: VecDeque::new(),
            ready_bytes: 0,
            lost: Vec::new(),
            lacks: false,
            on_damage,
            proving: None,
            failed: false,
            tenant: Tenant { namespace: disk.namespace, token: TokenId::from_bytes([0; 16]) },
        }
    }

    /// Reads all data from the volume, also what is in memory for other restores: what it finds sound is sound there.
    #[must_use]
    pub fn from_volume(mut self) -> Self {
        self.proving = Some(Proving::default());
        self
    }

    /// (N8) Takes chunks out of other regions than these, where there are any: they did not open at the agent.
    #[must_use]
    pub fn passing_over(self, regions: BTreeSet<Commitment>) -> Self {
        if !regions.is_empty() {
            self.disk.passed_over.get_or_init(|| regions);
        }
        self
    }

    /// Takes turns with others as `token`; otherwise all readers of a namespace that do not say share one turn.
    #[must_use]
    pub const fn on_behalf_of(mut self, token: TokenId) -> Self {
        self.tenant.token = token;
        self
    }

    fn advance(&mut self) -> Result<Option<Kind>, EngineError> {
        loop {
            self.top_up()?;
            let full = self.ready_bytes >= MESSAGE_BYTES;
            match self.begun.pop_front_if(|next| !full && matches!(next, Begun::Job(_))) {
                Some(Begun::Job(task)) => {
                    let outcome = task.wait();
                    self.ahead.give_back();
                    let Found { regions, lost, .. } = outcome??;
                    self.note_lost(&lost);
                    self.lost.extend(lost);
                    self.ready_bytes += regions.iter().map(|region| region.payload.len()).sum::<usize>();
                    self.ready.extend(regions);
                }
                _ if !self.ready.is_empty() => return Ok(Some(self.take_ready())),
                // Before the end of their window, which is the next message.
                _ if !self.lost.is_empty() => return Ok(Some(Kind::Damaged(take_alike(&mut self.lost)))),
                _ => match self.begun.pop_front() {
                    Some(Begun::Message(kind)) => return Ok(Some(kind)),
                    _ => return Ok(None),
                },
            }
        }
    }

    /// One message of what was read.
    fn take_ready(&mut self) -> Kind {
        let mut regions = Vec::new();
        let mut bytes = 0;
        while bytes < MESSAGE_BYTES
            && let Some(region) = self.ready.pop_front()
        {
            bytes += region.payload.len();
            regions.push(region);
        }
        self.ready_bytes -= bytes;
        Kind::Regions(v1::Regions { regions })
    }

    /// Keeps as many reads under way as it may, from the next window on when the last is used up.
    fn top_up(&mut self) -> Result<(), EngineError> {
        while self.ahead.reads() < JOBS_IN_FLIGHT_MAX {
            match self.planned.pop_front() {
                Some(Planned::Message(kind)) => self.begun.push_back(Begun::Message(kind)),
                Some(Planned::Job(job)) if self.ahead.take() => self.begin(job),
                Some(later) => {
                    self.planned.push_front(later);
                    break;
                }
                None if self.begun.len() < 4 * JOBS_IN_FLIGHT_MAX && self.windows.has_more() => {
                    self.plan()?;
                }
                None => break,
            }
        }
        Ok(())
    }

    fn plan(&mut self) -> Result<(), EngineError> {
        let Some(plan) = self.windows.next(self.tenant)? else { return Ok(()) };
        self.planned.push_back(Planned::Message(Kind::Window(plan.layout)));
        self.note_lost(&plan.lost);
        let mut lost = plan.lost;
        while !lost.is_empty() {
            self.planned.push_back(Planned::Message(Kind::Damaged(take_alike(&mut lost))));
        }
        self.planned.extend(plan.jobs.into_iter().map(Planned::Job));
        self.planned.push_back(Planned::Message(Kind::WindowEnd(v1::WindowEnd {})));
        Ok(())
    }

    /// (V3) Notes once for each disk that data is lost.
    fn note_lost(&mut self, lost: &[Lost]) {
        if !lost.is_empty() && !std::mem::replace(&mut self.lacks, true) {
            self.disk.note_lacking();
        }
    }

    fn begin(&mut self, job: ReadJob) {
        let disk = Arc::clone(&self.disk);
        let (from_volume, on_damage) = (self.proving.is_some(), self.on_damage);
        if let Some(proving) = &mut self.proving
            // If the container cannot be opened, the job reports it.
            && let Ok(open) = disk.core.store.containers.get(job.container, ContainerClass::Data)
        {
            proving.begin(&open);
        }
        let task =
            task::spawn(&self.disk.core.read_pool, self.tenant, "reading regions for a restore", move || {
                read::run(&disk, &job, from_volume, on_damage).map_err(|error| disk.name_damage(error))
            });
        self.begun.push_back(Begun::Job(task));
    }
}

/// A disk that is read here and there. Its recipe is kept for as long as this is, also when the backup is deleted meanwhile.
#[derive(Debug)]
pub struct PartReader {
    disk: Arc<OpenDisk>,
}

impl PartReader {
    /// Opens a disk; chunks are taken out of other regions than `passed_over`, where there are any (N8).
    pub(crate) fn open(
        core: &Arc<Core>,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        passed_over: BTreeSet<Commitment>,
    ) -> Result<Self, EngineError> {
        let disk = OpenDisk::open(core, namespace, backup, disk, OnDamage::Report)?;
        if !passed_over.is_empty() {
            disk.passed_over.get_or_init(|| passed_over);
        }
        Ok(Self { disk: Arc::new(disk) })
    }

    /// The header that describes the disk to a client.
    pub fn header(&self) -> v1::DiskHeader {
        header(&self.disk)
    }

    /// The messages that carry a part: one window, without a header. What cannot be read is named in them.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for extents that the disk does not have, or too many.
    pub fn read(&self, part: &v1::ReadPart) -> Result<DiskReader, EngineError> {
        let &v1::ReadPart { first_extent, extent_count: count, offset, length } = part;
        let extents = extent_count(self.disk.size_bytes);
        let end = first_extent.checked_add(u64::from(count)).filter(|end| *end <= extents);
        // (R3) One window.
        let Some(end) = end.filter(|_| (1..=WINDOW_EXTENTS).contains(&(count as usize))) else {
            return Err(EngineError::Invalid(format!(
                "{count} extents from {first_extent} on were asked for, of a disk of {extents}; the limit is {WINDOW_EXTENTS}"
            )));
        };
        let only = offset..offset.saturating_add(length);
        Ok(DiskReader::of(&self.disk, first_extent..end, only, OnDamage::Report))
    }
}

fn header(disk: &OpenDisk) -> v1::DiskHeader {
    v1::DiskHeader {
        size_bytes: disk.size_bytes,
        extent_bytes: EXTENT_BYTES,
        data_bytes: disk.data_bytes,
        key_id: KeyId::field(disk.key_id),
    }
}

/// Removes the lost chunks that have the same reason as the first, as one message.
fn take_alike(lost: &mut Vec<Lost>) -> v1::DamagedChunks {
    let damage = lost.first().map(|first| first.damage.clone());
    let alike = lost.extract_if(.., |one| Some(&one.damage) == damage.as_ref());
    let chunks = alike.map(|one| one.chunk).collect();
    v1::DamagedChunks { chunks, damage }
}

impl Iterator for DiskReader {
    type Item = Result<v1::ReadDiskResponse, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let message = self.advance();
        self.failed = message.is_err();
        message.map(|kind| kind.map(|kind| v1::ReadDiskResponse { kind: Some(kind) })).transpose()
    }
}
