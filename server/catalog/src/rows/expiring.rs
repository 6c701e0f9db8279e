//! Records that end by themselves.

use std::fmt;

use holdfast_types::ids::TokenId;

/// Something kept for the owner of a token until a time, found by a hash. What it means is for the caller to
/// say; the catalog only promises that it is gone when its time or its token has ended.
#[derive(Clone, PartialEq, Eq)]
pub struct ExpiringRecord {
    /// Hash of a secret; the secret itself is kept nowhere.
    pub id_hash: [u8; 32],
    /// Token that owns the record. It ends when this token is revoked.
    pub token: TokenId,
    /// 1 to [`EXPIRING_PAYLOAD_MAX_BYTES`](crate::EXPIRING_PAYLOAD_MAX_BYTES) bytes.
    pub payload: String,
    pub created_ms: i64,
    /// Later than `created_ms`. From this moment on the record is not found any more.
    pub expires_ms: i64,
}

impl fmt::Debug for ExpiringRecord {
    /// Without its hash and payload: either may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, created_ms, expires_ms, .. } = self;
        write!(f, "ExpiringRecord({token}, {created_ms} to {expires_ms}, …)")
    }
}
