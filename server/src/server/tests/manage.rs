//! Calls that decide what is kept: each × every role × its own and another namespace, × VM patterns. What is expected is
//! written down by hand.

use std::sync::Arc;

use holdfast_engine::catalog::{PageRequest, RetentionPolicy, TaskKind};
use holdfast_proto::api::{Items, LINES, Policy, PolicyRun, RunPart, RunPolicy, SetPolicy, Task};
use serde_json::{Value, json};

use super::rest::Ask;
use super::*;
use crate::retention::choice;
use crate::retention::plan::Decided;
use crate::retention::run::{Work, run};

/// Roles that may.
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

/// Asks, as the command line does, about the VM in namespace "mine", so that it changes nothing that matters to the next.
async fn call(fixture: &Fixture, token: &str, name: &str, backup: &str, vm: &str) -> Result<(), ErrorCode> {
    let of = |id: &str, (key, value): (&str, Value)| json!({ "ids": [id], "namespace": "mine", "vm": vm, key: value });
    let reason = || ("reason", json!("a case"));
    let tomorrow = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24);
    let forget = |dry_run: bool| {
        let rules = json!({ "keep_last": 1000 });
        json!({ "namespace": "mine", "vms": [vm], "rules": rules, "dry_run": dry_run })
    };
    let run = async |dry_run| {
        run_policy(fixture, token, "standing", &RunPolicy { dry_run, plan: None }).await.map(drop)
    };
    let (method, path, body) = match name {
        "set" => return set(fixture, token, &policy("standing", Some(vm), 1000)).await.map(drop),
        "run dry" => return run(true).await,
        "run" => return run(false).await,
        "freed" => ("POST", "restore-points/freed", of(backup, ("without_bytes", json!(true)))),
        // A missing restore point: callers who may delete are told so.
        "delete" => ("POST", "restore-points/delete", of("01ARZ3NDEKTSV4RRFFQ69G5FAV", reason())),
        "forget dry" => ("POST", "restore-points/forget", forget(true)),
        "forget" => ("POST", "restore-points/forget", forget(false)),
        "lock" => ("POST", "restore-points/lock", of(backup, ("until", json!(tomorrow.to_string())))),
        "hold" => ("POST", "restore-points/hold", of(backup, reason())),
        "release" => ("POST", "restore-points/release", of(backup, reason())),
        "list" => ("GET", "policies?namespace=mine", Value::Null),
        "remove" => ("DELETE", "policies/01ARZ3NDEKTSV4RRFFQ69G5FAV", Value::Null),
        "simulate" => ("POST", "policies/simulate", json!({ "schedule": "@daily", "days": 3 })),
        other => panic!("{other}"),
    };
    let ask = Ask::new(method, &format!("/api/v1/{path}")).bearer(token).header("accept", LINES);
    fixture.ask_as_agent(ask.json(&body)).await.outcome()
}

/// A policy of the namespace "mine".
fn policy(name: &str, vm: Option<&str>, keep_last: u32) -> Value {
    json!({ "namespace": "mine", "name": name, "vm": vm, "rules": { "keep_last": keep_last }, "enabled": true })
}

/// The policy of that name in the namespace "mine".
async fn find(fixture: &Fixture, token: &str, name: &str) -> Result<Option<Policy>, ErrorCode> {
    let path = format!("/api/v1/policies?namespace=mine&name={name}");
    let found = fixture.ask_as_agent(Ask::new("GET", &path).bearer(token)).await;
    found.outcome()?;
    let found: Items<Policy> = serde_json::from_value(found.ok()).unwrap();
    Ok(found.items.into_iter().next())
}

/// As `holdfast policy set` does.
async fn set(fixture: &Fixture, token: &str, policy: &Value) -> Result<Policy, ErrorCode> {
    let ask = match find(fixture, token, policy["name"].as_str().unwrap()).await? {
        Some(known) => Ask::new("PUT", &format!("/api/v1/policies/{}", known.id)),
        None => Ask::new("POST", "/api/v1/policies"),
    };
    let answer = fixture.ask_as_agent(ask.bearer(token).json(policy)).await;
    answer.outcome()?;
    Ok(serde_json::from_value(answer.ok()).unwrap())
}

/// As `holdfast policy run` does: the parts of the answer.
async fn run_policy(
    fixture: &Fixture,
    token: &str,
    name: &str,
    wanted: &RunPolicy,
) -> Result<PolicyRun, ErrorCode> {
    let known = find(fixture, token, name).await?.unwrap();
    let ask = Ask::new("POST", &format!("/api/v1/policies/{}/run", known.id)).bearer(token);
    let answer = fixture.ask_as_agent(ask.header("accept", LINES).json(&json!(wanted))).await;
    answer.outcome()?;
    let mut decisions = Vec::new();
    for part in answer.items() {
        match serde_json::from_value(part).unwrap() {
            RunPart::Decisions(some) => decisions.extend(some),
            RunPart::Run(run) => return Ok(PolicyRun { decisions, ..run }),
        }
    }
    panic!("{answer:?}");
}

