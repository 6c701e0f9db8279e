//! Calls that decide what is kept: each × every role × its own and another namespace, × VM patterns. What is expected is
//! written down by hand.

use holdfast_proto::v1::manage_client::ManageClient;

use std::sync::Arc;

use holdfast_engine::catalog::{PageRequest, RetentionPolicy, TaskKind};

use holdfast_proto::api::Task;
use serde_json::json;

use super::rest::Ask;
use super::*;
use crate::retention::choice;
use crate::retention::plan::Decided;
use crate::retention::run::{Work, run};

/// Who may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    EveryRole,
    Operators,
    Admins,
}

/// Every call, and some of them twice.
const CALLS: [(&str, Who); 13] = [
    ("freed", Who::Operators),
    ("delete", Who::Admins),
    ("forget dry", Who::Operators),
    ("forget", Who::Admins),
    ("lock", Who::Admins),
    ("hold", Who::Admins),
    ("release", Who::Admins),
    ("list", Who::EveryRole),
    ("set", Who::Admins),
    ("remove", Who::Admins),
    ("simulate", Who::Operators),
    ("run dry", Who::Operators),
    ("run", Who::Operators),
];

fn rules() -> Option<v1::RetentionRules> {
    Some(v1::RetentionRules { keep_last: 1000, ..v1::RetentionRules::default() })
}

async fn all<T: Send + 'static>(
    answer: Result<tonic::Response<tonic::Streaming<T>>, Status>,
) -> Result<(), Status> {
    answer?.into_inner().collect::<Result<Vec<_>, _>>().await.map(drop)
}

/// The summary at the end of a run of rules.
async fn summary(answer: tonic::Streaming<v1::ForgetResponse>) -> v1::ForgetSummary {
    let messages: Vec<v1::ForgetResponse> = answer.map(Result::unwrap).collect().await;
    match messages.last().unwrap().kind.clone() {
        Some(v1::forget_response::Kind::Summary(summary)) => summary,
        _ => panic!("{messages:?}"),
    }
}

/// Makes the call about the VM in namespace "mine", so that it changes nothing that matters to the next.
#[expect(clippy::too_many_lines, reason = "an arm for each call")]
async fn call(client: &Client, name: &str, backup: &str, vm: &str) -> Result<(), Status> {
    let mut manage = ManageClient::new(client.channel.clone());
    let namespace = "mine".to_owned();
    let selected =
        |id: &str| v1::Selection { namespace: namespace.clone(), backups: vec![id.into()], vm: vm.into() };
    let selection = Some(selected(backup));
    let policy = |name: &str| v1::Policy {
        namespace: "mine".into(),
        name: name.into(),
        vm: vm.into(),
        rules: rules(),
        enabled: true,
        ..v1::Policy::default()
    };
    let run = |dry_run| v1::RunPolicyRequest {
        namespace: "mine".into(),
        name: "standing".into(),
        dry_run,
        without_bytes: true,
        plan: String::new(),
    };
    let forget = |dry_run| v1::ForgetRequest {
        namespace: "mine".into(),
        vms: vec![vm.into()],
        rules: rules(),
        dry_run,
        without_bytes: true,
        ..v1::ForgetRequest::default()
    };
    let reason = "a case".to_owned();
    match name {
        "freed" => {
            let message = v1::FreedRequest { selection, without_bytes: true };
            manage.freed(client.request(message)).await.map(drop)
        }
        "delete" => {
            // One that is not there: who may delete is told so.
            let selection = Some(selected("01ARZ3NDEKTSV4RRFFQ69G5FAV"));
            let message = v1::DeleteRequest { selection, reason, others: false };
            manage.delete(client.request(message)).await.map(drop)
        }
        "forget dry" => all(manage.forget(client.request(forget(true))).await).await,
        "forget" => all(manage.forget(client.request(forget(false))).await).await,
        "lock" => {
            let until_ms = jiff::Timestamp::now().as_millisecond() + 86_400_000;
            manage.lock(client.request(v1::LockRequest { selection, until_ms })).await.map(drop)
        }
        "hold" => manage.hold(client.request(v1::HoldRequest { selection, reason })).await.map(drop),
        "release" => {
            let message = v1::ReleaseHoldRequest { selection, reason };
            manage.release_hold(client.request(message)).await.map(drop)
        }
        "list" => manage.list_policies(client.request(v1::ListPoliciesRequest { namespace })).await.map(drop),
        "set" => {
            let message = v1::SetPolicyRequest { policy: Some(policy("standing")) };
            manage.set_policy(client.request(message)).await.map(drop)
        }
        "remove" => {
            let message = v1::RemovePolicyRequest { namespace, name: "never there".into() };
            manage.remove_policy(client.request(message)).await.map(drop)
        }
        "simulate" => {
            let message = v1::SimulatePolicyRequest {
                rules: rules(),
                schedule: "@daily".into(),
                days: 3,
                ..v1::SimulatePolicyRequest::default()
            };
            all(manage.simulate_policy(client.request(message)).await).await
        }
        "run dry" => all(manage.run_policy(client.request(run(true))).await).await,
        "run" => all(manage.run_policy(client.request(run(false))).await).await,
        other => panic!("{other}"),
    }
}

