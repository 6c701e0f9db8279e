//! Access tokens: their text form, what is kept of them, and what each role may do.
//!
//! A token is `hf_<ULID>_<64 hexadecimal digits>`: a public name and 256 random bits. The catalog keeps
//! only a keyed hash of the secret. Nothing guesses 256 bits, so a fast hash is right; a slow one would
//! only cost every call.

mod join;
pub mod pattern;

use std::fmt;
use std::str::FromStr;

use holdfast_types::clock::Clock;
use holdfast_types::ids::{NamespaceId, TokenId};

pub use self::join::{JOIN_MS, join_secret_hash, joined_token, new_join_secret};
pub use self::pattern::VM_PATTERNS_MAX;
use super::CatalogError;
use super::new_id::{fill_random, new_id};

/// Prefix of the text; secret scanners find leaked tokens by it.
pub const TOKEN_PREFIX: &str = "hf_";

/// Separates the hash from every other use of BLAKE3 and names its version.
const HASH_CONTEXT: &str = "holdfast 2025-11-21 access token secret v1";

/// Bytes of the text: `hf_`, 26 of the ULID, `_`, 64 of the secret.
const TEXT_BYTES: usize = TOKEN_PREFIX.len() + 26 + 1 + 64;

/// A new token's text: the only time it is known. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenText(String);

impl TokenText {
    /// The text, to be shown once.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(…)")
    }
}

/// Makes a token: its text, its public name, and the hash to keep.
///
/// # Errors
/// [`CatalogError::Io`] when the operating system has no random numbers.
pub fn new_token(clock: &dyn Clock) -> Result<(TokenText, TokenId, [u8; 32]), CatalogError> {
    let id = TokenId(new_id(clock)?);
    let mut secret = [0; 32];
    fill_random(&mut secret)?;
    let token = PresentedToken { id, secret };
    Ok((token.text(), id, token.hash()))
}

/// A well-formed token that a caller presents. `Debug` hides the secret.
#[derive(Clone)]
pub struct PresentedToken {
    id: TokenId,
    secret: [u8; 32],
}

impl PresentedToken {
    /// Returns its public name, to look it up by.
    pub const fn id(&self) -> TokenId {
        self.id
    }

    fn text(&self) -> TokenText {
        let (id, secret) = (self.id, blake3::Hash::from_bytes(self.secret));
        TokenText(format!("{TOKEN_PREFIX}{id}_{}", secret.to_hex()))
    }

    /// The hash that the catalog keeps. Bound to the name, so that a row's hash is worth nothing in
    /// another row.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_derive_key(HASH_CONTEXT);
        hasher.update(&self.id.to_bytes()).update(&self.secret);
        *hasher.finalize().as_bytes()
    }

    /// Returns true if its hash is `kept`, compared in constant time.
    pub fn matches(&self, kept: &[u8; 32]) -> bool {
        // The comparison of two `blake3::Hash` is constant-time.
        blake3::Hash::from_bytes(self.hash()) == blake3::Hash::from_bytes(*kept)
    }
}

impl fmt::Debug for PresentedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PresentedToken({}, …)", self.id)
    }
}

/// The text is no token. Says nothing of the text: it may be a secret with a typo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no Holdfast token; one looks like hf_01J…_0123abcd… and is {TEXT_BYTES} characters long")]
pub struct NotAToken;

impl FromStr for PresentedToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        if text.len() != TEXT_BYTES {
            return Err(NotAToken);
        }
        let (id, secret) =
            text.strip_prefix(TOKEN_PREFIX).and_then(|rest| rest.split_once('_')).ok_or(NotAToken)?;
        let id = canonical_id(id).ok_or(NotAToken)?;
        let secret = *blake3::Hash::from_hex(secret).map_err(|_| NotAToken)?.as_bytes();
        Ok(Self { id, secret })
    }
}

/// The ULID of this text and no other: the decoder drops bits that do not fit.
fn canonical_id(text: &str) -> Option<TokenId> {
    text.parse().ok().filter(|id: &TokenId| id.to_string() == text)
}

/// Actions that a role permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Write restore points.
    Backup,
    /// Read restore points of one's own namespaces back, to verify them or to restore one's own VMs.
    ReadBack,
    /// Restore anything within the token's scope, wherever it came from.
    Restore,
    /// List restore points, VMs and namespaces.
    Catalog,
    /// Read compression details.
    Report,
    /// Create, list and revoke tokens.
    ManageTokens,
    /// Run the repository: check, rebuild, settings, and what deletes by rules that others decided: retention policies,
    /// reclaim.
    Operate,
    /// Decide what is kept: delete restore points by hand, lock and hold them, edit retention policies.
    Retain,
    /// End a backup in progress that another token started.
    TakeOver,
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 9] = [
        Self::Backup,
        Self::ReadBack,
        Self::Restore,
        Self::Catalog,
        Self::Report,
        Self::ManageTokens,
        Self::Operate,
        Self::Retain,
        Self::TakeOver,
    ];
}

