//! `/healthz`: the process answers. `/readyz`: it accepts backups, or says why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;

/// The process answers; nothing else is checked. A server that is full or read-only is alive: it restores.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Whether backups are accepted: 200, or 503 and every reason. The causes name paths, which are for the log and not for
/// strangers.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    if *app.stopping().borrow() {
        return not_ready(&["stopping"], "the server is shutting down");
    }
    let Ok(reasons) = app.blocking(|app| Ok(app.readiness.look())).await else {
        return not_ready(&["internal"], "an internal error; the server's log says more");
    };
    if reasons.is_empty() {
        return (StatusCode::OK, Json(json!({ "status": "ready" })));
    }
    let words: Vec<&str> = reasons.iter().map(|reason| reason.word).collect();
    let told: Vec<&str> = reasons.iter().map(|reason| reason.told).collect();
    not_ready(&words, &told.join("; "))
}

fn not_ready(words: &[&str], reason: &str) -> (StatusCode, Json<Value>) {
    let body = json!({ "status": "not ready", "reason": reason, "reasons": words });
    (StatusCode::SERVICE_UNAVAILABLE, Json(body))
}
