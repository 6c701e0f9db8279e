//! The server's settings: one list of keys, four sources, one precedence.
//!
//! Flag > environment > configuration file > default. A key has the same name everywhere: `lease_secs` in
//! the file is `--lease-secs` on the command line and `HOLDFAST_LEASE_SECS` in the environment. [`Settings`] is
//! that list, with the defaults; what each other source gives is merged over them. An unknown key, or a value that
//! is not valid, prevents the start, with a message that names its source.

mod advertise;
mod encryption;
mod parity;
mod reserve;
mod resolve;
mod s3;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgAction, Args as _, FromArgMatches as _};
use holdfast_engine::SCRUB_DAYS;
use holdfast_proto::address::ServerAddress;
use holdfast_proto::rate_window::RateWindow;
use holdfast_proto::reread::REREAD_DAYS;
use holdfast_proto::size::ByteSize;
use serde::{Deserialize, Serialize};

pub use encryption::Encryption;
pub use parity::{NotParity, Parity};
pub use reserve::Reserve;
pub use resolve::{ConfigError, Given, Origin, Resolved, check_env, resolve};
pub(crate) use s3::{DAYS_MAX, server_encryption};
pub use s3::{S3Checksum, S3ObjectLock};

use crate::tls::IdentitySource;

/// Environment variables are this and the key in capitals.
pub const ENV_PREFIX: &str = "HOLDFAST_";

