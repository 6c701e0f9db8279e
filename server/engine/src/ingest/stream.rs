//! One disk's stream: queries, regions, extents, in the order the agent sent them; and the progress of all streams, for the
//! UI and the API, which reads what each stream stored last and waits for none.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::AuditEntry;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::disk::DiskState;
use super::extents;
use super::session::{DiskSlot, Session};
use crate::core::Core;
use crate::error::EngineError;

/// One disk's open stream. Dropping it leaves the state with the session.
#[derive(Debug)]
pub struct DiskStream {
    core: Arc<Core>,
    session: Arc<Session>,
    disk: u32,
    generation: u64,
    takes_pending: bool,
}

impl DiskStream {
    /// Opens the stream of disk number `disk`; an older stream of it fails from now on.
    pub(crate) fn open(core: Arc<Core>, session: Arc<Session>, disk: u32) -> Result<Self, EngineError> {
        let generation = session.admit_stream(disk)?;
        session.keep_alive(&core);
        Ok(Self { core, session, disk, generation, takes_pending: false })
    }

    /// Sets whether the agent understands pending chunks, and chunks asked again; to be called before anything else.
    #[must_use]
    pub fn taking_pending(mut self, takes_pending: bool) -> Self {
        self.takes_pending = takes_pending;
        self
    }

    /// First message for the agent: extents it need not send again.
    ///
    /// # Errors
    /// When the session ended meanwhile.
    pub fn opened(&self) -> Result<v1::StreamOpened, EngineError> {
        self.with_state(|_, _, state| {
            let ranges = state.recipe.accepted_ranges();
            let accepted =
                ranges.into_iter().map(|(first, count)| v1::ExtentRange { first, count }).collect();
            Ok(v1::StreamOpened { accepted, ..v1::StreamOpened::default() })
        })
    }

    /// Takes one message that was `wire_bytes` long. Blocks while verification or sealing lags behind, which
    /// holds the agent back. After an error the session cannot be committed.
    ///
    /// # Errors
    /// Names the disk and what is wrong with the message; or an error of the store.
    pub fn handle(
        &self,
        message: Request,
        wire_bytes: u64,
    ) -> Result<Option<v1::IngestResponse>, EngineError> {
        self.with_state(|core, slot, state| {
            self.session.keep_alive(core);
            state.counters.message(wire_bytes, core.clock.now_ms())?;
            if !matches!(message, Request::Finish(_)) {
                if state.finished.is_some() {
                    return Err(EngineError::Invalid("the stream was finished already".into()));
                }
                if state.is_finishing() {
                    return Err(EngineError::Invalid(
                        "a message came after Finish and before its answer".into(),
                    ));
                }
            }
            match message {
                Request::Open(_) => Err(EngineError::Invalid("the stream is open already".into())),
                Request::Query(query) => Ok(Some(answer(Response::Need(state.query(core, &query)?)))),
                Request::Region(region) => state.region(core, region).map(|()| None),
                Request::Extents(extents) => {
                    state.settle_damage(&core.store)?;
                    let before = state.counters.data_bytes();
                    extents::accept(core, slot.parent.as_ref(), state, &extents)?;
                    state.settle_promises(core)?;
                    let added = state.counters.data_bytes().saturating_sub(before);
                    self.session.charge.add_protected(added)?;
                    Ok(state.ack().map(|ack| answer(Response::Ack(ack))))
                }
                Request::Finish(finish) => Ok(state.finish(core, &finish)?.map(answer)),
            }
        })
    }

    /// Answers with progress since the last message, if any; for when no message waits.
    ///
    /// # Errors
    /// As [`DiskStream::handle`].
    pub fn idle(&self) -> Result<Option<v1::IngestResponse>, EngineError> {
        self.with_state(|core, _, state| {
            state.store_verified(false)?;
            if state.is_finishing() {
                // (C4) Its agent has nothing to say while it waits for others, which is bounded.
                self.session.keep_alive(core);
                if let Some(done) = state.go_on(core)? {
                    return Ok(Some(answer(done)));
                }
            }
            Ok(state.ack().map(|ack| answer(Response::Ack(ack))))
        })
    }

    /// When the stream waits for what others bring before Finish can be answered: waits until there may be an answer
    /// from [`DiskStream::idle`], up to `timeout`. `false`, at once: it does not. Holds nothing meanwhile.
    #[must_use]
    pub fn wait_for_others(&self, timeout: Duration) -> bool {
        self.session.disk(self.disk).is_ok_and(|slot| slot.claims.wait(timeout))
    }

    /// (W11) Notes who lied. The stream has failed anyway, whether or not the catalog can be written.
    fn audit_lie(&self, error: &EngineError) {
        let session = &self.session;
        let (vm, token) = (&session.vm, &session.starter.name);
        tracing::error!(session = %session.id, vm, token, %error, "an agent lied about an extent's digest");
        let entry = AuditEntry {
            who: token.clone(),
            action: "backup.false-digest".to_owned(),
            object: session.id.to_string(),
            detail: format!("VM {vm:?} in namespace {:?}: {error}", session.namespace.name),
        };
        if let Err(error) = self.core.catalog.audit(&entry) {
            tracing::error!(%error, "cannot write the audit log");
        }
    }

