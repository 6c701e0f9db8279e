//! Answers that are lines of JSON (NDJSON), made while they are read: of what takes long, or has no bound.
//!
//! The work is done on a thread that may block. Its lines go to the connection through a queue, which stops the work while the
//! client is slow, and ends it when the client goes away or reads nothing for [`READ_DEADLINE`], when its token or login ends,
//! and when the server stops. A refusal that comes soon has its own status; a later one is the last line, a [`Problem`].
//!
//! An answer that waits for its turn begins at once: it keeps its place in the queue, and no slot from others.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_engine::ids::TokenId;
use holdfast_proto::api::{LINES, Line};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{Instrument as _, Span};

use crate::activity::streams::Stop;
use crate::app::{App, held, holding};
use crate::auth::Credential;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::bounds::{CHUNK_BYTES, LINES_WAITING};
use crate::http::problem::Problem;
use crate::http::query::AsLines;
use crate::limits::READ_DEADLINE;
use crate::net::Held;
use crate::shares::{Share, Shares};

/// Longest wait of an answer for its first line or its refusal before it begins without.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);

/// Interval between looks at whether the token and the login still hold.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The resource that making an answer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// One of a few turns: it counts or walks.
    Turn,
    /// The slot of its request: it changes something, and does not wait for those that only ask.
    Slot,
}

/// Writer of an answer's lines.
#[derive(Debug)]
pub(super) struct Lines<T> {
    app: Arc<App>,
    credential: Credential,
    queue: mpsc::Sender<Result<Bytes, ServiceError>>,
    runtime: Handle,
    looked: Mutex<Instant>,
    line: PhantomData<fn(&T)>,
}

impl<T: Serialize> Lines<T> {
    /// Waits until there is room. Blocks.
    ///
    /// # Errors
    /// No one reads the answer, its token or login has ended, or the server stops.
    pub(super) fn send(&self, item: &T) -> Result<(), ServiceError> {
        self.check()?;
        self.finish(item)
    }

    /// Sends what was done, which is told whatever ends answers meanwhile. Blocks.
    ///
    /// # Errors
    /// No one reads it.
    pub(super) fn finish(&self, item: &T) -> Result<(), ServiceError> {
        let sent = self.queue.send_timeout(Ok(line(&Line::Item(item))?), READ_DEADLINE);
        self.runtime.block_on(sent).map_err(|_| ServiceError::shutting_down())
    }

    /// # Errors
    /// The reason why the answer ends: its reader went away, its token or login has ended, or the server stops.
    pub(super) fn check(&self) -> Result<(), ServiceError> {
        if self.queue.is_closed() || *self.app.stopping().borrow() {
            return Err(Stop::ShuttingDown.into());
        }
        if !self.app.auth.still_holds(&self.credential)? {
            return Err(Stop::TokenEnded.into());
        }
        Ok(())
    }

    /// Returns true if nothing more is wanted. Blocks at times.
    pub(super) fn is_over(&self) -> bool {
        if self.queue.is_closed() || *self.app.stopping().borrow() {
            return true;
        }
        let mut looked = self.looked.lock();
        if looked.elapsed() < LOOK_EVERY {
            return false;
        }
        *looked = Instant::now();
        // A failed look-up is reported when a line is sent.
        matches!(self.app.auth.still_holds(&self.credential), Ok(false))
    }
}

fn line<T: Serialize>(line: &Line<T>) -> Result<Bytes, ServiceError> {
    let mut text = serde_json::to_vec(line).map_err(ServiceError::defect)?;
    text.push(b'\n');
    Ok(text.into())
}

/// Answers with what `work` finds out: as a line, however long that takes, or in one piece, which is due soon.
///
/// # Errors
/// Errors with which `work` ends soon.
pub(super) async fn one<T: Serialize + Send + 'static>(
    state: &HttpState,
    identity: &Identity,
    (AsLines(as_lines), takes): (AsLines, Takes),
    work: impl FnOnce(&Arc<App>, Option<&Lines<T>>) -> Result<T, ServiceError> + Send + 'static,
) -> Result<Response, ServiceError> {
    if as_lines {
        let work = move |app: &Arc<App>, lines: &Lines<T>| {
            let found = work(app, Some(lines))?;
            // One that asks may have been cut short.
            if takes == Takes::Slot { lines.finish(&found) } else { lines.send(&found) }
        };
        return answer(state, identity, takes, work).await;
    }
    Ok(Json(state.app.blocking(move |app| work(app, None)).await?).into_response())
}

