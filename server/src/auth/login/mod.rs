//! Logins of people: a token exchanged for a cookie that a browser keeps.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | how a login begins, is used and ends |
//! | `cookie` | how the cookie is written and read |
//! | `csrf` | what keeps other sites from using it |
//! | `record` | what the catalog keeps of a login |
//! | `secret` | random values, their text and their hash |
//!
//! The cookie is 256 random bits; the catalog keeps its SHA-256, so that reading the catalog is not enough to use
//! it. A login ends [`LOGIN_MS`] after its last use, with its token (H3), or when its owner logs out.

pub(crate) mod cookie;
pub(crate) mod csrf;
mod record;
mod secret;

use std::net::SocketAddr;

use holdfast_engine::catalog::{AuditEntry, AuditRepeat};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;

use super::{Authenticator, Caller, REFUSED, peer_text};
use crate::error::ServiceError;
use secret::Secret;

/// A login that is not used for this long ends: a working day.
pub const LOGIN_MS: i64 = 12 * 3_600_000;

/// Its end is moved at most this often: one row is written every few minutes, not with every request.
const SLIDE_MS: i64 = 5 * 60_000;

/// Names a login without giving it away: the hash of its cookie.
pub(crate) type LoginKey = [u8; 32];

/// A person's login.
#[derive(Clone)]
pub struct WebLogin {
    key: LoginKey,
    token: TokenId,
    csrf: String,
    expires_ms: i64,
}

impl std::fmt::Debug for WebLogin {
    /// Without its secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WebLogin({}, until {}, …)", self.token, self.expires_ms)
    }
}

/// A cookie's value, which only its browser knows. `Debug` hides it.
pub struct Cookie(String);

impl Cookie {
    /// The value, hexadecimal.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie(…)")
    }
}

impl WebLogin {
    /// What must accompany every request that changes something; the rules are in `csrf.rs`.
    pub fn csrf(&self) -> &str {
        &self.csrf
    }

    /// When it ends unless it is used again.
    pub const fn expires_ms(&self) -> i64 {
        self.expires_ms
    }

    pub(crate) const fn key(&self) -> LoginKey {
        self.key
    }
}

impl Authenticator {
    /// Logs a caller in who has just shown their token. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub fn log_in(&self, caller: &Caller) -> Result<(WebLogin, Cookie), ServiceError> {
        let (cookie, csrf) = (Secret::random()?, Secret::random()?);
        let now_ms = self.clock.now_ms();
        let login = WebLogin {
            key: cookie.hash(),
            token: caller.token.id,
            csrf: csrf.hex(),
            expires_ms: now_ms.saturating_add(LOGIN_MS),
        };
        record::create(&*self.catalog, &login, now_ms)?;
        self.audit_login("login", caller)?;
        Ok((login, Cookie(cookie.hex())))
    }

    /// The caller behind a cookie's value. Blocks.
    ///
    /// # Errors
    /// `Unauthenticated` when it is not the value of a cookie, or its login or token ended; the catalog's errors.
    pub fn authenticate_cookie(
        &self,
        cookie: &str,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, WebLogin), ServiceError> {
        let ended = || ServiceError::new(ErrorCode::Unauthenticated, REFUSED);
        let key = Secret::from_hex(cookie).ok_or_else(ended)?.hash();
        let now_ms = self.clock.now_ms();
        let mut login = record::find(&*self.catalog, &key, now_ms)?.ok_or_else(ended)?;
        let token = self.catalog.token(login.token)?.map(|(token, _)| token);
        let token = token.filter(|token| token.is_usable(now_ms)).ok_or_else(ended)?;
        let end_ms = now_ms.saturating_add(LOGIN_MS);
        let due = end_ms.saturating_sub(login.expires_ms) >= SLIDE_MS;
        if let Some(_turn) = due.then(|| self.recording.try_acquire().ok()).flatten() {
            match record::extend(&*self.catalog, &key, end_ms) {
                Ok(()) => login.expires_ms = end_ms,
                // As for a token's last use: reading goes on when nothing can be written.
                Err(error) => tracing::debug!(%error, "cannot extend a login"),
            }
        }
        self.touch(&token);
        Ok((Caller::new(token, peer), login))
    }

    /// Ends a login. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub fn log_out(&self, caller: &Caller, login: &WebLogin) -> Result<(), ServiceError> {
        record::delete(&*self.catalog, &login.key)?;
        self.audit_login("logout", caller)
    }

    /// Removes logins that have ended. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(crate) fn forget_ended_logins(&self) -> Result<(), ServiceError> {
        record::prune(&*self.catalog, self.clock.now_ms())
    }

    /// Whether the login of this key has not ended. Says nothing about its token. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(super) fn login_lasts(&self, key: &LoginKey) -> Result<bool, ServiceError> {
        Ok(record::find(&*self.catalog, key, self.clock.now_ms())?.is_some())
    }

    fn audit_login(&self, action: &str, caller: &Caller) -> Result<(), ServiceError> {
        let from = peer_text(caller.peer);
        let entry = AuditEntry {
            who: caller.token.name.clone(),
            action: action.to_owned(),
            object: caller.token.id.to_string(),
            detail: format!("web, from {from}"),
        };
        // A script may log in as often as it likes.
        Ok(self.catalog.audit_repeats(&[AuditRepeat::once(entry, from, self.clock.now_ms())])?)
    }
}
