//! Errors of a volume. Callers ask an error questions rather than match its variants: a new variant then answers for
//! itself everywhere.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};

use rustix::io::Errno;

use crate::BlobName;

/// Cause of an error: an [`io::Error`], or an error of a remote volume's client.
pub type Cause = Box<dyn Error + Send + Sync + 'static>;

/// Errors of a volume.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("{name} does not exist")]
    NotFound { name: BlobName },
    #[error("{name} exists already")]
    Exists { name: BlobName },
    /// Nothing was lost: the write that failed was never acknowledged and its blob is discarded.
    #[error("no room left writing {name}")]
    Full { name: String, source: Cause },
    #[error("{name} ends at byte {len}; {wanted} bytes at offset {offset} were asked for")]
    OutOfRange { name: BlobName, len: u64, offset: u64, wanted: u64 },
    /// A local flush failed. The data may or may not be on the disk: nothing may be retried or trusted until a restart.
    #[error("cannot make {name} durable: {source}")]
    NotDurable { name: String, source: Cause },
    /// A local disk refused a write. What it did with this one and with earlier ones that it only buffered is
    /// in doubt, as after [`VolumeError::NotDurable`].
    #[error("cannot {action} {name}: {source}")]
    WriteFailed { action: &'static str, name: String, source: Cause },
    /// A local disk failed while reading or listing.
    #[error("cannot {action} {name}: {source}")]
    Io { action: &'static str, name: String, source: Cause },
    /// The volume did not do it, and may do it later: it could not be reached, asked to slow down, or the
    /// process has no file descriptor left. Nothing was changed.
    #[error("cannot {action} {name} at the moment: {source}")]
    Unavailable { action: &'static str, name: String, source: Cause },
    /// A request that changes something was sent to a remote volume, and no answer came: it may have been
    /// carried out, or may yet be.
    #[error("cannot tell whether the volume carried out the request to {action} {name}: {source}")]
    OutcomeUnknown { action: &'static str, name: String, source: Cause },
    /// The object is there, but must first be brought back (archived), given access to (EACCES, 403) or
    /// connected (a mount that is gone).
    #[error("{name} exists, but cannot be read now: {source}")]
    NotReadableNow { name: String, source: Cause },
    /// The volume broke its contract. For a request that changes something use
    /// [`VolumeError::OutcomeUnknown`].
    #[error(
        "cannot {action} {name}: the volume answered with {found}; check that the configured address is the right one"
    )]
    BadAnswer { action: &'static str, name: String, found: String },
}

/// Cause of a [`VolumeError::NotReadableNow`] that waiting does not cure: the key of the object is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct MissingKey(Cause);

/// Cause of a [`VolumeError::NotReadableNow`]: the object is archived.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Archived(Cause);

/// Cause of a [`VolumeError::Io`]: the bytes read are not those written, and reading again will not change that.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Altered(Cause);

impl VolumeError {
    /// The bytes read of the object are not those written; `source` gives the evidence. Callers treat it as a disk
    /// that does not give the object back, unless they ask whether it is [proved](Self::proves_damage).
    pub fn altered(name: &BlobName, source: impl Into<Cause>) -> Self {
        Self::Io { action: "decrypt", name: name.to_string(), source: Altered(source.into()).into() }
    }

    /// Returns true if the object was read, and is not what was written. A disk that does not answer proves nothing:
    /// it may answer the next time.
    #[must_use]
    pub fn proves_damage(&self) -> bool {
        match self {
            Self::OutOfRange { .. } => true,
            Self::Io { source, .. } => source.is::<Altered>(),
            _ => false,
        }
    }

    /// The object is archived and must be thawed first; `source` says how.
    pub fn archived(name: &impl fmt::Display, source: impl Into<Cause>) -> Self {
        Self::NotReadableNow { name: name.to_string(), source: Archived(source.into()).into() }
    }

    /// Returns true if the object is archived: it can be read once it was thawed.
    #[must_use]
    pub fn is_archived(&self) -> bool {
        matches!(self, Self::NotReadableNow { source, .. } if source.is::<Archived>())
    }

    /// The object exists, but the key it was sealed with is missing; `source` names it.
    pub fn without_key(name: &BlobName, source: impl Into<Cause>) -> Self {
        Self::NotReadableNow { name: name.to_string(), source: MissingKey(source.into()).into() }
    }

    /// Returns true if only a missing key keeps the object from being read: a walk over many objects continues
    /// with the others.
    #[must_use]
    pub fn lacks_key(&self) -> bool {
        matches!(self, Self::NotReadableNow { source, .. } if source.is::<MissingKey>())
    }

    /// Returns true if the same call may succeed soon, by waiting alone. If the error also [may have
    /// written](Self::may_have_written), only an idempotent call may be repeated.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::OutcomeUnknown { .. } => true,
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Full { .. }
            | Self::OutOfRange { .. }
            | Self::NotDurable { .. }
            | Self::WriteFailed { .. }
            | Self::Io { .. }
            | Self::NotReadableNow { .. }
            | Self::BadAnswer { .. } => false,
        }
    }

    /// Returns true if the requested change may have happened, in full or in part, although the call failed.
    #[must_use]
    pub const fn may_have_written(&self) -> bool {
        match self {
            Self::NotDurable { .. } | Self::WriteFailed { .. } | Self::OutcomeUnknown { .. } => true,
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Full { .. }
            | Self::OutOfRange { .. }
            | Self::Io { .. }
            | Self::Unavailable { .. }
            | Self::NotReadableNow { .. }
            | Self::BadAnswer { .. } => false,
        }
    }

    /// Returns true if the object merely cannot be read now: it may be neither damaged nor missing.
    #[must_use]
    pub const fn is_unreadable_now(&self) -> bool {
        match self {
            Self::NotReadableNow { .. } | Self::Unavailable { .. } => true,
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Full { .. }
            | Self::OutOfRange { .. }
            | Self::NotDurable { .. }
            | Self::WriteFailed { .. }
            | Self::Io { .. }
            | Self::OutcomeUnknown { .. }
            | Self::BadAnswer { .. } => false,
        }
    }

    /// Returns true if the object may become readable by waiting: neither a key nor a thaw is missing.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        self.is_unreadable_now() && !self.lacks_key() && !self.is_archived()
    }

    /// Returns true if there was no space; the same call may succeed once there is.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }

    /// Returns true if nothing more may be written to this volume until a restart has checked its contents. Only local
    /// disks return such errors: after a failed flush the kernel may drop what it could not write and report the next
    /// flush as a success. A remote volume that does not answer has lost nothing it acknowledged.
    #[must_use]
    pub const fn poisons_writes(&self) -> bool {
        match self {
            Self::NotDurable { .. } | Self::WriteFailed { .. } => true,
            Self::NotFound { .. }
            | Self::Exists { .. }
            | Self::Full { .. }
            | Self::OutOfRange { .. }
            | Self::Io { .. }
            | Self::Unavailable { .. }
            | Self::OutcomeUnknown { .. }
            | Self::NotReadableNow { .. }
            | Self::BadAnswer { .. } => false,
        }
    }

    /// Converts an error from changing `name` on a local disk, before anything became visible under it.
    pub(crate) fn writing(action: &'static str, name: &impl fmt::Display, source: io::Error) -> Self {
        let name = name.to_string();
        if is_full(&source) {
            Self::Full { name, source: source.into() }
        } else if is_out_of_files(&source) {
            Self::Unavailable { action, name, source: source.into() }
        } else {
            Self::WriteFailed { action, name, source: source.into() }
        }
    }

    /// Converts an error from opening, reading or listing `name` on a local disk.
    pub(crate) fn reading(action: &'static str, name: &impl fmt::Display, source: io::Error) -> Self {
        let name = name.to_string();
        if is_transient(&source) {
            Self::Unavailable { action, name, source: source.into() }
        } else if is_refused_or_offline(&source) {
            Self::NotReadableNow { name, source: source.into() }
        } else {
            Self::Io { action, name, source: source.into() }
        }
    }
}

/// Returns true if there is no space, or no quota, left.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// Returns true if the process or the system has no file descriptor left, which says nothing about any file.
pub(crate) fn is_out_of_files(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn is_transient(error: &io::Error) -> bool {
    use ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted, ResourceBusy,
        TimedOut, WouldBlock,
    };
    is_out_of_files(error)
        || matches!(
            error.kind(),
            Interrupted
                | WouldBlock
                | TimedOut
                | ResourceBusy
                | BrokenPipe
                | ConnectionAborted
                | ConnectionRefused
                | ConnectionReset
        )
}

fn is_refused_or_offline(error: &io::Error) -> bool {
    use ErrorKind::{
        HostUnreachable, NetworkDown, NetworkUnreachable, NotConnected, PermissionDenied,
        StaleNetworkFileHandle,
    };
    let offline = matches!(
        error.kind(),
        HostUnreachable | NetworkDown | NetworkUnreachable | NotConnected | StaleNetworkFileHandle
    );
    offline || error.kind() == PermissionDenied
}

#[cfg(test)]
mod tests;
