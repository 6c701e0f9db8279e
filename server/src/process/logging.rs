//! Logging, to standard error. Standard output belongs to what scripts read.
//!
//! Spans say what a line belongs to: `call` (every gRPC call, with its method and the request id the client
//! chose), and within it one with the `session` of a backup or the `backup` that is read back. In JSON these are
//! in `spans`; the agent's log uses the same names. Secrets never get here: the types that hold them do not print
//! them.

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
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(true).try_init()
        }
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
