//! Table of sessions: one backup of a VM at a time, and how each ends.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{AuditEntry, RowStatus};
use holdfast_proto::limits::{REASON_MAX_BYTES, plain_text};
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, NamespaceId, SessionId, TokenId};
use parking_lot::Mutex;

use super::commit::{self, Committed};
use super::session::{Session, Starter};
use super::start::{self, StartBackup};
use super::stream::LiveSession;
use crate::core::Core;
use crate::error::EngineError;

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
        asked: &StartBackup,
    ) -> Result<v1::StartResponse, EngineError> {
        let request = &asked.request;
        start::check_request(request)?;
        let room = core.session_grant()?;
        let namespace = core.catalog.namespace(asked.namespace)?;
        let namespace = namespace
            .ok_or_else(|| EngineError::NotFound { what: "namespace", name: request.namespace.clone() })?;
        start::check_key(&namespace, request)?;
        let vm_owner = start::vm_owner(core, asked)?;
        // Before a backup that goes on is ended for one that is refused.
        if request.take_over
            && !request.accept_change
            && let Some(lost) = start::lost(core, asked)?
        {
            return Err(change_refused(&lost));
        }
        self.make_way(core, asked)?;
        let session = Arc::new(start::open_session(core, namespace, vm_owner, asked, room)?);
        session.progressed(core);
        self.enter(&session)?;
        // Again: a session that claimed the run may have ended since the first look. From now on, none can.
        let owner = &session.starter.owner;
        let checked = start::check_run(core, session.run, &session.namespace, owner);
        if let Err(error) = checked {
            self.remove(&session);
            return Err(error);
        }
        if let Some(lost) = session.lost.as_ref().filter(|_| !request.accept_change) {
            // Its run says that it failed, and why.
            self.end_as(core, session.id, RowStatus::Failed, lost, None)?;
            return Err(change_refused(lost));
        }
        // Last: what is refused for another reason does not count.
        if let Err(error) = session.charge.count_today() {
            self.remove(&session);
            return Err(error);
        }
        tracing::info!(session = %session.id, vm = session.vm, job = session.job, host = session.host, "backup started");
        Ok(start::response(core, &session))
    }

    /// Fails when a VM of this name is being backed up.
    pub(crate) fn check_free(&self, namespace: NamespaceId, vm: &str) -> Result<(), EngineError> {
        match self.0.lock().by_vm.get(&(namespace, vm.to_owned())) {
            Some(_) => Err(EngineError::BusyElsewhere { vm: vm.to_owned() }),
            None => Ok(()),
        }
    }

    /// Fails when the VM is being backed up, unless the request takes over and its token may.
    fn make_way(&self, core: &Arc<Core>, asked: &StartBackup) -> Result<(), EngineError> {
        let key = (asked.namespace, asked.request.vm.clone());
        let other = {
            let tables = self.0.lock();
            if tables.closed {
                return Err(EngineError::Unavailable);
            }
            tables.by_vm.get(&key).and_then(|id| tables.by_id.get(id)).cloned()
        };
        match other {
            // It cannot become a backup, and its agent may be the one who asks.
            Some(other) if other.has_failed() => self.end_failed(core, other.id).map(drop),
            Some(other) if asked.request.take_over => self.take_over(core, &other, asked),
            Some(other) => Err(busy(&other, &asked.starter)),
            None => Ok(()),
        }
    }

    /// Ends a session for the one that follows it. The audit log names both tokens, before anything ends.
    fn take_over(&self, core: &Core, other: &Session, asked: &StartBackup) -> Result<(), EngineError> {
        let (by, of) = (&asked.starter, &other.starter);
        if !other.is_of(by.token) && !by.may_take_over {
            return Err(EngineError::TakeOverForbidden { vm: other.vm.clone() });
        }
        core.catalog.audit(&AuditEntry {
            who: by.name.clone(),
            action: "backup.take-over".to_owned(),
            object: other.id.to_string(),
            detail: format!(
                "VM {:?} in namespace {:?}: token {:?} ({}) ended the backup that token {:?} ({}) had started from {:?}",
                other.vm, other.namespace.name, by.name, by.token, of.name, of.token, other.host
            ),
        })?;
        let reason = format!("taken over by token {:?}, started by token {:?}", by.name, of.name);
        self.end_as(core, other.id, RowStatus::Aborted, &reason, Some(&by.name))
    }

    fn enter(&self, session: &Arc<Session>) -> Result<(), EngineError> {
        let mut tables = self.0.lock();
        if tables.closed {
            return Err(EngineError::Unavailable);
        }
        let key = (session.namespace.id, session.vm.clone());
        if let Some(other) = tables.by_vm.get(&key).and_then(|id| tables.by_id.get(id)) {
            return Err(busy(other, &session.starter));
        }
        // The catalog knows only runs of sessions that ended.
        let other_job = |other: &&Arc<Session>| {
            other.run == session.run
                && (other.namespace.id != session.namespace.id
                    || other.job != session.job
                    || other.starter.owner != session.starter.owner)
        };
        if tables.by_id.values().any(|other| other_job(&other)) {
            return Err(start::foreign_run(session.run, &session.namespace, &session.job));
        }
        tables.by_vm.insert(key, session.id);
        tables.by_id.insert(session.id, Arc::clone(session));
        Ok(())
    }

    /// The live session of that id.
    pub(crate) fn get(&self, id: SessionId) -> Result<Arc<Session>, EngineError> {
        self.0.lock().by_id.get(&id).cloned().ok_or_else(|| gone(id))
    }

    /// Checks that `token` may continue a session: only the token that started it may. A session that has ended has no
    /// starter; its outcome is in the catalog.
    pub(crate) fn check_starter(&self, id: SessionId, token: TokenId) -> Result<(), EngineError> {
        match self.get(id) {
            Ok(session) if !session.is_of(token) => Err(EngineError::NotYours { session: id.to_string() }),
            _ => Ok(()),
        }
    }

    /// Activity of all sessions, in order of their start. Takes no stream's lock: a stream holds its own while it waits
    /// for the disk.
    pub(crate) fn live(&self) -> Vec<LiveSession> {
        let sessions: Vec<Arc<Session>> = self.0.lock().by_id.values().cloned().collect();
        let mut live: Vec<LiveSession> = sessions.iter().map(|session| session.live()).collect();
        live.sort_by_key(|session| (session.started_ms, session.session));
        live
    }

    /// Returns true if a session that has not ended makes this restore point.
    pub(crate) fn makes(&self, backup: BackupId) -> bool {
        self.0.lock().by_id.values().any(|session| session.backup == backup)
    }

    /// The sessions in progress.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.0.lock().by_id.values().cloned().collect()
    }

    /// The time a session waits for its turn is no standstill.
    pub(crate) fn waits_for_turn(&self, core: &Core, id: SessionId) -> Result<(), EngineError> {
        self.get(id)?.waits_for_turn(core);
        Ok(())
    }

    /// Renews a lease; returns its length in seconds. What was committed needs none: its agent may be waiting for the answer.
    pub(crate) fn keep_alive(&self, core: &Core, id: SessionId) -> Result<u32, EngineError> {
        match self.get(id) {
            Ok(session) => session.keep_alive(core),
            Err(gone) if core.catalog.backup_by_session(id)?.is_none() => return Err(gone),
            Err(_) => {}
        }
        Ok(core.lease_secs)
    }

    /// Makes the backup exist; (W7) repeating it returns the same.
    pub(crate) fn commit(&self, core: &Core, id: SessionId) -> Result<Committed, EngineError> {
        let Ok(session) = self.get(id) else {
            return commit::committed(core, id)?.ok_or_else(|| gone(id));
        };
        let mut ended = session.lock_end();
        if *ended {
            return commit::committed(core, id)?.ok_or_else(|| gone(id));
        }
        let response = match commit::commit(core, &session) {
            Ok(response) => response,
            Err(error @ EngineError::FoundDamaged(_)) => {
                // (R5) It stays damaged: the session is of no use, and in the way of the next.
                *ended = true;
                self.close_failed(core, &session, &error);
                return Err(error);
            }
            Err(error) => return Err(error),
        };
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
        self.end_as(core, id, status, reason, None)
    }

    /// Ends a session of which a stream failed, so that its VM is free for the next. Returns true if it had to be.
    pub(crate) fn end_failed(&self, core: &Core, id: SessionId) -> Result<bool, EngineError> {
        let failed = self.get(id).is_ok_and(|session| session.has_failed());
        if failed {
            self.end(core, id, RowStatus::Failed, "a disk's stream failed")?;
        }
        Ok(failed)
    }

    /// As [`Sessions::end`]; `who`: the token that ended it, where that is not the one that started it.
    fn end_as(
        &self,
        core: &Core,
        id: SessionId,
        status: RowStatus,
        reason: &str,
        who: Option<&str>,
    ) -> Result<(), EngineError> {
        let Ok(session) = self.get(id) else { return Ok(()) };
        let mut ended = session.lock_end();
        if std::mem::replace(&mut *ended, true) {
            return Ok(());
        }
        session.supersede_streams();
        if commit::is_sealed(&session) {
            match commit::commit(core, &session) {
                Ok(_) => {
                    tracing::info!(session = %id, vm = session.vm, "the backup exists on the volume; the catalog knows it now");
                    self.remove(&session);
                    return Ok(());
                }
                Err(error) if commit::is_sealed(&session) => {
                    tracing::error!(session = %id, vm = session.vm, %error, "the backup exists on the volume, but cannot be entered into the catalog; the next start enters it");
                    core.leave_point();
                    self.remove(&session);
                    return Err(error);
                }
                // (P2) Refused for good: its point was taken back, and a failure is what is left.
                Err(error) => {
                    tracing::warn!(session = %id, vm = session.vm, %error, "the catalog refuses the backup");
                }
            }
        }
        let reason = plain_text(reason, REASON_MAX_BYTES);
        tracing::warn!(session = %id, vm = session.vm, reason, "backup ended without a restore point");
        let who = who.unwrap_or(&session.starter.name);
        let recorded = commit::record_failure(core, &session, status, &reason, who);
        // Only now, so that its run is known here or in the catalog at every moment.
        self.remove(&session);
        recorded
    }

    /// Ends a session whose commit was refused for good.
    fn close_failed(&self, core: &Core, session: &Session, error: &EngineError) {
        session.supersede_streams();
        let reason = plain_text(&error.to_string(), REASON_MAX_BYTES);
        tracing::warn!(session = %session.id, vm = session.vm, reason, "commit refused");
        let who = &session.starter.name;
        if let Err(error) = commit::record_failure(core, session, RowStatus::Failed, &reason, who) {
            tracing::error!(session = %session.id, %error, "cannot record a backup that was refused");
        }
        self.remove(session);
    }

    fn remove(&self, session: &Session) {
        let mut tables = self.0.lock();
        tables.by_id.remove(&session.id);
        let key = (session.namespace.id, session.vm.clone());
        if tables.by_vm.get(&key) == Some(&session.id) {
            tables.by_vm.remove(&key);
        }
    }

    /// Ends sessions whose lease ran out; says how many.
    pub(crate) fn expire(&self, core: &Core) -> usize {
        let dead: Vec<(SessionId, String)> = {
            let tables = self.0.lock();
            let late = |s: &Arc<Session>| Some((s.id, s.lease.is_over(core)?));
            tables.by_id.values().filter_map(late).collect()
        };
        for (id, reason) in &dead {
            let (id, reason) = (*id, reason);
            if let Err(error) = self.end(core, id, RowStatus::Expired, reason) {
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

fn busy(session: &Session, asking: &Starter) -> EngineError {
    if !session.is_of(asking.token) {
        return EngineError::BusyElsewhere { vm: session.vm.clone() };
    }
    EngineError::Busy { vm: session.vm.clone(), session: session.id.to_string(), host: session.host.clone() }
}

fn gone(id: SessionId) -> EngineError {
    EngineError::SessionGone { session: id.to_string(), why: "is unknown or has ended".into() }
}

/// (W16)
fn change_refused(lost: &str) -> EngineError {
    EngineError::Invalid(format!(
        "{lost}; if that is right, back it up with --accept-change; otherwise look at what the agent was given"
    ))
}
