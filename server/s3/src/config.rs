//! Configuration of a volume in a bucket: location, credentials, and properties of new objects.

use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;

use crate::checksum::Checksum;

/// Source of credentials.
#[derive(Clone, PartialEq, Eq)]
pub enum Credentials {
    /// The usual sources: `AWS_ACCESS_KEY_ID` and so on, `~/.aws`, the machine's role.
    Chain { profile: Option<String> },
    /// A file in the format of `~/.aws/credentials`, which is read again when it changes, and before its
    /// credentials expire.
    File { path: PathBuf, profile: Option<String> },
    /// A fixed key pair.
    Keys { id: String, secret: String },
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chain { profile } => f.debug_struct("Chain").field("profile", profile).finish(),
            Self::File { path, profile } => {
                f.debug_struct("File").field("path", path).field("profile", profile).finish()
            }
            Self::Keys { id, .. } => f.debug_struct("Keys").field("id", id).finish_non_exhaustive(),
        }
    }
}

/// Checksum that the service verifies and stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChecksumKind {
    /// CRC-64/NVME, of the whole object.
    #[default]
    Crc64Nvme,
    /// CRC-32C, for servers without CRC-64/NVME.
    Crc32c,
    /// None, for servers that support neither: only the signature covers the data sent.
    Off,
}

impl ChecksumKind {
    pub(crate) const fn begin(self) -> Option<Checksum> {
        match self {
            Self::Crc64Nvme => Some(Checksum::Crc64Nvme),
            Self::Crc32c => Some(Checksum::Crc32c),
            Self::Off => None,
        }
    }
}

/// Encryption by the service, in addition to Holdfast's own.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ServerEncryption {
    /// The bucket's default.
    #[default]
    Bucket,
    /// SSE-S3.
    S3,
    /// SSE-KMS, with this key or the account's default.
    Kms(Option<String>),
}

/// A volume in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Config {
    pub bucket: String,
    /// Prefix of all keys, without slashes at its ends; empty: the whole bucket.
    pub prefix: String,
    /// URL of a service other than Amazon's, such as `https://minio.example:9000`.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Puts the bucket in the path, not in the host name.
    pub path_style: bool,
    /// Certificates (PEM) to trust instead of the system's.
    pub ca: Option<Vec<u8>>,
    pub credentials: Credentials,
    pub checksum: ChecksumKind,
    /// Storage class of new objects; `None`: the bucket's default.
    pub class: Option<String>,
    pub encryption: ServerEncryption,
    /// Limit of requests a second, of all kinds together; `None`: unlimited.
    pub requests_per_sec: Option<NonZeroU64>,
}

/// Why a volume in a bucket cannot be opened. No request was sent yet.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot start threads for requests to the bucket: {0}")]
    Threads(#[source] std::io::Error),
    #[error("the certificates to trust for the bucket cannot be used: {0}")]
    Ca(String),
    #[error("{0:?} is no bucket; name one as s3://BUCKET or s3://BUCKET/PREFIX")]
    Location(String),
}

/// Parses `s3://BUCKET/PREFIX` into bucket and prefix.
///
/// # Errors
/// [`OpenError::Location`].
pub fn parse_location(text: &str) -> Result<(String, String), OpenError> {
    let refused = || OpenError::Location(text.to_owned());
    let rest = text.strip_prefix("s3://").ok_or_else(refused)?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = prefix.trim_end_matches('/');
    let is_bucket = (3..=63).contains(&bucket.len())
        && bucket.bytes().all(|byte| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'_')
        });
    let is_prefix = prefix.is_empty()
        || prefix.split('/').all(|segment| {
            !segment.is_empty()
                && !matches!(segment, "." | "..")
                && segment
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'))
        });
    // With a name of 200 bytes a key stays below the limit of 1,024.
    if is_bucket && is_prefix && prefix.len() <= 500 {
        Ok((bucket.to_owned(), prefix.to_owned()))
    } else {
        Err(refused())
    }
}

impl S3Config {
    /// Configuration of a bucket with defaults for everything else.
    ///
    /// # Errors
    /// [`OpenError::Location`].
    pub fn of(location: &str) -> Result<Self, OpenError> {
        let (bucket, prefix) = parse_location(location)?;
        Ok(Self {
            bucket,
            prefix,
            endpoint: None,
            region: None,
            path_style: false,
            ca: None,
            credentials: Credentials::Chain { profile: None },
            checksum: ChecksumKind::default(),
            class: None,
            encryption: ServerEncryption::default(),
            requests_per_sec: None,
        })
    }

    /// Location for display and comparison: `s3://BUCKET/PREFIX`, and the endpoint if it is not Amazon's.
    pub fn location(&self) -> String {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        let at = self.endpoint.as_ref().map_or(String::new(), |endpoint| format!(" at {endpoint}"));
        format!("s3://{}{slash}{}{at}", self.bucket, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_read_and_write() {
        for (text, bucket, prefix) in
            [("s3://abc", "abc", ""), ("s3://abc/", "abc", ""), ("s3://a-b.c/x/Y_1/", "a-b.c", "x/Y_1")]
        {
            assert_eq!(parse_location(text).unwrap(), (bucket.to_owned(), prefix.to_owned()));
        }
        assert_eq!(S3Config::of("s3://abc/x/").unwrap().location(), "s3://abc/x");
        for bad in [
            "abc",
            "s3://",
            "s3://ab",
            "s3://Abc",
            "s3://abc//x",
            "s3://abc/../x",
            "s3://abc/a b",
            "http://abc",
        ] {
            assert!(parse_location(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = Credentials::Keys { id: "AKID".into(), secret: "hush".into() };
        let shown = format!("{keys:?}");
        assert!(shown.contains("AKID") && !shown.contains("hush"), "{shown}");
    }
}
