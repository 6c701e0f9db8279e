//! Every endpoint × every role × its own, another and every namespace; no token, and a revoked one.
//!
//! Expectations are written down here by hand, apart from the table that the server checks by; a test holds
//! this list against the OpenAPI document, so that an endpoint cannot be forgotten.

use holdfast_proto::api::{LINES, Rules};
use serde_json::json;

use holdfast_engine::catalog::TaskKind;

use super::*;
use crate::http::Audience;

/// Callers that may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    NoTokenNeeded,
    AnyToken,
    /// Catalog and reports: every role.
    EveryRole,
    /// Roles that write restore points.
    Writers,
    /// Roles that run the repository, with a token for all of it.
    Operators,
    /// Roles that run the repository, within their namespaces.
    OperatorsThere,
    /// Every role, with a token for all namespaces.
    EveryRoleEverywhere,
    Admins,
}

/// The outcome with a token of another namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Foreign {
    /// Nothing of it is about a namespace, or only its own is shown.
    Ok,
    /// It named a namespace that is not its own.
    Forbidden,
    /// It named something by its id.
    Absent,
}

use Foreign::{Absent, Forbidden, Ok as Shown};
use Who::{
    Admins, AnyToken, EveryRole, EveryRoleEverywhere, NoTokenNeeded, Operators, OperatorsThere, Writers,
};

/// In place of a query: the answer is to be in lines.
const IN_LINES: &str = "in lines";

/// A body without a dry run.
const FOR_GOOD: &str = "for good";

