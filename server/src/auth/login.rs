//! Logins of people: a token exchanged for a cookie that a browser keeps.
//!
//! The cookie is 256 random bits; the catalog keeps its SHA-256, so that reading the catalog is not enough to use
//! it. A login ends [`LOGIN_MS`] after its last use, with its token (H3), or when its owner logs out.

use std::net::SocketAddr;

use aws_lc_rs::{constant_time, digest, rand};
use holdfast_engine::catalog::{AuditEntry, AuditRepeat, Catalog, ExpiringRecord};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;

use crate::auth::{Authenticator, Caller, REFUSED, peer_text};
use crate::error::ServiceError;

/// A login that is not used for this long ends: a working day.
pub const LOGIN_MS: i64 = 12 * 3_600_000;

/// Shortest interval at which a login's end is moved: one row is written every few minutes, not with every request.
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
    /// The CSRF token. It must accompany every request that changes something, see `check_csrf`.
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
        create(&self.catalog, &login, now_ms)?;
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
        let mut login = find(&self.catalog, &key, now_ms)?.ok_or_else(ended)?;
        let token = self.catalog.token(login.token)?.map(|(token, _)| token);
        let token = token.filter(|token| token.is_usable(now_ms)).ok_or_else(ended)?;
        let end_ms = now_ms.saturating_add(LOGIN_MS);
        let due = end_ms.saturating_sub(login.expires_ms) >= SLIDE_MS;
        if let Some(_turn) = due.then(|| self.recording.try_acquire().ok()).flatten() {
            match extend(&self.catalog, &key, end_ms) {
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
        delete(&self.catalog, &login.key)?;
        self.audit_login("logout", caller)
    }

    /// Removes logins that have ended. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(crate) fn forget_ended_logins(&self) -> Result<(), ServiceError> {
        prune(&self.catalog, self.clock.now_ms())
    }

    /// Returns true if the login of this key has not ended. Says nothing about its token. Blocks.
    ///
    /// # Errors
    /// The catalog's errors.
    pub(super) fn login_lasts(&self, key: &LoginKey) -> Result<bool, ServiceError> {
        Ok(find(&self.catalog, key, self.clock.now_ms())?.is_some())
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

/// Name of the login's cookie. `__Host-`: browsers accept it over TLS and for this host only, and no other host can set it.
///
/// It has no lifetime of its own: the browser forgets it when it is closed, the server when it was not used for
/// [`LOGIN_MS`].
pub(crate) const COOKIE_NAME: &str = "__Host-holdfast";

const FLAGS: &str = "; Path=/; Secure; HttpOnly; SameSite=Strict";

/// Value of the cookie in the `Cookie` headers of a request, if it is in one.
pub(crate) fn read_cookie<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    headers
        .into_iter()
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, _)| *name == COOKIE_NAME)
        .map(|(_, value)| value)
}

/// The `Set-Cookie` header that gives it to a browser.
pub(crate) fn set_cookie(cookie: &Cookie) -> String {
    format!("{COOKIE_NAME}={}{FLAGS}", cookie.as_str())
}

/// The `Set-Cookie` header that makes the browser forget it.
pub(crate) fn clear_cookie() -> String {
    format!("{COOKIE_NAME}={FLAGS}; Max-Age=0")
}

/// The header that repeats a login's CSRF token.
pub(crate) const TOKEN_HEADER: &str = "x-csrf-token";

/// The header in which browsers say which site caused a request.
pub(crate) const SITE_HEADER: &str = "sec-fetch-site";

/// Keeps other sites from using a login by cross-site request forgery (H3): checks a request that came with a cookie and may
/// change something, by the values of its two headers.
///
/// A browser adds a cookie to a request whatever page caused it. So a request that may change something must come
/// from this server's own pages, which browsers say in [`SITE_HEADER`], and repeat the login's CSRF token in
/// [`TOKEN_HEADER`], which no other site can read. A bearer token is never sent by a browser on its own, so it
/// needs neither.
///
/// # Errors
/// `Forbidden` when another site caused it, or the token is missing or another login's.
pub(crate) fn check_csrf(
    login: &WebLogin,
    site: Option<&[u8]>,
    token: Option<&[u8]>,
) -> Result<(), ServiceError> {
    check_site(site)?;
    if constant_time::verify_slices_are_equal(token.unwrap_or(b""), login.csrf.as_bytes()).is_ok() {
        return Ok(());
    }
    Err(ServiceError::new(
        ErrorCode::Forbidden,
        format!(
            "a request with a cookie that changes something needs the login's CSRF token in the header \
             {TOKEN_HEADER}; 'csrf' in the answer of GET /api/v1/session is this token"
        ),
    ))
}

/// Refuses what another site made a browser send, by the value of [`SITE_HEADER`]. Clients that are not browsers
/// do not send it.
///
/// # Errors
/// `Forbidden`.
pub(crate) fn check_site(site: Option<&[u8]>) -> Result<(), ServiceError> {
    match site {
        None | Some(b"same-origin" | b"none") => Ok(()),
        Some(_) => Err(ServiceError::new(
            ErrorCode::Forbidden,
            "this request was caused by another site; use this server's own pages",
        )),
    }
}

