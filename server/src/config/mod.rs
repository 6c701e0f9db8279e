//! The server's settings: one list of keys, four places they may come from, one precedence.
//!
//! Flag > environment > configuration file > default. A key has the same name everywhere: `lease_secs` in
//! the file is `--lease-secs` on the command line and `HOLDFAST_LEASE_SECS` in the environment. [`Layer`] is
//! that list; all four places are read into it and laid over each other. A key nobody knows, or a value that
//! does not fit, stops the start and names the place it came from.

mod resolve;
mod size;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use resolve::{ConfigError, Origin, Resolved, resolve};
pub use size::{ByteSize, NotASize, Reserve};

/// Environment variables are this and the key in capitals.
pub const ENV_PREFIX: &str = "HOLDFAST_";

/// What one place says; `None` where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Folder of the repository
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,

    /// Address agents connect to; port 0 picks a free one
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,

    /// Address of health checks and the web pages; port 0 picks a free one
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<SocketAddr>,

    /// Certificate chain (PEM) to use instead of the self-signed one
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,

    /// One more host name or address for the self-signed certificate (repeatable; used when it is made)
    #[arg(long = "tls-name", value_name = "NAME", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_names: Option<Vec<String>>,

    /// Seconds without a word from the agent after which its backup is given up
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<u32>,

    /// Bytes of the volume to keep free, or "auto": the smaller of 1GiB and 2 %
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reserve>,

    /// Write buffer of the chunk index
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_memory: Option<ByteSize>,

    /// Backups under way at most
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,

    /// Disks sent to the server at once at most
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_streams: Option<u32>,

    /// Disks read from the server at once at most
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restores: Option<u32>,

    /// Network connections at most, on each of the two addresses
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,

    /// Let anybody who reaches the HTTPS address read /metrics, not only operators
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_open: Option<bool>,

    /// What to log: error, warn, info, debug, trace, or per module such as info,holdfast_engine=debug
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,

    /// How to log
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
}

impl Layer {
    /// What holds when nobody says otherwise.
    pub fn defaults() -> Self {
        Self {
            data_dir: Some(PathBuf::from("/var/lib/holdfast")),
            grpc: Some(SocketAddr::from(([127, 0, 0, 1], 7440))),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 7441))),
            tls_cert: None,
            tls_key: None,
            tls_names: Some(Vec::new()),
            lease_secs: Some(120),
            reserve: Some(Reserve::Auto),
            index_memory: Some(ByteSize(64 << 20)),
            max_sessions: Some(64),
            // Each may queue 8 MiB of messages and holds a container open.
            max_streams: Some(16),
            max_restores: Some(16),
            max_connections: Some(256),
            metrics_open: Some(false),
            log_level: Some("info".to_owned()),
            log_format: Some(LogFormat::Text),
        }
    }
}

/// The settings in force. Same keys as [`Layer`].
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub data_dir: PathBuf,
    pub grpc: SocketAddr,
    pub http: SocketAddr,
    pub tls_cert: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_names: Vec<String>,
    pub lease_secs: u32,
    pub reserve: Reserve,
    pub index_memory: ByteSize,
    pub max_sessions: u32,
    pub max_streams: u32,
    pub max_restores: u32,
    pub max_connections: u32,
    pub metrics_open: bool,
    pub log_level: String,
    pub log_format: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not an IP address and port; write for example 0.0.0.0:7440 or [::]:7440")
    })
}
