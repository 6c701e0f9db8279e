//! Access: namespaces, tokens, and records that end by themselves.

use holdfast_proto::KeyId;
use holdfast_proto::join::JoinSecret;
use holdfast_types::ids::{NamespaceId, TokenId};

use crate::sqlite::{Catalog, expiring, namespaces, tokens};
use crate::token::{JOIN_MS, TokenText, join_secret_hash, joined_token};
use crate::{ExpiringRecord, NamespaceRecord, Result, TokenRecord, TokenSpec, validate};

/// Used by every call of a client, so it never waits for reports.
///
/// Across processes: every function is one transaction. A token that one process revoked is refused by all
/// from then on, because none of them keeps tokens in memory.
impl Catalog {
    /// The namespace of this name, created when there is none; of two that create it at once both get the same.
    /// `Invalid`: not a name.
    pub fn ensure_namespace(&self, name: &str) -> Result<NamespaceRecord> {
        validate::name("namespace", name)?;
        if let Some(found) = self.namespace_by_name(name)? {
            return Ok(found);
        }
        self.write(|tx| namespaces::ensure(tx, self.clock.as_ref(), name))
    }

    /// A new namespace of which agents encrypt the content with the key of that id, for ever. `Exists`: there is one of
    /// this name, whatever it is. `Invalid`: not a name.
    pub fn create_sealed_namespace(&self, name: &str, key_id: KeyId) -> Result<NamespaceRecord> {
        validate::name("namespace", name)?;
        self.write(|tx| namespaces::create_sealed(tx, self.clock.as_ref(), name, key_id))
    }

    /// The namespace `id`, if there is one.
    pub fn namespace(&self, id: NamespaceId) -> Result<Option<NamespaceRecord>> {
        self.look_up(|c| namespaces::by_id(c, id))
    }

    /// The namespace called `name`, if there is one.
    pub fn namespace_by_name(&self, name: &str) -> Result<Option<NamespaceRecord>> {
        self.look_up(|c| namespaces::by_name(c, name))
    }

    /// Returns all namespaces, by name.
    pub fn namespaces(&self) -> Result<Vec<NamespaceRecord>> {
        self.look_up(namespaces::all)
    }

    /// Keeps a token made by [`new_token`](crate::token::new_token). `Exists`: the name is taken. `NotFound`: a
    /// namespace of its scope does not exist. `Invalid`: see [`TokenSpec`].
    pub fn create_token(&self, spec: &TokenSpec, secret_hash: &[u8; 32]) -> Result<TokenRecord> {
        let now_ms = self.clock.now_ms();
        validate::token(spec, now_ms)?;
        self.write(|tx| tokens::create(tx, now_ms, spec, secret_hash, None))
    }

    /// As [`Catalog::create_token`], of a token that no one can use before its join code is redeemed, which has
    /// [`JOIN_MS`] for that. A code of the same name that was not redeemed is worth nothing from then on.
    pub fn create_join_code(&self, spec: &TokenSpec, code: &JoinSecret) -> Result<TokenRecord> {
        let now_ms = self.clock.now_ms();
        validate::token(spec, now_ms)?;
        let until_ms = Some(now_ms.saturating_add(JOIN_MS));
        self.write(|tx| tokens::create(tx, now_ms, spec, &join_secret_hash(code), until_ms))
    }

    /// Redeems a join code: its secret is spent in the transaction from which on the token can be used. Returns the token's
    /// text, its record, and whether the same agent redeemed the code before, which changes nothing. `None`: the code is wrong,
    /// expired, ended or another agent's.
    pub fn redeem_join_code(
        &self,
        code: &JoinSecret,
        agent_key: &[u8; 32],
    ) -> Result<Option<(TokenText, TokenRecord, bool)>> {
        let (text, token_hash) = joined_token(code, agent_key);
        let (now_ms, code_hash) = (self.clock.now_ms(), join_secret_hash(code));
        let asked = (TokenId::from_bytes(code.token), &code_hash, &token_hash);
        // Asked first on a reading connection: strangers cannot keep the writer busy.
        if self.look_up(|c| tokens::joinable(c, now_ms, asked))?.is_none() {
            return Ok(None);
        }
        let found = self.write(|tx| {
            let found = tokens::joinable(tx, now_ms, asked)?;
            if let Some((token, false)) = &found {
                tokens::join(tx, now_ms, token.id, &token_hash)?;
            }
            Ok(found)
        })?;
        Ok(found.map(|(token, again)| (text, token, again)))
    }

