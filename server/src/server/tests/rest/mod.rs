//! The REST API over real TLS.

mod agents;
mod contract;
mod details;
mod events;
mod findings;
mod join;
mod login;
mod matrix;
mod overviews;
mod plumbing;
mod slow;

use axum::http::{HeaderMap, Method, Request as HttpRequest, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;

use super::*;

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    async fn read(
        (method, path): (Method, String),
        response: hyper::Response<hyper::body::Incoming>,
    ) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        // A compressed body is not read here.
        let kind =
            headers.get(header::CONTENT_TYPE).filter(|_| !headers.contains_key(header::CONTENT_ENCODING));
        let kind = kind.map_or("", |kind| kind.to_str().unwrap());
        contract::check_answer((method.as_str(), &path), status, kind, &body);
        Self { status, headers, body }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The code of a refusal, whose form is checked as well.
    fn problem(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{self:?}");
        let problem = self.json();
        assert_eq!(problem["status"], self.status, "{problem}");
        assert!(!problem["title"].as_str().unwrap().is_empty(), "{problem}");
        assert!(!problem["detail"].as_str().unwrap().is_empty(), "{problem}");
        let code = problem["code"].as_str().unwrap().to_owned();
        code.parse::<ErrorCode>().unwrap();
        code
    }

    /// The code of a refusal, with its status or as the last line.
    pub(super) fn outcome(&self) -> Result<(), ErrorCode> {
        let code = if self.status < 400 {
            self.lines().last().map(|line| line["problem"]["code"].clone())
        } else {
            Some(self.problem().into())
        };
        code.as_ref().and_then(Value::as_str).map_or(Ok(()), |code| Err(code.parse().unwrap()))
    }

    /// The items of an answer in lines.
    pub(super) fn items(&self) -> Vec<Value> {
        self.lines().into_iter().map(|mut line| line["item"].take()).collect()
    }

    fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The body of a successful answer; panics for any other.
    pub(super) fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        if self.body.is_empty() { Value::Null } else { self.json() }
    }
}

/// A request.
pub(super) struct Ask(hyper::http::request::Builder, Bytes);

impl Ask {
    pub(super) fn new(method: &str, path: &str) -> Self {
        let method: Method = method.parse().unwrap();
        Self(HttpRequest::builder().method(method).uri(path).header(header::HOST, "localhost"), Bytes::new())
    }

    pub(super) fn header(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value), self.1)
    }

    /// Method and path.
    fn of_whom(&self) -> (Method, String) {
        (self.0.method_ref().unwrap().clone(), self.0.uri_ref().unwrap().path().to_owned())
    }

    pub(super) fn bearer(self, token: &str) -> Self {
        if token.is_empty() { self } else { self.header("authorization", &format!("Bearer {token}")) }
    }

    pub(super) fn json(self, body: &Value) -> Self {
        let Self(head, _) = self.header("content-type", "application/json");
        Self(head, body.to_string().into())
    }
}

impl Fixture {
    /// Encrypted, as a browser connects.
    pub(super) async fn https(&self) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.tls(self.server.http_address).await
    }

    /// Encrypted, to any of the server's addresses.
    pub(super) async fn tls(&self, address: SocketAddr) -> tokio_rustls::client::TlsStream<TcpStream> {
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        let certificate = self.folder.path().join("tls/cert.pem");
        roots.add(rustls::pki_types::CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tcp = TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        connector.connect("localhost".try_into().unwrap(), tcp).await.unwrap()
    }

    /// One request on a connection of its own; its body is still to come.
    async fn open(&self, Ask(head, body): Ask) -> hyper::Response<hyper::body::Incoming> {
        let stream = TokioIo::new(self.https().await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(head.body(Full::new(body)).unwrap()).await.unwrap()
    }

    /// The same on the agents' listener, with the version of the protocol.
    async fn open_as_agent(&self, ask: Ask) -> hyper::Response<hyper::body::Incoming> {
        self.open_as_agent_of(&PROTOCOL_MAX.to_string(), ask).await
    }

    async fn open_as_agent_of(&self, version: &str, ask: Ask) -> hyper::Response<hyper::body::Incoming> {
        let Ask(head, body) = ask.header(PROTOCOL_METADATA, version);
        let stream = TokioIo::new(self.tls(self.server.grpc_address).await);
        let executor = TokioExecutor::new();
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
        tokio::spawn(connection);
        let mut request = head.body(Full::new(body)).unwrap();
        *request.uri_mut() = format!("https://localhost{}", request.uri()).parse().unwrap();
        sender.send_request(request).await.unwrap()
    }

    /// One request, answered in full and as the OpenAPI document says.
    pub(super) async fn ask(&self, ask: Ask) -> Answer {
        let asked = ask.of_whom();
        Answer::read(asked, self.open(ask).await).await
    }

    /// The same on the agents' listener.
    pub(super) async fn ask_as_agent(&self, ask: Ask) -> Answer {
        let asked = ask.of_whom();
        Answer::read(asked, self.open_as_agent(ask).await).await
    }

    pub(super) async fn get(&self, token: &str, path: &str) -> Answer {
        self.ask(Ask::new("GET", path).bearer(token)).await
    }

    async fn ask_as_agent_of(&self, version: &str, ask: Ask) -> Answer {
        let asked = ask.of_whom();
        Answer::read(asked, self.open_as_agent_of(version, ask).await).await
    }

    /// The cookie (`name=value`) and the CSRF token of a login.
    async fn log_in(&self, token: &str) -> (String, String) {
        let body = serde_json::json!({ "token": token });
        let answer = self.ask(Ask::new("POST", "/api/v1/login").json(&body)).await;
        let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
        (cookie, answer.ok()["csrf"].as_str().unwrap().to_owned())
    }
}
