//! Answers that are a stream: made on a thread that may block, through a queue that stops it while the client is slow, and
//! ends it when the client goes away or the server stops.

use std::sync::Arc;

use holdfast_engine::ids::TokenId;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::super::bounds::OUTGOING_QUEUE_MESSAGES;
use super::super::call::{Stage, caller, note_late_refusal};
use super::super::calls::Call;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::limits::{ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX};
use crate::shares::{Share, Shares};

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

/// Answers under way.
#[derive(Debug)]
pub(super) struct Answers {
    under_way: Arc<Shares<TokenId>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self { under_way: Shares::new(ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX) }
    }
}

impl Answers {
    /// Answers with what `work` sends. An error that it ends with is the last message.
    pub(super) fn answer<M, T>(
        &self,
        app: &Arc<App>,
        request: Request<M>,
        work: fn(&App, &Caller, M, &Answer<T>) -> Result<(), ServiceError>,
    ) -> Result<Response<ReceiverStream<Result<T, Status>>>, Status>
    where
        M: Send + 'static,
        T: Send + 'static,
    {
        let caller = caller(&request, Stage::Negotiated)?;
        let slot = self.slot(caller.token.id).map_err(ServiceError::into_status)?;
        let call = request.extensions().get::<Call>().copied();
        let message = request.into_inner();
        let (queue, receiver) = mpsc::channel(OUTGOING_QUEUE_MESSAGES);
        let (worker, answer) = (Arc::clone(app), Answer { app: Arc::clone(app), queue: queue.clone() });
        tokio::spawn(async move {
            let work = move |app: &Arc<App>| {
                let worked = work(app, &caller, message, &answer);
                worked.inspect_err(|error| note_late_refusal(app, &caller, call, error))
            };
            let ended = worker.blocking(work).await;
            drop(slot);
            if let Err(error) = ended {
                // The client may be gone.
                let _ = queue.send(Err(error.into_status())).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    fn slot(&self, token: TokenId) -> Result<Share<TokenId>, ServiceError> {
        let busy = || ServiceError::at_capacity("others are being answered; try again in a moment");
        self.under_way.take(token).ok_or_else(busy)
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::ErrorCode;

    use super::*;

    #[test]
    fn answers_that_no_one_reads_leave_threads_to_others() {
        let answers = Answers::default();
        let token = |number: u8| TokenId::from_bytes([number; 16]);
        let held: Vec<_> = (0..ANSWERS_PER_TOKEN_MAX).map(|_| answers.slot(token(1)).unwrap()).collect();
        assert_eq!(answers.slot(token(1)).unwrap_err().code, ErrorCode::Limit);
        let others: Vec<_> =
            (ANSWERS_PER_TOKEN_MAX..ANSWERS_MAX).map(|_| answers.slot(token(2)).unwrap()).collect();
        assert_eq!(answers.slot(token(3)).unwrap_err().code, ErrorCode::Limit, "all are taken");
        drop(others);
        drop(answers.slot(token(3)).unwrap());
        drop(held);
        drop(answers.slot(token(1)).unwrap());
    }
}
