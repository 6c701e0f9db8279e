//! What is needed to reach a server.

use super::{RequestId, ServerAddress, Trust};
use crate::error::ClientError;

/// Everything needed to reach a server.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server: ServerAddress,
    pub trust: Trust,
    pub token: Token,
    /// Told to the server with every call, for its log.
    pub request: RequestId,
}

impl Settings {
    /// With a new request id.
    pub fn new(server: ServerAddress, trust: Trust, token: Token) -> Self {
        Self { server, trust, token, request: RequestId::random() }
    }
}

/// A bearer token. Its `Debug` form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// From text, without the white space around it.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when it is empty or has other characters than visible ASCII.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::Usage(
                "the token is empty or has characters that no token can have".to_owned(),
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}