/// `Forbidden`, or not: what was authorised may still be refused for another reason.
async fn forbidden(fixture: &Fixture, token: &str, name: &str, backup: &str) -> bool {
    call(fixture, token, name, backup, "vm").await == Err(ErrorCode::Forbidden)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_by_every_role_in_every_scope() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let backup = admin.back_up("mine", "vm").await.unwrap().backup_id;
    call(&fixture, &admin.token, "set", &backup, "vm").await.unwrap();
    for role in Role::ALL {
        for (scope, namespaces) in [("all", &[][..]), ("mine", &["mine"]), ("theirs", &["theirs"])] {
            if role == Role::Admin && scope != "all" {
                continue;
            }
            let token = fixture.token(role, namespaces);
            for (name, who) in CALLS {
                let role_may = match who {
                    Who::EveryRole => true,
                    Who::Operators => matches!(role, Role::Operator | Role::Admin),
                    Who::Admins => role == Role::Admin,
                };
                let scope_may = scope != "theirs" || name == "simulate";
                let refused = forbidden(&fixture, &token, name, &backup).await;
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
    let delete = |names: &[&str], reason: &str| {
        let body = json!({ "ids": names, "namespace": "mine", "reason": reason });
        let ask = Ask::new("POST", "/api/v1/restore-points/delete").bearer(&admin.token);
        fixture.ask_as_agent(ask.header("accept", LINES).json(&body))
    };
    for (names, reason, expected) in [
        (&[][..], "", ErrorCode::Invalid),
        (&["0"], "", ErrorCode::Invalid),
        (&[first.as_str(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"], "", ErrorCode::NotFound),
        (&[first.as_str()], "a\u{202e}b", ErrorCode::Invalid),
    ] {
        assert_eq!(delete(names, reason).await.outcome(), Err(expected), "{names:?}");
    }
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 2);
    // Named twice it is one.
    let answer = delete(&[&first, &first.to_lowercase()], "a reason").await.items();
    assert_eq!(answer, [json!({ "deleted": 1, "refused": [] })]);
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

/// A refused call is noted at both doors: once, however often it is tried.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_refused_are_in_the_audit_log() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    let backup = admin.back_up("mine", "vm").await.unwrap().backup_id;
    call(&fixture, &admin.token, "set", &backup, "vm").await.unwrap();
    let agent = fixture.token(Role::Backup, &["mine"]);
    let other = fixture.token_of(Role::Operator, "x", &["web-*"]);
    for _ in 0..20 {
        assert!(forbidden(&fixture, &agent, "delete", &backup).await);
        assert!(forbidden(&fixture, &other, "freed", &backup).await, "its VM");
        assert!(forbidden(&fixture, &other, "run", &backup).await, "a policy for its VM");
        let body = serde_json::json!({ "ids": [backup] });
        let ask = |token: &str, path: &str| Ask::new("POST", path).bearer(token).json(&body);
        let delete = fixture.ask(ask(&agent, "/api/v1/restore-points/delete")).await;
        assert_eq!(delete.status, 403);
        let freed = fixture.ask(ask(&other, "/api/v1/restore-points/freed")).await;
        assert_eq!(freed.status, 403);
    }
    let found = audited(&fixture, "call.refused");
    let mut calls: Vec<&str> = found.iter().map(|(call, _)| call.as_str()).collect();
    calls.sort_unstable();
    let rest = ["POST /policies/{id}/run", "POST /restore-points/delete", "POST /restore-points/freed"];
    assert_eq!(calls, rest, "{found:?}");
    let detail = |call: &str| found.iter().find(|(object, _)| object == call).unwrap().1.clone();
    assert!(detail(rest[1]).contains("has the role backup"), "{found:?}");
    assert!(detail(rest[2]).contains("web-*"), "{found:?}");
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
    call(&fixture, &admin.token, "set", "", "vm").await.unwrap();
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
    let refused =
        ["freed", "forget dry", "run dry", "run", "reclaim", "scrub", "verify", "tasks", "task", "control"];
    let backup = admin.get_backup("mine", "latest", "vm").await.unwrap().id;
    for (name, who) in CALLS {
        let expected = who == Who::Admins || refused.contains(&name);
        assert_eq!(forbidden(&fixture, &confined, name, &backup).await, expected, "{name}");
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
    set(&fixture, &admin.token, &last_only()).await.unwrap();
    assert_eq!(find(&fixture, &admin.token, "").await, Err(ErrorCode::Invalid), "no name is no policy's");
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

/// A policy that keeps the last restore point only.
fn last_only() -> Value {
    policy("all", None, 1)
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
    set(&fixture, &admin.token, &last_only()).await.unwrap();
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
    let delete = |others: bool| {
        let body = json!({ "ids": [made[2], made[5]], "namespace": "mine", "others": others });
        let ask = Ask::new("POST", "/api/v1/restore-points/delete").bearer(&admin.token);
        fixture.ask_as_agent(ask.json(&body))
    };
    assert_eq!(delete(false).await.outcome(), Err(ErrorCode::Forbidden));
    assert_eq!(delete(true).await.ok(), json!({ "deleted": 1, "refused": [made[2]] }));
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
    set(&fixture, &admin.token, &last_only()).await.unwrap();
    let app = Arc::clone(fixture.server.app());
    let leaving = app.blocking(|app| crate::retention::run::leaving_within(&app.engine, 30, &mut || true));
    let leaving = leaving.await.unwrap().unwrap();
    assert_eq!((leaving.points.len(), leaving.skipped), (2, vec!["many".to_owned()]), "backups go on");
    let done = run_policy(&fixture, &admin.token, "all", &RunPolicy::default()).await.unwrap();
    assert_eq!((done.deleted, done.skipped_vms), (1, vec!["many".to_owned()]));
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 22);
    fixture.server.stop().await.unwrap();
}

/// (L9) In one piece and in lines alike.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_carried_out_is_what_was_shown() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for _ in 0..2 {
        admin.back_up("mine", "vm").await.unwrap();
    }
    let policy = set(&fixture, &admin.token, &last_only()).await.unwrap();
    let path = format!("/api/v1/policies/{}/run", policy.id);
    let run = |body: serde_json::Value| fixture.ask(Ask::new("POST", &path).bearer(&admin.token).json(&body));
    let points = || async { admin.list_backups("mine").await.unwrap().len() };
    let shown = run(json!({ "dry_run": true })).await.ok();
    assert_eq!((shown["deleted"].as_u64(), shown["kept"].as_u64()), (Some(1), Some(1)));

    // One more is to go by now, which no one was shown.
    admin.back_up("mine", "vm").await.unwrap();
    let refused = run(json!({ "dry_run": false, "plan": shown["plan"] })).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (409, Some("changed")));
    let in_lines = async |plan: Option<&str>| {
        let wanted = RunPolicy { dry_run: plan.is_none(), plan: plan.map(str::to_owned) };
        run_policy(&fixture, &admin.token, "all", &wanted).await
    };
    assert_eq!(in_lines(shown["plan"].as_str()).await.unwrap_err(), ErrorCode::Changed);
    assert_eq!(points().await, 3);

    // The same restore points, but the policy was saved meanwhile.
    let shown = run(json!({ "dry_run": true })).await.ok();
    let more = SetPolicy { lock_days: 1, ..policy.into() };
    set(&fixture, &admin.token, &json!(more)).await.unwrap();
    let refused = run(json!({ "dry_run": false, "plan": shown["plan"] })).await;
    assert_eq!(refused.status, 409);
    assert_eq!(points().await, 3);

    let dry = in_lines(None).await.unwrap();
    let shown = run(json!({ "dry_run": true })).await.ok();
    assert_eq!((&json!(dry.plan), dry.decisions.len()), (&shown["plan"], 3));
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
    let mut policy = last_only();
    policy["schedule"] = "@daily".into();
    set(&fixture, &admin.token, &policy).await.unwrap();
    assert_eq!(fixture.catalog().rest_policies().unwrap(), 1);
    let resting = find(&fixture, &admin.token, "all").await.unwrap().unwrap();
    assert!(resting.enabled && resting.resting_since.is_some() && resting.next_run.is_none());
    let path = format!("/api/v1/policies/{}/run", resting.id);
    let run = async || {
        let ask = Ask::new("POST", &path).bearer(&admin.token).json(&json!({ "dry_run": false }));
        fixture.ask_as_agent(ask).await
    };
    let refused = run().await.text();
    assert!(refused.contains("policy enable"), "{refused}");
    let shown = fixture.get(&admin.token, "/api/v1/policies?namespace=mine").await.ok();
    assert!(shown["items"][0]["resting_since"].is_string(), "{shown}");
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 2);
    // As `holdfast policy enable` does.
    set(&fixture, &admin.token, &json!(SetPolicy::from(resting))).await.unwrap();
    run().await.ok();
    assert_eq!(admin.list_backups("mine").await.unwrap().len(), 1);
    fixture.server.stop().await.unwrap();
}
