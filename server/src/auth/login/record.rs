//! What the catalog keeps of a login: one record that expires, under the hash of the cookie. No other file of the
//! server knows its form.

use holdfast_engine::catalog::{Catalog, WebSession};

use super::{LoginKey, WebLogin};
use crate::error::ServiceError;

pub(super) fn create(catalog: &dyn Catalog, login: &WebLogin, now_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.create_web_session(&WebSession {
        id_hash: login.key,
        token: login.token,
        csrf: login.csrf.clone(),
        created_ms: now_ms,
        expires_ms: login.expires_ms,
    })?)
}

/// The login of that key, unless it ended.
pub(super) fn find(
    catalog: &dyn Catalog,
    key: &LoginKey,
    now_ms: i64,
) -> Result<Option<WebLogin>, ServiceError> {
    let found = catalog.web_session(key)?.filter(|session| now_ms < session.expires_ms);
    Ok(found.map(|session| WebLogin {
        key: session.id_hash,
        token: session.token,
        csrf: session.csrf,
        expires_ms: session.expires_ms,
    }))
}

pub(super) fn extend(catalog: &dyn Catalog, key: &LoginKey, expires_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.extend_web_session(key, expires_ms)?)
}

pub(super) fn delete(catalog: &dyn Catalog, key: &LoginKey) -> Result<(), ServiceError> {
    Ok(catalog.delete_web_session(key)?)
}

pub(super) fn prune(catalog: &dyn Catalog, now_ms: i64) -> Result<(), ServiceError> {
    catalog.prune_web_sessions(now_ms)?;
    Ok(())
}
