//! Signals that end a command.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

use crate::cancel::Cancel;
use crate::error::{ClientError, EXIT_INTERRUPTED};

/// Returns whether this process was started with SIGHUP ignored, as `nohup` does, so that it outlives its terminal.
fn ignores_hangup() -> bool {
    // A mask of signals in hexadecimal digits; the lowest bit is that of signal 1, SIGHUP.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The first Ctrl-C, SIGTERM or, if `hangup_ends`, SIGHUP (a lost SSH line) ends work in an orderly way, the second one at once.
pub(super) fn interruptible(hangup_ends: bool) -> Result<Cancel, ClientError> {
    let unable = |_| ClientError::Internal("signals cannot be received");
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unable)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(unable)?;
    // Listening to it would end what `nohup` started.
    let mut hangup = if !hangup_ends || ignores_hangup() {
        None
    } else {
        Some(signal(SignalKind::hangup()).map_err(unable)?)
    };
    let (canceller, cancel) = Cancel::pair();
    tokio::spawn(async move {
        for first in [true, false] {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                () = received(hangup.as_mut()) => {}
            }
            if first {
                canceller.cancel();
            } else {
                std::process::exit(i32::from(EXIT_INTERRUPTED));
            }
        }
    });
    Ok(cancel)
}

/// Tells of each SIGHUP.
pub(super) fn hangups() -> Result<Arc<Notify>, ClientError> {
    let unable = |_| ClientError::Internal("signals cannot be received");
    let mut hangup = signal(SignalKind::hangup()).map_err(unable)?;
    let told = Arc::new(Notify::new());
    let notify = Arc::clone(&told);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            notify.notify_one();
        }
    });
    Ok(told)
}

/// Waits for a signal; for ever when there is none to wait for.
async fn received(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
