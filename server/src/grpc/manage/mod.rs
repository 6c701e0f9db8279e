//! The Manage service: deleting restore points, rules that decide which go, locks and policies.
//!
//! | file | open it for |
//! |---|---|
//! | `points` | restore points that are named: what they would free, deleting, locks and holds |
//! | `policies` | policies and simulations; rules over VMs |

mod points;
mod policies;
mod wire;

use std::sync::Arc;

use holdfast_engine::ids::TokenId;
use holdfast_proto::v1;
use holdfast_proto::v1::manage_server::Manage;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::grpc::bounds::OUTGOING_QUEUE_MESSAGES;
use crate::grpc::call::{Stage, caller, note_late_refusal, unary};
use crate::grpc::calls::Call;
pub(in crate::grpc) use crate::grpc::manage::wire::protection;
use crate::limits::{ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX};
use crate::shares::{Share, Shares};

/// The service's calls.
#[derive(Debug)]
pub(super) struct ManageService {
    app: Arc<App>,
    answers: Answers,
}

impl ManageService {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app, answers: Answers::default() }
    }
}

macro_rules! calls {
    ($($name:ident($request:ident) -> $response:ident = $work:path;)+ | $($stream:ident, $name_s:ident($request_s:ident) -> $response_s:ident = $work_s:path;)+) => {
        #[tonic::async_trait]
        impl Manage for ManageService {
            $(
                #[tracing::instrument(level = "info", skip_all)]
                async fn $name(&self, request: Request<v1::$request>) -> Result<Response<v1::$response>, Status> {
                    unary(&self.app, request, $work).await
                }
            )+
            $(
                type $stream = ReceiverStream<Result<v1::$response_s, Status>>;

                #[tracing::instrument(level = "info", skip_all)]
                async fn $name_s(&self, request: Request<v1::$request_s>) -> Result<Response<Self::$stream>, Status> {
                    self.answers.answer(&self.app, request, $work_s)
                }
            )+
        }
    };
}

calls! {
    freed(FreedRequest) -> FreedResponse = points::freed;
    delete(DeleteRequest) -> DeleteResponse = points::delete;
    lock(LockRequest) -> LockResponse = points::lock;
    hold(HoldRequest) -> HoldResponse = points::hold;
    release_hold(ReleaseHoldRequest) -> ReleaseHoldResponse = points::release_hold;
    list_policies(ListPoliciesRequest) -> ListPoliciesResponse = policies::list;
    set_policy(SetPolicyRequest) -> SetPolicyResponse = policies::set;
    remove_policy(RemovePolicyRequest) -> RemovePolicyResponse = policies::remove;
    |
    ForgetStream, forget(ForgetRequest) -> ForgetResponse = policies::forget;
    RunPolicyStream, run_policy(RunPolicyRequest) -> ForgetResponse = policies::run_policy;
    SimulatePolicyStream, simulate_policy(SimulatePolicyRequest) -> SimulatePolicyResponse = policies::simulate;
}

/// Where the messages of an answer go that is a stream: made on a thread that may block, through a queue that stops it while
/// the client is slow, and ends it when the client goes away or the server stops.
#[derive(Debug)]
struct Answer<T> {
    app: Arc<App>,
    queue: mpsc::Sender<Result<T, Status>>,
}

impl<T> Answer<T> {
    /// Waits until there is room. False: no one takes it any more, or the server stops. Blocks.
    fn send(&self, message: T) -> bool {
        let mut stopping = self.app.stopping();
        Handle::current().block_on(async {
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => false,
                sent = self.queue.send(Ok(message)) => sent.is_ok(),
            }
        })
    }

    /// Returns true if nothing more is wanted.
    fn is_over(&self) -> bool {
        self.queue.is_closed() || *self.app.stopping().borrow()
    }
}

/// Answers under way.
#[derive(Debug)]
struct Answers {
    under_way: Arc<Shares<TokenId>>,
}

impl Default for Answers {
    fn default() -> Self {
        Self { under_way: Shares::new(ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX) }
    }
}

impl Answers {
    /// Answers with what `work` sends. An error that it ends with is the last message.
    fn answer<M, T>(
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
