//! A peer that speaks HTTP/2 frame by frame, without the safeguards of a library: it opens streams, ignores windows if
//! told to, and reads only when a test says so.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::Server;

/// An encrypted connection.
pub type Tls = StreamOwned<ClientConnection, TcpStream>;

/// Types of frames.
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const CONTINUATION: u8 = 9;

/// Flags of frames.
pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;
const ACK: u8 = 1;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The setting for the number of bytes of an answer that the server may send without a window update.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A frame from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// Returns true if it ends the answer on `stream`, in success or failure.
    pub fn ends(&self, stream: u32) -> bool {
        let ended = self.kind == RST_STREAM || self.kind == HEADERS && self.flags & END_STREAM != 0;
        self.stream == stream && ended
    }
}

/// Connects to `address` of a server and shakes hands, offering `protocol`.
///
/// # Panics
/// When that fails.
pub fn connect(server: &Server, address: &str, protocol: &str) -> Tls {
    try_connect(server, address, protocol).expect("the server shakes hands")
}

/// Connects to `address` of a server and shakes hands, offering `protocol`.
///
/// # Errors
/// When that fails.
///
/// # Panics
/// When the server has no certificate.
pub fn try_connect(server: &Server, address: &str, protocol: &str) -> io::Result<Tls> {
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(server.data_dir().join("tls/cert.pem"));
    roots.add(certificate.expect("the server leaves its certificate")).expect("a certificate");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = ClientConnection::new(Arc::new(config), name).expect("a configuration that works");
    let mut stream = StreamOwned::new(tls, TcpStream::connect(address)?);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// A connection over HTTP/2.
#[derive(Debug)]
pub struct Http2 {
    pub stream: Tls,
    next: u32,
}

impl Http2 {
    /// Connects to a server's gRPC address. `window`: bytes of each answer that the server may send.
    ///
    /// # Panics
    /// When that fails.
    pub fn connect(server: &Server, window: u32) -> Self {
        let stream = connect(server, server.grpc(), "h2");
        let mut http2 = Self { stream, next: 1 };
        http2.stream.write_all(PREFACE).expect("the server reads");
        let mut settings = INITIAL_WINDOW_SIZE.to_be_bytes().to_vec();
        settings.extend(window.to_be_bytes());
        http2.send(SETTINGS, 0, 0, &settings).expect("the server reads");
        http2
    }

    /// Sends one frame.
    ///
    /// # Errors
    /// When the connection is closed, or blocks for longer than the socket's time limit.
    ///
    /// # Panics
    /// When the payload is longer than a frame may be.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
        let mut frame = length.get(1..).expect("four bytes").to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame)?;
        self.stream.flush()
    }

    /// Starts a call of a method such as `Backup/Hello`; returns its stream.
    ///
    /// # Errors
    /// When the connection is closed.
    pub fn call(&mut self, method: &str, token: &str) -> io::Result<u32> {
        let path = format!("/holdfast.v1.{method}");
        let bearer = format!("Bearer {token}");
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "https"),
            (":path", path.as_str()),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("holdfast-protocol", "1"),
        ];
        if !token.is_empty() {
            fields.push(("authorization", bearer.as_str()));
        }
        let stream = self.next;
        self.next += 2;
        self.send(HEADERS, END_HEADERS, stream, &fields_block(&fields))?;
        Ok(stream)
    }

    /// Returns the next frame of the server; `None` when it closed the connection. Pings are answered: a stalling peer
    /// still looks alive.
    ///
    /// # Panics
    /// When nothing comes within `patience`.
    pub fn read(&mut self, patience: Duration) -> Option<Frame> {
        let frame = self.next_frame(patience)?;
        if frame.kind == PING && frame.flags & ACK == 0 {
            // Fails when the connection is closed, which the next read detects.
            drop(self.send(PING, ACK, 0, &frame.payload));
        }
        Some(frame)
    }

    fn next_frame(&mut self, patience: Duration) -> Option<Frame> {
        self.stream.sock.set_read_timeout(Some(patience)).expect("a socket");
        let mut head = [0; 9];
        if !self.fill(&mut head, patience) {
            return None;
        }
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        if !self.fill(&mut payload, patience) {
            return None;
        }
        let stream = u32::from_be_bytes([stream[0], stream[1], stream[2], stream[3]]);
        Some(Frame { kind, flags, stream, payload })
    }

    /// Reads until the server closes the connection; panics when it does not within `patience`.
    pub fn read_to_end(&mut self, patience: Duration) {
        while self.read(patience).is_some() {}
    }

    fn fill(&mut self, bytes: &mut [u8], patience: Duration) -> bool {
        match self.stream.read_exact(bytes) {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the server neither answered nor closed the connection within {patience:?}")
            }
            Err(_) => false,
        }
    }
}

/// Encodes fields for HPACK, without compression.
pub fn fields_block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            text_into(&mut block, text);
        }
    }
    block
}

/// Encodes a text for HPACK, after its length.
fn text_into(block: &mut Vec<u8>, text: &str) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(u8::try_from(rest).expect("below 127"));
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(u8::try_from(rest % 128).expect("below 128") | 128);
            rest /= 128;
        }
        block.push(u8::try_from(rest).expect("below 128"));
    }
    block.extend(text.as_bytes());
}

/// A gRPC message with `length` in its header, true or not.
pub fn message(length: u32, bytes: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend(length.to_be_bytes());
    message.extend(bytes);
    message
}
