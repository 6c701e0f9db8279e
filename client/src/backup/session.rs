//! A session from start to commit or abort, and what to do when the connection or the session is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::limits::REASON_MAX_BYTES;
use holdfast_proto::{ErrorCode, KeyId, v1};
use tracing::Instrument as _;

use crate::backoff::Backoff;
use crate::backup::stream::{Accepted, Place, ingest};
use crate::backup::{BackupOptions, Pipeline};
use crate::connect::{Connection, Settings, open_again, open_retrying};
use crate::error::ClientError;
use crate::progress::Notice;
use crate::source::{FailedDisk, Source};
use crate::turn::give_way;

/// Telling the server that a session is over must not hold up the agent's end.
const ABORT_TIMEOUT: Duration = Duration::from_secs(5);

/// As `ABORT_TIMEOUT`, when another session is to follow: it is refused for as long as this one lasts.
const ABORT_TO_GO_ON_TIMEOUT: Duration = Duration::from_secs(30);

/// Sessions lost before the backup is given up. One is lost with every restart of the server, and when the server finds
/// damage in what the session relies on; a disk that fails bit by bit could go on with that for ever.
const SESSIONS_LOST_MAX: u32 = 32;

/// Adds rows about these disks to the details of a run: a session of its own, which is given up at once because of `reason`.
/// Their sizes are not known.
///
/// # Errors
/// The server's refusal, or a lost connection.
pub(super) async fn record(
    connection: &Connection,
    options: &BackupOptions,
    run_id: &str,
    disks: impl Iterator<Item = &str>,
    reason: &str,
) -> Result<(), ClientError> {
    let disks = disks.map(|name| v1::DiskSpec { name: name.to_owned(), size_bytes: 0 });
    let request = start_request(options, run_id, disks.collect());
    // That nothing but these is there is no change of the VM.
    let request = v1::StartRequest { take_over: false, accept_change: true, ..request };
    let session_id = connection.backup().start(request).await?.into_inner().session_id;
    let request = v1::AbortRequest { session_id, reason: fitting(reason.to_owned()) };
    connection.backup().abort(request).await?;
    Ok(())
}

fn start_request(options: &BackupOptions, run_id: &str, disks: Vec<v1::DiskSpec>) -> v1::StartRequest {
    v1::StartRequest {
        namespace: options.namespace.clone(),
        vm: options.vm.clone(),
        job: options.job.clone(),
        disks,
        run_id: run_id.to_owned(),
        take_over: options.take_over,
        missing_disks: Vec::new(),
        accept_change: options.accept_change,
        client_host: host_name(),
        key_id: KeyId::field(options.cipher.key_id()),
        client_version: env!("CARGO_PKG_VERSION").to_owned(),
        level: options.level.unsigned_abs(),
    }
}

/// Returns the name of this machine, as the server is told.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A backup in progress.
pub(super) struct Agent<'a> {
    settings: &'a Settings,
    /// Disks that have not failed.
    disks: Vec<Arc<dyn Source>>,
    /// Names of those that have, and of those that could not be opened.
    missing: Vec<String>,
    /// Names of those that were written to while they were read.
    written: Vec<String>,
    options: &'a BackupOptions,
    pipeline: &'a Pipeline,
    connection: Connection,
    session: Option<v1::StartResponse>,
    /// The run this backup belongs to, once known.
    run_id: String,
    /// Set from the first request to commit on, until the server has refused it: meanwhile the restore point may exist.
    committing: Arc<AtomicBool>,
    backoff: Backoff,
    epoch: Instant,
}

