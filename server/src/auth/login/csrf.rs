//! Keeps other sites from using a login by cross-site request forgery (H3).
//!
//! A browser adds a cookie to a request whatever page caused it. So a request that may change something must come
//! from this server's own pages, which browsers say in [`SITE_HEADER`], and repeat the login's CSRF token in
//! [`TOKEN_HEADER`], which no other site can read. A bearer token is never sent by a browser on its own, so it
//! needs neither.

use aws_lc_rs::constant_time;
use holdfast_proto::ErrorCode;

use super::WebLogin;
use crate::error::ServiceError;

/// The header that repeats a login's CSRF token.
pub(crate) const TOKEN_HEADER: &str = "x-csrf-token";

/// The header in which browsers say which site caused a request.
pub(crate) const SITE_HEADER: &str = "sec-fetch-site";

/// Checks a request that came with a cookie and may change something, by the values of its two headers.
///
/// # Errors
/// `Forbidden` when another site caused it, or the token is missing or another login's.
pub(crate) fn check(login: &WebLogin, site: Option<&[u8]>, token: Option<&[u8]>) -> Result<(), ServiceError> {
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

#[cfg(test)]
mod tests {
    use holdfast_engine::ids::TokenId;

    use super::*;

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
            let checked = check(&login, site.map(str::as_bytes), token.map(str::as_bytes));
            assert_eq!(checked.is_ok(), passes, "{site:?} {token:?}");
            assert!(checked.is_ok() || checked.unwrap_err().code == ErrorCode::Forbidden);
        }
    }

    #[test]
    fn a_login_does_not_print_its_secrets() {
        let text = format!("{:?}", login("12ab"));
        assert!(!text.contains("12ab") && !text.contains("1, 1"), "{text}");
    }
}
