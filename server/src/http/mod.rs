//! HTTPS: the REST API, the web UI, and health for load balancers and service managers.
//!
//! A request passes, from the outside in: `serve` (one connection, deadlines) → `limits` (a place, a
//! deadline, headers, pace) → `access` (who may) → a handler of `api`, which reads its parameters
//! (`query`), asks a service or the engine on a thread that may block, and gives JSON or a `problem`.
//! What is no route is the UI's (`ui`).

pub(crate) mod access;
mod api;
mod cookie;
mod docs;
pub(crate) mod download;
mod headers;
mod health;
pub(crate) mod kept;
pub(crate) mod limits;
pub(crate) mod live;
mod pace;
pub mod problem;
mod query;
mod serve;
mod stall;
mod ui;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

pub(crate) use serve::serve;

use crate::app::App;
use crate::metrics;

/// Answers below this many bytes are one packet either way.
const COMPRESS_ABOVE_BYTES: u64 = 1400;

/// Everything there is to ask for.
pub fn router(app: Arc<App>) -> Router {
    let api = api::router().layer(from_fn_with_state(Arc::clone(&app), access::check)).layer(
        CompressionLayer::new()
            .gzip(true)
            .compress_when(SizeAbove::new(COMPRESS_ABOVE_BYTES).and(NotForContentType::SSE).and(NotSecret)),
    );
    let pages = docs::router()
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(metrics::scrape))
        .method_not_allowed_fallback(async || problem::Problem::method_not_allowed("GET, HEAD"));
    Router::new()
        .merge(api)
        .merge(pages)
        .fallback(ui::serve)
        .layer(DefaultBodyLimit::max(limits::BODY_MAX_BYTES))
        .layer(from_fn_with_state(Arc::clone(&app), limits::around))
        .layer(from_fn_with_state(Arc::clone(&app), metrics::count_request))
        .with_state(app)
}

/// What holds a secret is not compressed beside what others may choose.
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
