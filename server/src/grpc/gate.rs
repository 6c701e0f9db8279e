//! In front of all calls: the token is looked up by the call's headers, before a byte of its body is read (H7). A call
//! without a valid one is answered at once, and what its body brings is discarded by HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdfast_engine::ids::TokenId;
use holdfast_proto::limits::{LANE_MESSAGE_MAX_BYTES, MESSAGE_MAX_BYTES};
use http_body::Body;
use tonic::body::Body as AnswerBody;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{Extensions, HeaderMap, Request, Response};
use tower::Service;

use super::bounds::{OPEN_MAX_BYTES, UNARY_MAX_BYTES};
use super::messages::{Bounds, Messages};
use crate::app::App;
use crate::auth::{Caller, named_token};
use crate::error::ServiceError;
use crate::limits::{BODY_DEADLINE, CALLS_PER_TOKEN_MAX};
use crate::net::{Held, Link};
use crate::shares::{Share, Shares};

/// The call whose messages are large, and come for as long as a disk takes.
const INGEST: &str = "/holdfast.v1.Backup/Ingest";

/// A part of such a call's messages, on a connection of its own.
const LANE: &str = "/holdfast.v1.Backup/SendLane";

/// Lets calls with a valid token through to `calls`.
#[derive(Debug, Clone)]
pub(super) struct Gate<S> {
    app: Arc<App>,
    under_way: Arc<Shares<TokenId>>,
    calls: S,
}

impl<S> Gate<S> {
    pub(super) fn new(app: Arc<App>, calls: S) -> Self {
        Self { app, under_way: Shares::new(CALLS_PER_TOKEN_MAX), calls }
    }
}

impl<S, B> Service<Request<B>> for Gate<S>
where
    S: Service<Request<Messages<B>>, Response = Response<AnswerBody>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.calls.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let calls = self.calls.clone();
        // The one that was found ready.
        let mut calls = std::mem::replace(&mut self.calls, calls);
        let (app, under_way) = (Arc::clone(&self.app), Arc::clone(&self.under_way));
        Box::pin(async move {
            match admit(&app, &under_way, request.headers(), request.extensions()).await {
                Ok((caller, share)) => {
                    request.extensions_mut().insert(caller);
                    let bounds = bounds(request.uri().path());
                    let mut answer = calls.call(request.map(|body| Messages::new(body, bounds))).await?;
                    answer.extensions_mut().insert(Held::new(share));
                    Ok(answer)
                }
                Err(error) => Ok(error.into_status().into_http()),
            }
        }) as Pin<Box<_>>
    }
}

const fn unary() -> Bounds {
    Bounds { message_bytes: UNARY_MAX_BYTES, first_bytes: UNARY_MAX_BYTES, whole_within: Some(BODY_DEADLINE) }
}

fn bounds(path: &str) -> Bounds {
    let message_bytes = match path {
        INGEST => MESSAGE_MAX_BYTES,
        LANE => LANE_MESSAGE_MAX_BYTES,
        _ => return unary(),
    };
    // Large ones come when the disk has its turn: see [`OPEN_MAX_BYTES`].
    Bounds { message_bytes, first_bytes: OPEN_MAX_BYTES, whole_within: None }
}

async fn admit(
    app: &Arc<App>,
    under_way: &Arc<Shares<TokenId>>,
    headers: &HeaderMap,
    extensions: &Extensions,
) -> Result<(Caller, Share<TokenId>), ServiceError> {
    let Some(link) = extensions.get::<Arc<Link>>() else {
        return Err(ServiceError::defect("a call came without its connection"));
    };
    // One that is not text is a wrong token.
    let authorization =
        headers.get("authorization").map(|value| value.to_str().unwrap_or_default().to_owned());
    let shown = authorization.as_deref().map(named_token);
    let peer = Some(link.peer());
    let look_up = move |auth: &crate::auth::Authenticator| auth.authenticate(authorization.as_deref(), peer);
    let caller: Caller = app.admit("grpc", link, shown, look_up, |caller| caller.token.id).await?;
    let share = under_way.take(caller.token.id).ok_or_else(|| {
        ServiceError::at_capacity(format!(
            "this token has {CALLS_PER_TOKEN_MAX} calls under way, which is all it may have; try again later"
        ))
    })?;
    Ok((caller, share))
}
