//! Errors returned to the engine's callers. Each variant is a way to act; the message names the object.

use holdfast_catalog::CatalogError;
use holdfast_proto::region::RegionError;
use holdfast_proto::{ErrorCode, Fingerprint};
use holdfast_volume::VolumeError;

use crate::container::ContainerError;
use crate::index::IndexError;

/// Any failure of an engine operation.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The request makes no sense, whatever the state.
    #[error("{0}")]
    Invalid(String),
    /// A region whose bytes are not what it says.
    #[error("disk {disk:?}: {source}")]
    Region { disk: String, source: RegionError },
    /// The requested object does not exist.
    #[error("{what} {name:?} does not exist")]
    NotFound { what: &'static str, name: String },
    /// A backup of the VM is running, started with the caller's own token.
    #[error(
        "a backup of VM {vm:?} is running (session {session}, from {host:?}); wait for it, or end it with --take-over if its agent is dead"
    )]
    Busy { vm: String, session: String, host: String },
    /// A backup of the VM is running, started with another token. Its session is not named: its id is for its
    /// token alone.
    #[error(
        "a backup of VM {vm:?} is running, started with another token; wait for it, or let an operator's or an admin's token end it with --take-over"
    )]
    BusyElsewhere { vm: String },
    /// The session belongs to another token.
    #[error(
        "session {session} was started with another token, and only that token may go on with it; start the backup again, or use that token"
    )]
    NotYours { session: String },
    /// Ending a backup that another token started is a right of its own, which the caller does not have.
    #[error(
        "a backup of VM {vm:?} is running, started with another token, which this token may not end; wait for it (it ends by itself when its agent is dead), or take over with an operator's or an admin's token"
    )]
    TakeOverForbidden { vm: String },
    /// The VM belongs to another owner.
    #[error(
        "VM {vm:?} belongs to another owner than this token's; back it up under another name, or have an operator change its owner: 'holdfast-server vm owner'"
    )]
    NotOwner { vm: String },
    /// An extent does not hash to what its agent says. The stream that sent it adds the disk's name.
    #[error(
        "disk {disk:?}: extent {extent}: the agent says that its bytes hash to {claimed}, but they hash to {actual}; the agent is defective or hostile"
    )]
    FalseDigest { disk: String, extent: u64, claimed: Fingerprint, actual: Fingerprint },
    /// The session is unknown, or has ended.
    #[error("session {session} {why}; start the backup again")]
    SessionGone { session: String, why: String },
    /// Written by a newer version.
    #[error("{0}; update Holdfast")]
    Unsupported(String),
    /// No room, or less than the reserve.
    #[error("{0}")]
    Full(String),
    /// The namespace may take no more. Names the quota, what is used, the limit, and what to do.
    #[error("{0}")]
    Quota(String),
    /// A limit of the server on concurrent use is reached.
    #[error("{0}")]
    Limit(String),
    /// Writing stopped after an I/O error, or because too many containers are missing.
    #[error("the repository has become read-only: {0}; check the disk, then restart the server")]
    ReadOnly(String),
    /// It was started without its keys, so nothing on the volume is read or written. Says what to do.
    #[error("{0}")]
    NoKeys(String),
    /// Stored data does not match its checksum or fingerprint.
    #[error("{0}")]
    Damaged(String),
    /// Stored data that a backup in progress relies on was found damaged after it began. The session ends; another
    /// is not offered what is damaged, so what was lost is sent again.
    #[error("{0}")]
    FoundDamaged(String),
    /// Part of what was asked for lies in an archive and must be brought back first.
    #[error("{0}")]
    Archived(String),
    /// A round of reclaim is in progress; there is one at a time.
    #[error("reclaim is running already; wait for it, or stop it")]
    RoundInProgress,
    /// Reclaim cannot tell now what is dead. Says why.
    #[error("nothing can be reclaimed now: {0}")]
    NotReclaimable(String),
    /// (P6) A point on the volume cannot be read, and may say what forbids this. Says which, and what to do.
    #[error("{0}")]
    UnreadPoint(String),
    /// The engine is shutting down.
    #[error("the server is shutting down; try again when it is back")]
    Unavailable,
    /// Long work ended because someone stopped it.
    #[error("it was stopped before it was done; what was done stays, and it can be started again")]
    Stopped,
    /// Reading or writing failed.
    #[error(transparent)]
    Volume(VolumeError),
    /// (L2) A restore point is locked or held, so nothing was deleted: [`CatalogError::Locked`].
    #[error(transparent)]
    Locked(CatalogError),
    /// The catalog failed, or refused what makes no sense; its messages say which.
    #[error(transparent)]
    Catalog(CatalogError),
    /// The index failed.
    #[error("index: {0}")]
    Index(IndexError),
    /// The requested data is encrypted by agents.
    #[error(
        "this is end-to-end encrypted, and the server has no key: read it with an agent that has it ('holdfast restore', 'holdfast verify')"
    )]
    Sealed,
    /// A thread that had to answer died.
    #[error("internal error: {0}")]
    Internal(String),
}

