//! One session: a backup in progress, its disks and its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use holdfast_catalog::NamespaceRecord;
#[cfg(test)]
use holdfast_proto::Fingerprint;
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, ContainerId, NamespaceId, RunId, SessionId, TokenId};
use parking_lot::{Mutex, MutexGuard};
use roaring::RoaringTreemap;

use super::Prepared;
use super::disk::DiskState;
use super::parent::ParentDisk;
use super::progress::DiskProgress;
use crate::claims::StreamClaims;
use crate::core::Core;
use crate::error::EngineError;
use crate::quota::SessionCharge;
use crate::space::Grant;
use crate::store::Domain;

/// A backup in progress.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) id: SessionId,
    pub(super) backup: BackupId,
    pub(super) run: RunId,
    pub(super) namespace: NamespaceRecord,
    pub(super) vm: String,
    /// Owner of the VM, or the one it gets with this backup.
    pub(super) vm_owner: String,
    pub(super) job: String,
    pub(super) host: String,
    /// The agent's version and compression level, as it told them.
    pub(super) agent: String,
    pub(super) level: u32,
    /// The token that began it. It alone may go on with it.
    pub(super) starter: Starter,
    /// Names of disks of the VM that the agent could not read.
    pub(super) missing_disks: Vec<String>,
    /// (W16) Disks, or ends of disks, of the VM's latest restore point that this backup would drop without a stated reason.
    pub(super) lost: Option<String>,
    pub(super) started_ms: i64,
    pub(super) disks: Vec<DiskSlot>,
    /// Its part of what the namespace may take.
    pub(super) charge: Arc<SessionCharge>,
    pub(super) lease: Lease,
    /// Set once a stream failed: the session can only end without a backup.
    failed: AtomicBool,
    /// The commit as prepared by the first try: a second try must be the same.
    pub(super) prepared: Mutex<Option<Prepared>>,
    /// Set once the session is committed or given up; held locked while that happens, so that it happens once.
    ended: Mutex<bool>,
    /// Space promised to it at the start, given back at the end.
    _room: Grant,
}

/// The token that starts a backup, with its rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starter {
    pub token: TokenId,
    /// The token's name, for the audit log.
    pub name: String,
    /// Owner of the VMs it writes, and of the runs it joins.
    pub owner: String,
    /// Set if it may write VMs of every owner. They stay their owners'.
    pub is_for_every_owner: bool,
    /// Set if it may end a backup that another token started.
    pub may_take_over: bool,
}

/// Deadlines of a session: it ends by itself when its agent is silent, or only sends heartbeats. Measured on the clock
/// that never jumps: setting the time of day neither ends a session nor keeps it alive.
#[derive(Debug)]
pub(super) struct Lease {
    /// The last heartbeat.
    heard_monotonic_ms: AtomicI64,
    /// The same moment for people, as Unix milliseconds.
    seen_ms: AtomicI64,
    /// The last time the backup got any further.
    progress_monotonic_ms: AtomicI64,
}

/// Maximum time in which an agent only sends heartbeats: a backup that makes no progress holds its VM, a session's slot
/// and everything it relies on. Hours of reading unchanged data do count, as the agent reports each part. The time that
/// it waits for its turn does not run.
pub(crate) const STANDSTILL_SECS: i64 = 3600;

/// One disk of a session.
#[derive(Debug)]
pub(super) struct DiskSlot {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) parent: Option<ParentDisk>,
    /// Counts streams opened; a stream of an older generation was superseded.
    generation: AtomicU64,
    pub(super) state: Mutex<DiskState>,
    /// Claims of `state`, for callers that must not wait for it.
    pub(super) claims: Arc<StreamClaims>,
    /// Position of the stream, for readers that must not wait for `state`.
    pub(super) progress: DiskProgress,
}

/// Everything stored that a session may refer to when it commits.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Reliance {
    /// Roots of the parents' recipes: an extent taken over unchanged may refer to anything below them.
    pub(crate) roots: Vec<Fingerprint>,
    /// Numbers of containers it filled, and of those in which it found chunks or recipe nodes it need not
    /// store again. A bit or two for each container there is.
    pub(crate) containers: RoaringTreemap,
}

