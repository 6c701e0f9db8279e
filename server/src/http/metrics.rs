//! `GET /metrics`: who may read them, and the answer.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;
use holdfast_proto::request::{REQUEST_METADATA, request_id};
use serde_json::{Value, json};
use tracing::Instrument as _;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::http::{HttpState, access};
use crate::metrics::Counters;
use crate::net::Link;
use crate::readiness::Reason;

/// Content type of OpenMetrics, which Prometheus has read since 2018.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`.
///
/// # Errors
/// `Unauthenticated`, or `Forbidden` for a token that may not operate the whole repository, unless the settings
/// let any client read them.
pub(super) async fn scrape(
    State(state): State<HttpState>,
    Extension(link): Extension<Arc<Link>>,
    headers: HeaderMap,
) -> Result<Response, ServiceError> {
    let app = &state.app;
    if !state.metrics_open {
        authorize(&access::identify_bearer(app, headers.get(header::AUTHORIZATION), &link).await?)?;
    }
    let turn = state.scraping.lock().await;
    let text = app.blocking(|app| {
        let not_ready = app.readiness.look();
        let limit = app.budget.limit.bytes;
        app.metrics.text(&app.engine, &app.activity, &not_ready, limit, app.clock.now_ms())
    });
    let text = text.await?;
    drop(turn);
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

fn authorize(caller: &Caller) -> Result<(), ServiceError> {
    caller.check_role(Action::Operate)?;
    if caller.scope().is_some() {
        return Err(ServiceError::new(
            ErrorCode::Forbidden,
            "metrics cover all namespaces, but this token is valid for some only; use an operator token for all",
        ));
    }
    Ok(())
}

/// The label of paths without a route.
const NO_ROUTE: &str = "none";

/// Counts a request and its answer, and gives it a log span with the client's request id. A layer around the whole router.
pub(super) async fn count_request(
    State(counters): State<Arc<Counters>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    // The router's pattern, such as /api/v1/vms/{namespace}/{vm}: there are as many as the program has routes.
    let route = request.extensions().get::<MatchedPath>().map_or(NO_ROUTE, MatchedPath::as_str).to_owned();
    let method = word(request.method());
    let named = request.headers().get(REQUEST_METADATA).map(|value| value.as_bytes());
    let span = tracing::info_span!("call", method = format!("{method} {route}"), request = request_id(named));
    let response = next.run(request).instrument(span).await;
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

/// `/healthz`: the process answers; nothing else is checked. A server that is full or read-only is alive: it restores.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// `/readyz`: tells if backups are accepted: 200, or 503 and every reason; 200 with the reasons, too, while all they say is that
/// something is being repaired beside backups. The causes name paths, which are for the log and not for
/// strangers.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    if *app.stopping().borrow() {
        return not_ready(&["stopping"], "the server is shutting down");
    }
    let Ok(reasons) = app.blocking(|app| Ok(app.readiness.look())).await else {
        return not_ready(&["internal"], "an internal error; the server's log says more");
    };
    answer(&reasons)
}

fn answer(reasons: &[Reason]) -> (StatusCode, Json<Value>) {
    if reasons.is_empty() {
        return (StatusCode::OK, Json(json!({ "status": "ready" })));
    }
    let words: Vec<&str> = reasons.iter().map(|reason| reason.word).collect();
    let told = reasons.iter().map(|reason| reason.told).collect::<Vec<_>>().join("; ");
    if reasons.iter().all(|reason| reason.backups_go_on) {
        let body = json!({ "status": "degraded", "reason": told, "reasons": words });
        return (StatusCode::OK, Json(body));
    }
    not_ready(&words, &told)
}

fn not_ready(words: &[&str], reason: &str) -> (StatusCode, Json<Value>) {
    let body = json!({ "status": "not ready", "reason": reason, "reasons": words });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body))
}

#[cfg(test)]
mod tests {
    use holdfast_engine::Obstacle;

    use super::*;

    /// A load balancer or an orchestrator that takes the server away would end the backups that go on.
    #[test]
    fn what_is_repaired_beside_backups_is_no_reason_to_take_the_server_away() {
        let reason = Reason::of;
        let beside = [Obstacle::IndexDamaged, Obstacle::PointsUnread];
        for obstacle in beside {
            let (status, Json(body)) = answer(&[reason(obstacle, String::new())]);
            assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("degraded")));
            assert_eq!(body["reasons"], json!([obstacle.as_str()]));
        }
        for obstacle in Obstacle::ALL.into_iter().filter(|obstacle| !beside.contains(obstacle)) {
            let both = [Obstacle::IndexDamaged, obstacle].map(|obstacle| reason(obstacle, String::new()));
            let (status, Json(body)) = answer(&both);
            assert_eq!((status, &body["status"]), (StatusCode::SERVICE_UNAVAILABLE, &json!("not ready")));
        }
        assert_eq!(answer(&[]).0, StatusCode::OK);
    }
}
