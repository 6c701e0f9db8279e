//! The agent's log, to standard error. Standard output belongs to results.
//!
//! In text form it stands beside what the command says to a person there; in JSON form everything on standard
//! error is one JSON object per line: what would be said to a person is logged instead, and there is no
//! progress bar. Lines carry the spans `command` (with the request id, which is also in the server's log) and
//! `session`.

use std::io::{self, IsTerminal as _};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object per line, and nothing else on stderr
    Json,
}

/// What is logged and how.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Log {
    /// Format of the log on stderr [env: HOLDFAST_LOG_FORMAT]
    #[arg(long, global = true, value_name = "FORMAT", env = "HOLDFAST_LOG_FORMAT", hide_env = true)]
    #[arg(default_value = "text")]
    log_format: Format,
    /// What to log: error, warn, info, debug, trace, or by module, such as info,h2=warn [default: warn; info
    /// with JSON, and of the agent as a service] [env: HOLDFAST_LOG_LEVEL]
    #[arg(long, global = true, value_name = "FILTER", env = "HOLDFAST_LOG_LEVEL", hide_env = true)]
    #[arg(value_parser = filter)]
    log_level: Option<String>,
}

impl Log {
    /// Returns true if standard error is for programs.
    pub(super) fn is_json(&self) -> bool {
        self.log_format == Format::Json
    }

    /// Starts logging, of panics as well in JSON. A second call in one process changes nothing.
    /// A service has nothing but its log.
    pub(super) fn start(&self, is_service: bool) {
        let usual = match self.log_format {
            Format::Text if !is_service => "warn",
            Format::Text | Format::Json => "info",
        };
        let filter = EnvFilter::builder().parse_lossy(self.log_level.as_deref().unwrap_or(usual));
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(io::stderr().is_terminal())
            .with_writer(io::stderr);
        let started = match self.log_format {
            Format::Text => lines.with_target(false).try_init(),
            Format::Json => {
                lines.json().flatten_event(true).with_current_span(false).with_span_list(true).try_init()
            }
        };
        if self.is_json() {
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
        if let Err(error) = started {
            tracing::debug!(%error, "logging was started before");
        }
    }
}

fn filter(text: &str) -> Result<String, String> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