impl Lease {
    /// Begins now.
    fn new(core: &Core) -> Self {
        let now_ms = || AtomicI64::new(core.clock.monotonic_ms());
        let seen_ms = AtomicI64::new(core.clock.now_ms());
        Self { heard_monotonic_ms: now_ms(), seen_ms, progress_monotonic_ms: now_ms() }
    }

    /// Returns the reason why the lease has run out; `None`: it has not.
    pub(super) fn is_over(&self, core: &Core) -> Option<String> {
        let now_ms = core.clock.monotonic_ms();
        let since_ms = |at: &AtomicI64| now_ms.saturating_sub(at.load(Ordering::Relaxed));
        let lease_secs = i64::from(core.lease_secs);
        // A heartbeat at the last moment is in time.
        if since_ms(&self.heard_monotonic_ms) > lease_secs * 1000 {
            return Some(format!("no heartbeat from the agent for {lease_secs} s"));
        }
        (since_ms(&self.progress_monotonic_ms) / 1000 >= STANDSTILL_SECS)
            .then(|| format!("no progress for {STANDSTILL_SECS} s, only heartbeats"))
    }
}

impl DiskSlot {
    pub(super) fn new(
        core: &Arc<Core>,
        domain: &Domain,
        spec: &v1::DiskSpec,
        parent: Option<ParentDisk>,
        (sealed, charge): (bool, &Arc<SessionCharge>),
    ) -> Self {
        let state = DiskState::new(core, domain, (spec.size_bytes, sealed), charge);
        Self {
            name: spec.name.clone(),
            size_bytes: spec.size_bytes,
            parent,
            generation: AtomicU64::new(0),
            claims: Arc::clone(state.claims()),
            state: Mutex::new(state),
            progress: DiskProgress::default(),
        }
    }

    /// Makes every stream of the disk fail from now on; returns the generation of the next.
    fn supersede(&self) -> u64 {
        let next = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        // (C3) Chunks asked of the older agent will not come from it.
        self.claims.forget_asked();
        next
    }

    pub(super) fn is_current(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Acquire) == generation
    }
}

/// Its names, as they were asked for.
pub(super) struct SessionParts {
    pub(super) id: SessionId,
    pub(super) backup: BackupId,
    pub(super) run: RunId,
    pub(super) namespace: NamespaceRecord,
    pub(super) vm: String,
    pub(super) vm_owner: String,
    pub(super) job: String,
    pub(super) host: String,
    /// The agent's version and compression level, as it told them.
    pub(super) agent: String,
    pub(super) level: u32,
    pub(super) starter: Starter,
    /// Names of disks of the VM that the agent could not read.
    pub(super) missing_disks: Vec<String>,
    /// See [`Session`].
    pub(super) lost: Option<String>,
    pub(super) disks: Vec<DiskSlot>,
    pub(super) charge: Arc<SessionCharge>,
    pub(super) room: Grant,
}

impl Session {
    pub(super) fn new(core: &Core, parts: SessionParts) -> Self {
        let SessionParts { id, backup, run, namespace, vm, vm_owner, .. } = parts;
        let SessionParts {
            job,
            host,
            agent,
            level,
            starter,
            missing_disks,
            lost,
            disks,
            charge,
            room: _room,
            ..
        } = parts;
        let lease = Lease::new(core);
        let (started_ms, failed) = (core.clock.now_ms(), AtomicBool::new(false));
        let (prepared, ended) = (Mutex::default(), Mutex::new(false));
        Self {
            id,
            backup,
            run,
            namespace,
            vm,
            vm_owner,
            job,
            host,
            agent,
            level,
            starter,
            missing_disks,
            lost,
            started_ms,
            disks,
            charge,
            lease,
            failed,
            prepared,
            ended,
            _room,
        }
    }

    /// Renews the lease: a heartbeat. Without progress, no number of them is enough.
    pub(crate) fn keep_alive(&self, core: &Core) {
        self.lease.heard_monotonic_ms.store(core.clock.monotonic_ms(), Ordering::Relaxed);
        self.lease.seen_ms.store(core.clock.now_ms(), Ordering::Relaxed);
    }

