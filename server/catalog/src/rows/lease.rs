//! Locks between processes.

use ulid::Ulid;

/// That an owner holds a name until a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    /// 1 to [`LEASE_NAME_MAX_BYTES`](crate::LEASE_NAME_MAX_BYTES) bytes.
    pub name: String,
    /// Chosen by the holder and used by no one else: a session, or a process since its start.
    pub owner: Ulid,
    /// From this moment on the name is free.
    pub until_ms: i64,
}
