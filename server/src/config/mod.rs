//! The server's settings: one list of keys, four sources, one precedence.
//!
//! Flag > environment > configuration file > default. A key has the same name everywhere: `lease_secs` in
//! the file is `--lease-secs` on the command line and `HOLDFAST_LEASE_SECS` in the environment. [`Layer`] is
//! that list; all four sources are read into it and merged. An unknown key, or a value that is not valid,
//! prevents the start, with a message that names its source.

mod encryption;
mod parity;
mod rate_window;
mod resolve;
mod s3;
mod size;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use holdfast_engine::SCRUB_DAYS;
use holdfast_proto::reread::REREAD_DAYS;
use serde::{Deserialize, Serialize};

pub use encryption::Encryption;
pub use parity::{NotParity, Parity};
pub(crate) use rate_window::SendRates;
pub use rate_window::{NotAWindow, RateWindow};
pub use resolve::{ConfigError, Origin, Resolved, check_env, resolve};
pub(crate) use s3::{DAYS_MAX, server_encryption};
pub use s3::{S3Checksum, S3ObjectLock};
pub use size::{ByteSize, NotASize, Reserve};

use crate::tls::IdentitySource;

/// Environment variables are this and the key in capitals.
pub const ENV_PREFIX: &str = "HOLDFAST_";