/// Answers with what `work` sends.
///
/// # Errors
/// Errors with which `work` ends soon.
pub(super) async fn answer<T: Serialize + 'static>(
    state: &HttpState,
    identity: &Identity,
    takes: Takes,
    work: impl FnOnce(&Arc<App>, &Lines<T>) -> Result<(), ServiceError> + Send + 'static,
) -> Result<Response, ServiceError> {
    let token = identity.caller.token.id;
    let (shares, slot) = match takes {
        Takes::Turn => (Some(Arc::clone(&state.lines)), None),
        Takes::Slot => (None, held()),
    };
    let share = shares.as_ref().and_then(|shares| shares.take(token));
    let waits = shares.is_some() && share.is_none();
    let (queue, mut queued) = mpsc::channel(LINES_WAITING);
    let lines = Lines {
        app: Arc::clone(&state.app),
        credential: identity.credential(),
        queue: queue.clone(),
        runtime: Handle::current(),
        looked: Mutex::new(Instant::now()),
        line: PhantomData,
    };
    let (app, of_token) = (Arc::clone(&state.app), identity.share.clone());
    let identity = identity.clone();
    let worked = async move {
        let share = match (shares, share) {
            (Some(shares), None) => match turn(&shares, token, &queue).await {
                None => return,
                share => share,
            },
            (_, share) => share,
        };
        let work = move |app: &Arc<App>| {
            // A token that ended while it waited does nothing any more.
            let done = lines.check().and_then(|()| work(app, &lines));
            done.inspect_err(|error| identity.note_late_refusal(app, error))
        };
        let ended = app.blocking(work).await;
        drop(share);
        if let Err(error) = ended {
            // The client may be gone.
            let _ = queue.send(Err(error)).await;
        }
    };
    tokio::spawn(holding(slot, worked).instrument(Span::current()));
    let within = if waits { Duration::ZERO } else { BEGIN_WITHIN };
    let first = match timeout(within, queued.recv()).await {
        Ok(Some(Err(error))) => return Err(error),
        Ok(first) => first,
        Err(_) => None,
    };
    let lines = tokio_stream::iter(first).chain(ReceiverStream::new(queued));
    let text = lines.map(|line| Ok::<_, Infallible>(line.unwrap_or_else(last_line)));
    let mut response = Body::from_stream(text).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    // In place of the slot for answers that are made at once. It counts among its token's requests until it was handed over.
    response
        .extensions_mut()
        .insert(Held::new(of_token).in_chunks_of(CHUNK_BYTES).read_within(READ_DEADLINE));
    Ok(response)
}

/// Waits until such an answer may be made; `None`: no one wants it any more. Most are made in a moment, and a fleet asks at once.
async fn turn<T>(
    shares: &Arc<Shares<TokenId>>,
    token: TokenId,
    queue: &mpsc::Sender<T>,
) -> Option<Share<TokenId>> {
    tokio::select! {
        biased;
        () = queue.closed() => None,
        share = shares.wait(token) => Some(share),
    }
}

fn last_line(error: ServiceError) -> Bytes {
    // A problem always has a JSON form.
    line(&Line::<()>::Problem(Problem::from(error).told())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX};

    #[tokio::test]
    async fn answers_take_turns_and_those_no_one_wants_give_theirs_up() {
        let shares = Shares::new(ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX);
        let token = |number: u8| TokenId::from_bytes([number; 16]);
        let (queue, queued) = mpsc::channel::<()>(1);
        let mut taken: Vec<_> = std::iter::from_fn(|| shares.take(token(1))).collect();
        assert_eq!(taken.len(), ANSWERS_PER_TOKEN_MAX);
        assert!(turn(&shares, token(2), &queue).await.is_some(), "another token");
        let ended = taken.pop();
        let (next, ()) = tokio::join!(turn(&shares, token(1), &queue), async { drop(ended) });
        taken.extend(next);
        assert_eq!(taken.len(), ANSWERS_PER_TOKEN_MAX);
        drop(queued);
        assert!(turn(&shares, token(1), &queue).await.is_none());
    }
}
