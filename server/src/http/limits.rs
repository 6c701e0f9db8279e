//! What one client may cost: how many requests at once, how long one may take, how long its answer may wait
//! to be read.
//!
//! The arithmetic: at most [`REQUESTS_MAX`] answers exist at once, the largest of which (a page of 2,000 rows
//! of details) is some 4 MiB; streamed ones are smaller ([`super::download`]). An answer is handed to the
//! connection in pieces of [`super::pace`], so what a client that stops reading pins elsewhere is a
//! piece, and after [`READ_DEADLINE`] its connection is cut.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_proto::ErrorCode;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::pace::Paced;
use super::serve::Readers;
use super::{headers, problem::Problem};
use crate::app::App;
use crate::error::ServiceError;

/// A request's body at most: the largest legitimate one names a thousand namespaces of a token.
pub(crate) const BODY_MAX_BYTES: usize = 64 << 10;

/// Requests answered at once at most, downloads included; event streams and health checks are not counted.
const REQUESTS_MAX: usize = 64;

/// A request may take so long to be answered, its body to arrive and the wait for a place included.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// A client that does not take the next piece of an answer for so long is cut off.
pub(crate) const READ_DEADLINE: Duration = Duration::from_secs(30);

/// Paths that must be answered when nothing else is.
const UNCOUNTED: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/api/v1/activity/events"];

/// Places for requests.
#[derive(Debug)]
pub(crate) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(REQUESTS_MAX)))
    }
}

/// Around everything: takes a place, watches the time, adds headers, and paces the answer.
pub(super) async fn around(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let readers = request.extensions().get::<Arc<Readers>>().cloned().unwrap_or_default();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let place = if UNCOUNTED.contains(&path.as_str()) {
        Ok(None)
    } else {
        timeout_at(deadline, Arc::clone(&app.places.0).acquire_owned()).await.map(Result::ok)
    };
    let (place, answer) = match place {
        Ok(place) => (place, timeout_at(deadline, next.run(request)).await.ok()),
        Err(_) => (None, None),
    };
    let mut response = answer.unwrap_or_else(|| too_late().into_response());
    headers::add(response.headers_mut(), app.strict_transport);
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    response.map(|body| axum::body::Body::new(Paced::new(body, readers, place)))
}

fn too_late() -> Problem {
    let seconds = ANSWER_DEADLINE.as_secs();
    let detail =
        format!("the server is busy: no answer within {seconds} s; try again, or ask for less at a time");
    Problem::from(ServiceError::new(ErrorCode::Unavailable, detail)).with_header(header::RETRY_AFTER, "5")
}