/// The settings of one source; `None` where it has none.
#[derive(Debug, Clone, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Folder of the repository [default: /var/lib/holdfast]
    #[arg(long, value_name = "DIR")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,

    /// Address for agents to connect to; port 0 picks a free port [default: 127.0.0.1:7440]
    #[arg(long, value_name = "IP:PORT", value_parser = address)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grpc: Option<SocketAddr>,

    /// Address of the web UI, the REST API, metrics and health checks; port 0 picks a free port [default:
    /// 127.0.0.1:7441]
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

    /// Additional host name or IP address for the self-signed certificate (repeatable; used when it is created)
    #[arg(long = "tls-name", value_name = "NAME", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_names: Option<Vec<String>>,

    /// Seconds without a heartbeat from an agent after which its backup is given up [default: 120]
    #[arg(long, value_name = "SECONDS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_secs: Option<u32>,

    /// Days within which every extent of a disk is read again, even if it seems unchanged (0: never) [default: 30]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reread_days: Option<u32>,

    /// Days within which everything stored is read again and compared with its checksums (0: never) [default: 30]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scrub_days: Option<u32>,

    /// Parity: how many containers make a group and how many of them may be lost, such as 10+1 (takes some 10 % more
    /// space), or off [default: off]
    #[arg(long, value_name = "N+M")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parity: Option<Parity>,

    /// Encrypt everything on the volume, in an existing repository also what is there already. A key file is made in the
    /// data folder unless a key is named, which protects copies of the volume but not this machine's disk. It cannot be
    /// undone, and without the key nothing can be restored: run 'key export-kit' afterwards
    #[arg(long = "encrypt", value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,

    /// File with the key of an encrypted repository, made with the repository's keys [default: repository.key in the
    /// data folder]
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,

    /// File with a passphrase that opens an encrypted repository, in place of a key file
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_passphrase_file: Option<PathBuf>,

    /// Command line, run by sh, that prints the key of an encrypted repository, in place of a key file
    #[arg(long, value_name = "COMMAND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_command: Option<String>,

    /// Start an encrypted repository without its keys, for administration only: lists, reports, tokens and the audit log are
    /// there; backups, restores, deleting and reclaim are refused, and nothing on the volume is changed [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_keys: Option<bool>,

    /// Bucket that gets a copy of everything, as s3://BUCKET/PREFIX; asks for an encrypted repository
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3: Option<String>,

    /// URL of an object store that is not Amazon's
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_endpoint: Option<String>,

    /// Region of the bucket
    #[arg(long, value_name = "REGION")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_region: Option<String>,

    /// Name the bucket in the path of requests instead of the host's name; many object stores that are not Amazon's need it [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_path_style: Option<bool>,

    /// Certificates (PEM) to trust for the object store instead of the system's
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_ca: Option<PathBuf>,

    /// File with the credentials for the bucket, in the format of ~/.aws/credentials; without it they are looked for as usual
    /// (AWS_ACCESS_KEY_ID and so on, ~/.aws, the machine's role)
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_credentials: Option<PathBuf>,

    /// Profile to use of these
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_profile: Option<String>,

    /// Checksum that the object store verifies and keeps [default: crc64nvme]
    #[arg(long, value_name = "KIND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_checksum: Option<S3Checksum>,

    /// Storage class of the copies, such as STANDARD_IA [default: the bucket's]
    #[arg(long, value_name = "CLASS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_class: Option<String>,

    /// Encryption by the object store, beside our own: s3, kms or kms:KEY [default: the bucket's]
    #[arg(long, value_name = "KIND")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_sse: Option<String>,

    /// Copy a repository that is not encrypted: anyone who reads the bucket reads every disk [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_plain: Option<bool>,

    /// Blobs sent to the bucket at once; fewer where there is little memory [default: 4]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_copies: Option<u32>,

    /// Bytes a second sent to the bucket at most (0: any) [default: 0]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_rate: Option<ByteSize>,

    /// Another rate at some time of the week: 'DAYS FROM-TO ZONE RATE', such as 'mon-fri 08:00-18:00 5MiB'; without days it is
    /// every day, without a zone UTC (repeatable; the first that holds counts)
    #[arg(long = "s3-rate-window", value_name = "WINDOW", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_rate_windows: Option<Vec<RateWindow>>,

    /// Requests a second to the bucket at most, of all kinds (0: any) [default: 0]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_requests: Option<u32>,

    /// The bucket is where data lives: a backup counts only when the bucket has it, and the volume is emptied as room is needed
    /// [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_primary: Option<bool>,

    /// Keep in the bucket alone what only restore points older than so many days need; copied only unless set
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_move_after_days: Option<u32>,

    /// Move to the bucket while less of the volume is free, in percent [default: 20]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_move_until_free: Option<u8>,

    /// Keep in an archive (s3_archive_class) what lies in the bucket alone and only restore points older than so many days
    /// need; it must be thawed before it can be restored
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_archive_after_days: Option<u32>,

    /// Storage class of the archive: GLACIER, DEEP_ARCHIVE, or one that needs no thawing (GLACIER_IR, STANDARD_IA,
    /// ONEZONE_IA) [default: GLACIER]
    #[arg(long, value_name = "CLASS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_archive_class: Option<String>,

    /// Days for which what was thawed can be read, unless a restore asks for others [default: 7]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_thaw_days: Option<u32>,

    /// Make what locked restore points need stay in the bucket as long as they are locked (Object Lock): off, governance or
    /// compliance [default: off]
    #[arg(long, value_name = "MODE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_object_lock: Option<S3ObjectLock>,

    /// Room in the data folder for what was thawed, so that a second restore reads it there; 0: none is kept
    /// [default: 16GiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_thaw_cache: Option<ByteSize>,

    /// Days for which it is kept there [default: 7]
    #[arg(long, value_name = "DAYS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_thaw_cache_days: Option<u32>,

    /// File with the prices of thawing, instead of those of one region that are built in
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_prices: Option<PathBuf>,

    /// Space to keep free on the volume, or "auto": 1GiB or 2 %, whichever is less [default: auto]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reserve>,

    /// Memory the server may use; less where its control group or the machine has less
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,

    /// Memory for the write buffer of the chunk index [default: 64MiB]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_memory: Option<ByteSize>,

    /// Maximum number of backups at once, those that wait for their turn included [default: 512]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sessions: Option<u32>,

    /// Maximum number of disks sent to the server at once; more wait for their turn [default: 16]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_streams: Option<u32>,

    /// Maximum number of disks read from the server at once; more wait for their turn [default: 16]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restores: Option<u32>,

    /// Maximum number of network connections of agents; of the HTTPS address as many, but 256 at most [default: 1024]
    #[arg(long, value_name = "COUNT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,

    /// Bytes a second that each task (reclaim, verification) may read and write at most (0: any) [default: 0]
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_rate: Option<ByteSize>,

    /// Percent of the time that each task works [default: 100]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_share: Option<u32>,

    /// Percent of the time that each task works while a backup or restore is in progress [default: 10]
    #[arg(long, value_name = "PERCENT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_share_busy: Option<u32>,

    /// Let any client that reaches the HTTPS address read /metrics, not only operators [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics_open: Option<bool>,

    /// What to log: error, warn, info, debug, trace, or per module such as info,holdfast_engine=debug [default: info]
    #[arg(long, value_name = "FILTER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_level: Option<String>,

    /// Format of log lines [default: text]
    #[arg(long, value_name = "FORMAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_format: Option<LogFormat>,
}

