//! The audit log.

use ulid::Ulid;

/// An event of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub who: String,
    /// Object and verb, such as `token.revoke`.
    pub action: String,
    /// Identifier of what it was done to.
    pub object: String,
    pub detail: String,
}

/// Events that are one entry of the audit log with others like them: by the same actor, of the same action and key,
/// within [`AUDIT_WINDOW_MS`](crate::AUDIT_WINDOW_MS).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRepeat {
    /// Entry of the latest event.
    pub entry: AuditEntry,
    /// Key that the events share besides, such as a VM's name; at most as long as every text.
    pub key: String,
    /// Number of events, at least 1.
    pub count: u64,
    pub first_ms: i64,
    pub last_ms: i64,
}

impl AuditRepeat {
    /// One event, at `at_ms`.
    pub const fn once(entry: AuditEntry, key: String, at_ms: i64) -> Self {
        Self { entry, key, count: 1, first_ms: at_ms, last_ms: at_ms }
    }
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub id: Ulid,
    /// Time of the event; of several events, the first.
    pub at_ms: i64,
    /// Entry of the event; of several events, the latest.
    pub entry: AuditEntry,
    /// Number of events it stands for.
    pub count: u64,
    /// Time of the last of them.
    pub last_ms: i64,
}
