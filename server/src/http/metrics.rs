//! `GET /metrics`: who may read them, and the answer.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;

use super::access;
use super::state::HttpState;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::net::Link;

/// Of OpenMetrics, which Prometheus has read since 2018.
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