/// Method, path as documented, what is asked (`{…}` filled in), who, foreign.
type Call = (&'static str, &'static str, &'static str, Who, Foreign);

const CALLS: &[Call] = &[
    ("POST", "/login", "", NoTokenNeeded, Shown),
    ("POST", "/join", "", NoTokenNeeded, Shown),
    ("GET", "/openapi.json", "", NoTokenNeeded, Shown),
    ("POST", "/logout", "", AnyToken, Shown),
    ("GET", "/session", "", AnyToken, Shown),
    ("GET", "/server", "", AnyToken, Shown),
    ("GET", "/namespaces", "", EveryRole, Shown),
    ("PUT", "/namespaces/{name}/quota", "", Admins, Shown),
    ("GET", "/vms", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/vms/{namespace}/{vm}", "", EveryRole, Forbidden),
    ("POST", "/vms/{namespace}/{vm}/owner", "", OperatorsThere, Forbidden),
    ("GET", "/disks", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/jobs", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/agents", "", EveryRole, Shown),
    ("POST", "/agents", "", Writers, Shown),
    ("GET", "/backups", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/backups/{id}", "", EveryRole, Absent),
    ("GET", "/backups/{id}", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/backups/{id}/thaw", "", EveryRole, Absent),
    ("POST", "/backups/{id}/thaw", "", EveryRole, Absent),
    ("GET", "/backups/{id}/thaw/{task}", "", EveryRole, Absent),
    ("POST", "/backups/{id}/verifications", "", EveryRole, Absent),
    ("POST", "/backups/{id}/verifications", IN_LINES, EveryRole, Absent),
    ("POST", "/backups/{id}/false-chunks", "", Writers, Absent),
    ("GET", "/damage", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/runs", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/attribution", "?namespace=mine&by=job", EveryRole, Forbidden),
    ("GET", "/attribution/history", "?namespace=mine&name=vm", EveryRole, Forbidden),
    ("GET", "/details", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/details", "?namespace=mine&format=tsv", EveryRole, Forbidden),
    ("GET", "/details", IN_LINES, EveryRole, Shown),
    ("GET", "/details/totals", "?namespace=mine&by=vm", EveryRole, Forbidden),
    ("GET", "/details/days", "?namespace=mine&by=vm", EveryRole, Forbidden),
    ("GET", "/details/{id}", "", EveryRole, Absent),
    ("GET", "/totals", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/findings", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/series", "?namespace=mine&by=vm", EveryRole, Forbidden),
    ("GET", "/capacity", "", EveryRoleEverywhere, Shown),
    ("GET", "/activity", "", EveryRole, Shown),
    ("GET", "/activity/events", "", EveryRole, Shown),
    ("GET", "/storage", "", Operators, Shown),
    ("GET", "/storage/statistics", "", Operators, Shown),
    ("GET", "/tiers", "", Operators, Shown),
    ("GET", "/tokens", "", Admins, Shown),
    ("POST", "/tokens", "", Admins, Shown),
    ("DELETE", "/tokens/{id}", "", Admins, Shown),
    ("GET", "/audit", "", Admins, Shown),
    ("GET", "/tasks", "", Operators, Shown),
    ("POST", "/tasks", "", Operators, Shown),
    ("GET", "/tasks/{id}", "", Operators, Shown),
    ("POST", "/tasks/{id}/pause", "", Operators, Shown),
    ("POST", "/tasks/{id}/resume", "", Operators, Shown),
    ("POST", "/tasks/{id}/cancel", "", Operators, Shown),
    ("GET", "/schedules", "", Operators, Shown),
    ("PUT", "/schedules/{kind}", "", Operators, Shown),
    ("POST", "/restore-points/freed", "", OperatorsThere, Absent),
    ("POST", "/restore-points/freed", IN_LINES, OperatorsThere, Absent),
    ("POST", "/restore-points/delete", "", Admins, Shown),
    ("POST", "/restore-points/delete", IN_LINES, Admins, Shown),
    ("POST", "/restore-points/forget", "", OperatorsThere, Forbidden),
    ("POST", "/restore-points/forget", IN_LINES, OperatorsThere, Forbidden),
    ("POST", "/restore-points/forget", FOR_GOOD, Admins, Shown),
    ("POST", "/restore-points/lock", "", Admins, Shown),
    ("POST", "/restore-points/hold", "", Admins, Shown),
    ("POST", "/restore-points/release", "", Admins, Shown),
    ("GET", "/policies", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/policies", "?namespace=mine&name=standing", EveryRole, Forbidden),
    ("POST", "/policies", "", Admins, Shown),
    ("PUT", "/policies/{id}", "", Admins, Shown),
    ("DELETE", "/policies/{id}", "", Admins, Shown),
    ("POST", "/policies/simulate", "", OperatorsThere, Shown),
    ("POST", "/policies/simulate", IN_LINES, OperatorsThere, Shown),
    ("POST", "/policies/{id}/run", "", OperatorsThere, Absent),
    ("POST", "/policies/{id}/run", IN_LINES, OperatorsThere, Absent),
];

/// A name that is in the namespace "mine" only.
const SECRET_VM: &str = "very secret vm";

struct Seeded {
    fixture: Fixture,
    backup: String,
    /// Restore points that may be deleted: one for an answer in JSON, one for an answer in lines.
    spares: [String; 2],
    row: String,
}

impl Seeded {
    async fn new() -> Self {
        Self::in_fixture(Fixture::start().await).await
    }

    async fn in_fixture(fixture: Fixture) -> Self {
        for namespace in ["mine", "theirs"] {
            fixture.catalog().ensure_namespace(namespace).unwrap();
        }
        let backup = fixture.admin().await.back_up("mine", SECRET_VM).await.unwrap().backup_id;
        let rows = fixture.get(&fixture.admin_token(), "/api/v1/details").await.ok();
        let row = rows["items"][0]["id"].as_str().unwrap().to_owned();
        let admin = fixture.admin().await;
        let spare = async || admin.back_up("mine", "spare vm").await.unwrap().backup_id;
        let spares = [spare().await, spare().await];
        Self { fixture, backup, spares, row }
    }

    /// One that has not ended, whatever else runs.
    fn paused_task(&self) -> String {
        let options = json!({ "vm": ulid(&self.fixture) }).to_string();
        self.fixture.server.app().tasks.start_paused(TaskKind::Verify, &options).id.to_string()
    }

    /// One that thaws the restore point, if there were a bucket.
    fn paused_thaw(&self) -> String {
        let options = json!({ "backup": self.backup, "speed": "bulk" }).to_string();
        self.fixture.server.app().tasks.start_paused(TaskKind::Thaw, &options).id.to_string()
    }

    /// The request, with everything it needs to succeed but the token.
    fn ask(&self, method: &str, path: &str, query: &str) -> Ask {
        let id = match path {
            path if path.starts_with("/backups/{id}") => self.backup.clone(),
            "/policies/{id}" | "/policies/{id}/run" => self.policy(),
            "/details/{id}" => self.row.clone(),
            "/tokens/{id}" => {
                let victim = self.fixture.token(Role::Backup, &[]);
                victim.parse::<token::PresentedToken>().unwrap().id().to_string()
            }
            path if path.starts_with("/tasks/{id}") => self.paused_task(),
            _ => String::new(),
        };
        let path = path.replace("{id}", &id).replace("{namespace}", "mine").replace("{name}", "mine");
        let path = if path.contains("{task}") { path.replace("{task}", &self.paused_thaw()) } else { path };
        let path = path.replace("{kind}", "verify").replace("{vm}", &SECRET_VM.replace(' ', "%20"));
        let ask = match query {
            FOR_GOOD => Ask::new(method, &format!("/api/v1{path}")),
            IN_LINES => Ask::new(method, &format!("/api/v1{path}")).header("accept", LINES),
            _ => Ask::new(method, &format!("/api/v1{path}{query}")),
        };
        match (method, path.as_str()) {
            ("POST", "/login") => ask.json(&json!({ "token": self.fixture.admin_token() })),
            ("POST", "/join") => ask.json(&self.fixture.redemption(&self.fixture.join_code(), 1)),
            ("PUT", "/namespaces/mine/quota") => ask.json(&json!({ "restore_points": 1000 })),
            ("POST", "/tokens") => {
                let unique = ulid(&self.fixture);
                ask.json(&json!({ "name": unique, "role": "backup" }))
            }
            ("POST", "/tasks") => ask.json(&json!({ "kind": "verify", "options": { "vm": "of no name" } })),
            ("PUT", "/schedules/verify") => {
                ask.json(&json!({ "expression": "0 8 * * SAT", "enabled": false }))
            }
            ("POST", "/agents") => ask.json(&json!({
                "host": "secret host", "version": "1", "next_run": null, "vms": 1, "problem": "",
            })),
            ("POST", "/restore-points/freed") => ask.json(&json!({ "ids": [self.backup] })),
            ("POST", "/restore-points/delete") => {
                ask.json(&json!({ "ids": [self.spares[usize::from(query == IN_LINES)]] }))
            }
            ("POST", "/restore-points/forget") => {
                let (vms, rules) = ([SECRET_VM], json!({ "keep_last": 1000 }));
                let dry_run = query != FOR_GOOD;
                ask.json(&json!({ "namespace": "mine", "vms": vms, "rules": rules, "dry_run": dry_run }))
            }
            ("POST", "/restore-points/lock") => {
                ask.json(&json!({ "ids": [self.backup], "until": "2030-01-01T00:00:00Z" }))
            }
            ("POST", "/restore-points/hold" | "/restore-points/release") => {
                ask.json(&json!({ "ids": [self.backup], "reason": "a case" }))
            }
            (_, path) if path.ends_with("/lock") => ask.json(&json!({ "until": "2031-01-01T00:00:00Z" })),
            (_, path) if path.ends_with("/hold") => ask.json(&json!({ "reason": "a case" })),
            ("POST", "/policies") => {
                let vm = ulid(&self.fixture);
                ask.json(&json!({ "namespace": "mine", "name": vm, "vm": vm, "enabled": true }))
            }
            ("PUT", path) if path.starts_with("/policies/") => {
                let vm = ulid(&self.fixture);
                ask.json(&json!({ "name": vm, "vm": vm, "enabled": true }))
            }
            ("POST", "/policies/simulate") => ask.json(&json!({ "schedule": "@daily", "days": 3 })),
            ("POST", path) if path.ends_with("/verifications") => {
                ask.json(&json!({ "ok": true, "bytes": 7 }))
            }
            ("POST", path) if path.ends_with("/false-chunks") => ask.json(&json!({ "chunks": [] })),
            ("POST", path) if path.ends_with("/thaw") => ask.json(&json!({ "speed": "bulk" })),
            ("POST", path) if path.ends_with("/run") => ask.json(&json!({ "dry_run": true })),
            ("POST", path) if path.ends_with("/owner") => ask.json(&json!({ "owner": "cluster" })),
            _ => ask,
        }
    }

    /// A policy that was made for the purpose.
    fn policy(&self) -> String {
        use holdfast_engine::catalog::RetentionPolicy;
        let catalog = self.fixture.catalog();
        let namespace = catalog.namespace_by_name("mine").unwrap().unwrap().id;
        let name = ulid(&self.fixture);
        let id = holdfast_engine::ids::PolicyId(name.to_uppercase().parse().unwrap());
        let policy = RetentionPolicy {
            id,
            vm: Some(name.clone()),
            name,
            namespace,
            job: None,
            rules: Rules { keep_last: 1, ..Rules::default() },
            schedule: String::new(),
            time_zone: String::new(),
            lock_days: 0,
            archive_after_days: None,
            enabled: true,
            resting_since_ms: None,
            updated_ms: 0,
            updated_by: String::new(),
        };
        catalog.set_policy(&policy, "test").unwrap();
        id.to_string()
    }

    /// Status, and the code of a refusal.
    async fn outcome(&self, call: &Call, token: &str) -> u16 {
        self.outcome_for(Audience::Browsers, call, token).await
    }

    /// The same on the listener for `audience`.
    async fn outcome_for(&self, audience: Audience, call: &Call, token: &str) -> u16 {
        let (method, path, query, ..) = *call;
        let ask = self.ask(method, path, query).bearer(token);
        if path == "/activity/events" {
            // It does not end by itself.
            let answer = match audience {
                Audience::Browsers => self.fixture.open(ask).await,
                Audience::Agents => self.fixture.open_as_agent(ask).await,
            };
            return answer.status().as_u16();
        }
        let answer = match audience {
            Audience::Browsers => self.fixture.ask(ask).await,
            Audience::Agents => self.fixture.ask_as_agent(ask).await,
        };
        if answer.status >= 400 {
            let code = answer.problem();
            // There is no bucket here, which only those learn who may thaw.
            if path.ends_with("/thaw") && answer.text().contains("the settings name no bucket") {
                assert_eq!(code, "invalid");
                return 200;
            }
        }
        answer.status
    }
}

fn ulid(fixture: &Fixture) -> String {
    fixture.token(Role::Backup, &[]).split('_').nth(1).unwrap().to_lowercase()
}

/// The status that `role` with that scope must get; 200 stands for any success.
fn expected(who: Who, foreign: Foreign, role: Role, scope: &str) -> u16 {
    let role_may = match who {
        NoTokenNeeded | AnyToken | EveryRole | EveryRoleEverywhere => true,
        Writers => role != Role::Restore,
        Operators | OperatorsThere => matches!(role, Role::Operator | Role::Admin),
        Admins => role == Role::Admin,
    };
    let scope_may = scope == "all" || !matches!(who, Operators | EveryRoleEverywhere);
    if !role_may || !scope_may {
        return 403;
    }
    match (scope, foreign) {
        ("theirs", Forbidden) => 403,
        ("theirs", Absent) => 404,
        _ => 200,
    }
}

/// Endpoints that agents do not find on their listener.
const NOT_FOR_AGENTS: &[(&str, &str)] = &[
    ("POST", "/login"),
    ("GET", "/openapi.json"),
    ("POST", "/logout"),
    ("GET", "/session"),
    ("PUT", "/namespaces/{name}/quota"),
    ("GET", "/tokens"),
    ("POST", "/tokens"),
    ("DELETE", "/tokens/{id}"),
    ("GET", "/audit"),
];

/// Returns true if an endpoint is on the listener for `audience`.
fn is_for(audience: Audience, call: &Call) -> bool {
    match audience {
        Audience::Browsers => call.1 != "/join",
        Audience::Agents => !NOT_FOR_AGENTS.contains(&(call.0, call.1)),
    }
}

/// The status of what is not there: for browsers there are pages, which are only read.
const fn absent(audience: Audience) -> u16 {
    match audience {
        Audience::Browsers => 405,
        Audience::Agents => 404,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_by_every_role_in_every_scope() {
    every_endpoint(Audience::Browsers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_for_agents_by_every_role_in_every_scope() {
    every_endpoint(Audience::Agents).await;
}

async fn every_endpoint(audience: Audience) {
    let seeded = Seeded::new().await;
    for role in Role::ALL {
        for (scope, namespaces) in [("all", &[][..]), ("mine", &["mine"]), ("theirs", &["theirs"])] {
            if role == Role::Admin && scope != "all" {
                continue;
            }
            for call in CALLS {
                // Logging out and events take connections of their own; a token each keeps them apart.
                let token = seeded.fixture.token(role, namespaces);
                let status = seeded.outcome_for(audience, call, &token).await;
                let status = if (200..300).contains(&status) { 200 } else { status };
                let is_there = is_for(audience, call);
                let expected =
                    if is_there { expected(call.3, call.4, role, scope) } else { absent(audience) };
                assert_eq!(status, expected, "{role}, {scope}: {call:?}");
            }
        }
    }
    seeded.fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_valid_token_everything_is_refused() {
    let seeded = Seeded::new().await;
    let revoked = seeded.fixture.token(Role::Admin, &[]);
    let id = revoked.parse::<token::PresentedToken>().unwrap().id();
    seeded.fixture.catalog().revoke_token(id).unwrap();
    for call in CALLS {
        seeded.fixture.server.app().auth.back_off().forgive_all();
        for token in ["", "hf_nonsense", &revoked] {
            for audience in [Audience::Browsers, Audience::Agents] {
                let status = seeded.outcome_for(audience, call, token).await;
                let expected = if call.3 == NoTokenNeeded { 200 } else { 401 };
                let expected = if is_for(audience, call) { expected } else { absent(audience) };
                assert_eq!(status, expected, "{token:?}: {call:?}");
            }
        }
    }
    seeded.fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_tells_of_another_namespace() {
    let seeded = Seeded::new().await;
    let fixture = &seeded.fixture;
    let session = fixture.admin().await.start("mine", "another secret vm").await.unwrap();
    let theirs = fixture.token(Role::Operator, &["theirs"]);
    let mine = fixture.token(Role::Operator, &["mine"]);
    fixture.ask(seeded.ask("POST", "/agents", "").bearer(&mine)).await.ok();
    let mut told = 0;
    for (method, path, query, ..) in CALLS {
        if *method != "GET" || path.contains('{') || ["/activity/events", "/openapi.json"].contains(path) {
            continue;
        }
        if *query == IN_LINES {
            let lines = async |token| fixture.ask(seeded.ask("GET", path, query).bearer(token)).await.text();
            assert!(!lines(&theirs).await.contains("secret"), "{path}");
            told += usize::from(lines(&mine).await.contains("secret"));
            continue;
        }
        for (query, by) in [("", ""), ("?by=vm", "vm"), ("?by=namespace", "namespace")] {
            if !by.is_empty() && !matches!(*path, "/details/totals" | "/series") {
                continue;
            }
            let path = format!("/api/v1{path}{query}");
            let text = fixture.get(&theirs, &path).await.text();
            assert!(!text.contains("secret") && !text.contains("\"mine\""), "{path}");
            told += usize::from(fixture.get(&mine, &path).await.text().contains("secret"));
        }
    }
    assert!(told >= 8, "the same lists contain it for its owner: {told}");
    fixture.admin().await.abort(&session.session_id).await.unwrap();
    // A row or backup elsewhere and one that does not exist look alike.
    let nowhere = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    for (path, there) in [("/backups", seeded.backup.clone()), ("/details", seeded.row.clone())] {
        let absent = if path == "/details" { format!("{nowhere}-0") } else { nowhere.to_owned() };
        let foreign = fixture.get(&theirs, &format!("/api/v1{path}/{there}")).await;
        let missing = fixture.get(&theirs, &format!("/api/v1{path}/{absent}")).await;
        assert_eq!((foreign.status, missing.status), (404, 404));
        assert_eq!(foreign.text().replace(&there, &absent), missing.text());
    }
    seeded.fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_document_has_every_endpoint_with_its_roles_and_refusals() {
    let fixture = Fixture::start().await;
    let document = fixture.get("", "/api/v1/openapi.json").await.ok();
    let mut documented = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let below = path.strip_prefix("/api/v1").unwrap().to_owned();
            let method = method.to_uppercase();
            let what = format!("{method} {below}");
            let (.., who, _) = CALLS
                .iter()
                .find(|call| (call.0, call.1) == (method.as_str(), below.as_str()))
                .unwrap_or_else(|| panic!("{what} is documented but not in this table"));
            check_operation(&what, operation, *who);
            documented.push(what);
        }
    }
    for (method, path, ..) in CALLS {
        assert!(documented.contains(&format!("{method} {path}")), "{method} {path} is not documented");
    }
    // And the table that is enforced has nothing else.
    for endpoint in crate::http::rest::endpoints() {
        let what = format!("{} {}", endpoint.method, endpoint.path);
        assert!(documented.contains(&what), "{what} has a rule but no handler");
    }
    let text = document.to_string();
    let ids: Vec<&str> =
        text.split("\"operationId\":\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let different: std::collections::HashSet<&str> = ids.iter().copied().collect();
    assert_eq!((different.len(), ids.len()), (documented.len(), documented.len()), "{ids:?}");
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name: String = reference.chars().take_while(|c| *c != '"').collect();
        assert!(schemas.contains_key(&name), "{name} is referred to but does not exist");
    }
    fixture.server.stop().await.unwrap();
}

fn check_operation(what: &str, operation: &Value, who: Who) {
    let roles: Vec<&str> =
        operation["x-roles"].as_array().unwrap().iter().map(|role| role.as_str().unwrap()).collect();
    let expected: &[&str] = match who {
        NoTokenNeeded => &[],
        AnyToken | EveryRole | EveryRoleEverywhere => &["backup", "restore", "operator", "admin"],
        Writers => &["backup", "operator", "admin"],
        Operators | OperatorsThere => &["operator", "admin"],
        Admins => &["admin"],
    };
    assert_eq!(roles, expected, "{what}");
    assert_eq!(operation["security"].as_array().unwrap().is_empty(), who == NoTokenNeeded, "{what}");
    assert!(operation["summary"].as_str().is_some_and(|text| text.len() > 3), "{what}");
    assert!(operation["description"].as_str().is_some_and(|text| text.ends_with('.')), "{what}");
    let responses = operation["responses"].as_object().unwrap();
    assert!(responses.keys().any(|status| status.starts_with('2')), "{what}");
    let mut refusals = vec!["400", "500", "503"];
    if who != NoTokenNeeded {
        refusals.extend(["401", "403"]);
    }
    for status in refusals {
        let schema = &responses[status]["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/Problem", "{what} {status}");
    }
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        assert!(parameter["schema"].is_object(), "{what}: {parameter}");
    }
}

/// The audit entry of a call by an administrator; empty: it reads, and not the contents of a restore point.
fn entry(method: &str, path: &str) -> &'static str {
    match (method, path) {
        ("POST", "/login") => "login",
        ("POST", "/join") => "token.join",
        ("POST", "/logout") => "",
        ("PUT", "/namespaces/{name}/quota") => "namespace.quota",
        ("POST", "/vms/{namespace}/{vm}/owner") => "vm.owner",
        ("POST", "/backups/{id}/verifications") => "backup.verify",
        ("POST", "/tokens") => "token.create",
        ("DELETE", "/tokens/{id}") => "token.revoke",
        ("GET", "/audit") => "audit.read",
        ("POST", "/tasks") => "task.start",
        ("POST", "/tasks/{id}/pause") => "",
        ("POST", "/tasks/{id}/resume") => "task.resume",
        ("POST", "/tasks/{id}/cancel") => "task.cancel",
        ("PUT", "/schedules/{kind}") => "schedule.set",
        ("POST", "/restore-points/delete") => "backup.delete",
        ("POST", "/restore-points/lock") => "backup.lock",
        ("POST", "/restore-points/hold") => "backup.hold",
        ("POST", "/restore-points/release") => "backup.release",
        ("POST", "/policies") => "policy.set",
        ("PUT", "/policies/{id}") => "policy.set",
        ("DELETE", "/policies/{id}") => "policy.remove",
        _ => "",
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_and_every_refusal_has_its_entry_in_the_audit_log() {
    let seeded = Seeded::new().await;
    let fixture = &seeded.fixture;
    let (admin, theirs) = (fixture.admin_token(), fixture.token(Role::Operator, &["theirs"]));
    for call in CALLS {
        // The calls it needs to succeed may themselves be noted.
        let (method, path, query, ..) = *call;
        let ask = seeded.ask(method, path, query);
        let before = fixture.audited();
        let ask = ask.bearer(&admin);
        let open = async |ask| match is_for(Audience::Browsers, call) {
            true => fixture.open(ask).await.status().as_u16(),
            false => fixture.open_as_agent(ask).await.status().as_u16(),
        };
        let status = open(ask).await;
        let mut since = fixture.audited_since(&before);
        // Tasks work meanwhile.
        since.retain(|action| action != "task.end");
        assert_eq!(since.join(" "), entry(method, path), "{status}: {call:?}");
        let ask = seeded.ask(method, path, query);
        let before = fixture.audited();
        let status = open(ask.bearer(&theirs)).await;
        let since = fixture.audited_since(&before);
        if status == 403 {
            assert!(since.contains(&"call.refused".to_owned()), "{call:?}: {since:?}");
        }
        if path.contains("/thaw") {
            assert_eq!(since, ["backup.read-refused"], "{status}: {call:?}");
        }
        if path.ends_with("/verifications") || path.ends_with("/false-chunks") {
            assert_eq!(since, ["backup.verify-refused"], "{status}: {call:?}");
        }
    }
    seeded.fixture.server.stop().await.unwrap();
}

/// Endpoints that refuse a token limited to some VMs, where an unlimited one is served.
const CONFINED: &[(&str, &str)] = &[
    ("POST", "/vms/{namespace}/{vm}/owner"),
    ("GET", "/backups/{id}/thaw"),
    ("POST", "/backups/{id}/thaw"),
    ("GET", "/backups/{id}/thaw/{task}"),
    ("POST", "/backups/{id}/verifications"),
    ("POST", "/backups/{id}/false-chunks"),
    ("GET", "/tasks"),
    ("POST", "/tasks"),
    ("GET", "/tasks/{id}"),
    ("POST", "/tasks/{id}/pause"),
    ("POST", "/tasks/{id}/resume"),
    ("POST", "/tasks/{id}/cancel"),
    ("PUT", "/schedules/{kind}"),
    ("POST", "/restore-points/freed"),
    ("POST", "/policies/{id}/run"),
    ("POST", "/restore-points/forget"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_by_a_token_for_some_vms() {
    let seeded = Seeded::new().await;
    for call in CALLS {
        let confined = seeded.fixture.token_of(Role::Operator, "admin", &["web-*"]);
        let status = seeded.outcome(call, &confined).await;
        let refused = call.3 == Admins || CONFINED.contains(&(call.0, call.1));
        assert_eq!(status == 403, refused, "{status}: {call:?}");
        assert!(status < 500, "{status}: {call:?}");
    }
    seeded.fixture.server.stop().await.unwrap();
}

/// A reader that never reads: of no endpoint more large answers are made than a token may have, none is larger than what
/// the budget has for it, and others are answered meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_by_a_reader_that_never_reads() {
    let seeded = Seeded::in_fixture(super::super::unread::with_long_lists().await).await;
    let fixture = &seeded.fixture;
    let token_may_have = fixture.server.app().budget.answers.div_ceil(2) as usize;
    let mut large = Vec::new();
    for (method, path, query, who, _) in CALLS {
        // Events are bounded where they are counted, and what changes something answers with what it changed.
        if *path == "/activity/events" || *method != "GET" {
            continue;
        }
        let url = |ask: Ask| ask.0.uri_ref().cloned().unwrap();
        let uri = url(seeded.ask(method, path, query));
        let token = if *who == NoTokenNeeded { String::new() } else { fixture.admin_token() };
        let requests: Vec<_> =
            (0..2 * token_may_have + 4).map(|_| Ask::new(method, &uri.to_string()).bearer(&token)).collect();
        let requests = requests.into_iter().map(|Ask(head, body)| head.body(Full::new(body)).unwrap());
        let unread = super::super::unread::Unread::send(fixture, fixture.server.http_address, requests).await;
        let other = if *who == NoTokenNeeded { String::new() } else { fixture.token(Role::Admin, &[]) };
        let whole = fixture.get(&other, &uri.to_string()).await;
        assert_eq!(whole.status, 200, "{uri}: {}", whole.text());
        assert!(whole.body.len() <= 4 << 20, "{uri}: {} bytes", whole.body.len());
        if whole.body.len() > 64 << 10 && !token.is_empty() {
            large.push(*path);
            assert!(
                unread.answered() <= token_may_have,
                "{uri}: {} of {}",
                unread.answered(),
                token_may_have
            );
        }
    }
    assert!(large.contains(&"/backups"), "{large:?}");
    seeded.fixture.server.stop().await.unwrap();
}