    /// The server makes it wait: it cannot get further until its turn comes. Does not renew the lease, which is for the
    /// agent to do.
    pub(crate) fn waits_for_turn(&self, core: &Core) {
        self.lease.progress_monotonic_ms.store(core.clock.monotonic_ms(), Ordering::Relaxed);
    }

    /// Renews the lease: the backup got further.
    pub(crate) fn progressed(&self, core: &Core) {
        self.keep_alive(core);
        self.lease.progress_monotonic_ms.store(core.clock.monotonic_ms(), Ordering::Relaxed);
    }

    pub(crate) const fn namespace_id(&self) -> NamespaceId {
        self.namespace.id
    }

    /// Returns true if `token` started it.
    pub(crate) fn is_of(&self, token: TokenId) -> bool {
        self.starter.token == token
    }

    /// Time at which the agent's last heartbeat arrived.
    pub(super) fn last_seen_ms(&self) -> i64 {
        self.lease.seen_ms.load(Ordering::Relaxed)
    }

    /// Takes note that a stream of it failed.
    pub(super) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Returns true if a stream of it failed: nothing can be added, and it cannot be committed.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// See [`ParentDisk::digests`]; `None` without parent, too.
    pub(crate) fn parent_digests(
        &self,
        core: &Core,
        disk: u32,
        first_extent: u64,
    ) -> Result<Option<v1::DigestBlock>, EngineError> {
        let Some(parent) = &self.disk(disk)?.parent else { return Ok(None) };
        parent.digests(&core.catalog, first_extent)
    }

    pub(super) fn disk(&self, number: u32) -> Result<&DiskSlot, EngineError> {
        let count = self.disks.len();
        usize::try_from(number).ok().and_then(|n| self.disks.get(n)).ok_or_else(|| {
            EngineError::Invalid(format!("the backup has {count} disks; there is no disk number {number}"))
        })
    }

    /// Returns everything it relies on. Waits for the messages that are being handled, so that everything they found is
    /// included; a message handled later finds only what counts then.
    #[cfg(test)]
    pub(crate) fn relies_on(&self) -> Reliance {
        let mut reliance = Reliance::default();
        for disk in &self.disks {
            reliance.roots.extend(disk.parent.as_ref().map(ParentDisk::root));
            reliance.containers |= disk.state.lock().relies_on();
        }
        reliance
    }

    /// (G3) The containers that it has filled so far. Waits for the messages that are being handled.
    pub(crate) fn created(&self) -> RoaringTreemap {
        let of_disk = |disk: &DiskSlot| disk.state.lock().created().map(ContainerId::get).collect::<Vec<_>>();
        self.disks.iter().flat_map(of_disk).collect()
    }

    /// Locks the state of a disk, as a stream does while it handles a message.
    #[cfg(test)]
    pub(crate) fn hold_disk(&self, disk: usize) -> impl Sized + '_ {
        self.disks[disk].state.lock()
    }

    /// Claims of a disk, as a message that is still being handled has them.
    #[cfg(test)]
    pub(crate) fn claims(&self, disk: usize) -> &StreamClaims {
        &self.disks[disk].claims
    }

    /// Promises of a disk that are not settled.
    #[cfg(test)]
    pub(crate) fn promised(&self, disk: usize) -> usize {
        self.disks[disk].state.lock().promised()
    }

    /// Lets a new stream of a disk in, and makes the older one fail. Returns the stream's generation.
    ///
    /// # Errors
    /// [`EngineError::SessionGone`] once the session has ended: what a stream wrote then would belong to no
    /// one. No such disk.
    pub(super) fn admit_stream(&self, disk: u32) -> Result<u64, EngineError> {
        let slot = self.disk(disk)?;
        let ended = self.ended.lock();
        if *ended { Err(self.gone("has ended")) } else { Ok(slot.supersede()) }
    }

    /// Locks the session's end; the caller sets it when it has ended the session.
    pub(super) fn lock_end(&self) -> MutexGuard<'_, bool> {
        self.ended.lock()
    }

    /// Makes every open stream of the session fail at its next message.
    pub(super) fn supersede_streams(&self) {
        for disk in &self.disks {
            disk.supersede();
        }
    }

    pub(super) fn gone(&self, why: &str) -> EngineError {
        EngineError::SessionGone { session: self.id.to_string(), why: why.to_owned() }
    }
}
