//! The slots of requests that are answered at once: those of callers with a token, and those of strangers.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::ServiceError;
use crate::http::bounds::ANSWER_DEADLINE;
use crate::http::problem::Problem;
use crate::http::{self, Audience, HttpState};
use crate::limits::{
    CALLS_PER_TOKEN_MAX, LOGINS_MAX, LOGINS_PER_ORIGIN_MAX, PUBLIC_REQUESTS_MAX, REQUESTS_PER_TOKEN_MAX,
};
use crate::net::{Held, Link, Origin, Places, to_drop};
use crate::shares::{Share, Shares};

/// Prefix of paths whose slots are taken later, where the caller is known.
const API: &str = "/api/v1/";

/// Path below it that anyone may read.
const DESCRIPTION: &str = "/api/v1/openapi.json";

/// Paths that are answered without a slot: they must be when nothing else is.
const UNCOUNTED: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// A path that a slot would be held for as long as its reader likes.
const EVENTS: &str = "/api/v1/activity/events";

/// The slots.
#[derive(Debug)]
pub(super) struct Slots {
    /// Answers being made, or not handed over yet.
    callers: Arc<Shares<TokenId>>,
    /// These, and those that wait for a slot.
    of_token: Arc<Shares<TokenId>>,
    /// Requests of agents, answered or waiting: a whole fleet may have one token.
    of_fleet: Arc<Shares<TokenId>>,
    strangers: Arc<Shares<Origin>>,
    of_origin: Arc<Shares<Origin>>,
}

/// A slot, and what it takes of its holder's share.
pub(super) type Slot<K> = (Share<K>, Arc<Share<K>>);

impl Slots {
    /// `answers` for callers.
    pub(super) fn new(answers: usize) -> Self {
        Self {
            callers: Shares::halves(answers),
            of_token: Shares::new(usize::MAX, REQUESTS_PER_TOKEN_MAX),
            of_fleet: Shares::new(usize::MAX, CALLS_PER_TOKEN_MAX),
            strangers: Shares::new(PUBLIC_REQUESTS_MAX, PUBLIC_REQUESTS_MAX),
            of_origin: Shares::new(usize::MAX, PUBLIC_REQUESTS_MAX / 2),
        }
    }

    /// Waits for a slot for a caller with `token`; `None` when the path needs none.
    ///
    /// # Errors
    /// `Limit` when the token has as many as it may.
    pub(super) async fn of_caller(
        &self,
        audience: Audience,
        path: &str,
        token: TokenId,
    ) -> Result<Option<Slot<TokenId>>, ServiceError> {
        if path == EVENTS {
            return Ok(None);
        }
        let (shares, max) = match audience {
            Audience::Browsers => (&self.of_token, REQUESTS_PER_TOKEN_MAX),
            Audience::Agents => (&self.of_fleet, CALLS_PER_TOKEN_MAX),
        };
        let share = shares.take(token).ok_or_else(|| too_many("token", max))?;
        Ok(Some((self.callers.wait(token).await, Arc::new(share))))
    }

    /// Waits for a slot for a request without a token; `None` when the path needs none, or its caller's is taken later.
    ///
    /// # Errors
    /// `Limit` when the address has as many as it may.
    pub(super) async fn of_stranger(
        &self,
        path: &str,
        origin: Origin,
    ) -> Result<Option<Slot<Origin>>, ServiceError> {
        if UNCOUNTED.contains(&path) || path.starts_with(API) && path != DESCRIPTION {
            return Ok(None);
        }
        let share =
            self.of_origin.take(origin).ok_or_else(|| too_many("address", PUBLIC_REQUESTS_MAX / 2))?;
        Ok(Some((self.strangers.wait(origin).await, Arc::new(share))))
    }
}

fn too_many(whose: &str, max: usize) -> ServiceError {
    let text =
        format!("this {whose} has {max} requests under way, which is all it may have; try again later");
    ServiceError::new(ErrorCode::Limit, text).retry_after(std::time::Duration::from_secs(1))
}

/// Around everything: takes a stranger's slot, watches the time and adds headers. A slot is held until the answer was
/// handed over. So the requests answered at once are limited, and the time until an answer begins.
///
/// Callers with a token and strangers never wait for the same slots: what a stranger asks for (a page of the UI) takes one
/// of a few of its own, a login has places of its own, and a request with a token takes a slot once the token was looked
/// up, in `access`. Health checks and metrics need none.
pub(super) async fn around(State(state): State<HttpState>, request: Request, next: Next) -> Response {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let answer = timeout_at(deadline, answer(&state, &path, request, next)).await;
    let mut response = answer.unwrap_or_else(|_| too_late().into_response());
    http::add_headers(response.headers_mut(), state.strict_transport);
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

#[derive(Debug, Default)]
struct LoginState {
    next: u64,
    places: Places,
    refuse: HashMap<u64, oneshot::Sender<()>>,
}

/// Logins whose token has not arrived yet. Everyone may begin one, so they have places of their own, few for each
/// address; a newcomer always finds one, and the oldest of the address with too many is refused.
#[derive(Debug, Default)]
pub(super) struct Logins(Mutex<LoginState>);

impl Logins {
    /// A login begins.
    pub(super) fn begin(self: &Arc<Self>, origin: Origin) -> Beginning {
        let mut state = self.0.lock();
        if let Some(number) = to_drop(&state.places, origin, LOGINS_PER_ORIGIN_MAX, LOGINS_MAX) {
            state.places.remove(&number);
            // It may have been completed just now.
            let _ = state.refuse.remove(&number).map(|refuse| refuse.send(()));
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        let (refuse, refused) = oneshot::channel();
        state.places.insert(number, origin);
        state.refuse.insert(number, refuse);
        Beginning { logins: Arc::clone(self), number, refused }
    }
}

/// A login whose token has not arrived yet.
#[derive(Debug)]
pub(super) struct Beginning {
    logins: Arc<Logins>,
    number: u64,
    refused: oneshot::Receiver<()>,
}

impl Beginning {
    /// Resolves when its place was given to another.
    pub(super) async fn refused(&mut self) {
        if (&mut self.refused).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let mut state = self.logins.0.lock();
        state.places.remove(&self.number);
        state.refuse.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn a_newcomer_finds_a_place_and_the_oldest_of_many_loses_its_own() {
        let logins = Arc::new(Logins::default());
        let origin = |last: u8| Origin::from(IpAddr::from([10, 0, 0, last]));
        let mut other = logins.begin(origin(2));
        let mut mine: Vec<_> = (0..=LOGINS_PER_ORIGIN_MAX).map(|_| logins.begin(origin(1))).collect();
        mine[0].refused().await;
        assert!(mine[1..].iter_mut().all(|login| login.refused.try_recv().is_err()));
        let many: Vec<_> = (3..100).map(|last| logins.begin(origin(last))).collect();
        assert!(logins.0.lock().places.len() <= LOGINS_MAX);
        other.refused().await;
        drop((other, mine, many));
        assert!(logins.0.lock().places.is_empty() && logins.0.lock().refuse.is_empty());
    }
}
