//! Answers that are a stream: made on a thread that may block, through a queue that stops it while the client is slow, and
//! ends it when the client goes away or the server stops.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::super::bounds::OUTGOING_QUEUE_MESSAGES;
use super::super::call::{Stage, caller};
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;

/// Where the messages of an answer go.
#[derive(Debug)]
pub(super) struct Answer<T> {
    app: Arc<App>,
    queue: mpsc::Sender<Result<T, Status>>,
}

impl<T> Answer<T> {
    /// Waits until there is room. False: no one takes it any more, or the server stops. Blocks.
    pub(super) fn send(&self, message: T) -> bool {
        let mut stopping = self.app.stopping();
        Handle::current().block_on(async {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => false,
                sent = self.queue.send(Ok(message)) => sent.is_ok(),
            }
        })
    }

    /// Whether nothing more is wanted.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_closed() || *self.app.stopping().borrow()
    }
}

/// Answers with what `work` sends. An error that it ends with is the last message.
pub(super) fn answer<M, T>(
    app: &Arc<App>,
    request: Request<M>,
    work: fn(&App, &Caller, M, &Answer<T>) -> Result<(), ServiceError>,
) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status>
where
    M: Send + 'static,
    T: Send + 'static,
{
    let caller = caller(&request, Stage::Negotiated)?;
    let message = request.into_inner();
    let (queue, receiver) = mpsc::channel(OUTGOING_QUEUE_MESSAGES);
    let (worker, answer) = (Arc::clone(app), Answer { app: Arc::clone(app), queue: queue.clone() });
    tokio::spawn(async move {
        let ended = worker.blocking(move |app| work(app, &caller, message, &answer)).await;
        if let Err(error) = ended {
            // The client may be gone.
            let _ = queue.send(Err(error.into_status())).await;
        }
    });
    Ok(Response::new(ReceiverStream::new(receiver)))
}
