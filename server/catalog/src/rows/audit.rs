//! The audit log.

use ulid::Ulid;

/// Something worth remembering who did it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub who: String,
    /// Object and verb, such as `token.revoke`.
    pub action: String,
    /// Identifier of what it was done to.
    pub object: String,
    pub detail: String,
}

/// An entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRecord {
    pub id: Ulid,
    pub at_ms: i64,
    pub entry: AuditEntry,
}