    /// The token `id` and the hash of its secret, if there is one; also when revoked or expired.
    pub fn token(&self, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>> {
        self.look_up(|c| tokens::by_id(c, id))
    }

    /// Returns all tokens, oldest first, revoked ones included.
    pub fn list_tokens(&self) -> Result<Vec<TokenRecord>> {
        self.look_up(tokens::all)
    }

    /// Ends a token, for good, and every expiring record of it. Repeating it does nothing. `NotFound`: no such
    /// token.
    pub fn revoke_token(&self, id: TokenId) -> Result<()> {
        self.write(|tx| {
            tokens::revoke(tx, self.clock.now_ms(), id)?;
            expiring::delete_of_token(tx, id)
        })
    }

    /// Disables every token that is not revoked, until [`enable_token`](Catalog::enable_token), and ends every expiring
    /// record: for a catalog that was put back from a copy, which cannot know what was revoked since.
    /// Returns how many tokens it disabled.
    pub fn disable_tokens(&self) -> Result<u64> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| {
            expiring::delete_all(tx)?;
            tokens::disable_all(tx, now_ms)
        })
    }

    /// Lets a disabled token be used again. Repeating it does nothing. `NotFound`: no such token. `Invalid`: it was
    /// revoked.
    pub fn enable_token(&self, id: TokenId) -> Result<()> {
        self.write(|tx| tokens::enable(tx, id))
    }

    /// Notes that a token was used, at most once in [`crate::TOKEN_TOUCH_INTERVAL_MS`]. `NotFound`: no such token.
    pub fn touch_token(&self, id: TokenId) -> Result<()> {
        // Asked first on a reading connection: nearly every call finds nothing to write.
        let now_ms = self.clock.now_ms();
        if self.look_up(|c| tokens::is_touch_due(c, now_ms, id))? {
            self.write(|tx| tokens::touch(tx, now_ms, id))?;
        }
        Ok(())
    }

    /// Keeps a record until its time. At [`crate::EXPIRING_PER_TOKEN_MAX`] of one token the oldest gives way. `Exists`:
    /// the hash has one already. `NotFound`: no such token. `Invalid`: an empty payload or one longer than
    /// [`crate::EXPIRING_PAYLOAD_MAX_BYTES`], or it would end before it begins.
    pub fn create_expiring(&self, record: &ExpiringRecord) -> Result<()> {
        validate::expiring(record)?;
        self.write(|tx| expiring::create(tx, record))
    }

    /// The record of a hash, unless it has ended. Whether its token may still be used is for the caller to ask.
    pub fn expiring(&self, id_hash: &[u8; 32]) -> Result<Option<ExpiringRecord>> {
        let now_ms = self.clock.now_ms();
        self.look_up(|c| expiring::by_hash(c, now_ms, id_hash))
    }

    /// Moves a record's end. `NotFound`: there is none, it has ended, or would end before it began.
    pub fn extend_expiring(&self, id_hash: &[u8; 32], expires_ms: i64) -> Result<()> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| expiring::extend(tx, now_ms, id_hash, expires_ms))
    }

    /// Ends a record. Repeating it does nothing.
    pub fn delete_expiring(&self, id_hash: &[u8; 32]) -> Result<()> {
        self.write(|tx| expiring::delete(tx, id_hash))
    }

    /// Drops records that have ended by `now_ms`; returns how many.
    pub fn prune_expiring(&self, now_ms: i64) -> Result<u64> {
        // Asked first on a reading connection: nearly every call finds nothing to drop.
        if self.look_up(|c| expiring::has_ended(c, now_ms))? {
            self.write(|tx| expiring::prune(tx, now_ms))
        } else {
            Ok(0)
        }
    }
}
