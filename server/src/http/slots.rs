//! The slots of requests that are answered at once: those of callers with a token, and those of strangers.

use std::sync::Arc;

use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;

use crate::error::ServiceError;
use crate::limits::{PUBLIC_REQUESTS_MAX, REQUESTS_PER_TOKEN_MAX};
use crate::net::Origin;
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
    /// Answers being made, or not handed over yet.
    callers: Arc<Shares<TokenId>>,
    /// These, and those that wait for a slot.
    of_token: Arc<Shares<TokenId>>,
    strangers: Arc<Shares<Origin>>,
    of_origin: Arc<Shares<Origin>>,
}

/// A slot, and what it takes of its holder's share.
pub(super) type Slot<K> = (Share<K>, Share<K>);

impl Slots {
    /// `answers` for callers.
    pub(super) fn new(answers: usize) -> Self {
        Self {
            callers: Shares::halves(answers),
            of_token: Shares::new(usize::MAX, REQUESTS_PER_TOKEN_MAX),
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
        path: &str,
        token: TokenId,
    ) -> Result<Option<Slot<TokenId>>, ServiceError> {
        if path == EVENTS {
            return Ok(None);
        }
        let share = self.of_token.take(token).ok_or_else(|| too_many("token", REQUESTS_PER_TOKEN_MAX))?;
        Ok(Some((self.callers.wait(token).await, share)))
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
        Ok(Some((self.strangers.wait(origin).await, share)))
    }
}

fn too_many(whose: &str, max: usize) -> ServiceError {
    let text =
        format!("this {whose} has {max} requests under way, which is all it may have; try again later");
    ServiceError::new(ErrorCode::Limit, text).retry_after(std::time::Duration::from_secs(1))
}
