//! Counts gRPC calls, and gives each a log span with the client's request id. Wraps each answer's body,
//! because the status comes at its end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use holdfast_proto::request::{REQUEST_METADATA, request_id};
use http_body::{Body, Frame, SizeHint};
use tonic::codegen::{Bytes, http};
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::{Instrument as _, Span};

use super::calls;
use crate::metrics::Counters;

/// The label of calls of a method that does not exist.
const UNKNOWN: &str = "unknown";

/// Calls that read disks back.
const RESTORE_PREFIX: &str = "Restore/Read";

/// Puts [`Counted`] around the services.
#[derive(Debug, Clone)]
pub(super) struct CountCalls(Arc<Counters>);

impl CountCalls {
    /// Counts in `counters`.
    pub(super) const fn new(counters: Arc<Counters>) -> Self {
        Self(counters)
    }
}

impl<S> Layer<S> for CountCalls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, counters: Arc::clone(&self.0) }
    }
}

/// A service whose calls are counted.
#[derive(Debug, Clone)]
pub(crate) struct Counted<S> {
    inner: S,
    counters: Arc<Counters>,
}

impl<S, In, Out> Service<http::Request<In>> for Counted<S>
where
    S: Service<http::Request<In>, Response = http::Response<Out>>,
    S::Future: Send + 'static,
    Out: Body<Data = Bytes> + Unpin + Send + 'static,
{
    type Response = http::Response<CountedBody<Out>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<In>) -> Self::Future {
        let method = method(request.uri().path());
        let mut call = Call {
            counters: Arc::clone(&self.counters),
            method,
            begun: Instant::now(),
            span: tracing::info_span!(
                "call",
                method,
                request = request_id(request.headers().get(REQUEST_METADATA).map(|value| value.as_bytes()))
            ),
            sent_bytes: 0,
            // Until it has ended: a call that is dropped was cancelled.
            code: Code::Cancelled,
        };
        let answer = call.span.in_scope(|| self.inner.call(request)).instrument(call.span.clone());
        Box::pin(async move {
            let answer = answer.await?;
            // A refusal has its status in the headers, and no body.
            if let Some(status) = Status::from_header_map(answer.headers()) {
                call.code = status.code();
            }
            Ok(answer.map(|body| CountedBody { body, call }))
        })
    }
}

/// The label for a path.
fn method(path: &str) -> &'static str {
    calls::of_path(path).map_or(UNKNOWN, |call| call.name)
}

/// A call under way; counts when dropped.
#[derive(Debug)]
struct Call {
    counters: Arc<Counters>,
    method: &'static str,
    begun: Instant,
    span: Span,
    /// Bytes of answers, for calls that read disks back.
    sent_bytes: u64,
    code: Code,
}

impl Drop for Call {
    fn drop(&mut self) {
        let Self { counters, method, begun, span, sent_bytes, code } = self;
        let took = begun.elapsed();
        counters.grpc_call(method, word(*code), took);
        match code {
            Code::Unauthenticated => counters.refused("grpc", "unauthenticated"),
            Code::PermissionDenied => counters.refused("grpc", "forbidden"),
            _ => {}
        }
        if method.starts_with(RESTORE_PREFIX) {
            let outcome = match code {
                Code::Ok => "done",
                Code::Cancelled => "cancelled",
                _ => "failed",
            };
            counters.restore_ended(outcome);
            let seconds = took.as_secs_f64();
            span.in_scope(|| tracing::info!(sent_bytes, seconds, outcome, "reading back ended"));
        }
    }
}

/// An answer on its way.
#[derive(Debug)]
pub(crate) struct CountedBody<B> {
    body: B,
    call: Call,
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame {
            if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                self.call.code = status.code();
            }
            if let Some(data) = frame.data_ref()
                && self.call.method.starts_with(RESTORE_PREFIX)
            {
                let bytes = data.len() as u64;
                self.call.counters.restore_sent(bytes);
                self.call.sent_bytes = self.call.sent_bytes.saturating_add(bytes);
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The status as gRPC's specification writes it.
const fn word(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `Service/Method` of every `rpc` in the protocol.
    fn protocol() -> Vec<String> {
        let files = [
            include_str!("../../../proto/proto/holdfast/v1/backup.proto"),
            include_str!("../../../proto/proto/holdfast/v1/restore.proto"),
        ];
        let mut methods = Vec::new();
        for file in files {
            let mut service = "";
            for line in file.lines() {
                let mut words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
                match (words.next(), words.next()) {
                    (Some("service"), Some(name)) if line.starts_with("service") => service = name,
                    (Some("rpc"), Some(name)) => methods.push(format!("{service}/{name}")),
                    _ => {}
                }
            }
        }
        methods
    }

    #[test]
    fn every_method_of_the_protocol_has_its_label() {
        let mut protocol = protocol();
        assert!(protocol.len() >= 10, "{protocol:?}");
        protocol.sort();
        let mut methods: Vec<&str> = calls::CALLS.iter().map(|call| call.name).collect();
        methods.sort_unstable();
        assert_eq!(methods, protocol);
        for name in methods {
            assert_eq!(method(&format!("{}{name}", calls::PREFIX)), name);
        }
        for hostile in ["", "/", "/holdfast.v1.Backup/x", "/other.Backup/Hello", "/holdfast.v1.Backup/Hello/"]
        {
            assert_eq!(method(hostile), UNKNOWN, "{hostile}");
        }
    }
}
