//! In front of all calls: the token is looked up by the call's headers, before a byte of its body is read (H7). A call
//! without a valid one is answered at once, and what its body brings is discarded by HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::{LANE_MESSAGE_MAX_BYTES, MESSAGE_MAX_BYTES};
use http_body::Body;
use tonic::body::Body as AnswerBody;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::{Extensions, HeaderMap, Request, Response};
use tonic::{Code, Status};
use tower::Service;

use super::bounds::{OPEN_MAX_BYTES, SMALL_CHUNK_BYTES, UNARY_MAX_BYTES};
use super::calls::{self, AnswerKind, Call};
use super::messages::{Bounds, Messages};
use crate::app::{App, holding};
use crate::auth::{Caller, named_token};
use crate::error::ServiceError;
use crate::limits::{BODY_DEADLINE, CALLS_PER_TOKEN_MAX};
use crate::net::{Held, Link};
use crate::shares::{Share, Shares};

/// The call whose messages are large, and come for as long as a disk takes.
const INGEST: &str = "/holdfast.v1.Backup/Ingest";

/// A part of such a call's messages, on a connection of its own.
const LANE: &str = "/holdfast.v1.Backup/SendLane";

/// The call whose messages are small, and come for as long as a disk is read.
const PARTS: &str = "/holdfast.v1.Restore/ReadParts";

/// Lets calls with a valid token through to `calls`.
#[derive(Debug, Clone)]
pub(crate) struct Gate<S> {
    app: Arc<App>,
    /// Calls whose answers are being made, or not handed over yet, and those whose work goes on after they were reset.
    pub(crate) under_way: Arc<Shares<TokenId>>,
    calls: S,
}

impl<S> Gate<S> {
    pub(crate) fn new(app: Arc<App>, calls: S) -> Self {
        Self { app, under_way: Shares::new(usize::MAX, CALLS_PER_TOKEN_MAX), calls }
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
            let admitted = admit(&app, &under_way, request.headers(), request.extensions()).await;
            let (caller, share) = match admitted {
                Ok(admitted) => admitted,
                Err(error) => return Ok(error.into_status().into_http()),
            };
            let Some(call) = calls::of_path(request.uri().path()) else {
                return Ok(Status::unimplemented("there is no such call").into_http());
            };
            if let Err(error) = call.access.check(&caller) {
                let noted = note_refusal(&app, call, &caller, &error.message);
                holding(Some(Held::new(share)), noted).await;
                return Ok(error.into_status().into_http());
            }
            request.extensions_mut().insert(caller.clone());
            request.extensions_mut().insert(*call);
            let bounds = bounds(request.uri().path());
            let held = Held::new(share);
            let answered = async {
                let answer = calls.call(request.map(|body| Messages::new(body, bounds))).await?;
                Ok::<_, Infallible>(settled(&app, call, &caller, answer).await)
            };
            let mut answer = holding(Some(held.clone()), answered).await?;
            answer.extensions_mut().insert(match call.answer {
                AnswerKind::Stream => held,
                AnswerKind::Short => held.in_chunks_of(SMALL_CHUNK_BYTES),
            });
            Ok(answer)
        }) as Pin<Box<_>>
    }
}

/// An answer that is a refusal, as it goes out: one by role, scope or patterns is in the audit log, and a message that could
/// not be decoded is its sender's fault.
async fn settled(
    app: &Arc<App>,
    call: &'static Call,
    caller: &Caller,
    answer: Response<AnswerBody>,
) -> Response<AnswerBody> {
    let Some(status) = Status::from_header_map(answer.headers()) else { return answer };
    match status.code() {
        Code::PermissionDenied => note_refusal(app, call, caller, status.message()).await,
        // This server's own say what they are.
        Code::Internal if ErrorCode::of_status(&status).is_none() => {
            let text = format!("the call cannot be read: {}", status.message());
            return ServiceError::invalid(text).into_status().into_http();
        }
        _ => {}
    }
    answer
}

async fn note_refusal(app: &Arc<App>, call: &'static Call, caller: &Caller, why: &str) {
    let (caller, why) = (caller.clone(), why.to_owned());
    let noted = app.blocking(move |app| {
        app.auth.note_refused_call(&caller, call.name, &why);
        Ok(())
    });
    if let Err(error) = noted.await {
        error.log();
    }
}

const fn unary() -> Bounds {
    Bounds { message_bytes: UNARY_MAX_BYTES, first_bytes: UNARY_MAX_BYTES, whole_within: Some(BODY_DEADLINE) }
}

fn bounds(path: &str) -> Bounds {
    let message_bytes = match path {
        INGEST => MESSAGE_MAX_BYTES,
        LANE => LANE_MESSAGE_MAX_BYTES,
        PARTS => return Bounds { whole_within: None, ..unary() },
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