/// The settings. Their names are the keys of a configuration file.
#[derive(Debug, Clone, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Folder of the repository
    #[arg(long, value_name = "DIR", default_value = "/var/lib/holdfast")]
    pub data_dir: PathBuf,

    /// Address for agents to connect to; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", value_parser = address, default_value = "127.0.0.1:7440")]
    pub grpc: SocketAddr,

    /// Address at which agents reach the server, for join codes (repeatable). Otherwise they name that of --grpc and, where it
    /// is "any address", the addresses of this machine and its name
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',')]
    pub advertise: Vec<ServerAddress>,

    /// Address of the web UI, the REST API, metrics and health checks; port 0 picks a free port
    #[arg(long, value_name = "IP:PORT", value_parser = address, default_value = "127.0.0.1:7441")]
    pub http: SocketAddr,

    /// Certificate chain (PEM) to use instead of the self-signed one
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Private key (PEM) of --tls-cert
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Additional host name or IP address for the self-signed certificate (repeatable; used when it is created)
    #[arg(long = "tls-name", value_name = "NAME", value_delimiter = ',')]
    pub tls_names: Vec<String>,

    /// Seconds without a heartbeat from an agent after which its backup is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub lease_secs: u32,

    /// Days within which every extent of a disk is read again, even if it seems unchanged (0: never)
    #[arg(long, value_name = "DAYS", default_value_t = REREAD_DAYS)]
    pub reread_days: u32,

    /// Days within which everything stored is read again and compared with its checksums (0: never)
    #[arg(long, value_name = "DAYS", default_value_t = SCRUB_DAYS)]
    pub scrub_days: u32,

    /// Parity: how many containers make a group and how many of them may be lost, such as 10+1 (takes some 10 % more
    /// space), or off
    #[arg(long, value_name = "N+M", default_value = "off")]
    pub parity: Parity,

    /// Encrypt everything on the volume, in an existing repository also what is there already. A key file is made in the
    /// data folder unless a key is named, which protects copies of the volume but not this machine's disk. It cannot be
    /// undone, and without the key nothing can be restored: run 'key export-kit' afterwards
    #[arg(long = "encrypt", value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub encryption: Option<Encryption>,

    /// File with the key of an encrypted repository, made with the repository's keys [default: repository.key in the
    /// data folder]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// File with a passphrase that opens an encrypted repository, in place of a key file
    #[arg(long, value_name = "FILE")]
    pub key_passphrase_file: Option<PathBuf>,

    /// Command line, run by sh, that prints the key of an encrypted repository, in place of a key file
    #[arg(long, value_name = "COMMAND")]
    pub key_command: Option<String>,

    /// Start an encrypted repository without its keys, for administration only: lists, reports, tokens and the audit log are
    /// there; backups, restores, deleting and reclaim are refused, and nothing on the volume is changed
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub without_keys: bool,

    /// Bucket that gets a copy of everything, as s3://BUCKET/PREFIX; asks for an encrypted repository
    #[arg(long, value_name = "URL")]
    pub s3: Option<String>,

    /// URL of an object store that is not Amazon's
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,

    /// Region of the bucket
    #[arg(long, value_name = "REGION")]
    pub s3_region: Option<String>,

    /// Name the bucket in the path of requests instead of the host's name; many object stores that are not Amazon's need it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub s3_path_style: bool,

    /// Certificates (PEM) to trust for the object store instead of the system's
    #[arg(long, value_name = "FILE")]
    pub s3_ca: Option<PathBuf>,

    /// File with the credentials for the bucket, in the format of ~/.aws/credentials; without it they are looked for as usual
    /// (AWS_ACCESS_KEY_ID and so on, ~/.aws, the machine's role)
    #[arg(long, value_name = "FILE")]
    pub s3_credentials: Option<PathBuf>,

    /// Profile to use of these
    #[arg(long, value_name = "NAME")]
    pub s3_profile: Option<String>,

    /// Checksum that the object store verifies and keeps
    #[arg(long, value_name = "KIND", default_value_t)]
    pub s3_checksum: S3Checksum,

    /// Storage class of the copies, such as STANDARD_IA [default: the bucket's]
    #[arg(long, value_name = "CLASS")]
    pub s3_class: Option<String>,

    /// Encryption by the object store, beside our own: s3, kms or kms:KEY [default: the bucket's]
    #[arg(long, value_name = "KIND")]
    pub s3_sse: Option<String>,

    /// Copy a repository that is not encrypted: anyone who reads the bucket reads every disk
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub s3_plain: bool,

    /// Blobs sent to the bucket at once; fewer where there is little memory
    // Fills a line of 1 Gbit/s at 30 ms.
    #[arg(long, value_name = "COUNT", default_value_t = 4)]
    pub s3_copies: u32,

    /// Bytes a second sent to the bucket at most (0: any)
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub s3_rate: ByteSize,

    /// Another rate at some time of the week: 'DAYS FROM-TO ZONE RATE', such as 'mon-fri 08:00-18:00 5MiB'; without days it is
    /// every day, without a zone UTC (repeatable; the first that holds counts)
    #[arg(long = "s3-rate-window", value_name = "WINDOW", value_delimiter = ',')]
    pub s3_rate_windows: Vec<RateWindow>,

    /// Requests a second to the bucket at most, of all kinds (0: any)
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub s3_requests: u32,

    /// The bucket is where data lives: a backup counts only when the bucket has it, and the volume is emptied as room is needed
    ///
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub s3_primary: bool,

    /// Keep in the bucket alone what only restore points older than so many days need; copied only unless set
    #[arg(long, value_name = "DAYS")]
    pub s3_move_after_days: Option<u32>,

    /// Move to the bucket while less of the volume is free, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 20)]
    pub s3_move_until_free: u8,

    /// Keep in an archive (s3_archive_class) what lies in the bucket alone and only restore points older than so many days
    /// need; it must be thawed before it can be restored
    #[arg(long, value_name = "DAYS")]
    pub s3_archive_after_days: Option<u32>,

    /// Storage class of the archive: GLACIER, DEEP_ARCHIVE, or one that needs no thawing (GLACIER_IR, STANDARD_IA,
    /// ONEZONE_IA)
    #[arg(long, value_name = "CLASS", default_value = "GLACIER")]
    pub s3_archive_class: String,

    /// Days for which what was thawed can be read, unless a restore asks for others
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub s3_thaw_days: u32,

    /// Make what locked restore points need stay in the bucket as long as they are locked (Object Lock): off, governance or
    /// compliance
    #[arg(long, value_name = "MODE", default_value_t)]
    pub s3_object_lock: S3ObjectLock,

    /// Room in the data folder for what was thawed, so that a second restore reads it there; 0: none is kept
    ///
    #[arg(long, value_name = "SIZE", default_value = "16GiB")]
    pub s3_thaw_cache: ByteSize,

    /// Days for which it is kept there
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub s3_thaw_cache_days: u32,

    /// File with the prices of thawing, instead of those of one region that are built in
    #[arg(long, value_name = "FILE")]
    pub s3_prices: Option<PathBuf>,

    /// Space to keep free on the volume, or "auto": 1GiB or 2 %, whichever is less
    #[arg(long, value_name = "SIZE", default_value = "auto")]
    pub reserve: Reserve,

    /// Memory the server may use; less where its control group or the machine has less
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<ByteSize>,

    /// Memory for the write buffer of the chunk index
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub index_memory: ByteSize,

    /// Maximum number of backups at once, those that wait for their turn included
    #[arg(long, value_name = "COUNT", default_value_t = 512)]
    pub max_sessions: u32,

    /// Maximum number of disks sent to the server at once; more wait for their turn
    // See `memory.rs` for the memory each may take; each also holds a container open.
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub max_streams: u32,

    /// Maximum number of disks read from the server at once; more wait for their turn
    #[arg(long, value_name = "COUNT", default_value_t = 16)]
    pub max_restores: u32,

    /// Maximum number of network connections of agents; of the HTTPS address as many, but 256 at most
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub max_connections: u32,

    /// Bytes a second that each task (reclaim, verification) may read and write at most (0: any)
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub task_rate: ByteSize,

    /// Percent of the time that each task works
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub task_share: u32,

    /// Percent of the time that each task works while a backup or restore is in progress
    // Of one core; a backup beside it on a machine of two loses a twentieth of them, and of the disk a tenth.
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    pub task_share_busy: u32,

    /// Let any client that reaches the HTTPS address read /metrics, not only operators
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false, action = ArgAction::Set)]
    pub metrics_open: bool,

    /// What to log: error, warn, info, debug, trace, or per module such as info,holdfast_engine=debug
    #[arg(long, value_name = "FILTER", default_value = "info")]
    pub log_level: String,

    /// Format of log lines
    #[arg(long, value_name = "FORMAT", default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

impl Default for Settings {
    fn default() -> Self {
        let parser = Self::augment_args(clap::Command::new("defaults").no_binary_name(true));
        let parsed = parser.try_get_matches_from(std::iter::empty::<&str>());
        parsed.and_then(|none| Self::from_arg_matches(&none)).unwrap_or_else(|error| error.exit())
    }
}

impl Settings {
    /// Source of the certificate.
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