/// `Forbidden`, or not: what was authorised may still be refused for another reason.
async fn forbidden(client: &Client, name: &str, backup: &str, vm: &str) -> bool {
    match call(client, name, backup, vm).await {
        Ok(()) => false,
        Err(status) => ErrorCode::of_status(&status) == Some(ErrorCode::Forbidden),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_by_every_role_in_every_scope() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let backup = admin.back_up("mine", "vm").await.unwrap().backup_id;
    call(&admin, "set", &backup, "vm").await.unwrap();
    for role in Role::ALL {
        for (scope, namespaces) in [("all", &[][..]), ("mine", &["mine"]), ("theirs", &["theirs"])] {
            if role == Role::Admin && scope != "all" {
                continue;
            }
            let client = Client { token: fixture.token(role, namespaces), ..admin.clone() };
            for (name, who) in CALLS {
                let role_may = match who {
                    Who::EveryRole => true,
                    Who::Operators => matches!(role, Role::Operator | Role::Admin),
                    Who::Admins => role == Role::Admin,
                };
                let scope_may = scope != "theirs" || name == "simulate";
                let refused = forbidden(&client, name, &backup, "vm").await;
                assert_eq!(refused, !(role_may && scope_may), "{name} by {role} of {scope}");
            }
        }
    }
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 1, "nothing of this deleted anything");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_is_told_by_name_and_audited() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let first = admin.back_up("mine", "vm").await.unwrap().backup_id;
    let second = admin.back_up("mine", "vm").await.unwrap().backup_id;
    let mut manage = ManageClient::new(admin.channel.clone());
    let selection = |names: &[&str]| {
        let backups = names.iter().map(|name| (*name).to_owned()).collect();
        Some(v1::Selection { namespace: "mine".into(), backups, vm: String::new() })
    };
    let delete = |names: &[&str], reason: &str| {
        admin.request(v1::DeleteRequest {
            selection: selection(names),
            reason: reason.to_owned(),
            others: false,
        })
    };
    for (names, reason, expected) in [
        (&[][..], "", ErrorCode::Invalid),
        (&["0"], "", ErrorCode::Invalid),
        (&[first.as_str(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"], "", ErrorCode::NotFound),
        (&[first.as_str()], "a\u{202e}b", ErrorCode::Invalid),
    ] {
        let refused = manage.delete(delete(names, reason)).await.unwrap_err();
        assert_eq!(ErrorCode::of_status(&refused), Some(expected), "{names:?}: {refused:?}");
    }
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 2);
    // Named twice it is one.
    let answer = manage.delete(delete(&[&first, &first.to_lowercase()], "a reason")).await.unwrap();
    assert_eq!(answer.into_inner().deleted, 1);
    let left = admin.list_backups("mine").await.unwrap();
    assert_eq!(left.iter().map(|backup| backup.id.as_str()).collect::<Vec<_>>(), [second.as_str()]);
    let audit = fixture.catalog().list_audit(PageRequest { size: 1000, token: "" }).unwrap();
    let entry = audit.items.iter().find(|entry| entry.entry.action == "backup.delete").unwrap();
    assert!(entry.entry.detail.contains("a reason"), "{entry:?}");
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reclaim_takes_a_level_and_an_age_and_no_nonsense() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let start = |squeeze: bool, level: i64| {
        let options = json!({ "squeeze": squeeze, "squeeze_level": level, "squeeze_min_age_days": 0 });
        let ask = Ask::new("POST", "/api/v1/tasks").bearer(&admin.token);
        fixture.ask_as_agent(ask.json(&json!({ "kind": "reclaim", "options": options })))
    };
    for (squeeze, level) in [(true, 0), (true, 20), (true, i64::MAX), (false, 9)] {
        let refused = start(squeeze, level).await;
        assert_eq!(refused.status, 400, "{squeeze} {level}: {refused:?}");
    }
    let task: Task = serde_json::from_value(start(true, 9).await.ok()).unwrap();
    let (record, _) = fixture.server.app().tasks.get(task.id.parse().unwrap(), 1).unwrap();
    let options: serde_json::Value = serde_json::from_str(&record.options).unwrap();
    let expected = json!({ "squeeze": true, "squeeze_level": 9, "squeeze_min_age_days": 0 });
    assert_eq!(options, expected);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_too_long_to_count_is_not_known() {
    let fixture = Fixture::start().await;
    let backup = fixture.admin().await.back_up("", "vm").await.unwrap().backup_id;
    let (app, ids) = (Arc::clone(fixture.server.app()), [backup.parse().unwrap()]);
    let counted = move || {
        let within = |limit| choice::within(limit, &app.engine, &ids, &|| false).unwrap();
        (within(std::time::Duration::ZERO), within(std::time::Duration::from_secs(3600)).is_some())
    };
    assert_eq!(tokio::task::spawn_blocking(counted).await.unwrap(), (None, true));
    fixture.server.stop().await.unwrap();
}

pub(super) fn audited(fixture: &Fixture, action: &str) -> Vec<(String, String)> {
    let log = fixture.catalog().list_audit(PageRequest { size: 1000, token: "" }).unwrap().items;
    let entries = log.into_iter().map(|record| record.entry).filter(|entry| entry.action == action);
    entries.map(|entry| (entry.object, entry.detail)).collect()
}

/// What someone tries who may not is worth knowing, over both protocols: once, however often it is tried.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_refused_are_in_the_audit_log() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let backup = admin.back_up("mine", "vm").await.unwrap().backup_id;
    call(&admin, "set", &backup, "vm").await.unwrap();
    let agent = Client { token: fixture.token(Role::Backup, &["mine"]), ..admin.clone() };
    let other = Client { token: fixture.token_of(Role::Operator, "x", &["web-*"]), ..admin.clone() };
    for _ in 0..20 {
        assert!(forbidden(&agent, "delete", &backup, "vm").await);
        assert!(forbidden(&other, "freed", &backup, "vm").await, "its VM");
        assert!(forbidden(&other, "run", &backup, "vm").await, "a policy for its VM");
        let body = serde_json::json!({ "ids": [backup] });
        let ask = |token: &str, path: &str| Ask::new("POST", path).bearer(token).json(&body);
        let delete = fixture.ask(ask(&agent.token, "/api/v1/restore-points/delete")).await;
        assert_eq!(delete.status, 403);
        let freed = fixture.ask(ask(&other.token, "/api/v1/restore-points/freed")).await;
        assert_eq!(freed.status, 403);
    }
    let found = audited(&fixture, "call.refused");
    let mut calls: Vec<&str> = found.iter().map(|(call, _)| call.as_str()).collect();
    calls.sort_unstable();
    let rest = ["POST /restore-points/delete", "POST /restore-points/freed"];
    assert_eq!(calls, ["Manage/Delete", "Manage/Freed", "Manage/RunPolicy", rest[0], rest[1]], "{found:?}");
    let detail = |call: &str| found.iter().find(|(object, _)| object == call).unwrap().1.clone();
    assert!(detail("Manage/Delete").contains("has the role backup"), "{found:?}");
    assert!(detail("Manage/Freed").contains("web-*"), "{found:?}");
    fixture.server.stop().await.unwrap();
}

/// A token for some VMs only starts, stops and schedules nothing that concerns all of them: a policy could be run as a
/// task that it may not run itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_some_vms_starts_and_sees_nothing_that_concerns_others() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for _ in 0..2 {
        admin.back_up("mine", "vm").await.unwrap();
    }
    call(&admin, "set", "", "vm").await.unwrap();
    let policy = fixture.catalog().policies(None).unwrap().remove(0);
    let confined = fixture.token_of(Role::Operator, "x", &["web-*"]);
    let operator = fixture.token(Role::Operator, &[]);
    let paused = fixture.server.app().tasks.start_paused(TaskKind::Verify, r#"{"vm":"none"}"#).id;
    let run = serde_json::json!({ "kind": "policy", "options": { "policy": policy.id.to_string() } });
    let schedule = serde_json::json!({ "expression": "@daily", "enabled": false });
    let asks = |token: &str| {
        let ask = |method: &str, path: String| Ask::new(method, &path).bearer(token);
        [
            ask("PUT", "/api/v1/schedules/reclaim".into()).json(&schedule),
            ask("POST", format!("/api/v1/tasks/{paused}/pause")),
            ask("POST", format!("/api/v1/tasks/{paused}/resume")),
            ask("POST", format!("/api/v1/tasks/{paused}/cancel")),
            ask("GET", "/api/v1/tasks".into()),
            ask("POST", "/api/v1/tasks".into()).json(&run),
        ]
    };
    for ask in asks(&confined) {
        assert_eq!(fixture.ask(ask).await.status, 403);
    }
    let client = Client { token: confined, ..admin.clone() };
    let confined =
        ["freed", "forget dry", "run dry", "run", "reclaim", "scrub", "verify", "tasks", "task", "control"];
    let backup = admin.get_backup("mine", "latest", "vm").await.unwrap().id;
    for (name, who) in CALLS {
        let expected = who == Who::Admins || confined.contains(&name);
        assert_eq!(forbidden(&client, name, &backup, "vm").await, expected, "{name}");
    }
    for ask in asks(&operator) {
        let status = fixture.ask(ask).await.status;
        assert!([200, 201, 400].contains(&status), "{status}");
    }
    fixture.server.stop().await.unwrap();
}

/// Policies that are changed, or switched off, while one of them runs delete nothing more by what they said before.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_ends_when_policies_change() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for vm in ["a", "b"] {
        for _ in 0..2 {
            admin.back_up("mine", vm).await.unwrap();
        }
    }
    let policy = v1::Policy {
        namespace: "mine".into(),
        name: "all".into(),
        rules: Some(v1::RetentionRules { keep_last: 1, ..v1::RetentionRules::default() }),
        enabled: true,
        ..v1::Policy::default()
    };
    let mut manage = ManageClient::new(admin.channel.clone());
    let set = v1::SetPolicyRequest { policy: Some(policy) };
    manage.set_policy(admin.request(set)).await.unwrap();
    let app = Arc::clone(fixture.server.app());
    let ended = app.blocking(|app| {
        let policy = app.catalog().policies(None)?.remove(0);
        let work = Work::of_policy(app.catalog(), &policy, "op", false)?;
        let mut tell = |_: &[Decided]| {
            let changed = RetentionPolicy { enabled: false, ..policy.clone() };
            app.catalog().set_policy(&changed, "admin").unwrap();
            true
        };
        run(&app.engine, &work, &|| false, &mut tell).map(drop)
    });
    assert_eq!(ended.await.unwrap_err().code, ErrorCode::Invalid);
    let left = admin.list_backups("mine").await.unwrap();
    let of = |vm: &str| left.iter().filter(|backup| backup.vm == vm).count();
    assert_eq!((of("a"), of("b")), (1, 2), "the VM at hand is done, no other begun");
    fixture.server.stop().await.unwrap();
}

