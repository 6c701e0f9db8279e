//! The Manage service: deleting restore points, rules that decide which go, locks, policies, and long work.
//!
//! | file | open it for |
//! |---|---|
//! | `points` | restore points that are named: what they would free, deleting, locks and holds |
//! | `rules` | rules over VMs: forget, and policies carried out |
//! | `policies` | policies as such, and simulations |
//! | `tasks` | long work: reclaim, scrub, verification |
//! | `stream` | answers that are a stream |

mod points;
mod policies;
mod rules;
mod stream;
mod tasks;
mod wire;

use std::sync::Arc;

use holdfast_proto::v1::{self, manage_server::Manage};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::call::unary;
use crate::app::App;
use stream::Answers;
pub(in crate::grpc) use tasks::wire as task_message;
pub(in crate::grpc) use wire::protection;

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
    start_reclaim(StartReclaimRequest) -> Task = tasks::start_reclaim;
    start_scrub(StartScrubRequest) -> Task = tasks::start_scrub;
    start_verification(StartVerificationRequest) -> Task = tasks::start_verification;
    list_tasks(ListTasksRequest) -> ListTasksResponse = tasks::list;
    get_task(GetTaskRequest) -> Task = tasks::get;
    control_task(ControlTaskRequest) -> Task = tasks::control;
    |
    ForgetStream, forget(ForgetRequest) -> ForgetResponse = rules::forget;
    RunPolicyStream, run_policy(RunPolicyRequest) -> ForgetResponse = rules::run_policy;
    SimulatePolicyStream, simulate_policy(SimulatePolicyRequest) -> SimulatePolicyResponse = policies::simulate;
}
