//! The first connection, which may take as long as any outage: a nightly job must not fail because the server, the line
//! or the name service comes back a minute later.

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
    loop {
        let error = match Connection::open(settings).await {
            Err(error) if error.is_connection_loss() || error.is_limit() => error,
            outcome => return outcome,
        };
        let reason = error.to_string();
        tracing::info!(reason, "no connection yet");
        let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(error) };
        notice(&if error.is_limit() {
            Notice::Waiting { reason, delay }
        } else {
            Notice::Reconnecting { reason, delay }
        });
        tokio::time::sleep(delay).await;
    }
}