/// What keeps the last restore point of `vm` only.
fn last_only(vm: &str, name: &str) -> v1::Policy {
    v1::Policy {
        namespace: "mine".into(),
        name: name.into(),
        vm: vm.into(),
        rules: Some(v1::RetentionRules { keep_last: 1, ..v1::RetentionRules::default() }),
        enabled: true,
        ..v1::Policy::default()
    }
}

/// (L9) Some are held after it was decided: the others go, over every way of deleting by rules.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_meanwhile_keeps_no_other_from_being_deleted() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let mut made = Vec::new();
    for _ in 0..6 {
        made.push(admin.back_up("mine", "vm").await.unwrap().backup_id);
    }
    let mut manage = ManageClient::new(admin.channel.clone());
    let set = v1::SetPolicyRequest { policy: Some(last_only("", "all")) };
    manage.set_policy(admin.request(set)).await.unwrap();
    let (app, held, gone) = (Arc::clone(fixture.server.app()), made[2].clone(), made[3].clone());
    let outcome = app.blocking(move |app| {
        let policy = app.catalog().policies(None)?.remove(0);
        let work = Work::of_policy(app.catalog(), &policy, "op", false)?;
        let (held, gone) = (held.parse().unwrap(), gone.parse().unwrap());
        let mut tell = |_: &[Decided]| {
            app.engine.hold_backups(&[held], "case", "admin").unwrap();
            app.engine.delete_backups(&[gone], "admin", "by hand").unwrap();
            true
        };
        run(&app.engine, &work, &|| false, &mut tell)
    });
    let outcome = outcome.await.unwrap();
    let refused: Vec<String> = outcome.refused.iter().map(ToString::to_string).collect();
    assert_eq!((outcome.deleted, refused.as_slice()), (3, &made[2..3]));
    // As `forget` does once someone has said yes, and as one that names them does.
    let more = admin.back_up("mine", "vm").await.unwrap().backup_id;
    let selection = v1::Selection {
        namespace: "mine".into(),
        backups: vec![made[2].clone(), made[5].clone()],
        vm: String::new(),
    };
    let delete = |others| {
        let selection = Some(selection.clone());
        admin.request(v1::DeleteRequest { selection, reason: String::new(), others })
    };
    let refused = manage.delete(delete(false)).await.unwrap_err();
    assert_eq!(ErrorCode::of_status(&refused), Some(ErrorCode::Forbidden), "{refused:?}");
    let answer = manage.delete(delete(true)).await.unwrap().into_inner();
    assert_eq!((answer.deleted, answer.refused), (1, vec![made[2].clone()]));
    let left = admin.list_backups("mine").await.unwrap();
    let mut left: Vec<&str> = left.iter().map(|backup| backup.id.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, [made[2].as_str(), more.as_str()]);
    fixture.server.stop().await.unwrap();
}

