//! Logins of people: a token turned into a cookie that a browser keeps.
//!
//! The cookie is 256 random bits; the catalog keeps its SHA-256, so that who reads the catalog cannot use
//! it. A login ends [`WEB_LOGIN_MS`] after its last use, with its token (H3), or when its owner logs out.

use std::net::SocketAddr;

use aws_lc_rs::{constant_time, digest, rand};
use holdfast_engine::catalog::{AuditEntry, ExpiringRecord};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;

use super::{Authenticator, Caller, REFUSED};
use crate::error::ServiceError;

/// A login lasts so long without being used: a working day.
pub const WEB_LOGIN_MS: i64 = 12 * 3_600_000;

/// How often its end is moved at most: a row written every few minutes, not with every request.
const SLIDE_MS: i64 = 5 * 60_000;

/// Bytes of a cookie and of a CSRF token.
const SECRET_BYTES: usize = 32;

/// A person's login. The catalog keeps it as an expiring record of the token: the record's hash is the cookie's,
/// its payload the CSRF token.
#[derive(Debug, Clone)]
pub struct WebLogin(ExpiringRecord);

/// A cookie's value, known to its browser alone. `Debug` hides it.
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
    /// What must come with whatever changes something.
    pub fn csrf(&self) -> &str {
        &self.0.payload
    }

    /// Whether `given` is that, in constant time.
    pub(crate) fn csrf_matches(&self, given: &[u8]) -> bool {
        constant_time::verify_slices_are_equal(given, self.0.payload.as_bytes()).is_ok()
    }

    /// When it ends unless it is used again.
    pub const fn expires_ms(&self) -> i64 {
        self.0.expires_ms
    }

    /// Which login this is, for those who watch it.
    pub(crate) const fn key(&self) -> [u8; 32] {
        self.0.id_hash
    }
}

impl Authenticator {
    /// Logs the owner of a token in. Blocks.
    ///
    /// # Errors
    /// `Unauthenticated` as for every call; the catalog's errors.
    pub fn log_in(
        &self,
        token: &str,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, WebLogin, Cookie), ServiceError> {
        let caller = self.authenticate_token(Some(token.trim()), peer)?;
        let secret = random()?;
        let now_ms = self.clock.now_ms();
        let record = ExpiringRecord {
            id_hash: hash(&secret),
            token: caller.token.id,
            payload: hex(&random()?),
            created_ms: now_ms,
            expires_ms: now_ms.saturating_add(WEB_LOGIN_MS),
        };
        self.catalog.create_expiring(&record)?;
        self.audit_web("login", &caller)?;
        Ok((caller, WebLogin(record), Cookie(hex(&secret))))
    }

    /// The caller behind a cookie. Blocks.
    ///
    /// # Errors
    /// `Unauthenticated` when it is none, or its login or token ended; the catalog's errors.
    pub fn authenticate_web(
        &self,
        cookie: &str,
        peer: Option<SocketAddr>,
    ) -> Result<(Caller, WebLogin), ServiceError> {
        let ended = || ServiceError::new(ErrorCode::Unauthenticated, REFUSED);
        let id_hash = hash(&unhex(cookie).ok_or_else(ended)?);
        let now_ms = self.clock.now_ms();
        let record = self.catalog.expiring(&id_hash)?.filter(|record| now_ms < record.expires_ms);
        let mut record = record.ok_or_else(ended)?;
        let token = self.catalog.token(record.token)?.map(|(token, _)| token);
        let token = token.filter(|token| token.is_usable(now_ms)).ok_or_else(ended)?;
        let end_ms = now_ms.saturating_add(WEB_LOGIN_MS);
        if end_ms.saturating_sub(record.expires_ms) >= SLIDE_MS {
            match self.catalog.extend_expiring(&id_hash, end_ms) {
                Ok(()) => record.expires_ms = end_ms,
                // As for a token's last use: reading goes on when nothing can be written.
                Err(error) => tracing::debug!(%error, "cannot prolong a login"),
            }
        }
        self.touch(&token);
        Ok((Caller { token, peer }, WebLogin(record)))
    }

    /// Ends a login. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub fn log_out(&self, caller: &Caller, login: &WebLogin) -> Result<(), ServiceError> {
        self.catalog.delete_expiring(&login.0.id_hash)?;
        self.audit_web("logout", caller)
    }

    /// Whether the token, and the login when there is one, still hold. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(crate) fn still_holds(&self, token: TokenId, login: Option<&[u8; 32]>) -> Result<bool, ServiceError> {
        if let Some(key) = login {
            let now_ms = self.clock.now_ms();
            if self.catalog.expiring(key)?.is_none_or(|record| record.expires_ms <= now_ms) {
                return Ok(false);
            }
        }
        self.still_valid(token)
    }

    fn audit_web(&self, action: &str, caller: &Caller) -> Result<(), ServiceError> {
        let from = caller.peer.map_or_else(|| "an unknown address".to_owned(), |peer| peer.ip().to_string());
        self.catalog.audit(&AuditEntry {
            who: caller.token.name.clone(),
            action: action.to_owned(),
            object: caller.token.id.to_string(),
            detail: format!("web, from {from}"),
        })?;
        Ok(())
    }
}

fn random() -> Result<[u8; SECRET_BYTES], ServiceError> {
    let mut bytes = [0; SECRET_BYTES];
    rand::fill(&mut bytes).map_err(|_| {
        ServiceError::new(ErrorCode::Internal, "the operating system gives no random numbers")
    })?;
    Ok(bytes)
}

fn hash(secret: &[u8; SECRET_BYTES]) -> [u8; 32] {
    let mut hash = [0; 32];
    for (to, from) in hash.iter_mut().zip(digest::digest(&digest::SHA256, secret).as_ref()) {
        *to = *from;
    }
    hash
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lower case only, as [`hex`] writes it.
fn unhex(text: &str) -> Option<[u8; SECRET_BYTES]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != SECRET_BYTES || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; SECRET_BYTES];
    for (to, [high, low]) in bytes.iter_mut().zip(pairs) {
        *to = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}
