//! `/healthz`: the process answers. `/readyz`: it accepts backups, or says why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;

/// The process answers; nothing else is checked.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Whether backups are accepted: 200, or 503 and the reason.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    match not_ready(&app).await {
        None => (StatusCode::OK, Json(ready_body(app.engine.under_repair()))),
        Some(reason) => {
            let body = json!({ "status": "not ready", "reason": reason });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body))
        }
    }
}

/// Ready, and what is being put right meanwhile.
fn ready_body(under_repair: Option<String>) -> Value {
    under_repair
        .map_or_else(|| json!({ "status": "ready" }), |note| json!({ "status": "ready", "note": note }))
}

async fn not_ready(app: &Arc<App>) -> Option<String> {
    if *app.stopping().borrow() {
        return Some("the server is shutting down".to_owned());
    }
    let stopped: Vec<&str> = app.engine.stopped().iter().map(|stopped| stopped.work.as_str()).collect();
    if !stopped.is_empty() {
        // The cause names paths, which are for the log and not for strangers.
        let what = stopped.join(", ");
        return Some(format!(
            "the repository is read-only after a failure (stopped: {what}); the server's log has the details"
        ));
    }
    let asked = app.blocking(|app| Ok(app.catalog().repository()?)).await;
    asked.err().map(|error| {
        tracing::error!(%error, "the catalog does not answer");
        "the catalog does not answer; the server's log says why".to_owned()
    })
}