/// Creates the catalog's record of a login: one that expires, with the hash of the cookie as its hash and the CSRF token as
/// its payload. No other file of the server knows its form.
fn create(catalog: &Catalog, login: &WebLogin, now_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.create_expiring(&ExpiringRecord {
        id_hash: login.key,
        token: login.token,
        payload: login.csrf.clone(),
        created_ms: now_ms,
        expires_ms: login.expires_ms,
    })?)
}

/// The login of that key, unless it ended.
fn find(catalog: &Catalog, key: &LoginKey, now_ms: i64) -> Result<Option<WebLogin>, ServiceError> {
    let found = catalog.expiring(key)?.filter(|record| now_ms < record.expires_ms);
    Ok(found.map(|record| WebLogin {
        key: record.id_hash,
        token: record.token,
        csrf: record.payload,
        expires_ms: record.expires_ms,
    }))
}

fn extend(catalog: &Catalog, key: &LoginKey, expires_ms: i64) -> Result<(), ServiceError> {
    Ok(catalog.extend_expiring(key, expires_ms)?)
}

fn delete(catalog: &Catalog, key: &LoginKey) -> Result<(), ServiceError> {
    Ok(catalog.delete_expiring(key)?)
}

fn prune(catalog: &Catalog, now_ms: i64) -> Result<(), ServiceError> {
    catalog.prune_expiring(now_ms)?;
    Ok(())
}

/// Bytes of a cookie and of a CSRF token.
const SECRET_BYTES: usize = 32;

/// A random value. It has no `Debug`.
struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// `Internal` when the operating system provides no random numbers.
    fn random() -> Result<Self, ServiceError> {
        let mut bytes = [0; SECRET_BYTES];
        rand::fill(&mut bytes).map_err(|_| {
            ServiceError::new(ErrorCode::Internal, "the operating system provides no random numbers")
        })?;
        Ok(Self(bytes))
    }

    /// The SHA-256 of it.
    fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        hash
    }

    /// In lower-case hexadecimal.
    fn hex(&self) -> String {
        use std::fmt::Write as _;
        self.0.iter().fold(String::with_capacity(2 * SECRET_BYTES), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Reads [`Secret::hex`]; lower case only.
    fn from_hex(text: &str) -> Option<Self> {
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
        Some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_among_others() {
        assert_eq!(read_cookie(["a=b; __Host-holdfast=12ab;c=d"]), Some("12ab"));
        assert_eq!(
            read_cookie(["a=b", "__Host-holdfast=12ab"]),
            Some("12ab"),
            "browsers may split the header"
        );
        assert_eq!(read_cookie(["holdfast=1; x__Host-holdfast=2"]), None);
        assert_eq!(read_cookie([]), None);
    }

    #[test]
    fn flags_keep_it_from_scripts_and_other_sites() {
        for text in [set_cookie(&Cookie("12ab".into())), clear_cookie()] {
            for flag in ["__Host-holdfast=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                assert!(text.contains(flag), "{text}");
            }
            assert!(!text.contains("Domain"), "{text}");
        }
    }

    fn login(csrf: &str) -> WebLogin {
        WebLogin { key: [1; 32], token: TokenId::from_bytes([2; 16]), csrf: csrf.into(), expires_ms: 3 }
    }

    #[test]
    fn only_our_own_pages_with_the_token_pass() {
        let login = login("12ab");
        for (site, token, passes) in [
            (None, Some("12ab"), true),
            (Some("same-origin"), Some("12ab"), true),
            (Some("none"), Some("12ab"), true),
            (Some("same-site"), Some("12ab"), false),
            (Some("cross-site"), Some("12ab"), false),
            (Some("same-origin"), Some("12aB"), false),
            (Some("same-origin"), Some("12a"), false),
            (Some("same-origin"), Some(""), false),
            (Some("same-origin"), None, false),
        ] {
            let checked = check_csrf(&login, site.map(str::as_bytes), token.map(str::as_bytes));
            assert_eq!(checked.is_ok(), passes, "{site:?} {token:?}");
            assert!(checked.is_ok() || checked.unwrap_err().code == ErrorCode::Forbidden);
        }
    }

    #[test]
    fn a_login_does_not_print_its_secrets() {
        let text = format!("{:?}", login("12ab"));
        assert!(!text.contains("12ab") && !text.contains("1, 1"), "{text}");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let secret = Secret(std::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        let text = secret.hex();
        assert!(text.starts_with("000810") && text.len() == 64, "{text}");
        assert_eq!(Secret::from_hex(&text).unwrap().0, secret.0);
        for bad in ["", &text[1..], &text[2..], &format!("{text}00"), &text.to_uppercase(), &"g".repeat(64)] {
            assert!(Secret::from_hex(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_two_are_alike() {
        let (one, two) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one.hex(), two.hex());
        assert_ne!(one.hash(), two.hash());
    }
}
