//! HTTPS: the REST API, the web UI, metrics, and health for load balancers and service managers.
//!
//! A request passes, from the outside in: `request_slots` (a deadline, and a slot for a stranger) → `access` (who may,
//! by the headers alone; a slot for a caller) → a handler of `rest`, which reads its parameters (`query`), asks the
//! engine on a thread that may block, and answers with JSON or a `problem`. Any path without a route belongs to the
//! UI (`ui`).
//!
//! | file | open it for |
//! |---|---|
//! | `state` | what requests share |
//! | `bounds` | every bound, with the arithmetic |
//! | `access/` | who may ask for what: one table and its check |
//! | `rest/` | the REST API, one file a resource |
//! | `request_slots`, `slots`, `logins` | how many requests at once; logins that are not complete |
//! | `download` | tables of any length |
//! | `storage_cache` | what is costly to find out and therefore cached |
//! | `query`, `problem`, `headers` | parameters, errors, and the headers of every answer |
//! | `words` | strings that are one of a few words, for the API's description |
//! | `health`, `metrics`, `count` | `/healthz`, `/readyz`, `/metrics`, and the metrics of requests |
//! | `docs`, `ui` | the page that shows the API's description; the web UI |

pub(crate) mod access;
pub(crate) mod bounds;
mod count;
mod docs;
mod download;
mod headers;
mod health;
mod logins;
mod metrics;
pub mod problem;
mod query;
mod request_slots;
mod rest;
mod slots;
mod state;
mod storage_cache;
mod ui;
mod words;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

pub(crate) use state::HttpState;

use tokio::sync::watch;

use crate::limits::{HEADER_DEADLINE, READ_DEADLINE};
use crate::net::{Listener, Patience, Protocol};

/// Answers below this many bytes are one packet either way.
const COMPRESS_ABOVE_BYTES: u64 = 1400;

/// What browsers may cost below their requests, and what they are waited for. The largest body is
/// [`bounds::BODY_MAX_BYTES`].
const PROTOCOL: Protocol = Protocol {
    http1: true,
    stream_window_bytes: 64 << 10,
    connection_window_bytes: 256 << 10,
    windows: None,
    frame_bytes: 16 << 10,
    streams_max: bounds::STREAMS_PER_CONNECTION_MAX,
    buffer_bytes: bounds::BUFFER_BYTES,
    chunk_bytes: bounds::CHUNK_BYTES,
    patience: Patience { stranger: None, stranger_idle: HEADER_DEADLINE, read: READ_DEADLINE },
};

/// Serves browsers and health checks until `stop`, then until the requests under way are done.
pub(crate) async fn serve(state: HttpState, listener: Listener, stop: watch::Receiver<bool>) {
    listener.serve(PROTOCOL, stop, router(state)).await;
}

/// Every route.
fn router(state: HttpState) -> Router {
    let api = rest::router().layer(from_fn_with_state(state.clone(), access::check)).layer(
        CompressionLayer::new()
            .gzip(true)
            .compress_when(SizeAbove::new(COMPRESS_ABOVE_BYTES).and(NotForContentType::SSE).and(NotSecret)),
    );
    let pages = docs::router()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::scrape))
        .method_not_allowed_fallback(async || problem::Problem::method_not_allowed("GET, HEAD"));
    let counters = state.app.metrics.counters();
    Router::new()
        .merge(api)
        .merge(pages)
        .fallback(ui::serve)
        .layer(DefaultBodyLimit::max(bounds::BODY_MAX_BYTES))
        .layer(from_fn_with_state(state.clone(), request_slots::around))
        .layer(from_fn_with_state(counters, count::count_request))
        .with_state(state)
}

/// An answer that contains a secret is not compressed together with text that others may choose.
#[derive(Debug, Clone, Copy)]
struct NotSecret;

impl Predicate for NotSecret {
    fn should_compress<B>(&self, response: &axum::http::Response<B>) -> bool
    where
        B: http_body::Body,
    {
        response.extensions().get::<access::Secret>().is_none()
    }
}
