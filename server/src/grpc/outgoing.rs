//! Streams from the engine to a client: an iterator pulled on a thread that may block, through a queue
//! that stops it when the client or the line is slow.

use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::MOVES_BYTES;
use holdfast_proto::v1;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tracing::{Instrument as _, Span};

use crate::activity::streams::StreamGuard;
use crate::app::App;
use crate::error::ServiceError;
use crate::grpc::bounds::OUTGOING_QUEUE_MESSAGES;

/// Sends what `items` yields until it ends, fails, or the stream must end.
pub(super) fn stream<T, I>(guard: StreamGuard, items: I) -> ReceiverStream<Result<T, Status>>
where
    T: Send + 'static,
    I: Iterator<Item = Result<T, ServiceError>> + Send + 'static,
{
    let (queue, receiver) = mpsc::channel(OUTGOING_QUEUE_MESSAGES);
    let worker = work(guard, items, queue.clone());
    tokio::spawn(async move { tell_end(worker.await, &queue).await });
    ReceiverStream::new(receiver)
}

/// The same for a stream that has no slot yet: tells its place by messages that `queued` makes, and opens its items when
/// its turn comes. A client that goes away meanwhile leaves the queue.
pub(super) fn stream_in_turn<T, I>(
    app: Arc<App>,
    guard: StreamGuard,
    queued: fn(usize) -> T,
    open: impl FnOnce(&Arc<App>) -> Result<I, ServiceError> + Send + 'static,
) -> ReceiverStream<Result<T, Status>>
where
    T: Send + 'static,
    I: Iterator<Item = Result<T, ServiceError>> + Send + 'static,
{
    let (queue, receiver) = mpsc::channel(OUTGOING_QUEUE_MESSAGES);
    let run = async move {
        let ended = async {
            let tell = |ahead| {
                // A client that does not read needs no more of them.
                drop(queue.try_send(Ok(queued(ahead))));
                Ok(())
            };
            tokio::select! {
                () = queue.closed() => return Ok(()),
                waited = guard.wait(tell) => waited?,
            }
            let items = app.blocking(open).await?;
            work(guard, items, queue.clone()).await
        };
        tell_end(ended.await, &queue).await;
    };
    tokio::spawn(run.instrument(Span::current()));
    ReceiverStream::new(receiver)
}

/// Begins to send all items, on a thread that may block.
fn work<T, I>(
    guard: StreamGuard,
    items: I,
    queue: mpsc::Sender<Result<T, Status>>,
) -> impl Future<Output = Result<(), ServiceError>>
where
    T: Send + 'static,
    I: Iterator<Item = Result<T, ServiceError>> + Send + 'static,
{
    let span = Span::current();
    let worker = tokio::task::spawn_blocking(move || span.in_scope(|| send_all(&guard, items, &queue)));
    async { worker.await.unwrap_or_else(|panic| Err(panic.into())) }
}

async fn tell_end<T>(ended: Result<(), ServiceError>, answers: &mpsc::Sender<Result<T, Status>>) {
    if let Err(error) = ended {
        // The client may be gone.
        let _ = answers.send(Err(error.into_status())).await;
    }
}

fn send_all<T>(
    guard: &StreamGuard,
    mut items: impl Iterator<Item = Result<T, ServiceError>>,
    queue: &mpsc::Sender<Result<T, Status>>,
) -> Result<(), ServiceError> {
    while let Some(item) = guard.working(|| items.next()) {
        guard.check()?;
        if !hand_over(guard, queue, item?)? {
            tracing::debug!("the client went away");
            break;
        }
        // Each is about 1 MiB, or tells of as much.
        guard.moved(MOVES_BYTES);
    }
    Ok(())
}

/// Waits until there is room in the queue for `item`, but not for a client that does not read when the stream must end (H10).
/// Blocks. False: the client went away.
pub(super) fn hand_over<T>(
    guard: &StreamGuard,
    queue: &mpsc::Sender<Result<T, Status>>,
    item: T,
) -> Result<bool, ServiceError> {
    let item = match queue.try_send(Ok(item)) {
        Ok(()) => return Ok(true),
        Err(TrySendError::Closed(_)) => return Ok(false),
        Err(TrySendError::Full(item)) => item,
    };
    let mut stopped = guard.stopped();
    let sent = Handle::current().block_on(async {
        tokio::select! {
            () = stopped.wait() => None,
            sent = queue.send(item) => Some(sent.is_ok()),
        }
    });
    match sent {
        Some(sent) => Ok(sent),
        None => guard.check().map(|()| false),
    }
}