/// (L9) The limit is lower in tests.
#[tokio::test(flavor = "multi_thread")]
async fn a_vm_with_too_many_restore_points_is_skipped_and_named() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for (vm, count) in [("many", 21), ("web", 2)] {
        for _ in 0..count {
            admin.back_up("mine", vm).await.unwrap();
        }
    }
    let mut manage = ManageClient::new(admin.channel.clone());
    let set = v1::SetPolicyRequest { policy: Some(last_only("", "all")) };
    manage.set_policy(admin.request(set)).await.unwrap();
    let app = Arc::clone(fixture.server.app());
    let leaving = app.blocking(|app| crate::retention::run::leaving_within(&app.engine, 30, &mut || true));
    let leaving = leaving.await.unwrap().unwrap();
    assert_eq!((leaving.points.len(), leaving.skipped), (2, vec!["many".to_owned()]), "backups go on");
    let run = v1::RunPolicyRequest { namespace: "mine".into(), name: "all".into(), ..Default::default() };
    let answer = manage.run_policy(admin.request(run)).await.unwrap().into_inner();
    let summary = summary(answer).await;
    assert_eq!((summary.deleted, summary.skipped_vms), (1, vec!["many".to_owned()]));
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 22);
    fixture.server.stop().await.unwrap();
}

