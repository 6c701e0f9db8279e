//! A disk read here and there, over one call that keeps its slot.
//!
//! Messages are read one at a time, when the one before is answered: what a client sends ahead waits in its connection's window. A
//! call whose client says nothing holds its slot and a thread, and gives way like any other when another tenant waits.

use std::sync::Arc;

use holdfast_engine::PartReader;
use holdfast_engine::ids::TokenId;
use holdfast_proto::v1;
use holdfast_proto::v1::read_disk_response::Kind as Answer;
use holdfast_proto::v1::read_parts_request::Kind;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};
use tracing::{Instrument as _, Span};

use crate::activity::streams::StreamGuard;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::bounds::{OPEN_TIMEOUT, OUTGOING_QUEUE_MESSAGES};
use crate::grpc::call::{note_late_refusal, queued};
use crate::grpc::calls::Call;
use crate::grpc::ingest::line_error;
use crate::grpc::outgoing::hand_over;
use crate::grpc::readable::{disk_bytes, passed_over, readable_backup, subject};

type Messages = Streaming<v1::ReadPartsRequest>;
type Answers = mpsc::Sender<Result<v1::ReadDiskResponse, Status>>;

/// Answers to what `messages` asks for.
pub(super) fn stream(
    app: Arc<App>,
    of: (Caller, Option<Call>),
    guard: StreamGuard,
    messages: Messages,
) -> ReceiverStream<Result<v1::ReadDiskResponse, Status>> {
    let (answers, receiver) = mpsc::channel(OUTGOING_QUEUE_MESSAGES);
    // In a task of its own: an agent may wait for the answer's headers before it sends anything.
    let run = async move {
        if let Err(error) = run(app, of, guard, messages, answers.clone()).await {
            // The agent may be gone.
            let _ = answers.send(Err(error.into_status())).await;
        }
    };
    tokio::spawn(run.instrument(Span::current()));
    ReceiverStream::new(receiver)
}

async fn run(
    app: Arc<App>,
    (caller, call): (Caller, Option<Call>),
    guard: StreamGuard,
    mut messages: Messages,
    answers: Answers,
) -> Result<(), ServiceError> {
    let first = tokio::time::timeout(OPEN_TIMEOUT, next(&guard, &mut messages, &answers)).await;
    let first = first
        .map_err(|_| ServiceError::invalid(format!("no open came within {} s", OPEN_TIMEOUT.as_secs())))?;
    let Some(Kind::Open(open)) = first? else {
        return Err(ServiceError::invalid("the first message of a call that reads parts must open a disk"));
    };
    let token = caller.token.id;
    let (guard, backup, open, passed_over) = app
        .blocking(move |app| {
            let backup = readable_backup(app, &caller, &open.backup_id, &open.disk)
                .inspect_err(|error| note_late_refusal(app, &caller, call, error))?;
            let passed_over = passed_over(&open.passed_over)?;
            let may_wait = open.takes_queued && !open.may_refuse;
            guard.enter(backup.namespace, subject(&backup, &open.disk), may_wait)?;
            Ok((guard, backup, open, passed_over))
        })
        .await?;
    let tell = |ahead| {
        // A client that does not read needs no more of them.
        drop(answers.try_send(Ok(message(Answer::Queued(queued(ahead))))));
        Ok(())
    };
    tokio::select! {
        () = answers.closed() => return Ok(()),
        waited = guard.wait(tell) => waited?,
    }
    let namespace = backup.namespace;
    let disk = app
        .blocking(move |app| Ok(app.engine.read_parts(namespace, backup.id, &open.disk, passed_over)?))
        .await?;
    let span = Span::current();
    let work = move || span.in_scope(|| work(&app, (&disk, token), &guard, &mut messages, &answers));
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(panic.into()))
}

const fn message(kind: Answer) -> v1::ReadDiskResponse {
    v1::ReadDiskResponse { kind: Some(kind) }
}

/// The next message; `None` when there is none any more.
async fn next(
    guard: &StreamGuard,
    messages: &mut Messages,
    answers: &Answers,
) -> Result<Option<Kind>, ServiceError> {
    let mut stopped = guard.stopped();
    let message = tokio::select! {
        () = stopped.wait() => return guard.check().map(|()| None),
        () = answers.closed() => return Ok(None),
        message = messages.message() => message.map_err(|status| line_error(&status))?,
    };
    let unknown =
        || ServiceError::invalid("the message is of a kind this server does not know; update the server");
    message.map(|message| message.kind.ok_or_else(unknown)).transpose()
}

/// Answers one message after the other. Blocks.
fn work(
    app: &App,
    (disk, token): (&PartReader, TokenId),
    guard: &StreamGuard,
    messages: &mut Messages,
    answers: &Answers,
) -> Result<(), ServiceError> {
    if !hand_over(guard, answers, message(Answer::Header(disk.header())))? {
        return Ok(());
    }
    while let Some(kind) = Handle::current().block_on(next(guard, messages, answers))? {
        let Kind::Part(part) = kind else {
            return Err(ServiceError::invalid("a call that reads parts opens one disk only"));
        };
        let mut items = disk.read(&part)?.on_behalf_of(token);
        while let Some(item) = guard.working(|| items.next()) {
            guard.check()?;
            let item = item?;
            let bytes = disk_bytes(&item);
            app.metrics.restored(bytes);
            guard.moved(bytes);
            if !hand_over(guard, answers, item)? {
                return Ok(());
            }
        }
    }
    Ok(())
}
