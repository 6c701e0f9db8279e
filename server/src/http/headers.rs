//! Headers that every answer has, whatever it is.
//!
//! | header | because |
//! |---|---|
//! | Content-Security-Policy | scripts, styles and data come from this server only; nothing inline, no frames |
//! | X-Content-Type-Options | a downloaded table must not be taken for a page |
//! | Referrer-Policy, Cross-Origin-* | names of VMs in URLs are not told to other sites |
//! | Permissions-Policy | none of these features is needed |
//! | Strict-Transport-Security | only with a certificate the administrator provided. With a self-signed one a browser ignores it at best; at worst (once the certificate was trusted by hand) it removes the button to continue when the certificate changes |
//! | Cache-Control | `no-store` unless the answer says otherwise: the API's answers are for one person at one time |

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::error::ServiceError;

const ALWAYS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
             font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static(
            "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
        ),
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
];

/// A year, in seconds.
const STRICT: HeaderValue = HeaderValue::from_static("max-age=31536000");

/// Adds them. `strict_transport`: the certificate is one that browsers trust.
pub(super) fn add(headers: &mut HeaderMap, strict_transport: bool) {
    for (name, value) in ALWAYS {
        headers.insert(name, value);
    }
    if strict_transport {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, STRICT);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// The value of a header, from text of this program itself.
///
/// # Errors
/// `Internal` when it contains characters that no header may contain.
pub(super) fn value(text: &str) -> Result<HeaderValue, ServiceError> {
    HeaderValue::from_str(text)
        .map_err(|_| ServiceError::defect(format!("{text:?} cannot be a header's value")))
}
