//! The login's cookie. `__Host-`: browsers take it over TLS only, for this host only, and nobody else can set it.
//!
//! It has no lifetime of its own: the browser forgets it when it is closed, the server when it was not used
//! for [`crate::auth::WEB_LOGIN_MS`].

use axum::http::{HeaderMap, HeaderValue, header};

pub(super) const NAME: &str = "__Host-holdfast";

const FLAGS: &str = "; Path=/; Secure; HttpOnly; SameSite=Strict";

/// Its value in a request, if there is one.
pub(super) fn read(headers: &HeaderMap) -> Option<String> {
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, _)| *name == NAME)
        .map(|(_, value)| value.to_owned())
}

/// `Set-Cookie` with `value`, which is hexadecimal.
pub(super) fn set(value: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{NAME}={value}{FLAGS}")).ok()
}

/// `Set-Cookie` that makes the browser forget it.
pub(super) fn clear() -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("{NAME}={FLAGS}; Max-Age=0")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_among_others() {
        let headers =
            |text: &'static str| HeaderMap::from_iter([(header::COOKIE, HeaderValue::from_static(text))]);
        assert_eq!(read(&headers("a=b; __Host-holdfast=12ab;c=d")).as_deref(), Some("12ab"));
        assert_eq!(read(&headers("holdfast=1; x__Host-holdfast=2")), None);
        assert_eq!(read(&HeaderMap::new()), None);
    }

    #[test]
    fn flags_keep_it_from_scripts_and_other_sites() {
        for value in [set("12ab").unwrap(), clear().unwrap()] {
            let text = value.to_str().unwrap().to_owned();
            for flag in ["__Host-holdfast=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                assert!(text.contains(flag), "{text}");
            }
            assert!(!text.contains("Domain"), "{text}");
        }
    }
}
