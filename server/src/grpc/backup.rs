//! The Backup service.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{AuditEntry, AuditRepeat};
use holdfast_engine::ids::SessionId;
use holdfast_engine::{Committed, EngineError, StartBackup, Starter, Tenant};
use holdfast_proto::limits::{NAME_MAX_BYTES, REASON_MAX_BYTES, check_name, plain_text};
use holdfast_proto::v1::backup_server::Backup;
use holdfast_proto::version::negotiate;
use holdfast_proto::{ErrorCode, v1};
use holdfast_tiers::CopyStatus;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::activity::Change;
use crate::activity::streams::{StreamKind, Subject};
use crate::app::App;
use crate::auth::Caller;
use crate::auth::tokens::namespace_names;
use crate::error::ServiceError;
use crate::findings;
use crate::grpc::call::{Stage, caller, own_session, parse_id, shown};
use crate::grpc::calls::Call;
use crate::grpc::ingest::{self, Lanes};
use crate::grpc::outgoing::{self, ParentDigests};
use crate::metrics::BackupEnd;
use crate::reading;
use crate::repository::Tiers;

/// The service's calls.
#[derive(Debug)]
pub(super) struct BackupService {
    app: Arc<App>,
    lanes: Arc<Lanes>,
}

impl BackupService {
    pub(super) fn new(app: Arc<App>) -> Self {
        let lanes = Lanes::new(app.budget.connections);
        Self { app, lanes }
    }

    /// Authenticates, then runs `work` where it may block.
    async fn unary<T, R>(
        &self,
        request: Request<T>,
        stage: Stage,
        work: impl FnOnce(&Arc<App>, &Caller, T) -> Result<R, ServiceError> + Send + 'static,
    ) -> Result<Response<R>, Status>
    where
        T: Send + 'static,
        R: Send + 'static,
    {
        let caller = caller(&request, stage)?;
        let message = request.into_inner();
        let answer = self.app.blocking(move |app| work(app, &caller, message)).await;
        answer.map(Response::new).map_err(ServiceError::into_status)
    }
}

#[tonic::async_trait]
impl Backup for BackupService {
    type ParentDigestsStream = ReceiverStream<Result<v1::DigestBlock, Status>>;
    type IngestStream = ReceiverStream<Result<v1::IngestResponse, Status>>;
    type SendLaneStream = ReceiverStream<Result<v1::LaneResponse, Status>>;

    #[tracing::instrument(level = "info", skip_all)]
    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloResponse>, Status> {
        self.unary(request, Stage::Hello, |app, caller, message| hello(app, caller, &message)).await
    }

    #[tracing::instrument(level = "info", skip_all, fields(session = tracing::field::Empty))]
    async fn start(&self, request: Request<v1::StartRequest>) -> Result<Response<v1::StartResponse>, Status> {
        self.unary(request, Stage::Negotiated, start).await
    }