/// (L9) Over REST and gRPC alike.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_carried_out_is_what_was_shown() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for _ in 0..2 {
        admin.back_up("mine", "vm").await.unwrap();
    }
    let mut manage = ManageClient::new(admin.channel.clone());
    let set = v1::SetPolicyRequest { policy: Some(last_only("", "all")) };
    let policy = manage.set_policy(admin.request(set.clone())).await.unwrap().into_inner().policy.unwrap();
    let path = format!("/api/v1/policies/{}/run", policy.id);
    let run = |body: serde_json::Value| fixture.ask(Ask::new("POST", &path).bearer(&admin.token).json(&body));
    let points = || async { admin.list_backups("mine").await.unwrap().len() };
    let shown = run(json!({ "dry_run": true })).await.ok();
    assert_eq!((shown["deleted"].as_u64(), shown["kept"].as_u64()), (Some(1), Some(1)));

    // One more is to go by now, which no one was shown.
    admin.back_up("mine", "vm").await.unwrap();
    let refused = run(json!({ "dry_run": false, "plan": shown["plan"] })).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("changed")));
    let grpc = |plan: &str, dry_run| {
        let message = v1::RunPolicyRequest {
            namespace: "mine".into(),
            name: "all".into(),
            dry_run,
            without_bytes: true,
            plan: plan.to_owned(),
        };
        admin.request(message)
    };
    let error = all(manage.run_policy(grpc(shown["plan"].as_str().unwrap(), false)).await).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
    assert_eq!(points().await, 3);

    // The same restore points, but the policy was saved meanwhile.
    let shown = run(json!({ "dry_run": true })).await.ok();
    let more = v1::Policy { lock_days: 1, ..policy.clone() };
    let more = v1::SetPolicyRequest { policy: Some(more) };
    manage.set_policy(admin.request(more)).await.unwrap();
    let refused = run(json!({ "dry_run": false, "plan": shown["plan"] })).await;
    assert_eq!(refused.status, 409);
    assert_eq!(points().await, 3);

    let answer = manage.run_policy(grpc("", true)).await.unwrap().into_inner();
    let summary = summary(answer).await;
    let shown = run(json!({ "dry_run": true })).await.ok();
    assert_eq!(shown["plan"].as_str(), Some(summary.plan.as_str()));
    let done = run(json!({ "dry_run": false, "plan": shown["plan"] })).await.ok();
    assert_eq!((done["deleted"].as_u64(), done["plan"].as_str()), (Some(2), None));
    assert_eq!(points().await, 1);
    fixture.server.stop().await.unwrap();
}