/// Roles of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// An agent: writes and reads back its own; never deletes.
    Backup,
    /// Lists, restores, reports; never writes.
    Restore,
    /// Everything but tokens and deciding what is kept.
    Operator,
    /// Everything, everywhere.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Backup, Self::Restore, Self::Operator, Self::Admin];

    /// The word for it, in the catalog, the command line and the protocol.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Backup => "backup",
            Self::Restore => "restore",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Returns true if the role permits this action, within the token's namespaces.
    pub const fn may(self, action: Action) -> bool {
        use Action as A;
        match self {
            Self::Backup => matches!(action, A::Backup | A::ReadBack | A::Catalog | A::Report),
            Self::Restore => matches!(action, A::ReadBack | A::Restore | A::Catalog | A::Report),
            Self::Operator => !matches!(action, A::ManageTokens | A::Retain),
            Self::Admin => true,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The word is no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no role {0:?}; the roles are backup, restore, operator and admin")]
pub struct NotARole(String);

impl FromStr for Role {
    type Err = NotARole;

    fn from_str(text: &str) -> Result<Self, NotARole> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| NotARole(text.chars().take(80).collect()))
    }
}

/// A token to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSpec {
    /// From [`new_token`].
    pub id: TokenId,
    /// For people; unique among tokens that are not revoked.
    pub name: String,
    pub role: Role,
    /// Its scope; empty means every namespace. An admin's is always every namespace: who may make tokens
    /// could make one of any scope.
    pub namespaces: Vec<NamespaceId>,
    /// VMs it writes for the first time become this owner's, and it writes no VM of another.
    pub owner: String,
    /// [Patterns](pattern::matches) of the VM names it is for; empty means every name. An admin's is always
    /// empty.
    pub vm_patterns: Vec<String>,
    /// Time at which it ends; `None`: never.
    pub expires_ms: Option<i64>,
}

/// A token as the catalog knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    pub id: TokenId,
    pub name: String,
    pub role: Role,
    /// Its scope, in order; empty means every namespace.
    pub namespaces: Vec<NamespaceId>,
    /// Owner of the VMs it writes.
    pub owner: String,
    /// Patterns as they were given; empty means every name.
    pub vm_patterns: Vec<String>,
    pub created_ms: i64,
    pub expires_ms: Option<i64>,
    pub revoked_ms: Option<i64>,
    /// Time since which it waits for an admin to enable it, as every token of a recovered catalog does.
    pub disabled_ms: Option<i64>,
    /// Time of its last use, to within a minute.
    pub last_used_ms: Option<i64>,
    /// For a token made for a join code: time until which the code can be redeemed.
    pub join_until_ms: Option<i64>,
    /// Time at which the code was redeemed.
    pub joined_ms: Option<i64>,
}

impl TokenRecord {
    /// Returns true if it is neither revoked, disabled nor expired, and no join code stands for it.
    pub fn is_usable(&self, now_ms: i64) -> bool {
        self.joining_until_ms().is_none() && self.is_in_force(now_ms)
    }

    /// Returns the time until which its join code can be redeemed; `None`: it was, or there is none.
    pub fn joining_until_ms(&self) -> Option<i64> {
        self.join_until_ms.filter(|_| self.joined_ms.is_none())
    }

    /// Returns true if its join code may be redeemed, or was so recently that the same agent may ask again.
    pub fn may_join(&self, now_ms: i64) -> bool {
        self.join_until_ms.is_some_and(|end_ms| now_ms < end_ms) && self.is_in_force(now_ms)
    }

    fn is_in_force(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none()
            && self.disabled_ms.is_none()
            && self.expires_ms.is_none_or(|end_ms| now_ms < end_ms)
    }

    /// Returns true if `namespace` is in its scope.
    pub fn covers(&self, namespace: NamespaceId) -> bool {
        self.namespaces.is_empty() || self.namespaces.contains(&namespace)
    }

    /// Returns true if VMs of this name are within its patterns.
    pub fn covers_vm(&self, vm: &str) -> bool {
        self.vm_patterns.is_empty() || self.vm_patterns.iter().any(|pattern| pattern::matches(pattern, vm))
    }

    /// Returns true if it may act for VMs of every owner: those who may change a VM's owner need no such change first.
    pub fn is_for_every_owner(&self) -> bool {
        self.role.may(Action::Operate)
    }

    /// Returns true if it may do `action` in `namespace`, its validity aside.
    pub fn may(&self, action: Action, namespace: NamespaceId) -> bool {
        self.role.may(action) && self.covers(namespace)
    }
}

#[cfg(test)]
mod tests;
