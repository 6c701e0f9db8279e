//! Ends what has outlived its lease, its token or its login.
//!
//! A round that fails is logged and tried again by the next one; nothing depends on a round being complete. After a
//! crash there is nothing left to end: streams and sessions die with the process.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::ErrorCode;
use tokio::time::MissedTickBehavior;

use crate::activity::Change;
use crate::app::App;
use crate::error::ServiceError;

/// How often leases and the tokens of open streams are checked.
const INTERVAL: Duration = Duration::from_secs(2);

/// Every how many rounds ended logins are removed: once a minute.
const PRUNE_ROUNDS: u64 = 30;

/// Runs until it is aborted.
pub(crate) async fn run(app: Arc<App>) {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for round in 0_u64.. {
        ticks.tick().await;
        if round % PRUNE_ROUNDS == 0 {
            prune_logins(&app).await;
        }
        let done = app.blocking(|app| {
            expire_sessions(app);
            end_watchers(app)?;
            end_streams(app)
        });
        if let Err(error) = done.await {
            tracing::error!(%error, "housekeeping failed");
        }
    }
}

/// Gives up backups whose lease has expired.
fn expire_sessions(app: &App) {
    let expired = app.engine.expire_sessions();
    if expired > 0 {
        tracing::info!(expired, "gave up backups whose agents stopped responding");
        app.activity.note(Change::Run);
    }
    app.metrics.forget_sessions(|session| {
        let asked = app.engine.session_namespace(session);
        asked.is_err_and(|error| error.code() == ErrorCode::SessionGone)
    });
}

/// Ends the watchers whose token or login has ended.
fn end_watchers(app: &App) -> Result<(), ServiceError> {
    for credential in app.activity.watchers.credentials() {
        if !app.auth.still_holds(&credential)? {
            app.activity.watchers.end(&credential);
        }
    }
    Ok(())
}

/// Ends the streams whose token has ended.
fn end_streams(app: &App) -> Result<(), ServiceError> {
    for token in app.activity.streams.tokens() {
        if !app.auth.still_valid(token)? {
            tracing::info!(%token, "the token has ended; ending its streams");
            app.activity.streams.end_token(token);
        }
    }
    Ok(())
}

/// Removes logins that have ended. They give access to nothing any more, so a catalog that cannot be written to must
/// not stop the rest of a round.
async fn prune_logins(app: &Arc<App>) {
    if let Err(error) = app.blocking(|app| app.auth.forget_ended_logins()).await {
        tracing::debug!(%error, "cannot remove ended logins");
    }
}
