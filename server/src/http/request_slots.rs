//! How many requests are answered at once, and how long one may take until its answer begins.
//!
//! Callers with a token and strangers never wait for the same slots: what a stranger asks for (a page of the UI) takes one
//! of a few of its own, a login has [places](super::logins) of its own, and a request with a token takes a slot once
//! the token was looked up, in [`access`](super::access). Health checks and metrics need none.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_proto::ErrorCode;
use tokio::time::{Instant, timeout_at};

use super::bounds::ANSWER_DEADLINE;
use super::headers;
use super::problem::Problem;
use super::state::HttpState;
use crate::error::ServiceError;
use crate::net::{Held, Link};

/// Around everything: takes a stranger's slot, watches the time and adds headers. A slot is held until the answer was
/// handed over.
pub(super) async fn around(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = timeout_at(deadline, answer(&state, &path, request, next)).await;
    let mut response = answer.unwrap_or_else(|_| too_late().into_response());
    headers::add(response.headers_mut(), state.strict_transport);
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    response
}

async fn answer(state: &HttpState, path: &str, request: Request, next: Next) -> Response {
    let Some(origin) = request.extensions().get::<Arc<Link>>().map(|link| link.origin()) else {
        return ServiceError::defect("a request came without its connection").into_response();
    };
    match state.slots.of_stranger(path, origin).await {
        Ok(None) => next.run(request).await,
        Ok(Some(slot)) => {
            let mut response = next.run(request).await;
            response.extensions_mut().insert(Held::new(slot));
            response
        }
        Err(error) => error.into_response(),
    }
}

fn too_late() -> Problem {
    let seconds = ANSWER_DEADLINE.as_secs();
    let detail = format!(
        "the server is busy and had no answer within {seconds} s; try again, or ask for less at a time"
    );
    Problem::from(ServiceError::new(ErrorCode::Unavailable, detail)).with_header(header::RETRY_AFTER, "5")
}
