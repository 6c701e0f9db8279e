//! Connecting, which may take as long as any outage: a nightly job must not fail because the server, the line or the name
//! service comes back a minute later.

use std::time::{Duration, Instant};

use super::{Connection, Settings};
use crate::backoff::Backoff;
use crate::error::ClientError;
use crate::progress::Notice;

/// [`Connection::open`], again and again for as long as `retry_for`; each wait is told to `notice` before.
///
/// # Errors
/// Those of [`Connection::open`]; what may pass only once `retry_for` has passed.
pub async fn open_retrying(
    settings: &Settings,
    retry_for: Duration,
    notice: impl Fn(&Notice),
) -> Result<Connection, ClientError> {
    let (mut backoff, epoch) = (Backoff::new(retry_for), Instant::now());
    match Connection::open(settings).await {
        Err(error) if may_pass(&error) => open_again(settings, error, (&mut backoff, epoch), notice).await,
        outcome => outcome,
    }
}

/// As [`open_retrying`], after `error` has ended a connection or an attempt; for as long as `backoff` allows, whose time
/// began at `epoch`.
///
/// # Errors
/// As [`open_retrying`].
pub(crate) async fn open_again(
    settings: &Settings,
    mut error: ClientError,
    (backoff, epoch): (&mut Backoff, Instant),
    notice: impl Fn(&Notice),
) -> Result<Connection, ClientError> {
    loop {
        let reason = error.to_string();
        tracing::info!(reason, "no connection");
        let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(error) };
        notice(&if error.is_limit() {
            Notice::Waiting { reason, delay }
        } else {
            Notice::Reconnecting { reason, delay }
        });
        tokio::time::sleep(delay).await;
        error = match Connection::open(settings).await {
            Err(error) if may_pass(&error) => error,
            outcome => return outcome,
        };
    }
}

/// A lost connection, and a limit: after an outage all agents come back at once, and a server that is at its limit takes
/// more a moment later.
fn may_pass(error: &ClientError) -> bool {
    error.is_connection_loss() || error.is_limit()
}
