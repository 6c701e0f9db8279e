//! Errors of the catalog.

use std::fmt::Display;

use holdfast_proto::ErrorCode;
use holdfast_types::clock::utc_text;
use holdfast_types::ids::BackupId;

/// Boxed cause: which one it is depends on the database behind the catalog.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Callers act differently on each of these.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("there is no {what} {name}")]
    NotFound { what: &'static str, name: String },
    #[error("{what} {name} exists already")]
    Exists { what: &'static str, name: String },
    /// Written by a newer Holdfast, or by one that cuts chunks differently. Never a sign of damage.
    #[error("{what} is {found}; this version of Holdfast knows {known}. Use the version that wrote it")]
    Unsupported { what: &'static str, found: String, known: String },
    /// Written before the first release. Nothing was changed.
    #[error(
        "the catalog's schema is version {found}, older than the first release; this version of Holdfast knows {known}. \
         Use the version that wrote it; or stop the server, move catalog.db (with -wal and -shm) away and run \
         'holdfast-server recover --from DATA/blobs', which makes a new catalog of the restore points on the volume"
    )]
    Outdated { found: i32, known: i32 },
    #[error("the catalog is damaged: {detail}")]
    Corrupt { detail: String },
    /// Another process held the catalog for longer than the timeout. Nothing was changed; try again.
    #[error("the catalog is in use by another process; try again")]
    Busy,
    /// The file system is full. Nothing was changed.
    #[error("no room left for the catalog; free some space on its file system")]
    Full,
    /// Reading or opening failed. Nothing was changed.
    #[error("cannot {action} the catalog: {cause}")]
    Io { action: &'static str, cause: Cause },
    /// An I/O error in a transaction that changes something, or while folding in the log: it is unknown what the
    /// disk holds, so the catalog takes no more changes until it is opened again.
    #[error("cannot {action} the catalog: {cause}")]
    WriteFailed { action: &'static str, cause: Cause },
    /// Changes have stopped since an earlier failure. Nothing was changed.
    #[error(
        "the catalog takes no changes since an I/O error: {reason}; check the disk, then restart the server"
    )]
    ReadOnly { reason: String },
    /// The VM has another owner. Nothing was changed.
    #[error(
        "VM {vm:?} belongs to another owner; back it up under another name, or have an operator change its owner: 'holdfast-server vm owner'"
    )]
    NotOwner { vm: String },
    /// (L2) The restore point is locked or held. Nothing was changed.
    #[error("restore point {backup} of VM {vm:?} cannot be deleted: {}", locked_words(*until_ms, hold.as_deref()))]
    Locked {
        /// Boxed: 16 bytes of alignment would make every error larger.
        backup: Box<BackupId>,
        vm: Box<str>,
        /// Time at which its lock ends.
        until_ms: Option<i64>,
        /// Why it is held.
        hold: Option<Box<str>>,
    },
    /// The request contradicts itself, a bound or what is recorded. Nothing was changed.
    #[error("{reason}")]
    Invalid { reason: String },
}

impl CatalogError {
    /// The code a user meets.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Exists { .. } | Self::Invalid { .. } => ErrorCode::Invalid,
            Self::NotOwner { .. } | Self::Locked { .. } => ErrorCode::Forbidden,
            Self::Unsupported { .. } | Self::Outdated { .. } => ErrorCode::Unsupported,
            Self::Corrupt { .. } => ErrorCode::Damaged,
            Self::Busy => ErrorCode::Unavailable,
            Self::Full => ErrorCode::Full,
            Self::ReadOnly { .. } => ErrorCode::ReadOnly,
            Self::Io { .. } | Self::WriteFailed { .. } => ErrorCode::Internal,
        }
    }

    /// Returns true if the content of the disk is unknown since this failure, so that nothing more may be written (W9).
    /// A failed read says nothing about it, and no room or another process in the way changed nothing.
    pub const fn stops_writes(&self) -> bool {
        matches!(self, Self::WriteFailed { .. })
    }

    /// Returns true if the catalog takes no change at all now, so that this says nothing about the change: no room,
    /// another process in the way, or an earlier failure.
    pub const fn refuses_changes(&self) -> bool {
        matches!(self, Self::Full | Self::Busy | Self::ReadOnly { .. } | Self::WriteFailed { .. })
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Self {
        Self::Invalid { reason: reason.into() }
    }

    pub(crate) fn not_found(what: &'static str, name: impl Display) -> Self {
        Self::NotFound { what, name: name.to_string() }
    }

    pub(crate) fn exists(what: &'static str, name: impl Display) -> Self {
        Self::Exists { what, name: name.to_string() }
    }

    pub(crate) fn io(action: &'static str, cause: impl Into<Cause>) -> Self {
        Self::Io { action, cause: cause.into() }
    }

    /// Converts an error met while changing something: one of I/O is a failed write.
    pub(crate) fn on_change(self, action: &'static str) -> Self {
        match self {
            Self::Io { cause, .. } => Self::WriteFailed { action, cause },
            other => other,
        }
    }
}

/// Why it cannot be deleted, and what can be done about it.
fn locked_words(until_ms: Option<i64>, hold: Option<&str>) -> String {
    let until = until_ms
        .map(|until_ms| format!("it is locked until {}, and no one can shorten that", utc_text(until_ms)));
    let held = hold.map(|reason| format!("it is held ({reason:?}) until an admin releases it"));
    until.into_iter().chain(held).collect::<Vec<_>>().join("; ")
}
