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
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::bounds::ANSWER_DEADLINE;
use super::headers;
use super::problem::Problem;
use super::state::HttpState;
use crate::error::ServiceError;
use crate::limits::{PUBLIC_REQUESTS_MAX, REQUESTS_PER_TOKEN_MAX};
use crate::net::{Held, Link, Origin};
use crate::shares::{Share, Shares};

/// Where slots of callers are taken, by those who know who calls.
const API: &str = "/api/v1/";

/// What anyone may read below it.
const DESCRIPTION: &str = "/api/v1/openapi.json";

/// Paths that are answered without a slot: they must be when nothing else is.
const UNCOUNTED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// A path that a slot would be held for as long as its reader likes.
const EVENTS: &str = "/api/v1/activity/events";

/// The slots.
#[derive(Debug)]
pub(super) struct Slots {
    callers: Arc<Semaphore>,
    of_token: Arc<Shares<TokenId>>,
    strangers: Arc<Semaphore>,
    of_origin: Arc<Shares<Origin>>,
}

/// A slot, and what it takes of its holder's share.
type Slot<K> = (OwnedSemaphorePermit, Share<K>);

impl Slots {
    /// `answers` for callers.
    pub(super) fn new(answers: usize) -> Self {
        Self {
            callers: Arc::new(Semaphore::new(answers)),
            of_token: Shares::new(REQUESTS_PER_TOKEN_MAX),
            strangers: Arc::new(Semaphore::new(PUBLIC_REQUESTS_MAX)),
            of_origin: Shares::new(PUBLIC_REQUESTS_MAX / 2),
        }
    }

    /// Waits for a slot for a caller with `token`; `None` when the path needs none.
    ///
    /// # Errors
    /// `Limit` when the token has as many as it may.
    pub(super) async fn of_caller(
        &self,
        path: &str,
        token: TokenId,
    ) -> Result<Option<Slot<TokenId>>, ServiceError> {
        if path == EVENTS {
            return Ok(None);
        }
        let share = self.of_token.take(token).ok_or_else(|| too_many("token", REQUESTS_PER_TOKEN_MAX))?;
        Ok(Some((acquire(&self.callers).await?, share)))
    }

    async fn of_stranger(&self, path: &str, origin: Origin) -> Result<Option<Slot<Origin>>, ServiceError> {
        if UNCOUNTED.contains(&path) || path.starts_with(API) && path != DESCRIPTION {
            return Ok(None);
        }
        let share =
            self.of_origin.take(origin).ok_or_else(|| too_many("address", PUBLIC_REQUESTS_MAX / 2))?;
        Ok(Some((acquire(&self.strangers).await?, share)))
    }
}

async fn acquire(slots: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ServiceError> {
    let slot = Arc::clone(slots).acquire_owned().await;
    slot.map_err(|_| ServiceError::defect("the slots for requests were closed"))
}

fn too_many(whose: &str, max: usize) -> ServiceError {
    let text =
        format!("this {whose} has {max} requests under way, which is all it may have; try again later");
    ServiceError::new(ErrorCode::Limit, text).retry_after(std::time::Duration::from_secs(1))
}

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
