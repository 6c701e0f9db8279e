//! Looks at the containers that the start did not look at (ORDERING, S7).

use std::sync::Arc;
use std::time::Duration;

use crate::app::App;

/// Between two steps: a million containers take 250 steps.
const PAUSE: Duration = Duration::from_millis(100);

/// Between tries of a step that fails.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_secs(300);

/// Runs until all containers were looked at or it is aborted: a folder at a time, with pauses in which backups have
/// the disk for themselves. What fails is tried again, less and less often.
pub(crate) async fn run(app: Arc<App>) {
    let mut wait = PAUSE;
    while !app.engine.audit_progress().finished {
        match app.blocking(|app| Ok(app.engine.audit_step()?)).await {
            Ok(_) => wait = PAUSE,
            Err(error) => {
                wait = (wait * 2).clamp(RETRY_MIN, RETRY_MAX);
                tracing::warn!(%error, retry_secs = wait.as_secs(), "the audit of the containers failed");
            }
        }
        tokio::time::sleep(wait).await;
    }
}