impl Layer {
    /// The defaults.
    pub fn defaults() -> Self {
        Self {
            data_dir: Some(PathBuf::from("/var/lib/holdfast")),
            grpc: Some(SocketAddr::from(([127, 0, 0, 1], 7440))),
            http: Some(SocketAddr::from(([127, 0, 0, 1], 7441))),
            tls_cert: None,
            tls_key: None,
            tls_names: Some(Vec::new()),
            lease_secs: Some(120),
            reread_days: Some(REREAD_DAYS),
            scrub_days: Some(SCRUB_DAYS),
            parity: Some(Parity::default()),
            encryption: None,
            key_file: None,
            key_passphrase_file: None,
            key_command: None,
            without_keys: Some(false),
            s3: None,
            s3_endpoint: None,
            s3_region: None,
            s3_path_style: Some(false),
            s3_ca: None,
            s3_credentials: None,
            s3_profile: None,
            s3_checksum: Some(S3Checksum::default()),
            s3_class: None,
            s3_sse: None,
            s3_plain: Some(false),
            // Fills a line of 1 Gbit/s at 30 ms.
            s3_copies: Some(4),
            s3_rate: Some(ByteSize(0)),
            s3_rate_windows: Some(Vec::new()),
            s3_requests: Some(0),
            s3_primary: Some(false),
            s3_move_after_days: None,
            s3_move_until_free: Some(20),
            s3_archive_after_days: None,
            s3_archive_class: Some("GLACIER".to_owned()),
            s3_thaw_days: Some(7),
            s3_object_lock: Some(S3ObjectLock::Off),
            s3_thaw_cache: Some(ByteSize(16 << 30)),
            s3_thaw_cache_days: Some(7),
            s3_prices: None,
            reserve: Some(Reserve::Auto),
            memory: None,
            index_memory: Some(ByteSize(64 << 20)),
            max_sessions: Some(512),
            // See `memory.rs` for the memory each may take; each also holds a container open.
            max_streams: Some(16),
            max_restores: Some(16),
            max_connections: Some(1024),
            task_rate: Some(ByteSize(0)),
            task_share: Some(100),
            // Of one core; a backup beside it on a machine of two loses a twentieth of them, and of the disk a tenth.
            task_share_busy: Some(10),
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
    pub reread_days: u32,
    pub scrub_days: u32,
    pub parity: Parity,
    pub encryption: Option<Encryption>,
    pub key_file: Option<PathBuf>,
    pub key_passphrase_file: Option<PathBuf>,
    pub key_command: Option<String>,
    pub without_keys: bool,
    pub s3: Option<String>,
    pub s3_endpoint: Option<String>,
    pub s3_region: Option<String>,
    pub s3_path_style: bool,
    pub s3_ca: Option<PathBuf>,
    pub s3_credentials: Option<PathBuf>,
    pub s3_profile: Option<String>,
    pub s3_checksum: S3Checksum,
    pub s3_class: Option<String>,
    pub s3_sse: Option<String>,
    pub s3_plain: bool,
    pub s3_copies: u32,
    pub s3_rate: ByteSize,
    pub s3_rate_windows: Vec<RateWindow>,
    pub s3_requests: u32,
    pub s3_primary: bool,
    pub s3_move_after_days: Option<u32>,
    pub s3_move_until_free: u8,
    pub s3_archive_after_days: Option<u32>,
    pub s3_archive_class: String,
    pub s3_thaw_days: u32,
    pub s3_object_lock: S3ObjectLock,
    pub s3_thaw_cache: ByteSize,
    pub s3_thaw_cache_days: u32,
    pub s3_prices: Option<PathBuf>,
    pub reserve: Reserve,
    pub memory: Option<ByteSize>,
    pub index_memory: ByteSize,
    pub max_sessions: u32,
    pub max_streams: u32,
    pub max_restores: u32,
    pub max_connections: u32,
    pub task_rate: ByteSize,
    pub task_share: u32,
    pub task_share_busy: u32,
    pub metrics_open: bool,
    pub log_level: String,
    pub log_format: LogFormat,
}

impl Settings {
    /// Where the certificate comes from.
    pub fn identity_source(&self) -> IdentitySource<'_> {
        IdentitySource {
            data_dir: &self.data_dir,
            provided: self.tls_cert.as_deref().zip(self.tls_key.as_deref()),
            names: &self.tls_names,
        }
    }
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text for people
    Text,
    /// One JSON object per line
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

pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| format!("{text:?} is not an IP address and port, such as 0.0.0.0:7440 or [::]:7440"))
}
