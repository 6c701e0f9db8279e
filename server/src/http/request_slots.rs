//! How many requests are answered at once, and how long one may take until its answer begins.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_proto::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::bounds::ANSWER_DEADLINE;
use super::connection::{ChunkedBody, StallMonitor};
use super::headers;
use super::problem::Problem;
use super::state::HttpState;
use crate::error::ServiceError;

/// Paths that are answered without a slot: they must be when nothing else is, or do not end by themselves.
const UNCOUNTED: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/api/v1/activity/events"];

/// Waits for a slot, unless the path needs none.
async fn take(slots: &Arc<Semaphore>, path: &str) -> Result<Option<OwnedSemaphorePermit>, ServiceError> {
    if UNCOUNTED.contains(&path) {
        return Ok(None);
    }
    let slot = Arc::clone(slots).acquire_owned().await;
    slot.map(Some).map_err(|_| ServiceError::defect("the slots for requests were closed"))
}

/// Around everything: takes a slot, watches the time, adds headers, and hands the answer over in chunks. The slot is
/// held until the answer was handed over.
pub(super) async fn around(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let Some(monitor) = request.extensions().get::<Arc<StallMonitor>>().cloned() else {
        return ServiceError::defect("a request came without its connection").into_response();
    };
    let (slot, answer) = match timeout_at(deadline, take(&state.slots, &path)).await {
        Ok(Ok(slot)) => (slot, timeout_at(deadline, next.run(request)).await.ok()),
        Ok(Err(error)) => (None, Some(error.into_response())),
        Err(_) => (None, None),
    };
    let mut response = answer.unwrap_or_else(|| too_late().into_response());
    headers::add(response.headers_mut(), state.strict_transport);
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    response.map(|body| axum::body::Body::new(ChunkedBody::new(body, monitor, slot)))
}

fn too_late() -> Problem {
    let seconds = ANSWER_DEADLINE.as_secs();
    let detail = format!(
        "the server is busy and had no answer within {seconds} s; try again, or ask for less at a time"
    );
    Problem::from(ServiceError::new(ErrorCode::Unavailable, detail)).with_header(header::RETRY_AFTER, "5")
}
