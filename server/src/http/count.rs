//! Counts HTTPS requests.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use crate::metrics::Counters;

/// The label of paths without a route.
const NO_ROUTE: &str = "none";

/// Counts a request and its answer. A layer around the whole router.
pub(super) async fn count_request(
    State(counters): State<Arc<Counters>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    // The router's pattern, such as /api/v1/vms/{namespace}/{vm}: there are as many as the program has routes.
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = word(request.method());
    let response = next.run(request).await;
    match response.status() {
        StatusCode::UNAUTHORIZED => counters.refused("http", "unauthenticated"),
        StatusCode::FORBIDDEN => counters.refused("http", "forbidden"),
        _ => {}
    }
    counters.http_request(method, &route, response.status().as_u16(), begun.elapsed());
    response
}

/// The method as a label; a client can make up any other.
fn word(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}
