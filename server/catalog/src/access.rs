//! Who may come in: namespaces, tokens, and records that end by themselves.

use std::fmt;

use holdfast_proto::KeyId;
use holdfast_types::ids::{NamespaceId, TokenId};

use crate::Result;
use crate::rows::{ExpiringRecord, NamespaceRecord};
use crate::token::{TokenRecord, TokenSpec};

/// The namespace every repository has from the beginning.
pub const DEFAULT_NAMESPACE: &str = "default";

/// How often a token's last use is written down at most.
pub const TOKEN_TOUCH_INTERVAL_MS: i64 = 60_000;

/// Expiring records one token may have at a time; the oldest gives way to a new one. A person has a few
/// browsers; a script that logs in over and over must not fill the catalog.
pub const EXPIRING_PER_TOKEN_MAX: u32 = 64;

/// Longest payload of an expiring record: two secrets of 32 bytes in hexadecimal.
pub const EXPIRING_PAYLOAD_MAX_BYTES: usize = 128;

/// Asked at every call of a client, so it never waits for reports.
///
/// Across processes: every function is one transaction. A token that one process revoked is refused by all
/// from then on, because none of them keeps tokens in memory.
pub trait Access: Send + Sync + fmt::Debug {
    /// The namespace of this name, created when there is none; of two that create it at once both get the same.
    /// `Invalid`: not a name.
    fn ensure_namespace(&self, name: &str) -> Result<NamespaceRecord>;
    /// A new namespace of which agents encrypt the content with the key of that id, for ever. `Exists`: there is one of
    /// this name, whatever it is. `Invalid`: not a name.
    fn create_sealed_namespace(&self, name: &str, key_id: KeyId) -> Result<NamespaceRecord>;
    /// The namespace `id`, if there is one.
    fn namespace(&self, id: NamespaceId) -> Result<Option<NamespaceRecord>>;
    /// The namespace called `name`, if there is one.
    fn namespace_by_name(&self, name: &str) -> Result<Option<NamespaceRecord>>;
    /// All namespaces, by name.
    fn namespaces(&self) -> Result<Vec<NamespaceRecord>>;

    /// Keeps a token made by [`new_token`](crate::token::new_token). `Exists`: the name is taken. `NotFound`: a
    /// namespace of its scope does not exist. `Invalid`: see [`TokenSpec`].
    fn create_token(&self, spec: &TokenSpec, secret_hash: &[u8; 32]) -> Result<TokenRecord>;
    /// The token `id` and the hash of its secret, if there is one; also when revoked or expired.
    fn token(&self, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>>;
    /// All tokens, oldest first, revoked ones included.
    fn list_tokens(&self) -> Result<Vec<TokenRecord>>;
    /// Ends a token, for good, and every expiring record of it. Repeating it does nothing. `NotFound`: no such
    /// token.
    fn revoke_token(&self, id: TokenId) -> Result<()>;
    /// Disables every token that is not revoked, until [`enable_token`](Access::enable_token), and ends every expiring
    /// record and every lease: for a catalog that was put back from a copy, which cannot know what was revoked since.
    /// Returns how many tokens it disabled.
    fn disable_tokens(&self) -> Result<u64>;
    /// Lets a disabled token be used again. Repeating it does nothing. `NotFound`: no such token. `Invalid`: it was
    /// revoked.
    fn enable_token(&self, id: TokenId) -> Result<()>;
    /// Notes that a token was used, at most once in [`TOKEN_TOUCH_INTERVAL_MS`]. `NotFound`: no such token.
    fn touch_token(&self, id: TokenId) -> Result<()>;

    /// Keeps a record until its time. At [`EXPIRING_PER_TOKEN_MAX`] of one token the oldest gives way. `Exists`:
    /// the hash has one already. `NotFound`: no such token. `Invalid`: an empty payload or one longer than
    /// [`EXPIRING_PAYLOAD_MAX_BYTES`], or it would end before it begins.
    fn create_expiring(&self, record: &ExpiringRecord) -> Result<()>;
    /// The record of a hash, unless it has ended. Whether its token may still be used is for the caller to ask.
    fn expiring(&self, id_hash: &[u8; 32]) -> Result<Option<ExpiringRecord>>;
    /// Moves a record's end. `NotFound`: there is none, it has ended, or would end before it began.
    fn extend_expiring(&self, id_hash: &[u8; 32], expires_ms: i64) -> Result<()>;
    /// Ends a record. Repeating it does nothing.
    fn delete_expiring(&self, id_hash: &[u8; 32]) -> Result<()>;
    /// Drops records that have ended by `now_ms`; returns how many.
    fn prune_expiring(&self, now_ms: i64) -> Result<u64>;
}
