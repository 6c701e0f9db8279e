//! What a web UI keeps in the catalog: logins, and what verifying restore points found.

use holdfast_types::ids::{BackupId, TokenId};

/// Logins one token may have at a time; the oldest gives way to a new one. A person has a few browsers; a
/// script that logs in over and over must not fill the catalog.
pub const WEB_SESSIONS_PER_TOKEN_MAX: u32 = 64;

/// Verifications kept of one restore point.
pub const VERIFICATIONS_PER_BACKUP_MAX: u32 = 16;

/// Longest CSRF secret kept.
pub(super) const CSRF_MAX_BYTES: usize = 128;

/// A person's login in a browser.
#[derive(Clone, PartialEq, Eq)]
pub struct WebSession {
    /// Hash of what the cookie carries; the cookie itself is kept nowhere.
    pub id_hash: [u8; 32],
    /// Whose rights it has, as they are at each call.
    pub token: TokenId,
    /// What a changing request must repeat in a header.
    pub csrf: String,
    pub created_ms: i64,
    pub expires_ms: i64,
}

impl std::fmt::Debug for WebSession {
    /// Without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { token, created_ms, expires_ms, .. } = self;
        write!(f, "WebSession({token}, {created_ms} to {expires_ms}, …)")
    }
}

/// What reading a restore point back found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    pub backup: BackupId,
    pub at_ms: i64,
    /// A token's name.
    pub who: String,
    pub ok: bool,
    /// What was read, or what is damaged; clipped as every text written by others.
    pub detail: String,
}