impl EngineError {
    /// Returns true if the volume cannot read something at the moment: waiting may help, and nothing follows for
    /// what is stored.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Volume(error) => error.may_pass(),
            Self::Index(error) => error.is_unreadable_now(),
            _ => false,
        }
    }

    /// Returns true if the error says that something cannot be read now, for whatever reason, and nothing of what is stored.
    pub fn is_no_verdict(&self) -> bool {
        match self {
            Self::Archived(_) => true,
            Self::Volume(error) => error.is_unreadable_now(),
            Self::Index(error) => error.is_unreadable_now(),
            _ => false,
        }
    }

    /// Returns true if the error concerns one object: a reader of many objects goes on with the others.
    pub const fn is_of_one_object(&self) -> bool {
        matches!(
            self,
            Self::Volume(_) | Self::Index(_) | Self::Unsupported(_) | Self::Archived(_) | Self::Internal(_)
        )
    }

    /// The stable code of this error.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::Region { .. } | Self::FalseDigest { .. } | Self::Sealed => {
                ErrorCode::Invalid
            }
            Self::NotFound { .. } => ErrorCode::NotFound,
            Self::Busy { .. } | Self::BusyElsewhere { .. } | Self::RoundInProgress => ErrorCode::Busy,
            Self::NotYours { .. } | Self::TakeOverForbidden { .. } | Self::NotOwner { .. } => {
                ErrorCode::Forbidden
            }
            Self::SessionGone { .. } | Self::FoundDamaged(_) => ErrorCode::SessionGone,
            Self::Unsupported(_) => ErrorCode::Unsupported,
            Self::Full(_) => ErrorCode::Full,
            Self::Quota(_) => ErrorCode::Quota,
            Self::ReadOnly(_) | Self::NoKeys(_) => ErrorCode::ReadOnly,
            Self::Damaged(_) => ErrorCode::Damaged,
            Self::Archived(_) => ErrorCode::Archived,
            Self::Unavailable | Self::NotReclaimable(_) | Self::UnreadPoint(_) | Self::Stopped => {
                ErrorCode::Unavailable
            }
            Self::Catalog(error) | Self::Locked(error) => error.code(),
            Self::Index(error) if error.is_full() => ErrorCode::Full,
            // Nothing is lost, but entries are not found until it is repaired.
            Self::Index(error) if error.needs_rebuild() => ErrorCode::Damaged,
            Self::Index(error) if error.is_too_large() => ErrorCode::Limit,
            Self::Limit(_) => ErrorCode::Limit,
            _ if self.may_pass() => ErrorCode::Unavailable,
            Self::Volume(_) | Self::Index(_) | Self::Internal(_) => ErrorCode::Internal,
        }
    }
}

impl From<VolumeError> for EngineError {
    fn from(error: VolumeError) -> Self {
        if error.is_archived() {
            return Self::Archived(error.to_string());
        }
        if error.is_full() {
            return Self::Full(format!(
                "{error}: delete restore points and run 'holdfast reclaim', or add storage; then start the backup again"
            ));
        }
        Self::Volume(error)
    }
}

impl From<CatalogError> for EngineError {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::ReadOnly { reason } => Self::ReadOnly(reason),
            CatalogError::NotOwner { vm } => Self::NotOwner { vm },
            error @ CatalogError::Locked { .. } => Self::Locked(error),
            error if error.stops_writes() => Self::ReadOnly(error.to_string()),
            error => Self::Catalog(error),
        }
    }
}

impl From<IndexError> for EngineError {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl From<ContainerError> for EngineError {
    fn from(error: ContainerError) -> Self {
        match error {
            ContainerError::Volume(volume) if !matches!(volume, VolumeError::NotFound { .. }) => {
                volume.into()
            }
            other => match other.code() {
                ErrorCode::Unsupported => Self::Unsupported(other.to_string()),
                ErrorCode::Damaged => Self::Damaged(other.to_string()),
                _ => Self::Internal(other.to_string()),
            },
        }
    }
}
