//! A small HTTPS client, like a script with `curl`.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::Server;

/// Answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names are in lower case.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as text.
    ///
    /// # Panics
    /// When it is not text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("the body is text")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }
}

/// Sends `GET path` to a server, trusting its own certificate.
///
/// # Panics
/// When the answer is incomplete.
pub fn get(server: &Server, path: &str, token: &str) -> Answer {
    try_get(server, path, token).expect("a whole answer")
}

/// Same as [`get`]; `None` if the server ends meanwhile.
pub fn try_get(server: &Server, path: &str, token: &str) -> Option<Answer> {
    let authorization = format!("Authorization: Bearer {token}\r\n");
    ask(server, &format!("GET {path} HTTP/1.1\r\n{authorization}"), "")
}

/// Sends `POST path` with a JSON body.
///
/// # Panics
/// When the answer is incomplete.
pub fn post(server: &Server, path: &str, token: &str, body: &Value) -> Answer {
    try_post(server, path, token, body).expect("a whole answer")
}

/// Same as [`post`]; `None` if the server ends meanwhile.
pub fn try_post(server: &Server, path: &str, token: &str, body: &Value) -> Option<Answer> {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n",
        body.len()
    );
    ask(server, &head, &body)
}

fn ask(server: &Server, head: &str, body: &str) -> Option<Answer> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(server.data_dir().join("tls/cert.pem"));
    roots.add(certificate.expect("the server leaves its certificate")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a configuration that works");
    let tcp = TcpStream::connect(server.https()).ok()?;
    let mut stream = StreamOwned::new(tls, tcp);
    let request = format!("{head}Host: localhost\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).ok()?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).ok()?;
    Some(parse(&bytes))
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
    let (head, body) = bytes.split_at(end);
    let head = std::str::from_utf8(head).expect("a head of text");
    let body = body.get(4..).unwrap_or_default();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|text| text.parse().ok());
    let headers: HashMap<String, String> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let chunked = headers.get("transfer-encoding").is_some_and(|how| how == "chunked");
    let body = if chunked { unchunk(body) } else { body.to_vec() };
    Answer { status: status.expect("a status"), headers, body }
}

/// Decodes a chunked body. The last chunk is empty; a truncated answer has none.
fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk's length");
        let (length, after) = rest.split_at(end);
        let length = std::str::from_utf8(length).ok().and_then(|text| usize::from_str_radix(text, 16).ok());
        let length = length.expect("a chunk's length");
        if length == 0 {
            return body;
        }
        body.extend_from_slice(after.get(2..2 + length).expect("a whole chunk"));
        rest = after.get(4 + length..).expect("a chunk after the chunk");
    }
}
