//! Logging, to standard error. Standard output belongs to what scripts read.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;

use crate::config::{LogFormat, Settings};

/// Starts logging as the settings say. A second call in one process changes nothing.
pub(crate) fn start(settings: &Settings) {
    // The filter was checked when the settings were read.
    let filter = EnvFilter::builder().parse_lossy(&settings.log_level);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr);
    let started = match settings.log_format {
        LogFormat::Text => lines.with_target(false).try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
