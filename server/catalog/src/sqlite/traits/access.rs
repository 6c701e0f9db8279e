//! [`Access`] on SQLite.

use holdfast_proto::KeyId;
use holdfast_types::ids::{NamespaceId, TokenId};

use super::super::{SqliteCatalog, expiring, leases, namespaces, tokens};
use crate::{Access, ExpiringRecord, NamespaceRecord, Result, TokenRecord, TokenSpec, validate};

impl Access for SqliteCatalog {
    fn ensure_namespace(&self, name: &str) -> Result<NamespaceRecord> {
        validate::name("namespace", name)?;
        if let Some(found) = self.namespace_by_name(name)? {
            return Ok(found);
        }
        self.write(|tx| namespaces::ensure(tx, self.clock.as_ref(), name))
    }

    fn create_sealed_namespace(&self, name: &str, key_id: KeyId) -> Result<NamespaceRecord> {
        validate::name("namespace", name)?;
        self.write(|tx| namespaces::create_sealed(tx, self.clock.as_ref(), name, key_id))
    }

    fn namespace(&self, id: NamespaceId) -> Result<Option<NamespaceRecord>> {
        self.look_up(|c| namespaces::by_id(c, id))
    }

    fn namespace_by_name(&self, name: &str) -> Result<Option<NamespaceRecord>> {
        self.look_up(|c| namespaces::by_name(c, name))
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>> {
        self.look_up(namespaces::all)
    }

    fn create_token(&self, spec: &TokenSpec, secret_hash: &[u8; 32]) -> Result<TokenRecord> {
        let now_ms = self.clock.now_ms();
        validate::token(spec, now_ms)?;
        self.write(|tx| tokens::create(tx, now_ms, spec, secret_hash))
    }

    fn token(&self, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>> {
        self.look_up(|c| tokens::by_id(c, id))
    }

    fn list_tokens(&self) -> Result<Vec<TokenRecord>> {
        self.look_up(tokens::all)
    }

    fn revoke_token(&self, id: TokenId) -> Result<()> {
        self.write(|tx| {
            tokens::revoke(tx, self.clock.now_ms(), id)?;
            expiring::delete_of_token(tx, id)
        })
    }

    fn disable_tokens(&self) -> Result<u64> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| {
            expiring::delete_all(tx)?;
            leases::delete_all(tx)?;
            tokens::disable_all(tx, now_ms)
        })
    }

    fn enable_token(&self, id: TokenId) -> Result<()> {
        self.write(|tx| tokens::enable(tx, id))
    }

    fn touch_token(&self, id: TokenId) -> Result<()> {
        // Asked first on a reading connection: nearly every call finds nothing to write.
        let now_ms = self.clock.now_ms();
        if self.look_up(|c| tokens::is_touch_due(c, now_ms, id))? {
            self.write(|tx| tokens::touch(tx, now_ms, id))?;
        }
        Ok(())
    }

    fn create_expiring(&self, record: &ExpiringRecord) -> Result<()> {
        validate::expiring(record)?;
        self.write(|tx| expiring::create(tx, record))
    }

    fn expiring(&self, id_hash: &[u8; 32]) -> Result<Option<ExpiringRecord>> {
        let now_ms = self.clock.now_ms();
        self.look_up(|c| expiring::by_hash(c, now_ms, id_hash))
    }

    fn extend_expiring(&self, id_hash: &[u8; 32], expires_ms: i64) -> Result<()> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| expiring::extend(tx, now_ms, id_hash, expires_ms))
    }

    fn delete_expiring(&self, id_hash: &[u8; 32]) -> Result<()> {
        self.write(|tx| expiring::delete(tx, id_hash))
    }

    fn prune_expiring(&self, now_ms: i64) -> Result<u64> {
        // Asked first on a reading connection: nearly every call finds nothing to drop.
        if self.look_up(|c| expiring::has_ended(c, now_ms))? {
            self.write(|tx| expiring::prune(tx, now_ms))
        } else {
            Ok(0)
        }
    }
}
