//! Address of a server: `https://host:port`, `host:port` or `host`.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Port of the gRPC service unless the address names one.
pub const DEFAULT_PORT: u16 = 7440;

/// A server's host and port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServerAddress {
    host: String,
    port: u16,
}

impl ServerAddress {
    /// From a host name or an IP address, without brackets, and a TCP port.
    ///
    /// # Errors
    /// [`NotAnAddress`].
    pub fn new(host: &str, port: u16) -> Result<Self, NotAnAddress> {
        let bracketed =
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        bracketed.parse()
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port.
    pub const fn port(&self) -> u16 {
        self.port
    }
}

impl Default for ServerAddress {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: DEFAULT_PORT }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = NotAnAddress;

    fn try_from(text: String) -> Result<Self, NotAnAddress> {
        text.parse()
    }
}

impl From<ServerAddress> for String {
    fn from(address: ServerAddress) -> Self {
        address.to_string()
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

/// The text is not a server address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a server address ({why}); write host:port or https://host:port")]
pub struct NotAnAddress {
    text: String,
    why: &'static str,
}

impl FromStr for ServerAddress {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let wrong = |why| NotAnAddress { text: text.to_owned(), why };
        let trimmed = text.trim();
        if trimmed.starts_with("http://") {
            return Err(wrong("Holdfast always uses TLS"));
        }
        let rest = trimmed.strip_prefix("https://").unwrap_or(trimmed);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains(['/', '?', '#', '@']) || rest.chars().any(char::is_whitespace) {
            return Err(wrong("it is more than a host and a port"));
        }
        let (host, port) = if let Some(bracketed) = rest.strip_prefix('[') {
            let (host, after) =
                bracketed.split_once(']').ok_or_else(|| wrong("the bracket is not closed"))?;
            (host, after.strip_prefix(':').filter(|_| !after.is_empty()))
        } else {
            match rest.split_once(':') {
                Some((_, port)) if port.contains(':') => (rest, None),
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            }
        };
        if host.is_empty() {
            return Err(wrong("the host is missing"));
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => match port.parse() {
                Ok(0) | Err(_) => return Err(wrong("the port is not a number from 1 to 65535")),
                Ok(port) => port,
            },
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_and_print() {
        for (text, printed) in [
            ("backup.example", "backup.example:7440"),
            ("https://backup.example:1234/", "backup.example:1234"),
            ("10.0.0.1:7440", "10.0.0.1:7440"),
            ("[::1]:99", "[::1]:99"),
            ("::1", "[::1]:7440"),
            ("[fe80::1]", "[fe80::1]:7440"),
        ] {
            assert_eq!(text.parse::<ServerAddress>().unwrap().to_string(), printed, "{text}");
        }
        for bad in ["", ":7440", "http://x", "x:0", "x:70000", "x:y", "https://x/path", "[::1", "a b", "u@h"]
        {
            assert!(bad.parse::<ServerAddress>().is_err(), "{bad}");
        }
    }
}
