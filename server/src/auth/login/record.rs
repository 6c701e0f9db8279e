//! What the catalog keeps of a login: one record that expires, with the hash of the cookie as its hash and the CSRF
//! token as its payload. No other file of the server knows its form.

use holdfast_engine::catalog::{Catalog, ExpiringRecord};

use super::{LoginKey, WebLogin};
use crate::error::ServiceError;

pub(super) fn create(catalog: &Catalog, login: &WebLogin, now_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.create_expiring(&ExpiringRecord {
        id_hash: login.key,
        token: login.token,
        payload: login.csrf.clone(),
        created_ms: now_ms,
        expires_ms: login.expires_ms,
    })?)
}

/// The login of that key, unless it ended.
pub(super) fn find(catalog: &Catalog, key: &LoginKey, now_ms: i64) -> Result<Option<WebLogin>, ServiceError> {
    let found = catalog.expiring(key)?.filter(|record| now_ms < record.expires_ms);
    Ok(found.map(|record| WebLogin {
        key: record.id_hash,
        token: record.token,
        csrf: record.payload,
        expires_ms: record.expires_ms,
    }))
}

pub(super) fn extend(catalog: &Catalog, key: &LoginKey, expires_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.extend_expiring(key, expires_ms)?)
}

pub(super) fn delete(catalog: &Catalog, key: &LoginKey) -> Result<(), ServiceError> {
    Ok(catalog.delete_expiring(key)?)
}

pub(super) fn prune(catalog: &Catalog, now_ms: i64) -> Result<(), ServiceError> {
    catalog.prune_expiring(now_ms)?;
    Ok(())
}
