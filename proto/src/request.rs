//! A client's own name for what it is doing, so that a line in its log and one in the server's can be told to
//! belong together. Carried by every call of one command; means nothing else.

/// gRPC metadata key that carries it.
pub const REQUEST_METADATA: &str = "holdfast-request";

/// Longest request id a server takes.
pub const REQUEST_ID_MAX_BYTES: usize = 64;

/// Whether `text` may be a request id: 1 to [`REQUEST_ID_MAX_BYTES`] ASCII letters, digits and hyphens, so that
/// it can be put into any log as it is.
pub fn is_request_id(text: &str) -> bool {
    (1..=REQUEST_ID_MAX_BYTES).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_fits_any_log_is_one() {
        assert!(is_request_id("0123456789abcdef-XYZ"));
        for bad in ["", "a b", "a\nb", "a\"b", "é", &"x".repeat(REQUEST_ID_MAX_BYTES + 1)] {
            assert!(!is_request_id(bad), "{bad:?}");
        }
    }
}
