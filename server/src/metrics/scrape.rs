//! The request for metrics: who may, and the answer.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use holdfast_engine::catalog::token::Action;
use holdfast_proto::ErrorCode;

use super::exposition::{Samples, render};
use super::names as n;
use super::{figures, process};
use crate::app::App;
use crate::error::ServiceError;

/// Of OpenMetrics, which Prometheus has read since 2018.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`.
///
/// # Errors
/// `Unauthenticated`, or `Forbidden` for a token that may not operate the whole repository; unless the
/// settings let anybody read them.
pub(crate) async fn scrape(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
) -> Result<Response, ServiceError> {
    if !app.metrics.open {
        let authorization = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let authorization = authorization.map(str::to_owned);
        app.blocking(move |app| authorize(app, authorization.as_deref())).await?;
    }
    let turn = app.metrics.turn.lock().await;
    let text = app.blocking(text).await?;
    drop(turn);
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response())
}

fn authorize(app: &App, authorization: Option<&str>) -> Result<(), ServiceError> {
    let caller = app.auth.authenticate(authorization, None)?;
    caller.check_role(Action::Operate)?;
    if caller.scope().is_some() {
        return Err(ServiceError::new(
            ErrorCode::Forbidden,
            "metrics tell of all namespaces, this token is for some; use an operator token for all of them",
        ));
    }
    Ok(())
}

/// The answer. Blocks.
pub(super) fn text(app: &Arc<App>) -> Result<String, ServiceError> {
    let mut samples = Samples::default();
    samples.whole(&n::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1);
    add_process(&mut samples);
    add_now(app, &mut samples);
    figures::add(app, &mut samples);
    render(&app.metrics.live, samples)
        .map_err(|error| ServiceError::new(ErrorCode::Internal, format!("cannot write metrics: {error}")))
}

fn add_process(samples: &mut Samples) {
    let read = process::read();
    samples.float(&n::PROCESS_CPU, &[], read.cpu_seconds);
    samples.whole(&n::PROCESS_MEMORY, &[], read.resident_bytes);
    samples.whole(&n::PROCESS_VIRTUAL, &[], read.virtual_bytes);
    samples.whole(&n::PROCESS_THREADS, &[], read.threads);
    samples.whole(&n::PROCESS_FDS, &[], read.open_fds);
    samples.whole(&n::PROCESS_FDS_MAX, &[], read.max_fds);
    samples.float(&n::PROCESS_START, &[], read.started_seconds);
}

/// What costs nothing to look at.
fn add_now(app: &App, samples: &mut Samples) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    samples.whole(&n::READ_ONLY, &[], app.engine.read_only_reason().is_some().into());
    samples.whole(&n::SESSIONS, &[], count(app.metrics.live.sessions().len()));
    for (kind, streams) in app.streams.counts() {
        samples.whole(&n::STREAMS, &[kind], count(streams));
    }
    for (listener, traffic) in &*app.metrics.listeners.lock() {
        samples.whole(&n::CONNECTIONS, &[listener], traffic.open());
        samples.whole(&n::NETWORK_RECEIVED, &[listener], traffic.received_bytes());
        samples.whole(&n::NETWORK_SENT, &[listener], traffic.sent_bytes());
    }
}