    #[tracing::instrument(level = "info", skip_all, fields(session = shown::<SessionId>(&request.get_ref().session_id)))]
    async fn parent_digests(
        &self,
        request: Request<v1::ParentDigestsRequest>,
    ) -> Result<Response<Self::ParentDigestsStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        let guard = self
            .app
            .activity
            .streams
            .open(StreamKind::Digests, caller.token.id)
            .map_err(ServiceError::into_status)?;
        let message = request.into_inner();
        let (guard, session) = self
            .app
            .blocking(move |app| {
                let session = own_session(app, &caller, &message.session_id)?;
                // There is one for each disk that has a slot already, so a wait is short, and nothing tells of it.
                guard.enter(app.engine.session_namespace(session)?, Subject::Session(session), true)?;
                Ok((guard, session))
            })
            .await
            .map_err(ServiceError::into_status)?;
        let waits = |_| Ok(self.app.engine.waits_for_turn(session)?);
        guard.wait(waits).await.map_err(ServiceError::into_status)?;
        let blocks = ParentDigests::new(Arc::clone(&self.app), session, message.disk);
        Ok(Response::new(outgoing::stream(guard, blocks)))
    }

    #[tracing::instrument(level = "info", name = "ingest", skip_all)]
    async fn ingest(
        &self,
        request: Request<Streaming<v1::IngestRequest>>,
    ) -> Result<Response<Self::IngestStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        caller.check_role(Action::Backup).map_err(ServiceError::into_status)?;
        let guard = self
            .app
            .activity
            .streams
            .open(StreamKind::Ingest, caller.token.id)
            .map_err(ServiceError::into_status)?;
        let (app, lanes) = (Arc::clone(&self.app), Arc::clone(&self.lanes));
        let by = (caller, request.extensions().get::<Call>().copied());
        Ok(Response::new(ingest::stream(app, lanes, by, guard, request.into_inner())))
    }

    #[tracing::instrument(level = "info", skip_all)]
    async fn send_lane(
        &self,
        request: Request<Streaming<v1::LaneRequest>>,
    ) -> Result<Response<Self::SendLaneStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        caller.check_role(Action::Backup).map_err(ServiceError::into_status)?;
        let lane = ingest::lane(&self.app, &self.lanes, caller, request.into_inner()).await;
        lane.map(Response::new).map_err(ServiceError::into_status)
    }

    #[tracing::instrument(level = "info", skip_all, fields(session = shown::<SessionId>(&request.get_ref().session_id)))]
    async fn keep_alive(
        &self,
        request: Request<v1::KeepAliveRequest>,
    ) -> Result<Response<v1::KeepAliveResponse>, Status> {
        self.unary(request, Stage::Negotiated, |app, caller, message| {
            let session = own_session(app, caller, &message.session_id)?;
            Ok(v1::KeepAliveResponse { lease_secs: app.engine.keep_alive(session)? })
        })
        .await
    }

    #[tracing::instrument(level = "info", skip_all, fields(session = shown::<SessionId>(&request.get_ref().session_id)))]
    async fn commit(
        &self,
        request: Request<v1::CommitRequest>,
    ) -> Result<Response<v1::CommitResponse>, Status> {
        let committed = self.unary(request, Stage::Negotiated, |app, caller, message| {
            let session = own_session(app, caller, &message.session_id)?;
            let _committing = app.begin_commit();
            // Returns when the transaction is durable; only then does the agent get its answer (W7).
            let Committed { backup_id, details } =
                app.engine.commit(session).map_err(|error| commit_refused(app, caller, session, error))?;
            app.activity.sessions.ended(session);
            app.metrics.backup_done(session, &details);
            findings::note(app.catalog(), session);
            app.activity.note(Change::Backup);
            let details = serde_json::to_string(&details).map_err(ServiceError::defect)?;
            Ok(v1::CommitResponse { backup_id, details })
        });
        let committed = committed.await?;
        until_kept(&self.app).await.map_err(ServiceError::into_status)?;
        Ok(committed)
    }

    #[tracing::instrument(level = "info", skip_all, fields(session = shown::<SessionId>(&request.get_ref().session_id)))]
    async fn abort(&self, request: Request<v1::AbortRequest>) -> Result<Response<v1::AbortResponse>, Status> {
        self.unary(request, Stage::Negotiated, |app, caller, message| abort(app, caller, &message)).await
    }
}

fn hello(
    app: &Arc<App>,
    caller: &Caller,
    message: &v1::HelloRequest,
) -> Result<v1::HelloResponse, ServiceError> {
    let protocol = negotiate(message.min_protocol, message.max_protocol)
        .map_err(|error| ServiceError::new(ErrorCode::Unsupported, error.to_string()))?;
    let repository = app.catalog().repository()?;
    Ok(v1::HelloResponse {
        protocol,
        server_version: env!("CARGO_PKG_VERSION").to_owned(),
        repository_id: repository.id.to_string(),
        chunker: Some(repository.chunker),
        token_name: caller.token.name.clone(),
        role: caller.token.role.as_str().to_owned(),
        namespaces: namespace_names(app.catalog(), &caller.token)?,
    })
}

fn start(
    app: &Arc<App>,
    caller: &Caller,
    mut message: v1::StartRequest,
) -> Result<v1::StartResponse, ServiceError> {
    check_name("VM", &message.vm).map_err(ServiceError::invalid)?;
    let vm = message.vm.clone();
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Backup)?;
    message.namespace.clone_from(&namespace.name);
    let refused = |_: &ServiceError| reading::note_refusal(app, caller, "backup.refused", &namespace, &vm);
    caller.check_vm(&vm).inspect_err(refused)?;
    let tenant = Tenant { namespace: namespace.id, token: caller.token.id };
    let slot = app.activity.sessions.reserve(tenant, |session| app.engine.is_live(session))?;
    let detail = format!(
        "VM {:?} in namespace {:?}, job {:?}, from {:?}",
        message.vm,
        namespace.name,
        message.job,
        plain_text(&message.client_host, NAME_MAX_BYTES)
    );
    let job = message.job.clone();
    let starter = Starter {
        token: caller.token.id,
        name: caller.token.name.clone(),
        owner: caller.token.owner.clone(),
        is_for_every_owner: caller.token.is_for_every_owner(),
        may_take_over: caller.may(Action::TakeOver, namespace.id),
    };
    let start = StartBackup { namespace: namespace.id, request: message, starter };
    let response = app.engine.start_backup(&start).map_err(|error| {
        let not_owner = matches!(error, EngineError::NotOwner { .. });
        let error = ServiceError::from(error);
        if not_owner {
            refused(&error);
        }
        error
    })?;
    let session: SessionId = parse_id("session", &response.session_id)?;
    slot.taken_by(session);
    tracing::Span::current().record("session", tracing::field::display(session));
    app.metrics.backup_started(session, &namespace.name, &job);
    tracing::info!(
        backup = response.backup_id,
        run = response.run_id,
        namespace = namespace.name,
        token = caller.token.name,
        "session opened"
    );
    // The commit has an entry of its own; this one says who started. A client may start the same over and over.
    let entry = AuditEntry {
        who: caller.token.name.clone(),
        action: "backup.start".to_owned(),
        object: response.backup_id.clone(),
        detail,
    };
    let repeat = AuditRepeat::once(entry, format!("{} {vm}", namespace.id), app.clock.now_ms());
    app.catalog().audit_repeats(&[repeat])?;
    Ok(response)
}

