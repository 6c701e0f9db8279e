//! Logins: how they begin, what they give access to, and how they end.

use holdfast_engine::catalog::PageRequest;
use serde_json::json;

use super::*;

fn with_cookie(method: &str, path: &str, cookie: &str) -> Ask {
    Ask::new(method, path).header("cookie", cookie)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_gives_its_tokens_access_until_logout() {
    let fixture = Fixture::start().await;
    let token = fixture.token(Role::Operator, &["mine"]);
    let body = json!({ "token": format!(" {token}\n") });
    let answer = fixture.ask(Ask::new("POST", "/api/v1/login").json(&body)).await;
    let set = answer.header("set-cookie").to_owned();
    for flag in ["__Host-holdfast=", "Path=/", "Secure", "HttpOnly", "SameSite=Strict"] {
        assert!(set.contains(flag), "{set}");
    }
    assert_eq!(answer.header("cache-control"), "no-store");
    let said = answer.ok();
    assert_eq!(said["role"], "operator");
    assert_eq!(said["namespaces"], json!(["mine"]));
    let actions: Vec<_> = said["actions"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert!(actions.contains(&"operate") && !actions.contains(&"manage_tokens"), "{actions:?}");
    let cookie = set.split(';').next().unwrap();
    let value = cookie.split_once('=').unwrap().1;
    for file in fs::read_dir(fixture.folder.path()).unwrap() {
        let Ok(bytes) = fs::read(file.unwrap().path()) else { continue };
        assert!(!bytes.windows(value.len()).any(|found| found == value.as_bytes()), "the cookie is on disk");
    }

    let session = fixture.ask(with_cookie("GET", "/api/v1/session", cookie)).await.ok();
    assert_eq!(session["csrf"], said["csrf"]);
    let bearer = fixture.get(&token, "/api/v1/session").await.ok();
    assert_eq!(bearer["csrf"], Value::Null, "nothing to forge with a bearer token");

    let csrf = said["csrf"].as_str().unwrap();
    let logout = with_cookie("POST", "/api/v1/logout", cookie).header("x-csrf-token", csrf);
    let answer = fixture.ask(logout).await;
    assert_eq!(answer.status, 204);
    assert!(answer.header("set-cookie").contains("Max-Age=0"));
    let ended = fixture.ask(with_cookie("GET", "/api/v1/session", cookie)).await;
    assert_eq!((ended.status, ended.problem().as_str()), (401, "unauthenticated"));
    let log = fixture.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    for action in ["login", "logout"] {
        assert_eq!(log.iter().filter(|record| record.entry.action == action).count(), 1, "{log:?}");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_something_needs_the_csrf_token_and_the_same_site() {
    let fixture = Fixture::start().await;
    let (cookie, csrf) = fixture.log_in(&fixture.admin_token()).await;
    let (_, other) = fixture.log_in(&fixture.admin_token()).await;
    assert_ne!(csrf, other);
    let create = |name: &str| {
        with_cookie("POST", "/api/v1/tokens", &cookie).json(&json!({ "name": name, "role": "backup" }))
    };
    for (name, ask) in [
        ("none", create("none")),
        ("empty", create("empty").header("x-csrf-token", "")),
        ("other", create("other").header("x-csrf-token", &other)),
        ("cross", create("cross").header("x-csrf-token", &csrf).header("sec-fetch-site", "cross-site")),
        ("sub", create("sub").header("x-csrf-token", &csrf).header("sec-fetch-site", "same-site")),
    ] {
        let answer = fixture.ask(ask).await;
        assert_eq!((answer.status, answer.problem().as_str()), (403, "forbidden"), "{name}");
    }
    let names = |tokens: Vec<holdfast_engine::catalog::TokenRecord>| {
        tokens.into_iter().map(|token| token.name).collect::<Vec<_>>()
    };
    assert_eq!(names(fixture.catalog().list_tokens().unwrap()), ["admin"], "nothing was created");
    let good = create("good").header("x-csrf-token", &csrf).header("sec-fetch-site", "same-origin");
    assert_eq!(fixture.ask(good).await.status, 201);
    // A browser does not send a bearer token by itself.
    let bearer = Ask::new("POST", "/api/v1/tokens").bearer(&fixture.admin_token());
    let bearer =
        bearer.header("sec-fetch-site", "cross-site").json(&json!({ "name": "cli", "role": "backup" }));
    assert_eq!(fixture.ask(bearer).await.status, 201);
    // Another site must not log its own user in here.
    let login = Ask::new("POST", "/api/v1/login").header("sec-fetch-site", "cross-site");
    let login = login.json(&json!({ "token": fixture.admin_token() }));
    assert_eq!(fixture.ask(login).await.problem(), "forbidden");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_ends_with_its_token() {
    let fixture = Fixture::start().await;
    let token = fixture.token(Role::Admin, &[]);
    let (cookie, _) = fixture.log_in(&token).await;
    let id = token.parse::<token::PresentedToken>().unwrap().id();
    let revoke = Ask::new("DELETE", &format!("/api/v1/tokens/{id}")).bearer(&fixture.admin_token());
    assert_eq!(fixture.ask(revoke).await.status, 204);
    for path in ["/api/v1/session", "/api/v1/tokens"] {
        assert_eq!(fixture.ask(with_cookie("GET", path, &cookie)).await.problem(), "unauthenticated");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_and_cookies_are_refused_and_noted_once() {
    let fixture = Fixture::start().await;
    for token in ["", "hf_nonsense", &fixture.admin_token().to_uppercase()] {
        let answer = fixture.ask(Ask::new("POST", "/api/v1/login").json(&json!({ "token": token }))).await;
        assert_eq!((answer.status, answer.problem().as_str()), (401, "unauthenticated"));
        assert_eq!(answer.header("set-cookie"), "");
        assert!(answer.header("www-authenticate").starts_with("Bearer"), "{answer:?}");
    }
    let zeros = format!("__Host-holdfast={}", "0".repeat(64));
    for cookie in [zeros.as_str(), "__Host-holdfast=", "__Host-holdfast=xyz", "a=b"] {
        assert_eq!(fixture.ask(with_cookie("GET", "/api/v1/session", cookie)).await.status, 401, "{cookie}");
    }
    fixture.server.app().auth.audit_log().flush().unwrap();
    let log = fixture.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    assert_eq!(log.iter().filter(|record| record.entry.action == "login.refuse").count(), 1);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_created_shown_once_and_revoked() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    let create = |body: Value| fixture.ask(Ask::new("POST", "/api/v1/tokens").bearer(&admin).json(&body));
    let made =
        create(json!({ "name": "hv1", "role": "backup", "namespaces": ["berlin"], "expires_in": "30d" }));
    let made = made.await.ok();
    let record = &made["record"];
    assert_eq!((&record["name"], &record["namespaces"]), (&json!("hv1"), &json!(["berlin"])));
    assert!(record["expires"].as_str().unwrap().ends_with('Z'), "{record}");
    let text = made["token"].as_str().unwrap();
    assert_eq!(fixture.get(text, "/api/v1/session").await.ok()["name"], "hv1");

    let listed = fixture.get(&admin, "/api/v1/tokens").await;
    assert!(!listed.text().contains(text.rsplit_once('_').unwrap().1), "the secret is shown once");
    let listed = listed.ok();
    assert_eq!(listed["total"], 2);
    let current: Vec<_> = listed["items"].as_array().unwrap().iter().map(|t| t["current"].clone()).collect();
    assert_eq!(current, [json!(true), json!(false)]);

    for (body, word) in [
        (json!({ "name": "hv1", "role": "backup" }), "hv1"),
        (json!({ "name": "x", "role": "king" }), "roles are"),
        (json!({ "name": "x", "role": "admin", "namespaces": ["a"] }), "every namespace"),
        (json!({ "name": " x", "role": "backup" }), "white space"),
        (json!({ "name": "x", "role": "backup", "expires_in": "soon" }), "90d"),
        (json!({ "name": "x", "role": "backup", "expires": "1d" }), "expires_in"),
        (json!({ "role": "backup" }), "name"),
    ] {
        let answer = create(body).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "invalid"));
        assert!(answer.text().contains(word), "{}", answer.text());
    }

    let revoke = |id: &str| fixture.ask(Ask::new("DELETE", &format!("/api/v1/tokens/{id}")).bearer(&admin));
    let id = record["id"].as_str().unwrap();
    assert_eq!((revoke(id).await.status, revoke(id).await.status), (204, 204));
    assert_eq!(fixture.get(text, "/api/v1/session").await.problem(), "unauthenticated");
    fixture.server.app().auth.audit_log().flush().unwrap();
    let own = listed["items"][0]["id"].as_str().unwrap();
    assert_eq!(revoke(own).await.problem(), "forbidden", "the last admin token");
    assert_eq!(revoke("01ARZ3NDEKTSV4RRFFQ69G5FAV").await.problem(), "not-found");
    assert_eq!(revoke("nonsense").await.problem(), "invalid");
    let log = fixture.get(&admin, "/api/v1/audit").await.ok();
    let actions: Vec<_> =
        log["items"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["call.refused", "login.refuse", "token.revoke", "token.create", "token.create"]);
    fixture.server.stop().await.unwrap();
}
