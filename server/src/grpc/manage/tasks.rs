//! Work that frees space.

use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;
use holdfast_proto::v1;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;

fn absent(caller: &Caller) -> ServiceError {
    let checked = caller.check_role(Action::Operate).and_then(|()| {
        let whole = caller.token.namespaces.is_empty();
        let forbidden =
            || ServiceError::new(ErrorCode::Forbidden, "use a token that is valid for all namespaces");
        whole.then_some(()).ok_or_else(forbidden)
    });
    match checked {
        Ok(()) => ServiceError::new(ErrorCode::Unsupported, "this server runs no tasks yet"),
        Err(refused) => refused,
    }
}

pub(super) fn start_reclaim(
    _app: &App,
    caller: &Caller,
    _message: v1::StartReclaimRequest,
) -> Result<v1::Task, ServiceError> {
    Err(absent(caller))
}

pub(super) fn list(
    _app: &App,
    caller: &Caller,
    _message: v1::ListTasksRequest,
) -> Result<v1::ListTasksResponse, ServiceError> {
    Err(absent(caller))
}

pub(super) fn get(
    _app: &App,
    caller: &Caller,
    _message: v1::GetTaskRequest,
) -> Result<v1::Task, ServiceError> {
    Err(absent(caller))
}

pub(super) fn control(
    _app: &App,
    caller: &Caller,
    _message: v1::ControlTaskRequest,
) -> Result<v1::Task, ServiceError> {
    Err(absent(caller))
}
