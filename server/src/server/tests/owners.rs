//! Owners of VMs, over the wire: who backs a VM up, who reads it back, who reports on it, who gives it away.

use holdfast_engine::catalog::{AuditEntry, PageRequest};
use serde_json::{Value, json};

use super::rest::Ask;
use super::*;

fn code<T: std::fmt::Debug>(result: Result<T, Status>) -> ErrorCode {
    ErrorCode::of_status(&result.unwrap_err()).unwrap()
}

fn audited(fixture: &Fixture, action: &str) -> Vec<AuditEntry> {
    let log = fixture.catalog().list_audit(PageRequest { size: 1000, token: "" }).unwrap().items;
    log.into_iter().map(|record| record.entry).filter(|entry| entry.action == action).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vm_is_its_owners_to_write_and_to_read_back() {
    let fixture = Fixture::start().await;
    let client = async |role, owner, vms: &[&str]| fixture.client(&fixture.token_of(role, owner, vms)).await;
    let owner = client(Role::Backup, "cluster", &[]).await;
    let made = owner.back_up("default", "web").await.unwrap().backup_id;
    let sibling = client(Role::Backup, "cluster", &[]).await;
    sibling.back_up("default", "web").await.expect("a migrated VM goes on");

    let intruder = client(Role::Backup, "intruder", &[]).await;
    let refused = intruder.start("default", "web").await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
    for words in ["\"web\"", "another name", "vm owner"] {
        assert!(refused.message().contains(words), "{words}: {refused:?}");
    }
    assert!(!refused.message().contains("cluster"), "{refused:?}");
    for _ in 0..50 {
        assert_eq!(code(intruder.start_over("default", "web").await), ErrorCode::Forbidden);
        assert_eq!(code(intruder.read_disk(&made).await), ErrorCode::Forbidden);
        assert_eq!(code(intruder.read_range(&made, 10).await), ErrorCode::Forbidden);
        let lie = intruder.record_verification(&made, "all is lost").await;
        assert_eq!(code(lie), ErrorCode::Forbidden);
        assert_eq!(code(intruder.report_chunks(&made).await), ErrorCode::Forbidden);
    }
    assert_eq!(
        fixture.catalog().verifications(&[made.parse().unwrap()]).unwrap(),
        [],
        "nothing was recorded"
    );
    for action in ["backup.refused", "backup.read-refused", "backup.verify-refused"] {
        let entries = audited(&fixture, action);
        assert_eq!(entries.len(), 1, "once, however often it is tried: {entries:?}");
        for words in ["\"web\"", "\"cluster\"", "\"intruder\""] {
            assert!(entries[0].detail.contains(words), "{entries:?}");
        }
    }
    owner.read_disk(&made).await.unwrap();
    client(Role::Restore, "intruder", &[]).await.read_disk(&made).await.expect("restoring is its role");
    fixture.admin().await.back_up("default", "web").await.expect("an admin writes every VM");
    sibling.back_up("default", "web").await.expect("and leaves it its owner's");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_bound_by_its_vm_name_patterns() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let made = admin.back_up("default", "db-1").await.unwrap().backup_id;
    for role in [Role::Backup, Role::Restore, Role::Operator] {
        let bound = fixture.client(&fixture.token_of(role, "admin", &["web-*", "mail-?"])).await;
        if role != Role::Restore {
            let refused = bound.start("default", "db-1").await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied);
            assert!(refused.message().contains("web-*, mail-?"), "{refused:?}");
            bound.back_up("default", "web-1").await.unwrap();
        }
        assert_eq!(code(bound.read_disk(&made).await), ErrorCode::Forbidden, "{role}");
        assert_eq!(code(bound.read_range(&made, 10).await), ErrorCode::Forbidden, "{role}");
        let report = bound.record_verification(&made, "x").await;
        assert_eq!(code(report), ErrorCode::Forbidden, "{role}");
    }
    assert_eq!(audited(&fixture, "backup.refused").len(), 2);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_gives_a_vm_to_another_owner() {
    let fixture = Fixture::start().await;
    let old = fixture.client(&fixture.token_of(Role::Backup, "old", &[])).await;
    let new = fixture.client(&fixture.token_of(Role::Backup, "new", &[])).await;
    old.back_up("default", "web").await.unwrap();
    let path = "/api/v1/vms/default/web/owner";
    let ask =
        |token: &str, owner: &str| Ask::new("POST", path).bearer(token).json(&json!({ "owner": owner }));
    for token in
        [fixture.token_of(Role::Backup, "new", &[]), fixture.token_of(Role::Operator, "x", &["db-*"])]
    {
        assert_eq!(fixture.ask(ask(&token, "new")).await.status, 403);
    }
    let operator = fixture.token_of(Role::Operator, "x", &["w*"]);
    assert_eq!(fixture.ask(ask(&operator, "a\nb")).await.status, 400);
    // The web UI then does not offer it what is for every VM.
    assert_eq!(fixture.get(&operator, "/api/v1/session").await.ok()["every_vm"], false);
    assert_eq!(fixture.get(&fixture.admin_token(), "/api/v1/session").await.ok()["every_vm"], true);
    let answer = fixture.ask(ask(&operator, "new")).await.ok();
    assert_eq!((&answer["owner"], &answer["previous_owner"]), (&json!("new"), &json!("old")));
    let shown = fixture.get(&operator, "/api/v1/vms/default/web").await.ok();
    assert_eq!(shown["owner"], "new");
    assert_eq!(code(old.start("default", "web").await), ErrorCode::Forbidden);
    new.back_up("default", "web").await.unwrap();
    let entry = audited(&fixture, "vm.owner").remove(0);
    assert!(
        entry.who.starts_with('x') && entry.detail.contains("\"old\"") && entry.detail.contains("\"new\"")
    );
    let missing = Ask::new("POST", "/api/v1/vms/default/none/owner").bearer(&fixture.admin_token());
    assert_eq!(fixture.ask(missing.json(&json!({ "owner": "new" }))).await.status, 404);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_made_with_owner_and_patterns() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    let create = |body: Value| Ask::new("POST", "/api/v1/tokens").bearer(&admin).json(&body);
    let made = fixture
        .ask(create(json!({ "name": "hv1", "role": "backup", "owner": "cluster", "vm_patterns": ["web-*"] })))
        .await
        .ok();
    assert_eq!(
        (&made["record"]["owner"], &made["record"]["vm_patterns"]),
        (&json!("cluster"), &json!(["web-*"]))
    );
    let plain = fixture.ask(create(json!({ "name": "hv2", "role": "backup" }))).await.ok();
    assert_eq!((&plain["record"]["owner"], &plain["record"]["vm_patterns"]), (&json!("hv2"), &json!([])));
    for bad in [
        json!({ "name": "a", "role": "admin", "vm_patterns": ["web-*"] }),
        json!({ "name": "a", "role": "backup", "owner": "a\nb" }),
        json!({ "name": "a", "role": "backup", "vm_patterns": vec!["x"; 65] }),
        json!({ "name": "a", "role": "backup", "vm_patterns": ["x".repeat(201)] }),
    ] {
        assert_eq!(fixture.ask(create(bad.clone())).await.status, 400, "{bad}");
    }
    fixture.server.stop().await.unwrap();
}