impl<'a> Agent<'a> {
    /// Connects, and keeps trying for as long as an outage may last.
    pub(super) async fn connect(
        settings: &'a Settings,
        disks: &[Arc<dyn Source>],
        unopened: &[FailedDisk],
        options: &'a BackupOptions,
        pipeline: &'a Pipeline,
    ) -> Result<Self, ClientError> {
        let notice = |notice: &Notice| pipeline.progress.notice(notice);
        let connection = open_retrying(settings, options.retry_for, notice).await?;
        let backoff = Backoff::new(options.retry_for);
        Ok(Self {
            settings,
            disks: disks.to_vec(),
            missing: unopened.iter().map(|failed| failed.disk.clone()).collect(),
            written: Vec::new(),
            options,
            pipeline,
            connection,
            session: None,
            run_id: options.run_id.clone(),
            committing: Arc::default(),
            backoff,
            epoch: Instant::now(),
        })
    }

    /// Runs sessions until one is committed. Returns the run's id and the server's answer.
    pub(super) async fn work(&mut self) -> Result<(String, v1::CommitResponse), ClientError> {
        let mut lost = 0;
        loop {
            let session = self.start().await?;
            self.session = Some(session.clone());
            self.pipeline.progress.session();
            self.run_id.clone_from(&session.run_id);
            let span = tracing::info_span!("session", session = session.session_id);
            match self.one_session(&session).instrument(span).await {
                Ok(commit) => return Ok((session.run_id, commit)),
                Err(error) if error.is_session_gone() && lost < SESSIONS_LOST_MAX => {
                    lost += 1;
                    let reason = error.to_string();
                    tracing::info!(session = session.session_id, reason, "session lost; starting another");
                    self.pause(error, |_| Notice::SessionRestarted { reason }).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The disk whose reading ended with `error`, if there are others to back up.
    fn disk_to_leave_out<'e>(&self, error: &'e ClientError) -> Option<&'e str> {
        match error {
            ClientError::Source(source) if self.disks.len() > 1 => source.disk(),
            _ => None,
        }
    }

    /// Leaves out the disk whose reading ended with `error`, when there are others: the next session, in the same
    /// run, is without it. The session it happened in must have been given up: its rows in the run's details say
    /// why.
    ///
    /// # Errors
    /// `error`, when it has another cause or no disk would be left.
    pub(super) fn leave_out(&mut self, error: ClientError) -> Result<FailedDisk, ClientError> {
        let Some(disk) = self.disk_to_leave_out(&error).map(str::to_owned) else { return Err(error) };
        self.disks.retain(|source| source.name() != disk);
        self.missing.push(disk.clone());
        self.session = None;
        let error = error.to_string();
        tracing::warn!(disk, error, "the disk is left out of the backup");
        self.pipeline.progress.notice(&Notice::DiskFailed { error: error.clone() });
        Ok(FailedDisk { disk, error })
    }

    /// Adds rows about disks that could not even be opened to the run's details.
    ///
    /// # Errors
    /// The server's refusal, or a lost connection.
    pub(super) async fn record_failed(&self, failed: &[FailedDisk]) -> Result<(), ClientError> {
        let reason = failed.iter().map(|failed| failed.error.as_str()).collect::<Vec<_>>().join("; ");
        let disks = failed.iter().map(|failed| failed.disk.as_str());
        record(&self.connection, self.options, &self.run_id, disks, &reason).await
    }

    /// Names of the disks that were written to while they were read.
    pub(super) fn take_written(&mut self) -> Vec<String> {
        std::mem::take(&mut self.written)
    }

    /// Set while it is not known whether the restore point exists.
    pub(super) fn committing(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.committing)
    }

    /// Returns whether the restore point may exist although its commit was not answered.
    pub(super) fn is_committing(&self) -> bool {
        self.committing.load(Ordering::Relaxed)
    }

    /// Says of a commit that was not answered that its restore point may exist.
    pub(super) fn unclear(&self, error: ClientError) -> ClientError {
        let backup = self.session.as_ref().map(|session| session.backup_id.as_str()).unwrap_or_default();
        let left = format!(
            "the server was asked to commit restore point {backup} and has not answered: \
             'holdfast list --vm {}' shows whether it exists",
            self.options.vm
        );
        self.named(error).leaving(left)
    }

    /// Adds the session it happened in to an error, so that it can be found in the server's log.
    pub(super) fn named(&self, error: ClientError) -> ClientError {
        match &self.session {
            Some(session) if !error.is_interrupted() => error.of_session(session.session_id.as_str()),
            _ => error,
        }
    }

    /// Tells the server that the backup is given up. Best effort: otherwise the lease runs out.
    pub(super) async fn give_up(&self, error: &ClientError) {
        let Some(session) = &self.session else { return };
        tracing::info!(session = session.session_id, %error, "giving the backup up");
        let reason = fitting(error.to_string());
        let request = v1::AbortRequest { session_id: session.session_id.clone(), reason };
        let mut client = self.connection.backup();
        // A failed abort makes no difference to the user, who is told the error itself.
        let goes_on = self.disk_to_leave_out(error).is_some();
        let timeout = if goes_on { ABORT_TO_GO_ON_TIMEOUT } else { ABORT_TIMEOUT };
        drop(tokio::time::timeout(timeout, client.abort(request)).await);
    }

    async fn start(&mut self) -> Result<v1::StartResponse, ClientError> {
        loop {
            match self.try_start().await {
                Ok(session) if session.parents.len() == self.disks.len() => return Ok(session),
                Ok(session) => {
                    let (ours, theirs) = (self.disks.len(), session.parents.len());
                    let what = format!("it started a session of {theirs} disks; {ours} were asked for");
                    return Err(ClientError::Protocol(what));
                }
                Err(ClientError::Refused { code: ErrorCode::NotFound | ErrorCode::Invalid, .. })
                    if self.run_id != self.options.run_id =>
                {
                    // The run of the lost session can no longer be joined: begin as if for the first time.
                    self.run_id.clone_from(&self.options.run_id);
                }
                Err(error) if error.is_connection_loss() => self.reconnect(error).await?,
                Err(error) if error.is_limit() => self.wait_for_limit(error).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn try_start(&self) -> Result<v1::StartResponse, ClientError> {
        let disks = self
            .disks
            .iter()
            .map(|disk| v1::DiskSpec { name: disk.name().to_owned(), size_bytes: disk.size_bytes() });
        let missing_disks = self.missing.clone();
        let request = start_request(self.options, &self.run_id, disks.collect());
        let request = v1::StartRequest { missing_disks, ..request };
        let started = self.connection.backup().start(request).await?.into_inner();
        // A server that does not know of encryption would take anything.
        let namespace = format!("namespace {:?}", self.options.namespace);
        self.options.cipher.check(&started.key_id, &namespace)?;
        Ok(started)
    }

    async fn one_session(&mut self, session: &v1::StartResponse) -> Result<v1::CommitResponse, ClientError> {
        tracing::info!(
            backup = session.backup_id,
            run = session.run_id,
            parent = session.parent_backup_id,
            vm = self.options.vm,
            job = self.options.job,
            "session started"
        );
        if session.parent_backup_id.is_empty() {
            self.pipeline.progress.notice(&Notice::FirstBackup { vm: self.options.vm.clone() });
        }
        let mut before_bytes = 0;
        self.pipeline.reread_extents.store(0, Ordering::Relaxed);
        self.written.clear();
        for (number, disk) in (0u32..).zip(&self.disks.clone()) {
            tracing::info!(
                disk = disk.name(),
                location = disk.location(),
                size_bytes = disk.size_bytes(),
                can_change = disk.can_change(),
                "reading disk"
            );
            let times = disk.write_times()?;
            let place = Place { session, number, before_bytes, written_before: times };
            self.one_disk(disk, place).await?;
            if disk.write_times()? != times {
                tracing::warn!(
                    disk = disk.name(),
                    location = disk.location(),
                    "written to while it was read"
                );
                self.written.push(disk.name().to_owned());
            }
            before_bytes += disk.size_bytes();
        }
        loop {
            let request = v1::CommitRequest { session_id: session.session_id.clone() };
            let mut client = self.connection.backup();
            let commit = async { Ok(client.commit(request).await?.into_inner()) };
            self.committing.store(true, Ordering::Relaxed);
            match with_lease(&self.connection, session, commit).await {
                Err(error) if error.is_connection_loss() => self.reconnect(error).await?,
                Err(error) => {
                    // Also of a request before this one: the server answers the same to each.
                    self.committing.store(false, Ordering::Relaxed);
                    if !error.is_limit() {
                        return Err(error);
                    }
                    self.wait_for_limit(error).await?;
                }
                Ok(commit) => {
                    self.committing.store(false, Ordering::Relaxed);
                    tracing::info!(backup = commit.backup_id, "backup committed");
                    return Ok(commit);
                }
            }
        }
    }

    /// Backs up one disk, opening its stream as often as it takes.
    async fn one_disk(&mut self, disk: &Arc<dyn Source>, place: Place<'_>) -> Result<(), ClientError> {
        let accepted = Accepted::default();
        loop {
            let before = accepted.so_far();
            let stream = ingest(&self.connection, self.pipeline, disk, place, &accepted);
            let outcome = with_lease(&self.connection, place.session, stream).await;
            // A server that let it wait its turn was there: a loss after that begins a new outage.
            let has_waited = self.pipeline.has_waited.swap(false, Ordering::Relaxed);
            if outcome.is_ok() || has_waited || accepted.so_far() != before {
                self.backoff.progressed();
            }
            match outcome {
                Err(error) if error.is_giving_way() => {
                    self.backoff.progressed();
                    give_way(&error).await;
                }
                Err(error) if error.is_connection_loss() => self.reconnect(error).await?,
                Err(error) if error.is_limit() => self.wait_for_limit(error).await?,
                Err(error) => return Err(error),
                Ok(()) => {
                    tracing::info!(disk = disk.name(), "disk sent");
                    return Ok(());
                }
            }
        }
    }

    /// Tries to connect again, for as long as an outage may last.
    async fn reconnect(&mut self, lost: ClientError) -> Result<(), ClientError> {
        let pipeline = self.pipeline;
        let notice = |notice: &Notice| pipeline.progress.notice(notice);
        self.connection = open_again(self.settings, lost, (&mut self.backoff, self.epoch), notice).await?;
        Ok(())
    }

    /// Waits, for as long as an outage may last, because the server refused: it is at a limit. The session
    /// lives on meanwhile: no wait is as long as its lease.
    async fn wait_for_limit(&mut self, refused: ClientError) -> Result<(), ClientError> {
        let reason = refused.to_string();
        tracing::info!(reason, "waiting for the server");
        self.pause(refused, |delay| Notice::Waiting { reason, delay }).await
    }

    /// Waits before the next attempt. Fails with `error` when the outage has lasted too long.
    async fn pause(
        &mut self,
        error: ClientError,
        notice: impl FnOnce(Duration) -> Notice,
    ) -> Result<(), ClientError> {
        let Some(delay) = self.backoff.next_delay(self.epoch.elapsed()) else { return Err(error) };
        self.pipeline.progress.notice(&notice(delay));
        tokio::time::sleep(delay).await;
        Ok(())
    }
}

/// Returns as much of `reason` as the server takes.
fn fitting(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_MAX_BYTES));
    reason
}

/// Runs `work` while renewing the session's lease three times as often as needed. A failed renewal ends the
/// work only when the session is gone: a lost connection shows in the work itself.
pub(super) async fn with_lease<T>(
    connection: &Connection,
    session: &v1::StartResponse,
    work: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let mut client = connection.backup();
    let renew = async {
        let mut lease_secs = session.lease_secs;
        loop {
            tokio::time::sleep(Duration::from_secs(u64::from(lease_secs.max(3))) / 3).await;
            let session_id = session.session_id.clone();
            match client.keep_alive(v1::KeepAliveRequest { session_id }).await {
                Ok(answer) => lease_secs = answer.into_inner().lease_secs,
                Err(status) => {
                    let error = ClientError::from(status);
                    if error.is_session_gone() {
                        return error;
                    }
                }
            }
        }
    };
    tokio::select! {
        biased;
        outcome = work => outcome,
        error = renew => Err(error),
    }
}
