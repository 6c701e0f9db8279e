//! Identifies a command in its own log and in the server's.

use std::fmt;

/// A name for one command's calls, see [`holdfast_proto::request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A new, unique id.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // Without randomness no TLS connection can be made either, so the id does not matter then.
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// As it is sent to the server.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_servers_take_and_differ() {
        let (one, two) = (RequestId::random(), RequestId::random());
        assert!(holdfast_proto::request::is_request_id(one.as_str()), "{one}");
        assert_ne!(one, two);
    }
}
