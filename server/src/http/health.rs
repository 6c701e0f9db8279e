//! `/healthz`: the process answers. `/readyz`: it accepts backups, or says why not.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::app::App;
use crate::readiness::Reason;

/// The process answers; nothing else is checked. A server that is full or read-only is alive: it restores.
pub(super) async fn alive() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }))
}

/// Whether backups are accepted: 200, or 503 and every reason; 200 with the reasons, too, while all they say is that
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
