//! Answers that are lines of JSON (NDJSON), made while they are read: of what takes long, or has no bound.
//!
//! The work is done on a thread that may block. Its lines go to the connection through a queue, which stops the work while the
//! client is slow, and ends it when the client goes away or reads nothing for [`READ_DEADLINE`], when its token or login ends,
//! and when the server stops. A refusal that comes soon has its own status; a later one is the last line, a [`Problem`].

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use holdfast_engine::ids::TokenId;
use holdfast_proto::api::{LINES, Line};
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{Instrument as _, Span};

use crate::activity::streams::Stop;
use crate::app::App;
use crate::auth::Credential;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::access::Identity;
use crate::http::bounds::{CHUNK_BYTES, LINES_WAITING};
use crate::http::problem::Problem;
use crate::limits::READ_DEADLINE;
use crate::net::Held;
use crate::shares::{Share, Shares};

/// How long an answer waits for its first line or its refusal before it begins without.
const BEGIN_WITHIN: Duration = Duration::from_secs(5);

/// How long one waits for its turn: both together are less than an answer may take to begin.
const TURN_WITHIN: Duration = Duration::from_secs(20);

/// Where the lines of an answer go.
#[derive(Debug)]
pub(super) struct Lines<T> {
    app: Arc<App>,
    credential: Credential,
    queue: mpsc::Sender<Result<Bytes, ServiceError>>,
    runtime: Handle,
    line: PhantomData<fn(&T)>,
}

impl<T: Serialize> Lines<T> {
    /// Waits until there is room. Blocks.
    ///
    /// # Errors
    /// What ends the answer: no one reads it, its token or login has ended, or the server stops.
    pub(super) fn send(&self, item: &T) -> Result<(), ServiceError> {
        if *self.app.stopping().borrow() {
            return Err(Stop::ShuttingDown.into());
        }
        if !self.app.auth.still_holds(&self.credential)? {
            return Err(Stop::TokenEnded.into());
        }
        let sent = self.queue.send_timeout(Ok(line(&Line::Item(item))?), READ_DEADLINE);
        self.runtime.block_on(sent).map_err(|_| ServiceError::shutting_down())
    }

    /// Returns true if nothing more is wanted.
    pub(super) fn is_over(&self) -> bool {
        self.queue.is_closed() || *self.app.stopping().borrow()
    }
}

fn line<T: Serialize>(line: &Line<T>) -> Result<Bytes, ServiceError> {
    let mut text = serde_json::to_vec(line).map_err(ServiceError::defect)?;
    text.push(b'\n');
    Ok(text.into())
}

/// Answers with what `work` sends.
///
/// # Errors
/// `Limit`: as many such answers are under way as there may be; those with which `work` ends soon.
pub(super) async fn answer<T: Serialize + 'static>(
    state: &HttpState,
    identity: &Identity,
    work: impl FnOnce(&Arc<App>, &Lines<T>) -> Result<(), ServiceError> + Send + 'static,
) -> Result<Response, ServiceError> {
    let share = share(&state.lines, identity.caller.token.id).await?;
    let (queue, mut queued) = mpsc::channel(LINES_WAITING);
    let lines = Lines {
        app: Arc::clone(&state.app),
        credential: identity.credential(),
        queue: queue.clone(),
        runtime: Handle::current(),
        line: PhantomData,
    };
    let app = Arc::clone(&state.app);
    let worked = async move {
        let ended = app.blocking(move |app| work(app, &lines)).await;
        drop(share);
        if let Err(error) = ended {
            // The client may be gone.
            let _ = queue.send(Err(error)).await;
        }
    };
    tokio::spawn(worked.instrument(Span::current()));
    let first = match timeout(BEGIN_WITHIN, queued.recv()).await {
        Ok(Some(Err(error))) => return Err(error),
        Ok(first) => first,
        Err(_) => None,
    };
    let lines = tokio_stream::iter(first).chain(ReceiverStream::new(queued));
    let text = lines.map(|line| Ok::<_, Infallible>(line.unwrap_or_else(last_line)));
    let mut response = Body::from_stream(text).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(LINES));
    // In place of the slot for answers that are made at once: this one is bounded by its share.
    response.extensions_mut().insert(Held::new(()).in_chunks_of(CHUNK_BYTES).read_within(READ_DEADLINE));
    Ok(response)
}

/// Waits until such an answer may be made: most are made in a moment, and a fleet asks at once.
async fn share(lines: &Arc<Shares<TokenId>>, token: TokenId) -> Result<Share<TokenId>, ServiceError> {
    let busy = |_| ServiceError::at_capacity("others are being answered; try again in a moment");
    timeout(TURN_WITHIN, lines.wait(token)).await.map_err(busy)
}

fn last_line(error: ServiceError) -> Bytes {
    // A problem always has a JSON form.
    line(&Line::<()>::Problem(Problem::from(error).told())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use holdfast_proto::ErrorCode;

    use super::*;
    use crate::limits::{ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX};

    #[tokio::test(start_paused = true)]
    async fn lines_that_no_one_reads_leave_threads_to_others() {
        let lines = Shares::new(ANSWERS_MAX, ANSWERS_PER_TOKEN_MAX);
        let token = |number: u8| TokenId::from_bytes([number; 16]);
        let mut held = Vec::new();
        for _ in 0..ANSWERS_PER_TOKEN_MAX {
            held.push(share(&lines, token(1)).await.unwrap());
        }
        let refused = share(&lines, token(1)).await.unwrap_err();
        assert!(refused.code == ErrorCode::Limit && refused.retry_after_secs.is_some(), "{refused}");
        drop(share(&lines, token(2)).await.unwrap());
        // One that waits gets the turn of one that ends.
        let (waits, ends) = (share(&lines, token(1)), async { drop(held.pop()) });
        drop(tokio::join!(waits, ends).0.unwrap());
    }
}
