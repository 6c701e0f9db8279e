//! Common parts of all answers, and refusals before a handler is called.

use std::collections::BTreeSet;

use serde_json::json;

use super::*;
use crate::http::rest::endpoints;

#[tokio::test(flavor = "multi_thread")]
async fn health_and_a_first_page() {
    let fixture = Fixture::start().await;
    let page = fixture.ask(Ask::new("GET", "/").header("accept", "text/html")).await;
    assert!(page.status == 200 && page.header("content-type").starts_with("text/html"), "{page:?}");
    assert!(page.text().contains("Holdfast"));
    assert_eq!(fixture.get("", "/readyz").await.ok()["status"], "ready");
    assert_eq!(fixture.get("", "/healthz").await.ok()["status"], "ok");
    assert_eq!(fixture.get("", "/absent").await.problem(), "not-found");
    let docs = fixture.get("", "/api/docs/").await;
    assert!(docs.status == 200 && docs.text().contains("docs.js"));
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_guarded() {
    let fixture = Fixture::start().await;
    for path in ["/", "/healthz", "/absent", "/api/docs/", "/api/v1/openapi.json", "/api/v1/session"] {
        let answer = fixture.get("", path).await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
        assert_eq!(answer.header("cross-origin-opener-policy"), "same-origin", "{path}");
        assert!(answer.header("permissions-policy").contains("camera=()"), "{path}");
        assert_eq!(answer.header("strict-transport-security"), "", "the certificate is self-signed");
        assert_ne!(answer.header("cache-control"), "", "{path}");
        let text = answer.text();
        for inline in ["<style", "style=", " onclick=", "<script>"] {
            assert!(
                !answer.header("content-type").contains("html") || !text.contains(inline),
                "{path}: {inline}"
            );
        }
    }
    assert_eq!(fixture.get("", "/api/v1/session").await.header("cache-control"), "no-store");
    fixture.server.stop().await.unwrap();
}

/// Decoded once, whatever they look like then.
#[tokio::test(flavor = "multi_thread")]
async fn names_in_paths_are_what_they_say() {
    let fixture = Fixture::start().await;
    let (admin, token) = (fixture.admin().await, fixture.admin_token());
    let coded = |name: &str| name.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
    let names = ["a%2fb", "a/b", "50%", "%25", "a+b c", "?x=1", "#x", "a\\b", "名é", "..x", "%2e%2e"];
    for name in names {
        fixture.catalog().ensure_namespace(name).unwrap();
        admin.back_up(name, name).await.unwrap();
    }
    for name in names {
        let path = format!("/api/v1/vms/{}/{}", coded(name), coded(name));
        let found = fixture.get(&token, &path).await.ok();
        assert_eq!((found["namespace"].as_str(), found["vm"].as_str()), (Some(name), Some(name)));
        let found = fixture.get(&token, &format!("/api/v1/backups?vm={}", coded(name))).await.ok();
        assert_eq!(found["items"].as_array().unwrap().len(), 1, "{name}");
        assert_eq!(found["items"][0]["vm"], name);
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_is_a_problem_document() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    let tokens = "/api/v1/tokens";
    let large = json!({ "name": "x".repeat(128 << 10), "role": "backup" });
    for (ask, status, words) in [
        (Ask::new("GET", "/api/v1/nothing"), 404, "/api/docs/"),
        (Ask::new("GET", "/api/v2/session").header("accept", "text/html"), 404, "/api/docs/"),
        (Ask::new("PUT", tokens), 405, "GET, HEAD, POST"),
        (Ask::new("OPTIONS", "/api/v1/login"), 405, "POST"),
        (Ask::new("POST", "/healthz"), 405, "GET"),
        (Ask::new("POST", "/"), 405, "GET"),
        (Ask::new("POST", tokens).header("content-type", "text/plain"), 415, "application/json"),
        (Ask::new("POST", tokens), 415, "application/json"),
        (Ask::new("POST", tokens).json(&json!([])), 400, ""),
        (Ask::new("POST", tokens).json(&large), 413, "131072"),
        (Ask::new("GET", "/api/v1/audit?page_size=0"), 400, "1 to 1000"),
        (Ask::new("GET", "/api/v1/audit?page_size=1001"), 400, "1 to 1000"),
        (Ask::new("GET", "/api/v1/audit?page_size=many"), 400, "page_size"),
        (Ask::new("GET", "/api/v1/audit?size=10"), 400, "page_token"),
        (Ask::new("GET", "/api/v1/audit?page_size=1&page_size=2"), 400, "page_size"),
        (Ask::new("GET", "/api/v1/audit?page_token=nonsense"), 400, "page token"),
        (Ask::new("DELETE", "/api/v1/tokens/%ff"), 400, ""),
    ] {
        let what = format!("{:?} {:?}", ask.0.method_ref(), ask.0.uri_ref());
        let answer = fixture.ask(ask.bearer(&admin)).await;
        assert_eq!(answer.status, status, "{what}");
        answer.problem();
        assert!(answer.json()["detail"].as_str().unwrap().contains(words), "{what}: {}", answer.text());
        if status == 405 {
            assert!(!answer.header("allow").is_empty(), "{what}");
        }
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_path_refuses_the_methods_it_does_not_have() {
    let fixture = Fixture::start().await;
    let mut paths: BTreeSet<&str> = endpoints().iter().map(|endpoint| endpoint.path.as_str()).collect();
    assert!(paths.remove("/join"), "it is for agents alone");
    for path in paths {
        let has: Vec<&str> = endpoints().iter().filter(|e| e.path == path).map(|e| e.method).collect();
        for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let answer = fixture.ask(Ask::new(method, &format!("/api/v1{path}"))).await;
            let allowed = has.contains(&if method == "HEAD" { "GET" } else { method });
            assert_eq!(answer.status == 405, !allowed, "{method} {path}: {}", answer.status);
            assert!(answer.status < 500, "{method} {path}: {}", answer.text());
            if !allowed {
                let named: Vec<&str> =
                    answer.header("allow").split(", ").filter(|method| *method != "HEAD").collect();
                assert_eq!(named, has, "{method} {path}");
            }
        }
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn long_answers_are_compressed_secrets_are_not() {
    use std::io::Read as _;
    let fixture = Fixture::start().await;
    let packed = fixture.ask(Ask::new("GET", "/api/v1/openapi.json").header("accept-encoding", "gzip")).await;
    assert_eq!(packed.header("content-encoding"), "gzip");
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&packed.body[..]).read_to_string(&mut plain).unwrap();
    assert_eq!(plain, fixture.get("", "/api/v1/openapi.json").await.text());
    let names: Vec<String> = (0..100).map(|number| format!("namespace number {number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let token = fixture.token(Role::Operator, &names);
    let ask = Ask::new("GET", "/api/v1/session").bearer(&token).header("accept-encoding", "gzip");
    let session = fixture.ask(ask).await;
    assert_eq!(session.header("content-encoding"), "", "it holds the CSRF token");
    assert!(session.body.len() > 2000);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_continue_where_the_last_one_ended() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    for number in 0..5 {
        fixture.log_in(&fixture.token(Role::Backup, &[&format!("n{number}")])).await;
    }
    // Reading it is in it, once.
    fixture.get(&admin, "/api/v1/audit").await.ok();
    let all = fixture.get(&admin, "/api/v1/audit").await.ok();
    let all = all["items"].as_array().unwrap().clone();
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/audit?page_size=2&page_token={token}");
        let page = fixture.get(&admin, &path).await.ok();
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["next_page_token"].as_str() {
            Some(next) => next.clone_into(&mut token),
            None => break,
        }
    }
    assert_eq!(paged, all);
    assert_eq!(paged.len(), 7);
    fixture.server.stop().await.unwrap();
}
