//! Every call of the protocol: who may make it, and what its answer may cost. One table for the check in front of all
//! calls, the labels of metrics and the tests (H1).

use holdfast_engine::catalog::token::Action;

use crate::auth::Access;

/// Prefix of the paths of calls.
pub(super) const PREFIX: &str = "/holdfast.v1.";

/// Memory that an answer takes while its client does not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AnswerKind {
    /// A few fields, or a row for each disk of a backup.
    Short,
    /// One message after the other. Their number is bounded where such streams are.
    Stream,
}

/// A call of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// `Service/Method`.
    pub(crate) name: &'static str,
    pub(crate) access: Access,
    pub(crate) answer: AnswerKind,
}

const fn short(name: &'static str, access: Access) -> Call {
    Call { name, access, answer: AnswerKind::Short }
}

const fn stream(name: &'static str, access: Access) -> Call {
    Call { name, access, answer: AnswerKind::Stream }
}

const BACKUP: Access = Access::May(Action::Backup);
const READ_BACK: Access = Access::May(Action::ReadBack);

/// Every call; a test compares this with the protocol.
pub(crate) const CALLS: &[Call] = &[
    short("Backup/Hello", Access::Any),
    short("Backup/Start", BACKUP),
    stream("Backup/ParentDigests", BACKUP),
    stream("Backup/Ingest", BACKUP),
    stream("Backup/SendLane", BACKUP),
    short("Backup/KeepAlive", BACKUP),
    short("Backup/Commit", BACKUP),
    short("Backup/Abort", BACKUP),
    stream("Restore/ReadDisk", READ_BACK),
    stream("Restore/ReadRange", READ_BACK),
    stream("Restore/ReadParts", READ_BACK),
];

/// The call of a path.
pub(super) fn of_path(path: &str) -> Option<&'static Call> {
    let name = path.strip_prefix(PREFIX)?;
    CALLS.iter().find(|call| call.name == name)
}
