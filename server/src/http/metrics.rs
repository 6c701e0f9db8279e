//! `GET /metrics`: who may read them, and the answer.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;

use super::state::HttpState;
use crate::auth::Authenticator;
use crate::error::ServiceError;

/// Of OpenMetrics, which Prometheus has read since 2018.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`.
///
/// # Errors
/// `Unauthenticated`, or `Forbidden` for a token that may not operate the whole repository, unless the settings
/// let any client read them.
pub(super) async fn scrape(
    State(state): State<HttpState>,
    headers: HeaderMap,
) -> Result<Response, ServiceError> {
    let app = &state.app;
    if !state.metrics_open {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let authorization = authorization.map(str::to_owned);
        app.identify(move |auth| authorize(auth, authorization.as_deref())).await?;
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

fn authorize(auth: &Authenticator, authorization: Option<&str>) -> Result<(), ServiceError> {
    let caller = auth.authenticate(authorization, None)?;
    caller.check_role(Action::Operate)?;
    if caller.scope().is_some() {
        return Err(ServiceError::new(
            ErrorCode::Forbidden,
            "metrics cover all namespaces, but this token is valid for some only; use an operator token for all",
        ));
    }
    Ok(())
}
