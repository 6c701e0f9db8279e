//! Addresses of exports, as <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/uri.md> has them.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use percent_encoding::percent_decode_str;

use crate::error::NbdError;
use crate::wire::TEXT_MAX;

/// TCP port of NBD servers unless the address names one.
pub const DEFAULT_PORT: u16 = 10809;

/// Beginnings of addresses: whether TLS is used, and whether over a Unix socket.
const SCHEMES: [(&str, bool, bool); 4] = [
    ("nbd://", false, false),
    ("nbds://", true, false),
    ("nbd+unix://", false, true),
    ("nbds+unix://", true, true),
];

/// Address of an export: `nbd://host:port/export`, `nbd+unix:///export?socket=PATH`, and `nbds` with TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(crate) transport: Transport,
    pub(crate) export: String,
    pub(crate) tls: Option<Tls>,
    text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    /// Folder with `ca-cert.pem`.
    pub(crate) certificates: PathBuf,
    /// Name that the server's certificate must be for.
    pub(crate) hostname: String,
}

impl Address {
    /// Returns true if a text begins as addresses do.
    pub fn begins(text: &[u8]) -> bool {
        SCHEMES.iter().any(|(scheme, ..)| text.starts_with(scheme.as_bytes()))
    }

    /// The default export behind a Unix socket.
    pub fn of_socket(path: &Path) -> Self {
        let text = format!("nbd+unix:///?socket={}", path.display());
        Self { transport: Transport::Unix(path.to_owned()), export: String::new(), tls: None, text }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Query parameters of an NBD address.
#[derive(Default)]
struct Parameters {
    socket: Option<PathBuf>,
    certificates: Option<PathBuf>,
    hostname: Option<String>,
}

impl FromStr for Address {
    type Err = NbdError;

    fn from_str(text: &str) -> Result<Self, NbdError> {
        let wrong = |why: &str| NbdError::Address { text: text.to_owned(), why: why.to_owned() };
        let (rest, tls, unix) = SCHEMES
            .iter()
            .find_map(|(scheme, tls, unix)| Some((text.strip_prefix(scheme)?, *tls, *unix)))
            .ok_or_else(|| wrong("it begins with none of nbd://, nbds://, nbd+unix:// and nbds+unix://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export).map_err(wrong)?;
        if export.len() > TEXT_MAX || export.contains('\0') {
            return Err(wrong("the export's name is too long, or contains a zero byte"));
        }
        let parameters = parameters(query).map_err(|why| wrong(&why))?;
        let transport = match (unix, parameters.socket) {
            (true, Some(path)) if authority.is_empty() => Transport::Unix(path),
            (true, Some(_)) => return Err(wrong("a Unix socket has no host: write three slashes")),
            (true, None) => return Err(wrong("add ?socket=PATH")),
            (false, Some(_)) => return Err(wrong("a socket needs nbd+unix://")),
            (false, None) => tcp(authority).map_err(wrong)?,
        };
        let host = match &transport {
            Transport::Tcp { host, .. } => Some(host.clone()),
            Transport::Unix(_) => None,
        };
        let tls = match (tls, parameters.certificates, parameters.hostname.or(host)) {
            (true, Some(certificates), Some(hostname)) => Some(Tls { certificates, hostname }),
            (true, None, _) => {
                return Err(wrong(
                    "add ?tls-certificates=FOLDER, which has ca-cert.pem, and client-cert.pem with \
                                  client-key.pem if the server asks for them",
                ));
            }
            (true, _, None) => {
                return Err(wrong("add tls-hostname=NAME, which the server's certificate is for"));
            }
            (false, None, _) => None,
            (false, Some(_), _) => return Err(wrong("certificates need nbds:// or nbds+unix://")),
        };
        Ok(Self { transport, export, tls, text: text.to_owned() })
    }
}

fn decoded(text: &str) -> Result<String, &'static str> {
    percent_decode_str(text).decode_utf8().map(Into::into).map_err(|_| "it is not valid UTF-8")
}

fn parameters(query: &str) -> Result<Parameters, String> {
    let mut found = Parameters::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let path = || PathBuf::from(OsString::from_vec(percent_decode_str(value).collect()));
        match key {
            "socket" => found.socket = Some(path()).filter(|path| !path.as_os_str().as_bytes().is_empty()),
            "tls-certificates" => found.certificates = Some(path()),
            "tls-hostname" => found.hostname = Some(decoded(value)?),
            "tls-type" if value == "x509" => {}
            "tls-verify-peer" if value == "1" => {}
            _ => return Err(format!("the parameter {pair} is not supported")),
        }
    }
    Ok(found)
}

fn tcp(authority: &str) -> Result<Transport, &'static str> {
    if authority.contains('@') {
        return Err("user names are not supported");
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or("the bracket is not closed")?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    if host.is_empty() {
        return Err("the host is missing");
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        port => port
            .and_then(|port| port.parse().ok())
            .filter(|port| *port > 0)
            .ok_or("the port is not a number")?,
    };
    Ok(Transport::Tcp { host: decoded(host)?, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        text.parse().map_err(|error: NbdError| error.to_string())
    }

    #[test]
    fn addresses_say_where_and_what() {
        let tcp = |host: &str, port| Transport::Tcp { host: host.into(), port };
        for (text, transport, export) in [
            ("nbd://example.com/disk", tcp("example.com", 10809), "disk"),
            ("nbd://example.com", tcp("example.com", 10809), ""),
            ("nbd://[::1]:99//disk", tcp("::1", 99), "/disk"),
            ("nbd://10.0.0.1:10810/hello%20world", tcp("10.0.0.1", 10810), "hello world"),
            ("nbd+unix:///disk?socket=/run/a%26b", Transport::Unix("/run/a&b".into()), "disk"),
        ] {
            let address = parse(text).unwrap();
            assert_eq!(
                (&address.transport, address.export.as_str(), &address.tls),
                (&transport, export, &None)
            );
            assert_eq!(address.to_string(), text);
            assert!(Address::begins(text.as_bytes()));
        }
        let tls = parse("nbds://host/e?tls-certificates=/pki&tls-type=x509&tls-verify-peer=1")
            .unwrap()
            .tls
            .unwrap();
        assert_eq!((tls.certificates.to_str(), tls.hostname.as_str()), (Some("/pki"), "host"));
        let tls = parse("nbds+unix:///?socket=s&tls-certificates=p&tls-hostname=name").unwrap().tls.unwrap();
        assert_eq!(tls.hostname, "name");
        assert!(!Address::begins(b"/dev/nbd0") && !Address::begins(b"./nbd://x"));
    }

    #[test]
    fn what_would_be_read_otherwise_than_meant_is_refused() {
        for (text, why) in [
            ("http://host/disk", "begins with none"),
            ("nbd:///disk", "host is missing"),
            ("nbd://user@host/disk", "user names"),
            ("nbd://host:0/disk", "port"),
            ("nbd://host:x/disk", "port"),
            ("nbd://[::1/disk", "bracket"),
            ("nbd://[::1]9/disk", "port"),
            ("nbd+unix:///disk", "add ?socket=PATH"),
            ("nbd+unix://host/disk?socket=s", "three slashes"),
            ("nbd://host/disk?socket=s", "nbd+unix"),
            ("nbds://host/disk", "tls-certificates"),
            ("nbds+unix:///?socket=s&tls-certificates=p", "tls-hostname"),
            ("nbd://host/disk?tls-certificates=p", "need nbds"),
            ("nbds://host/disk?tls-certificates=p&tls-verify-peer=0", "tls-verify-peer=0 is not supported"),
            ("nbd://host/%00", "zero byte"),
            ("nbd://host/%ff", "UTF-8"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why) && error.starts_with(text), "{text}: {error}");
        }
    }
}
