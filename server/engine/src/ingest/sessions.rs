//! Backups in the making: who may start one, how long it lives without a sign of life, how it ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use holdfast_catalog::{NamespaceRecord, RowStatus, new_id};
use holdfast_proto::limits::{DISK_MAX_BYTES, DISKS_PER_BACKUP_MAX, REASON_MAX_BYTES, check_name};
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};
use parking_lot::Mutex;

use super::commit;
use super::live::{DiskProgress, LiveSession};
use super::parent::ParentDisk;
use super::stream::StreamState;
use crate::core::Core;
use crate::error::EngineError;

/// A request to start a backup, in a namespace the caller was authorised for.
#[derive(Debug)]
pub struct StartBackup {
    pub namespace: NamespaceId,
    pub request: v1::StartRequest,
    /// Who asks, for the audit log: a token's name.
    pub who: String,
}

/// One backup in the making.
#[derive(Debug)]
pub(crate) struct Session {
    pub(super) id: SessionId,
    pub(super) backup: BackupId,
    pub(super) run: RunId,
    pub(super) namespace: NamespaceRecord,
    pub(super) vm: String,
    pub(super) job: String,
    pub(super) host: String,
    /// Who began it, for the audit log.
    pub(super) who: String,
    pub(super) started_ms: i64,
    pub(super) disks: Vec<DiskSlot>,
    deadline_ms: AtomicI64,
    /// Whether it was committed or given up; held locked while that happens, so that it happens once.
    ended: Mutex<bool>,
}

/// One disk of a session.
#[derive(Debug)]
pub(super) struct DiskSlot {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) parent: Option<ParentDisk>,
    /// Counts streams opened; a stream of an older generation was superseded.
    pub(super) generation: AtomicU64,
    pub(super) state: Mutex<StreamState>,
    /// Where the stream is, for onlookers: they must not wait for `state`.
    pub(super) progress: DiskProgress,
}

impl Session {
    pub(super) fn renew(&self, core: &Core) {
        let deadline = core.clock.now_ms() + i64::from(core.lease_secs) * 1000;
        self.deadline_ms.store(deadline, Ordering::Relaxed);
    }

    pub(crate) const fn namespace_id(&self) -> NamespaceId {
        self.namespace.id
    }

    /// When the agent gave its last sign of life.
    pub(super) fn last_seen_ms(&self, core: &Core) -> i64 {
        self.deadline_ms.load(Ordering::Relaxed) - i64::from(core.lease_secs) * 1000
    }

    /// A sign of life.
    pub(crate) fn keep_alive(&self, core: &Core) {
        self.renew(core);
    }

    /// See [`ParentDisk::digests`]; `None` without parent, too.
    pub(crate) fn parent_digests(
        &self,
        disk: u32,
        first_extent: u64,
    ) -> Result<Option<v1::DigestBlock>, EngineError> {
        Ok(self.disk(disk)?.parent.as_ref().and_then(|parent| parent.digests(first_extent)))
    }

    pub(super) fn disk(&self, number: u32) -> Result<&DiskSlot, EngineError> {
        let count = self.disks.len();
        usize::try_from(number).ok().and_then(|n| self.disks.get(n)).ok_or_else(|| {
            EngineError::Invalid(format!("the backup has {count} disks; there is no disk number {number}"))
        })
    }

