//! The settings of a bucket.

use std::fmt;

use holdfast_s3::{ChecksumKind, ServerEncryption, parse_location};
use holdfast_tiers::{days_min, is_archive};
use holdfast_volume::LockMode;
use serde::{Deserialize, Serialize};

use super::Settings;

/// Copies at once at most: 32 of 48 MiB are 1.5 GiB of memory.
const COPIES_MAX: u32 = 32;

/// A hundred years: nothing is older.
const MOVE_DAYS_MAX: u32 = 36_500;

/// Longest time for which thawed objects can be read, in days: a copy is paid for as long as it lies there.
pub(crate) const DAYS_MAX: u32 = 365;

/// The setting `s3_checksum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum S3Checksum {
    /// CRC-64/NVME, which Amazon keeps for every object
    #[default]
    Crc64nvme,
    /// CRC-32C, for object stores that do not know the other
    Crc32c,
    /// None, for object stores that know neither
    Off,
}

impl From<S3Checksum> for ChecksumKind {
    fn from(setting: S3Checksum) -> Self {
        match setting {
            S3Checksum::Crc64nvme => Self::Crc64Nvme,
            S3Checksum::Crc32c => Self::Crc32c,
            S3Checksum::Off => Self::Off,
        }
    }
}

impl fmt::Display for S3Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crc64nvme => "crc64nvme",
            Self::Crc32c => "crc32c",
            Self::Off => "off",
        })
    }
}

/// The setting `s3_object_lock`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum S3ObjectLock {
    /// Nothing is made to stay there
    #[default]
    Off,
    /// Those with a right of their own may delete it all the same, which the server's credentials should not have
    Governance,
    /// No one may delete it, not even the owner of the account
    Compliance,
}

impl S3ObjectLock {
    /// Lock mode of objects; `None`: they are not made to stay.
    pub(crate) const fn mode(self) -> Option<LockMode> {
        match self {
            Self::Off => None,
            Self::Governance => Some(LockMode::Governance),
            Self::Compliance => Some(LockMode::Compliance),
        }
    }
}

impl fmt::Display for S3ObjectLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Governance => "governance",
            Self::Compliance => "compliance",
        })
    }
}

/// The setting `s3_sse`; `None`: it is no such thing.
pub(crate) fn server_encryption(text: Option<&str>) -> Option<ServerEncryption> {
    match text {
        None => Some(ServerEncryption::Bucket),
        Some("s3") => Some(ServerEncryption::S3),
        Some("kms") => Some(ServerEncryption::Kms(None)),
        Some(text) => {
            let key = text.strip_prefix("kms:").filter(|key| !key.is_empty())?;
            Some(ServerEncryption::Kms(Some(key.to_owned())))
        }
    }
}

/// Checks the rules that no type can express; an error names the key and the problem.
pub(super) fn check(settings: &Settings) -> Result<(), (&'static str, String)> {
    if let Some(location) = &settings.s3 {
        parse_location(location).map_err(|error| ("s3", error.to_string()))?;
    }
    if let Some(endpoint) = &settings.s3_endpoint {
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        if host.is_none_or(str::is_empty) {
            return Err(("s3_endpoint", "must begin with https:// (or http://)".to_owned()));
        }
    }
    if server_encryption(settings.s3_sse.as_deref()).is_none() {
        return Err(("s3_sse", "must be s3, kms or kms:KEY".to_owned()));
    }
    if settings.s3_move_after_days.is_some_and(|days| days > MOVE_DAYS_MAX) {
        return Err(("s3_move_after_days", format!("must be at most {MOVE_DAYS_MAX}")));
    }
    if settings.s3_move_after_days.is_some() && settings.s3.is_none() {
        return Err(("s3_move_after_days", "needs a bucket: set s3".to_owned()));
    }
    if settings.s3_primary && settings.s3.is_none() {
        return Err(("s3_primary", "needs a bucket: set s3".to_owned()));
    }
    if settings.s3_move_until_free > 100 {
        return Err(("s3_move_until_free", "must be between 0 and 100".to_owned()));
    }
    if settings.s3_archive_after_days.is_some_and(|days| days > MOVE_DAYS_MAX) {
        return Err(("s3_archive_after_days", format!("must be at most {MOVE_DAYS_MAX}")));
    }
    if settings.s3_archive_after_days.is_some()
        && settings.s3_move_after_days.is_none()
        && !settings.s3_primary
    {
        return Err((
            "s3_archive_after_days",
            "needs s3_move_after_days or s3_primary: only what was moved to the bucket goes to the archive"
                .to_owned(),
        ));
    }
    if days_min(&settings.s3_archive_class).is_none() {
        let known = "GLACIER, DEEP_ARCHIVE, GLACIER_IR, STANDARD_IA or ONEZONE_IA";
        return Err(("s3_archive_class", format!("must be {known}")));
    }
    if settings.s3_archive_after_days.is_some() && settings.s3_checksum == S3Checksum::Off {
        return Err((
            "s3_archive_after_days",
            "needs checksums, or it could not be seen that containers stay what they are: set s3_checksum"
                .to_owned(),
        ));
    }
    if settings.s3_class.as_deref().is_some_and(is_archive) {
        return Err((
            "s3_class",
            "must not be an archive: restore points, keys and recipes are read all the time; set s3_archive_after_days"
                .to_owned(),
        ));
    }
    check_object_lock(settings)?;
    if !(1..=DAYS_MAX).contains(&settings.s3_thaw_days) {
        return Err(("s3_thaw_days", format!("must be between 1 and {DAYS_MAX}")));
    }
    if !(1..=DAYS_MAX).contains(&settings.s3_thaw_cache_days) {
        return Err(("s3_thaw_cache_days", format!("must be between 1 and {DAYS_MAX}")));
    }
    if !(1..=COPIES_MAX).contains(&settings.s3_copies) {
        return Err(("s3_copies", format!("must be between 1 and {COPIES_MAX}")));
    }
    Ok(())
}

/// Checks the other settings that retention in the bucket depends on.
fn check_object_lock(settings: &Settings) -> Result<(), (&'static str, String)> {
    if settings.s3_object_lock == S3ObjectLock::Off {
        return Ok(());
    }
    if settings.s3.is_none() {
        return Err(("s3_object_lock", "needs a bucket: set s3".to_owned()));
    }
    if settings.s3_checksum == S3Checksum::Off {
        let why = "needs checksums, or it could not be seen that what is made to stay is what was sent: set s3_checksum";
        return Err(("s3_object_lock", why.to_owned()));
    }
    Ok(())
}
