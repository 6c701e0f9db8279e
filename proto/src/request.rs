//! A client's own name for what it is doing, so that a line in its log and one in the server's can be told to
//! belong together. Carried by every call of one command; means nothing else.

/// Header (metadata key of gRPC) that carries it.
pub const REQUEST_METADATA: &str = "holdfast-request";

/// Longest request id a server takes.
pub const REQUEST_ID_MAX_BYTES: usize = 64;

/// Returns true if `text` may be a request id: 1 to [`REQUEST_ID_MAX_BYTES`] ASCII letters, digits and hyphens, so that
/// it can be put into any log as it is.
pub fn is_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_MAX_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// The request id that a header carries, if it may be logged.
pub fn request_id(value: Option<&[u8]>) -> Option<&str> {
    value.and_then(|value| std::str::from_utf8(value).ok()).filter(|text| is_request_id(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fits_any_log_is_one() {
        assert!(is_request_id("0123456789abcdef-XYZ"));
        assert_eq!((request_id(Some(b"abc-1")), request_id(None)), (Some("abc-1"), None));
        assert_eq!(request_id(Some(&[0xff])), None);
        for bad in ["", "a b", "a\nb", "a\"b", "é", &"x".repeat(REQUEST_ID_MAX_BYTES + 1)] {
            assert!(!is_request_id(bad), "{bad:?}");
            assert_eq!(request_id(Some(bad.as_bytes())), None);
        }
    }
}
