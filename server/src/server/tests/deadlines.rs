//! Peers that begin something and do not go on with it. The clock is paused once they are connected, so that every
//! deadline passes at once; without one the test waits until it is ended from outside.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::*;
use crate::limits::IDLE_DEADLINE;

/// Twice the longest deadline of those below.
const LONG_ENOUGH: Duration = Duration::from_secs(80);

/// Longest time for the machine to do what a deadline brings about. Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_secs(600);

const STEP: Duration = Duration::from_millis(250);

/// Reads until the server closes the connection, while the clock runs as fast as the machine for long enough, and then
/// stands still; what it said.
async fn until_closed(mut stream: impl tokio::io::AsyncRead + Unpin) -> String {
    let mut said = Vec::new();
    tokio::time::pause();
    let (begun, really_begun) = (Instant::now(), std::time::Instant::now());
    {
        let mut read = pin!(stream.read_to_end(&mut said));
        loop {
            tokio::select! {
                biased;
                // However it is closed.
                _ = read.as_mut() => break,
                () = step(if begun.elapsed() < LONG_ENOUGH { STEP } else { Duration::ZERO }) => {}
            }
            assert!(really_begun.elapsed() < PATIENCE, "still open");
        }
    }
    tokio::time::resume();
    String::from_utf8_lossy(&said).into_owned()
}

/// Time passes for the deadlines, and some for the machine to do what they bring about.
async fn step(time: Duration) {
    tokio::time::advance(time).await;
    std::thread::sleep(Duration::from_millis(2));
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_handshake_that_is_not_finished_ends() {
    let fixture = Fixture::start().await;
    for address in [fixture.server.grpc_address, fixture.server.http_address] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        until_closed(stream).await;
    }
    assert_eq!(fixture.get("", "/healthz").await.status, 200);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn headers_that_are_not_finished_end_the_connection() {
    let fixture = Fixture::start().await;
    let mut stream = fixture.https().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: local").await.unwrap();
    until_closed(stream).await;
    assert_eq!(fixture.get("", "/healthz").await.status, 200);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_login_that_is_not_finished_is_refused() {
    let fixture = Fixture::start().await;
    let mut stream = fixture.https().await;
    let head = "POST /api/v1/login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Content-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    let said = until_closed(stream).await;
    assert!(said.starts_with("HTTP/1.1 429") && said.contains("did not arrive"), "{said}");
    assert_eq!(fixture.get("", "/healthz").await.status, 200);
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_that_is_not_finished_is_refused() {
    let fixture = Fixture::start().await;
    let mut stream = fixture.https().await;
    let head = format!(
        "POST /api/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Authorization: Bearer {}\r\nContent-Length: 100\r\n\r\n{{",
        fixture.admin_token()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let said = until_closed(stream).await;
    assert!(said.starts_with("HTTP/1.1 503"), "{said}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn connections_on_which_nothing_happens_end() {
    let fixture = Fixture::start().await;
    // A browser's, which has asked for something.
    let mut stream = fixture.https().await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let said = until_closed(stream).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    // An agent's that has said nothing since the handshake.
    until_closed(fixture.tls(fixture.server.grpc_address).await).await;
    // An agent's with a token, after its last call.
    let admin = fixture.admin().await;
    admin.hello().await.unwrap();
    tokio::time::pause();
    tokio::time::advance(IDLE_DEADLINE).await;
    fixture.wait_for_no_callers().await;
    admin.hello().await.expect("the agent connects again by itself");
    fixture.server.stop().await.unwrap();
}

#[tokio::test]
async fn a_login_takes_no_large_body() {
    let fixture = Fixture::start().await;
    let token = "x".repeat(crate::limits::LOGIN_BODY_BYTES);
    let answer =
        fixture.ask(rest::Ask::new("POST", "/api/v1/login").json(&serde_json::json!({ "token": token })));
    assert_eq!(answer.await.status, 413);
    fixture.server.stop().await.unwrap();
}

impl Fixture {
    /// Waits until no connection has a token.
    async fn wait_for_no_callers(&self) {
        while !self.server.app().activity.tokens().is_empty() {
            step(STEP).await;
        }
        tokio::time::resume();
    }
}