/// (P10)
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_rests_deletes_nothing_until_it_is_set() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for _ in 0..2 {
        admin.back_up("mine", "vm").await.unwrap();
    }
    let mut manage = ManageClient::new(admin.channel.clone());
    let policy = v1::Policy { schedule: "@daily".into(), ..last_only("", "all") };
    let set = |policy: &v1::Policy| admin.request(v1::SetPolicyRequest { policy: Some(policy.clone()) });
    manage.set_policy(set(&policy)).await.unwrap();
    assert_eq!(fixture.catalog().rest_policies().unwrap(), 1);
    let list = || admin.request(v1::ListPoliciesRequest { namespace: "mine".into() });
    let resting = manage.list_policies(list()).await.unwrap().into_inner().policies.remove(0);
    assert!(resting.enabled && resting.resting_since_ms.is_some() && resting.next_run_ms.is_none());
    let run = || v1::RunPolicyRequest { namespace: "mine".into(), name: "all".into(), ..Default::default() };
    let refused = all(manage.run_policy(admin.request(run())).await).await.unwrap_err();
    assert!(refused.message().contains("policy enable"), "{refused:?}");
    let shown = fixture.get(&admin.token, "/api/v1/policies?namespace=mine").await.ok();
    assert!(shown["items"][0]["resting_since"].is_string(), "{shown}");
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 2);
    // As `holdfast policy enable` does.
    manage.set_policy(set(&resting)).await.unwrap();
    all(manage.run_policy(admin.request(run())).await).await.unwrap();
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 1);
    fixture.server.stop().await.unwrap();
}
