//! The login's cookie, as headers carry it. `__Host-`: browsers accept it over TLS and for this host only, and
//! no other host can set it.
//!
//! It has no lifetime of its own: the browser forgets it when it is closed, the server when it was not used for
//! [`LOGIN_MS`](super::LOGIN_MS).

use super::Cookie;

/// Its name.
pub(crate) const NAME: &str = "__Host-holdfast";

const FLAGS: &str = "; Path=/; Secure; HttpOnly; SameSite=Strict";

/// Its value in the `Cookie` headers of a request, if it is in one.
pub(crate) fn read<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    headers
        .into_iter()
        .flat_map(|cookies| cookies.split(';'))
        .filter_map(|cookie| cookie.trim().split_once('='))
        .find(|(name, _)| *name == NAME)
        .map(|(_, value)| value)
}

/// The `Set-Cookie` header that gives it to a browser.
pub(crate) fn set(cookie: &Cookie) -> String {
    format!("{NAME}={}{FLAGS}", cookie.as_str())
}

/// The `Set-Cookie` header that makes the browser forget it.
pub(crate) fn clear() -> String {
    format!("{NAME}={FLAGS}; Max-Age=0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_among_others() {
        assert_eq!(read(["a=b; __Host-holdfast=12ab;c=d"]), Some("12ab"));
        assert_eq!(read(["a=b", "__Host-holdfast=12ab"]), Some("12ab"), "browsers may split the header");
        assert_eq!(read(["holdfast=1; x__Host-holdfast=2"]), None);
        assert_eq!(read([]), None);
    }

    #[test]
    fn flags_keep_it_from_scripts_and_other_sites() {
        for text in [set(&Cookie("12ab".into())), clear()] {
            for flag in ["__Host-holdfast=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
                assert!(text.contains(flag), "{text}");
            }
            assert!(!text.contains("Domain"), "{text}");
        }
    }
}
