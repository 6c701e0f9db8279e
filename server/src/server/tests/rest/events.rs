//! Watching activity.

use std::time::Duration;

use hyper::body::Incoming;

use super::*;
use crate::activity::watch::WATCHERS_PER_TOKEN_MAX;

/// Far longer than any of it takes.
const PATIENCE: Duration = Duration::from_secs(600);

struct Events {
    body: Incoming,
    text: String,
}

impl Events {
    async fn open(fixture: &Fixture, ask: Ask) -> Self {
        let response = fixture.open(ask).await;
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { body: response.into_body(), text: String::new() }
    }

    async fn of(fixture: &Fixture, token: &str) -> Self {
        Self::open(fixture, Ask::new("GET", "/api/v1/activity/events").bearer(token)).await
    }

    /// The next event's name and data; `None` at the end.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let line =
                    |key: &str| event.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
                if let (Some(name), Some(data)) = (line("event: "), line("data: ")) {
                    let data = serde_json::from_str(&data).unwrap();
                    let schema = if name == "changed" { "Changed" } else { "ActivityList" };
                    contract::check_value(schema, &data);
                    return Some((name, data));
                }
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await.expect("an event or the end");
            match frame? {
                Ok(frame) => self.text += std::str::from_utf8(&frame.into_data().unwrap()).unwrap(),
                Err(_) => return None,
            }
        }
    }

    /// Skips to the first event that `wanted` takes.
    async fn until(&mut self, wanted: impl Fn(&str, &Value) -> bool) -> Value {
        loop {
            let (name, data) = self.next().await.expect("the stream goes on");
            if wanted(&name, &data) {
                return data;
            }
        }
    }

    async fn ended(mut self) {
        while self.next().await.is_some() {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_seen_from_its_start_to_its_commit() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let mut events = Events::of(&fixture, &fixture.admin_token()).await;
    let (name, first) = events.next().await.unwrap();
    assert_eq!(
        (name.as_str(), &first["sessions"]),
        ("activity", &serde_json::json!([])),
        "at once, even when idle"
    );
    let session = admin.start("", "web").await.unwrap().session_id;
    let running = events.until(|name, data| name == "activity" && data["sessions"][0]["vm"] == "web").await;
    assert_eq!(running["sessions"][0]["bytes_total"], DISK_BYTES);
    assert_eq!(running["sessions"][0]["session"], session.as_str());
    let asked = fixture.get(&fixture.admin_token(), "/api/v1/activity").await.ok();
    assert_eq!(asked["sessions"][0]["session"], session.as_str());
    let messages = [ingest::open(&session, 0), ingest::zeros(), ingest::finish()];
    admin.ingest(tokio_stream::iter(messages)).await.unwrap();
    let done =
        |name: &str, data: &Value| name == "activity" && data["sessions"][0]["bytes_done"] == DISK_BYTES;
    events.until(done).await;
    admin.commit(&session).await.unwrap();
    // The two may come in either order.
    let (mut changed, mut idle) = (false, false);
    while !(changed && idle) {
        let (name, data) = events.next().await.unwrap();
        changed |= name == "changed" && data["what"] == serde_json::json!(["details", "backups"]);
        idle |= name == "activity" && data["sessions"] == serde_json::json!([]);
    }
    let aborted = admin.start("", "web").await.unwrap().session_id;
    admin.abort(&aborted).await.unwrap();
    events.until(|name, data| name == "changed" && data["what"] == serde_json::json!(["details"])).await;
    fixture.server.stop().await.unwrap();
    events.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_see_their_own_namespaces() {
    let fixture = Fixture::start().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let mut theirs = Events::of(&fixture, &fixture.token(Role::Operator, &["theirs"])).await;
    let mut mine = Events::of(&fixture, &fixture.token(Role::Operator, &["mine"])).await;
    fixture.admin().await.start("mine", "secret").await.unwrap();
    mine.until(|name, data| name == "activity" && data["sessions"][0]["vm"] == "secret").await;
    fixture.server.stop().await.unwrap();
    while let Some((_, data)) = theirs.next().await {
        assert!(!data.to_string().contains("secret"), "{data}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_their_token_and_their_login() {
    let fixture = Fixture::start().await;
    let (by_token, by_login) = (fixture.token(Role::Operator, &[]), fixture.token(Role::Operator, &[]));
    let (cookie, csrf) = fixture.log_in(&by_login).await;
    let first = Events::of(&fixture, &by_token).await;
    let with_cookie = Ask::new("GET", "/api/v1/activity/events").header("cookie", &cookie);
    let second = Events::open(&fixture, with_cookie).await;
    let mut third = Events::of(&fixture, &by_login).await;
    let id = by_token.parse::<token::PresentedToken>().unwrap().id();
    fixture.catalog().revoke_token(id).unwrap();
    first.ended().await;
    let logout = Ask::new("POST", "/api/v1/logout").header("cookie", &cookie).header("x-csrf-token", &csrf);
    assert_eq!(fixture.ask(logout).await.status, 204);
    second.ended().await;
    // The token itself is still valid.
    fixture.admin().await.start("", "vm").await.unwrap();
    third.until(|name, data| name == "activity" && data["sessions"][0]["vm"] == "vm").await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn watchers_are_bounded_and_without_them_nothing_runs() {
    let fixture = Fixture::start().await;
    let app = Arc::clone(fixture.server.app());
    assert!(!app.activity.watchers.is_looking());
    let token = fixture.token(Role::Restore, &[]);
    let mut open = Vec::new();
    for _ in 0..WATCHERS_PER_TOKEN_MAX {
        open.push(Events::of(&fixture, &token).await);
    }
    let refused = fixture.get(&token, "/api/v1/activity/events").await;
    assert_eq!((refused.status, refused.problem().as_str()), (429, "limit"));
    let _other = Events::of(&fixture, &fixture.admin_token()).await;
    assert!(app.activity.watchers.is_looking());
    drop(open);
    drop(_other);
    while app.activity.watchers.is_looking() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Events::of(&fixture, &token).await.next().await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn token_changes_are_events() {
    let fixture = Fixture::start().await;
    let token = fixture.admin_token();
    let mut events = Events::of(&fixture, &token).await;
    events.next().await.unwrap();
    let create = Ask::new("POST", "/api/v1/tokens").bearer(&token);
    fixture.ask(create.json(&serde_json::json!({ "name": "x", "role": "backup" }))).await.ok();
    events.until(|name, data| name == "changed" && data["what"] == serde_json::json!(["tokens"])).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_that_others_change_are_events() {
    let fixture = Fixture::start().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let token = fixture.admin_token();
    let mut events = Events::of(&fixture, &token).await;
    events.next().await.unwrap();
    let is_told =
        |name: &str, data: &Value| name == "changed" && data["what"] == serde_json::json!(["policies"]);
    let wanted = serde_json::json!({
        "name": "daily", "namespace": "mine", "rules": { "keep_daily": 7 }, "schedule": "", "time_zone": "", "enabled": true,
    });
    let made = fixture.ask(Ask::new("POST", "/api/v1/policies").bearer(&token).json(&wanted)).await.ok();
    events.until(is_told).await;
    let path = format!("/api/v1/policies/{}", made["id"].as_str().unwrap());
    fixture.ask(Ask::new("PUT", &path).bearer(&token).json(&wanted)).await.ok();
    events.until(is_told).await;
    assert_eq!(fixture.ask(Ask::new("DELETE", &path).bearer(&token)).await.status, 204);
    events.until(is_told).await;
    fixture.server.stop().await.unwrap();
}
