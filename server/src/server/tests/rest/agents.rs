//! The API on the agents' listener, where it differs: what is not there, and what a request must have. Who may do what is in
//! `matrix`.

use holdfast_proto::api::LINES;
use serde_json::json;

use super::super::manage::audited;
use super::*;
use crate::limits::ANSWERS_PER_TOKEN_MAX;

/// A path that exists for browsers only.
const PAGES: [&str; 4] = ["/healthz", "/readyz", "/metrics", "/"];

#[tokio::test(flavor = "multi_thread")]
async fn there_is_no_page_and_no_path_without_a_route() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    for path in ["/api/v1", "/api/v1/nothing", "/api/v1/tokens/x/y", "/api/v2/tasks", "/api/docs/"] {
        let answer = fixture.ask_as_agent(Ask::new("GET", path).bearer(&admin)).await;
        assert_eq!((answer.status, answer.problem().as_str()), (404, "unsupported"), "{path}");
        assert!(answer.text().contains("different versions"), "{}", answer.text());
    }
    // A path outside /api is a call of gRPC.
    for path in PAGES {
        let answer = fixture.open_as_agent(Ask::new("GET", path).bearer(&admin)).await;
        let status = Status::from_header_map(answer.headers());
        assert_eq!(status.map(|status| status.code()), Some(tonic::Code::Unimplemented), "{path}");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_is_no_token() {
    let fixture = Fixture::start().await;
    let (cookie, csrf) = fixture.log_in(&fixture.admin_token()).await;
    let ask = || Ask::new("GET", "/api/v1/tasks").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(fixture.ask(ask()).await.status, 200);
    assert_eq!(fixture.ask_as_agent(ask()).await.status, 401);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_says_its_version_and_a_stranger_is_not_told_ours() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    for (version, token, status, code) in [
        ("", admin.as_str(), 400, "invalid"),
        ("x", &admin, 400, "invalid"),
        ("999", &admin, 501, "unsupported"),
        ("", "hf_nonsense", 401, "unauthenticated"),
        ("999", "", 401, "unauthenticated"),
    ] {
        let ask = Ask::new("GET", "/api/v1/server").bearer(token);
        let answer = fixture.ask_as_agent_of(version, ask).await;
        assert_eq!((answer.status, answer.problem().as_str()), (status, code), "{version:?} {token}");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_has_the_same_limit_as_for_browsers() {
    let fixture = Fixture::start().await;
    let large = json!({ "kind": "scrub", "options": { "x": "x".repeat(140_000) } });
    let ask = Ask::new("POST", "/api/v1/tasks").bearer(&fixture.admin_token()).json(&large);
    let answer = fixture.ask_as_agent(ask).await;
    assert_eq!((answer.status, answer.problem().as_str()), (413, "limit"));
    assert!(answer.text().contains("131072"), "{}", answer.text());
    fixture.server.stop().await.unwrap();
}

/// An answer that waits for its turn has begun: that it is refused is its last line, and in the audit log nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_when_its_turn_comes_is_in_the_audit_log() {
    let fixture = Fixture::start().await;
    let backup = fixture.admin().await.back_up("", "vm").await.unwrap().backup_id;
    let token = fixture.token_of(Role::Operator, "x", &["web-*"]);
    let ask = |path: &str, body: Value| {
        Ask::new("POST", &format!("/api/v1/{path}")).bearer(&token).header("accept", LINES).json(&body)
    };
    let long = json!({ "rules": { "keep_last": 50 }, "schedule": "@daily", "days": 3660 });
    let mut unread = Vec::new();
    for _ in 0..ANSWERS_PER_TOKEN_MAX {
        unread.push(fixture.open_as_agent(ask("policies/simulate", long.clone())).await);
    }
    let ask = ask("restore-points/freed", json!({ "ids": [backup] }));
    let asked = ask.of_whom();
    let begun = fixture.open_as_agent(ask).await;
    assert_eq!(begun.status().as_u16(), 200);
    drop(unread);
    assert_eq!(Answer::read(asked, begun).await.outcome(), Err(ErrorCode::Forbidden));
    let noted = audited(&fixture, "call.refused");
    assert!(noted.len() == 1 && noted[0].0 == "POST /restore-points/freed", "{noted:?}");
    assert!(noted[0].1.contains("web-*"), "{noted:?}");
    fixture.server.stop().await.unwrap();
}