    /// Makes every open stream of the session err at its next message.
    fn supersede_streams(&self) {
        for disk in &self.disks {
            disk.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// All sessions of this process.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    by_id: HashMap<SessionId, Arc<Session>>,
    by_vm: HashMap<(NamespaceId, String), SessionId>,
    closed: bool,
}

impl Sessions {
    /// Starts a backup: one of a VM at a time.
    pub(crate) fn start(
        &self,
        core: &Arc<Core>,
        start: &StartBackup,
    ) -> Result<v1::StartResponse, EngineError> {
        let request = &start.request;
        check_request(request)?;
        core.check_writable()?;
        let namespace = core.catalog.namespace(start.namespace)?;
        let namespace = namespace
            .ok_or_else(|| EngineError::NotFound { what: "namespace", name: request.namespace.clone() })?;
        self.make_way(core, start)?;
        let session = Arc::new(open_session(core, namespace, start)?);
        session.renew(core);
        self.enter(&session)?;
        tracing::info!(session = %session.id, vm = session.vm, job = session.job, host = session.host, "backup started");
        Ok(response(core, &session))
    }

    /// Errs when the VM is being backed up, unless the request takes over.
    fn make_way(&self, core: &Arc<Core>, start: &StartBackup) -> Result<(), EngineError> {
        let key = (start.namespace, start.request.vm.clone());
        let other = {
            let tables = self.0.lock();
            if tables.closed {
                return Err(EngineError::Unavailable);
            }
            tables.by_vm.get(&key).and_then(|id| tables.by_id.get(id)).cloned()
        };
        match other {
            Some(other) if start.request.take_over => {
                self.end(core, other.id, RowStatus::Aborted, "taken over by another agent")
            }
            Some(other) => Err(busy(&other)),
            None => Ok(()),
        }
    }

    fn enter(&self, session: &Arc<Session>) -> Result<(), EngineError> {
        let mut tables = self.0.lock();
        if tables.closed {
            return Err(EngineError::Unavailable);
        }
        let key = (session.namespace.id, session.vm.clone());
        if let Some(other) = tables.by_vm.get(&key).and_then(|id| tables.by_id.get(id)) {
            return Err(busy(other));
        }
        tables.by_vm.insert(key, session.id);
        tables.by_id.insert(session.id, Arc::clone(session));
        Ok(())
    }

    /// The live session of that id.
    pub(crate) fn get(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        self.0.lock().by_id.get(&id).cloned().ok_or_else(|| gone(id))
    }

    /// What all sessions are doing, in order of their start. Takes no stream's lock: a stream holds its own
    /// while it waits for the disk.
    pub(crate) fn live(&self, core: &Core) -> Vec<LiveSession> {
        let sessions: Vec<Arc<Session>> = self.0.lock().by_id.values().cloned().collect();
        let mut live: Vec<LiveSession> = sessions.iter().map(|session| session.live(core)).collect();
        live.sort_by_key(|session| (session.started_ms, session.session));
        live
    }

    /// Renews a lease; returns its length in seconds.
    pub(crate) fn keep_alive(&self, core: &Core, id: SessionId) -> Result<u32, EngineError> {
        self.get(id)?.renew(core);
        Ok(core.lease_secs)
    }

    /// Makes the backup exist; repeating it returns the same.
    pub(crate) fn commit(&self, core: &Core, id: SessionId) -> Result<v1::CommitResponse, EngineError> {
        let Ok(session) = self.get(id) else {
            return commit::committed(core, id)?.ok_or_else(|| gone(id));
        };
        let mut ended = session.ended.lock();
        if *ended {
            return commit::committed(core, id)?.ok_or_else(|| gone(id));
        }
        let response = commit::commit(core, &session)?;
        *ended = true;
        self.remove(&session);
        tracing::info!(session = %id, backup = response.backup_id, "backup committed");
        Ok(response)
    }

    /// Ends a session without a backup and keeps its compression details. Ending twice is fine.
    pub(crate) fn end(
        &self,
        core: &Core,
        id: SessionId,
        status: RowStatus,
        reason: &str,
    ) -> Result<(), EngineError> {
        let Ok(session) = self.get(id) else { return Ok(()) };
        let mut ended = session.ended.lock();
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        self.remove(&session);
        session.supersede_streams();
        let reason: String = reason.chars().take(REASON_MAX_BYTES).collect();
        tracing::warn!(session = %id, vm = session.vm, reason, "backup ended without a restore point");
        commit::record_failure(core, &session, status, &reason)
    }

    fn remove(&self, session: &Session) {
        let mut tables = self.0.lock();
        tables.by_id.remove(&session.id);
        let key = (session.namespace.id, session.vm.clone());
        if tables.by_vm.get(&key) == Some(&session.id) {
            tables.by_vm.remove(&key);
        }
    }

    /// Ends sessions without a sign of life since their lease ran out; says how many.
    pub(crate) fn expire(&self, core: &Core) -> usize {
        let now = core.clock.now_ms();
        let dead: Vec<SessionId> = {
            let tables = self.0.lock();
            let late = |s: &&Arc<Session>| s.deadline_ms.load(Ordering::Relaxed) < now;
            tables.by_id.values().filter(late).map(|session| session.id).collect()
        };
        for &id in &dead {
            let reason = format!("no sign of life from the agent for {} s", core.lease_secs);
            if let Err(error) = self.end(core, id, RowStatus::Expired, &reason) {
                tracing::error!(session = %id, %error, "cannot record an expired session");
            }
        }
        dead.len()
    }

    /// Ends all sessions and lets no more start.
    pub(crate) fn close(&self, core: &Core, reason: &str) {
        let ids: Vec<SessionId> = {
            let mut tables = self.0.lock();
            tables.closed = true;
            tables.by_id.keys().copied().collect()
        };
        for id in ids {
            if let Err(error) = self.end(core, id, RowStatus::Aborted, reason) {
                tracing::error!(session = %id, %error, "cannot record an aborted session");
            }
        }
    }
}

fn busy(session: &Session) -> EngineError {
    EngineError::Busy { vm: session.vm.clone(), session: session.id.to_string(), host: session.host.clone() }
}

fn gone(id: SessionId) -> EngineError {
    EngineError::SessionGone { session: id.to_string(), why: "is unknown or has ended".into() }
}

fn check_request(request: &v1::StartRequest) -> Result<(), EngineError> {
    let invalid = EngineError::Invalid;
    check_name("VM", &request.vm).map_err(invalid)?;
    check_name("job", &request.job).map_err(invalid)?;
    let count = request.disks.len();
    if count == 0 || count > DISKS_PER_BACKUP_MAX {
        return Err(invalid(format!("a backup has 1 to {DISKS_PER_BACKUP_MAX} disks, not {count}")));
    }
    let mut names = HashSet::new();
    for disk in &request.disks {
        check_name("disk", &disk.name).map_err(invalid)?;
        if !names.insert(&disk.name) {
            return Err(invalid(format!(
                "two disks are called {:?}; give them names with NAME=PATH",
                disk.name
            )));
        }
        if disk.size_bytes > DISK_MAX_BYTES {
            let size = disk.size_bytes;
            return Err(invalid(format!(
                "disk {:?} is {size} bytes; the limit is {DISK_MAX_BYTES}",
                disk.name
            )));
        }
    }
    Ok(())
}

fn open_session(
    core: &Arc<Core>,
    namespace: NamespaceRecord,
    start: &StartBackup,
) -> Result<Session, EngineError> {
    let request = &start.request;
    let clock = &*core.clock;
    let run = if request.run_id.is_empty() {
        RunId(new_id(clock)?)
    } else {
        let text = &request.run_id;
        text.parse().map_err(|_| EngineError::Invalid(format!("{text:?} is no run id")))?
    };
    let domain = core.store.domain(namespace.id);
    let mut parents = ParentDisk::of_vm(core, &domain, &request.vm)?;
    let disks = request
        .disks
        .iter()
        .map(|disk| DiskSlot {
            name: disk.name.clone(),
            size_bytes: disk.size_bytes,
            parent: parents.remove(&disk.name),
            generation: AtomicU64::new(0),
            state: Mutex::new(StreamState::new(core, &domain, disk.size_bytes)),
            progress: DiskProgress::default(),
        })
        .collect();
    Ok(Session {
        id: SessionId(new_id(clock)?),
        backup: BackupId(new_id(clock)?),
        run,
        namespace,
        vm: request.vm.clone(),
        job: request.job.clone(),
        host: request.client_host.chars().filter(|c| !c.is_control()).take(200).collect(),
        who: start.who.clone(),
        started_ms: clock.now_ms(),
        disks,
        deadline_ms: AtomicI64::new(i64::MAX),
        ended: Mutex::new(false),
    })
}

fn response(core: &Core, session: &Session) -> v1::StartResponse {
    let parents = session.disks.iter().map(|disk| match &disk.parent {
        Some(parent) => v1::ParentDisk { present: true, size_bytes: parent.size_bytes() },
        None => v1::ParentDisk::default(),
    });
    let parent = session.disks.iter().find_map(|disk| disk.parent.as_ref());
    v1::StartResponse {
        session_id: session.id.to_string(),
        backup_id: session.backup.to_string(),
        run_id: session.run.to_string(),
        lease_secs: core.lease_secs,
        parent_backup_id: parent.map(|parent| parent.backup().to_string()).unwrap_or_default(),
        parents: parents.collect(),
    }
}
