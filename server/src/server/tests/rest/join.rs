//! Join codes: made for an administrator, redeemed once on the agents' listener.

use holdfast_engine::ids::TokenId;
use holdfast_proto::api::Join;
use holdfast_proto::join::{JoinCode, JoinSecret};
use serde_json::json;

use super::*;
use crate::limits::{FAILURES_FREE, LOGIN_BODY_BYTES};

impl Fixture {
    /// A code for the role backup, and its record's id as the name.
    pub(super) fn join_code(&self) -> JoinSecret {
        let code = token::new_join_secret(&SystemClock).unwrap();
        let id = TokenId::from_bytes(code.token);
        let (name, role, namespaces) = (id.to_string(), Role::Backup, vec![]);
        let (owner, vm_patterns, expires_ms) = ("admin".to_owned(), vec![], None);
        let spec = TokenSpec { id, name, role, namespaces, owner, vm_patterns, expires_ms };
        self.catalog().create_join_code(&spec, &code).unwrap();
        code
    }

    /// The body with which an agent of that key redeems a code.
    pub(super) fn redemption(&self, code: &JoinSecret, key: u8) -> Value {
        serde_json::to_value(Join::new(code, &[key; 32])).unwrap()
    }

    async fn redeem(&self, code: &JoinSecret, key: u8) -> Answer {
        self.ask_as_agent(Ask::new("POST", "/api/v1/join").json(&self.redemption(code, key))).await
    }

    async fn create(&self, body: &Value) -> Answer {
        self.ask(Ask::new("POST", "/api/v1/tokens").bearer(&self.admin_token()).json(body)).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_redeemed_once_and_by_one_agent() {
    let fixture = Fixture::start().await;
    let wanted = json!({ "name": "hv1", "role": "backup", "namespaces": ["berlin"], "join": true });
    let made = fixture.create(&wanted).await.ok();
    assert!(made["token"].is_null() && made["record"]["joining_until"].is_string(), "{made}");
    let code: JoinCode = made["join_code"].as_str().unwrap().parse().unwrap();
    assert_eq!(code.fingerprint.to_string(), fixture.server.fingerprint);
    assert_eq!(code.addresses, [fixture.server.grpc_address.into()]);

    let body = fixture.redemption(&code.secret, 1);
    let elsewhere = fixture.ask(Ask::new("POST", "/api/v1/join").json(&body)).await;
    assert_eq!(elsewhere.status, 405, "for browsers there are only pages");
    let joined = fixture.redeem(&code.secret, 1).await.ok();
    let token = joined["token"].as_str().unwrap();
    assert_eq!(joined["namespaces"], json!(["berlin"]));
    assert_eq!(fixture.get(token, "/api/v1/session").await.ok()["role"], "backup");
    assert_eq!(fixture.redeem(&code.secret, 1).await.ok()["token"], token, "its answer may have been lost");
    let other = fixture.redeem(&code.secret, 2).await;
    assert_eq!((other.status, other.problem().as_str()), (401, "unauthenticated"));
    assert!(other.text().contains("token create --join"), "{}", other.text());

    let log = format!("{:?}", fixture.catalog().list_audit(PageRequest::FIRST).unwrap().items);
    assert!(log.contains("token.join") && log.contains("from 127.0.0.1, again"), "{log}");
    for file in fs::read_dir(fixture.folder.path()).unwrap() {
        let Ok(bytes) = fs::read(file.unwrap().path()) else { continue };
        let holds = |secret: &[u8]| bytes.windows(secret.len()).any(|found| found == secret);
        assert!(!holds(&code.secret.secret) && !holds(token.as_bytes()), "a secret is on disk");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_no_token() {
    let fixture = Fixture::start().await;
    let code = fixture.join_code();
    let id = TokenId::from_bytes(code.token);
    let secret = fixture.redemption(&code, 1)["secret"].as_str().unwrap().to_owned();
    let (text, _) = token::joined_token(&code, &[1; 32]);
    for shown in [format!("hf_{id}_{secret}"), text.as_str().to_owned()] {
        assert_eq!(fixture.get(&shown, "/api/v1/session").await.status, 401);
    }
    fixture.catalog().revoke_token(id).unwrap();
    assert_eq!(fixture.redeem(&code, 1).await.status, 401);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_are_for_agents() {
    let fixture = Fixture::start().await;
    for (role, status) in [("backup", 201), ("restore", 201), ("operator", 400), ("admin", 400)] {
        let answer = fixture.create(&json!({ "name": role, "role": role, "join": true })).await;
        assert_eq!(answer.status, status, "{role}: {}", answer.text());
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_bounded_and_slowed_down() {
    let fixture = Fixture::start().await;
    let ask = |body: &Value| fixture.ask_as_agent(Ask::new("POST", "/api/v1/join").json(body));
    let code = JoinSecret { token: [1; 16], secret: [2; 16] };
    let mut large = fixture.redemption(&code, 1);
    large["key"] = "0".repeat(LOGIN_BODY_BYTES).into();
    assert_eq!(ask(&large).await.status, 413);
    assert_eq!(ask(&json!({ "secret": "", "key": "" })).await.status, 400);
    let mut statuses = vec![fixture.redeem(&code, 1).await.status];
    // Some failures are forgiven meanwhile.
    while statuses.last() == Some(&401) && statuses.len() < 1000 {
        statuses.push(fixture.redeem(&code, 1).await.status);
    }
    assert_eq!(statuses.pop(), Some(429), "{statuses:?}");
    let refused = fixture.audited()["login.refuse"];
    assert!(refused >= u64::from(FAILURES_FREE), "{refused}");
    fixture.server.stop().await.unwrap();
}