/// Notes a commit that was refused because the VM's owner was changed meanwhile.
fn commit_refused(app: &App, caller: &Caller, session: SessionId, error: EngineError) -> ServiceError {
    if let EngineError::NotOwner { vm } = &error
        && let Ok(namespace) = app.engine.session_namespace(session)
        && let Ok(Some(namespace)) = app.catalog().namespace(namespace)
    {
        reading::note_refusal(app, caller, "backup.refused", &namespace, vm);
    }
    error.into()
}

/// Aborting a session that is already gone succeeds: the agent may repeat the call.
fn abort(
    app: &Arc<App>,
    caller: &Caller,
    message: &v1::AbortRequest,
) -> Result<v1::AbortResponse, ServiceError> {
    if message.reason.len() > REASON_MAX_BYTES {
        return Err(ServiceError::invalid(format!("the reason is longer than {REASON_MAX_BYTES} bytes")));
    }
    match own_session(app, caller, &message.session_id) {
        Ok(session) => {
            app.metrics.backup_ended(session, BackupEnd::Aborted);
            app.engine.abort(session, &message.reason)?;
            app.activity.sessions.ended(session);
            app.activity.note(Change::Run);
        }
        Err(error) if error.code == ErrorCode::SessionGone => {}
        Err(error) => return Err(error),
    }
    Ok(v1::AbortResponse {})
}

/// Interval between looks whether all is there: a request to the bucket takes longer.
const LOOK: Duration = Duration::from_millis(20);

/// Interval between looks whether copies fail: each counts all that waits, and every backup that ends looks.
const FAILURE_LOOK: Duration = Duration::from_secs(1);

/// Time that copies may fail before the agent is told why: it asks again for as long as its `--retry-for` says.
const FAILING: Duration = Duration::from_secs(60);

/// Resolves when what was sealed so far is where the settings want it. A backup is acknowledged once it is committed here, or,
/// with `s3_primary`, once the bucket has it as well.
///
/// (T12) What is waited for comes after the commit, so the restore point exists meanwhile, is listed and can be restored; its
/// agent is told that it was made when the bucket has everything that it needs. An agent that was not told asks again, and
/// is answered by the same rule.
///
/// # Errors
/// `Unavailable`: copies have been failing for a while, or the server stops.
pub(super) async fn until_kept(app: &App) -> Result<(), ServiceError> {
    match app.tiers.as_ref().filter(|tiers| tiers.is_primary) {
        Some(tiers) => until_copied(app, tiers).await,
        None => Ok(()),
    }
}

async fn until_copied(app: &App, tiers: &Arc<Tiers>) -> Result<(), ServiceError> {
    let mark = tiers.copies.mark();
    let mut stopping = app.stopping();
    let (mut failing_since, mut looked) = (None, None::<Instant>);
    while !tiers.copies.has_up_to(mark) {
        if looked.is_none_or(|looked| looked.elapsed() >= FAILURE_LOOK) {
            looked = Some(Instant::now());
            match failing(&tiers.copies.status()) {
                None => failing_since = None,
                Some(why) if failing_since.get_or_insert_with(Instant::now).elapsed() >= FAILING => {
                    return Err(unkept(tiers, &why));
                }
                Some(_) => {}
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopping.wait_for(|stops| *stops) => return Err(unkept(tiers, "the server stops")),
        }
    }
    Ok(())
}

/// Why copies do not get on.
fn failing(status: &CopyStatus) -> Option<String> {
    let unreadable =
        || status.unreadable.first().map(|name| format!("{name} cannot be read here, so it is not copied"));
    status.failure.clone().or_else(unreadable)
}

fn unkept(tiers: &Tiers, why: &str) -> ServiceError {
    ServiceError::new(
        ErrorCode::Unavailable,
        format!(
            "the restore point is made, but {} does not have all of it yet, and a backup counts only then (s3_primary): {why}. It \
             is copied as soon as that is possible",
            tiers.location
        ),
    )
}