    /// Runs `work` on the state unless the stream was superseded or failed before; remembers a failure.
    fn with_state<T>(
        &self,
        work: impl FnOnce(&Core, &DiskSlot, &mut DiskState) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let slot = self.session.disk(self.disk)?;
        let mut state = slot.state.lock();
        if !slot.is_current(self.generation) {
            return Err(self.session.gone("has ended, or its stream was opened again"));
        }
        if let Some(why) = state.failure() {
            return Err(self.session.gone(&format!("failed: {why}")));
        }
        state.opened_by(self.generation, self.takes_pending);
        let before = state.position().work();
        // Stays when the work panics: a state that was changed in part must not be committed.
        state.set_failure(Some(Cow::Borrowed("a message was not handled to its end")));
        let outcome = work(&self.core, slot, &mut state)
            .and_then(|value| state.account_memory(slot.parent.as_ref()).map(|()| value))
            .map_err(|error| name_disk(error, &slot.name));
        if let Err(error @ EngineError::FalseDigest { .. }) = &outcome {
            self.audit_lie(error);
        }
        let position = state.position();
        slot.progress.store(position);
        if position.work() != before {
            self.session.progressed(&self.core);
        }
        if outcome.is_err() {
            state.fail(slot.parent.as_ref());
        }
        state.set_failure(outcome.as_ref().err().map(|error| error.to_string().into()));
        if outcome.is_err() {
            self.session.set_failed();
        }
        outcome
    }
}

impl Drop for DiskStream {
    /// (C3) Gives up the chunks asked of its agent, which will not come without it.
    fn drop(&mut self) {
        if let Ok(slot) = self.session.disk(self.disk)
            && slot.is_current(self.generation)
        {
            slot.claims.forget_asked();
        }
    }
}

fn answer(kind: Response) -> v1::IngestResponse {
    v1::IngestResponse { kind: Some(kind) }
}

/// Puts the disk's name into messages that lack it.
fn name_disk(error: EngineError, disk: &str) -> EngineError {
    match error {
        EngineError::Region { source, .. } => EngineError::Region { disk: disk.to_owned(), source },
        EngineError::Invalid(message) => EngineError::Invalid(format!("disk {disk:?}: {message}")),
        EngineError::FalseDigest { extent, claimed, actual, .. } => {
            EngineError::FalseDigest { disk: disk.to_owned(), extent, claimed, actual }
        }
        EngineError::Damaged(message) => EngineError::Damaged(format!("disk {disk:?}: {message}")),
        EngineError::FoundDamaged(message) => EngineError::FoundDamaged(format!("disk {disk:?}: {message}")),
        other => other,
    }
}

/// A backup in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveSession {
    pub session: SessionId,
    /// Id of the restore point once it is committed.
    pub backup: BackupId,
    pub run: RunId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    pub job: String,
    /// Host on which the agent runs, by its own account.
    pub host: String,
    pub started_ms: i64,
    /// Time at which the agent's last heartbeat arrived.
    pub last_seen_ms: i64,
    /// Disks, in the order the agent named them.
    pub disks: Vec<LiveDisk>,
}

/// A disk of a backup in progress. Bytes as in the compression details, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveDisk {
    pub name: String,
    pub size_bytes: u64,
    /// Bytes of the disk dealt with so far, zeros included, at least: those described, or those received while
    /// descriptions wait at the agent for a message to fill; `size_bytes` at the end.
    pub done_bytes: u64,
    pub unchanged_bytes: u64,
    pub dup_bytes: u64,
    pub new_bytes: u64,
    pub wire_bytes: u64,
    /// Bytes of its sealed containers, data and recipe.
    pub stored_bytes: u64,
    pub finished: bool,
}

impl DiskSlot {
    fn live(&self) -> LiveDisk {
        let at = self.progress.load();
        LiveDisk {
            name: self.name.clone(),
            size_bytes: self.size_bytes,
            done_bytes: at
                .extents
                .saturating_mul(EXTENT_BYTES.into())
                .max(at.wire_bytes)
                .min(self.size_bytes),
            unchanged_bytes: at.unchanged_bytes,
            dup_bytes: at.dup_bytes,
            new_bytes: at.new_bytes,
            wire_bytes: at.wire_bytes,
            stored_bytes: at.stored_bytes,
            finished: at.finished,
        }
    }
}

impl Session {
    pub(super) fn live(&self) -> LiveSession {
        LiveSession {
            session: self.id,
            backup: self.backup,
            run: self.run,
            namespace: self.namespace.id,
            namespace_name: self.namespace.name.clone(),
            vm: self.vm.clone(),
            job: self.job.clone(),
            host: self.host.clone(),
            started_ms: self.started_ms,
            last_seen_ms: self.last_seen_ms(),
            disks: self.disks.iter().map(DiskSlot::live).collect(),
        }
    }
}