/// Pulls the digests of a disk's parent block by block.
pub(super) struct ParentDigests {
    app: Arc<App>,
    session: SessionId,
    disk: u32,
    /// First extent of the next block; `None` after the last or an error.
    next: Option<u64>,
}

impl ParentDigests {
    /// Begins at the first extent.
    pub(super) fn new(app: Arc<App>, session: SessionId, disk: u32) -> Self {
        Self { app, session, disk, next: Some(0) }
    }
}

impl Iterator for ParentDigests {
    type Item = Result<v1::DigestBlock, ServiceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.next.take()?;
        match self.app.engine.parent_digests(self.session, self.disk, first) {
            Ok(Some(block)) => {
                let count = (block.digests.len() / FINGERPRINT_BYTES) as u64;
                // A block without digests would be asked for again without end.
                if count == 0 || block.first_extent != first {
                    let found = block.first_extent;
                    return Some(Err(ServiceError::defect(format!(
                        "a block of {count} digests from extent {found} instead of {first}"
                    ))));
                }
                self.next = first.checked_add(count);
                Some(Ok(block))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use holdfast_engine::ids::TokenId;
    use holdfast_proto::ErrorCode;
    use tokio_stream::StreamExt as _;

    use super::*;
    use crate::activity::streams::{StreamKind, StreamLimits, Streams};

    fn streams() -> Arc<Streams> {
        Streams::new(StreamLimits { ingest: 4, restore: 4 })
    }

    fn guard(streams: &Arc<Streams>) -> StreamGuard {
        streams.open(StreamKind::Restore, TokenId::from_bytes([1; 16])).unwrap()
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_stops_the_source() {
        let pulled = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pulled);
        let streams = streams();
        let items = (0..10_000u32).map(move |n| {
            counter.fetch_add(1, Ordering::SeqCst);
            Ok(n)
        });
        let mut stream = stream(guard(&streams), items);
        for expected in 0..100 {
            assert_eq!(stream.next().await.unwrap().unwrap(), expected);
            assert!(
                pulled.load(Ordering::SeqCst)
                    <= usize::try_from(expected).unwrap() + OUTGOING_QUEUE_MESSAGES + 2
            );
        }
    }

    #[tokio::test]
    async fn errors_panics_and_shutdown_end_the_stream_with_a_status() {
        let streams = streams();
        let failing = [Ok(1), Err(ServiceError::new(ErrorCode::Damaged, "container 7")), Ok(2)];
        let got: Vec<_> = stream(guard(&streams), failing.into_iter()).collect().await;
        assert_eq!(got.len(), 2);
        assert_eq!(ErrorCode::of_status(got[1].as_ref().unwrap_err()), Some(ErrorCode::Damaged));

        let panicking = std::iter::once_with(|| -> Result<u8, ServiceError> { panic!("on purpose") });
        let got: Vec<_> = stream(guard(&streams), panicking).collect().await;
        assert_eq!(ErrorCode::of_status(got[0].as_ref().unwrap_err()), Some(ErrorCode::Internal));

        let mut endless = stream(guard(&streams), std::iter::repeat_with(|| Ok(0u8)));
        endless.next().await.unwrap().unwrap();
        streams.close();
        let last = endless.filter_map(Result::err).next().await.unwrap();
        assert_eq!(ErrorCode::of_status(&last), Some(ErrorCode::Unavailable));
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn a_stream_whose_client_does_not_read_ends_when_it_must() {
        let streams = streams();
        let unread = stream(guard(&streams), std::iter::repeat_with(|| Ok(0u8)));
        streams.end_token(TokenId::from_bytes([1; 16]));
        while streams.count() > 0 {
            tokio::task::yield_now().await;
        }
        drop(unread);
    }
}
