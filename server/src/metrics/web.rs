//! Counts HTTPS requests.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;

use super::live::{Live, RequestLabels, RouteLabels};
use crate::app::App;

/// Stands for addresses without a route.
const NO_ROUTE: &str = "none";

/// Counts a request and its answer; to be put around the whole router:
/// `.layer(axum::middleware::from_fn_with_state(app, metrics::count_request))`.
pub(crate) async fn count_request(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let begun = Instant::now();
    // The router's pattern, such as /api/v1/vms/{namespace}/{vm}: there are as many as were written.
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = word(request.method());
    let response = next.run(request).await;
    note(&app.metrics.live, method, route, response.status(), begun);
    response
}

fn note(live: &Live, method: &'static str, route: String, status: StatusCode, begun: Instant) {
    match status {
        StatusCode::UNAUTHORIZED => live.refused("http", "unauthenticated"),
        StatusCode::FORBIDDEN => live.refused("http", "forbidden"),
        _ => {}
    }
    let labels = RouteLabels { route: route.clone() };
    live.http_duration.get_or_create(&labels).observe(begun.elapsed().as_secs_f64());
    live.http_requests.get_or_create(&RequestLabels { method, route, code: status.as_u16() }).inc();
}

/// Anybody can make methods up.
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
