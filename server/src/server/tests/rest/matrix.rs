//! Every endpoint × every role × its own, another and every namespace; no token, and a revoked one.
//!
//! What is expected is written down here by hand, apart from the table that the server checks by; a test holds
//! this list against the OpenAPI document, so that an endpoint cannot be forgotten.

use serde_json::json;

use holdfast_engine::catalog::TaskKind;

use super::*;

/// Who may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    NoTokenNeeded,
    AnyToken,
    /// Catalog and reports: every role.
    EveryRole,
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
use Who::{Admins, AnyToken, EveryRole, EveryRoleEverywhere, NoTokenNeeded, Operators, OperatorsThere};

/// Method, path as documented, what is asked (`{…}` filled in), who, foreign.
const CALLS: &[(&str, &str, &str, Who, Foreign)] = &[
    ("POST", "/login", "", NoTokenNeeded, Shown),
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
    ("GET", "/backups", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/backups/{id}", "", EveryRole, Absent),
    ("GET", "/backups/{id}/thaw", "", EveryRole, Absent),
    ("POST", "/backups/{id}/thaw", "", EveryRole, Absent),
    ("GET", "/damage", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/runs", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/attribution", "?namespace=mine&by=job", EveryRole, Forbidden),
    ("GET", "/details", "?namespace=mine", EveryRole, Forbidden),
    ("GET", "/details", "?namespace=mine&format=tsv", EveryRole, Forbidden),
    ("GET", "/details/totals", "?namespace=mine&by=vm", EveryRole, Forbidden),
    ("GET", "/details/{id}", "", EveryRole, Absent),
    ("GET", "/totals", "?namespace=mine", EveryRole, Forbidden),
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
    ("POST", "/restore-points/delete", "", Admins, Shown),
    ("POST", "/restore-points/{id}/lock", "", Admins, Shown),
    ("POST", "/restore-points/{id}/hold", "", Admins, Shown),
    ("DELETE", "/restore-points/{id}/hold", "", Admins, Shown),
    ("GET", "/policies", "?namespace=mine", EveryRole, Forbidden),
    ("POST", "/policies", "", Admins, Shown),
    ("PUT", "/policies/{id}", "", Admins, Shown),
    ("DELETE", "/policies/{id}", "", Admins, Shown),
    ("POST", "/policies/simulate", "", OperatorsThere, Shown),
    ("POST", "/policies/{id}/run", "", OperatorsThere, Absent),
];

/// A name that is in the namespace "mine" only.
const SECRET_VM: &str = "very secret vm";

struct Seeded {
    fixture: Fixture,
    backup: String,
    /// A restore point that may be deleted.
    spare: String,
    row: String,
}

impl Seeded {
    async fn new() -> Self {
        let fixture = Fixture::start().await;
        for namespace in ["mine", "theirs"] {
            fixture.catalog().ensure_namespace(namespace).unwrap();
        }
        let backup = fixture.admin().await.back_up("mine", SECRET_VM).await.unwrap().backup_id;
        let rows = fixture.get(&fixture.admin_token(), "/api/v1/details").await.ok();
        let row = rows["items"][0]["id"].as_str().unwrap().to_owned();
        let spare = fixture.admin().await.back_up("mine", "spare vm").await.unwrap().backup_id;
        Self { fixture, backup, spare, row }
    }

    /// One that has not ended, whatever else runs.
    fn paused_task(&self) -> String {
        let options = json!({ "vm": ulid(&self.fixture) }).to_string();
        self.fixture.server.app().tasks.start_paused(TaskKind::Verify, &options).id.to_string()
    }

    /// The request, with everything it needs to succeed but the token.
    fn ask(&self, method: &str, path: &str, query: &str) -> Ask {
        let id = match path {
            "/backups/{id}"
            | "/backups/{id}/thaw"
            | "/restore-points/{id}/lock"
            | "/restore-points/{id}/hold" => self.backup.clone(),
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
        let path = path.replace("{kind}", "verify").replace("{vm}", &SECRET_VM.replace(' ', "%20"));
        let ask = Ask::new(method, &format!("/api/v1{path}{query}"));
        match (method, path.as_str()) {
            ("POST", "/login") => ask.json(&json!({ "token": self.fixture.admin_token() })),
            ("PUT", "/namespaces/mine/quota") => ask.json(&json!({ "restore_points": 1000 })),
            ("POST", "/tokens") => {
                let unique = ulid(&self.fixture);
                ask.json(&json!({ "name": unique, "role": "backup" }))
            }
            ("POST", "/tasks") => ask.json(&json!({ "kind": "verify", "options": { "vm": "of no name" } })),
            ("PUT", "/schedules/verify") => {
                ask.json(&json!({ "expression": "0 8 * * SAT", "enabled": false }))
            }
            ("POST", "/restore-points/freed") => ask.json(&json!({ "ids": [self.backup] })),
            ("POST", "/restore-points/delete") => ask.json(&json!({ "ids": [self.another_backup()] })),
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
            ("POST", path) if path.ends_with("/thaw") => ask.json(&json!({ "speed": "bulk" })),
            ("POST", path) if path.ends_with("/run") => ask.json(&json!({ "dry_run": true })),
            ("POST", path) if path.ends_with("/owner") => ask.json(&json!({ "owner": "cluster" })),
            _ => ask,
        }
    }

    /// A restore point that was made to be deleted.
    fn another_backup(&self) -> String {
        self.spare.clone()
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
            keep_last: 1,
            keep_hourly: 0,
            keep_daily: 0,
            keep_weekly: 0,
            keep_monthly: 0,
            keep_yearly: 0,
            keep_within_days: 0,
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
    async fn outcome(&self, call: &(&str, &str, &str, Who, Foreign), token: &str) -> u16 {
        let (method, path, query, ..) = *call;
        let ask = self.ask(method, path, query).bearer(token);
        if path == "/activity/events" {
            // It does not end by itself.
            return self.fixture.open(ask).await.status().as_u16();
        }
        let answer = self.fixture.ask(ask).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn every_endpoint_by_every_role_in_every_scope() {
    let seeded = Seeded::new().await;
    for role in Role::ALL {
        for (scope, namespaces) in [("all", &[][..]), ("mine", &["mine"]), ("theirs", &["theirs"])] {
            if role == Role::Admin && scope != "all" {
                continue;
            }
            for call in CALLS {
                // Logging out and events take connections of their own; a token each keeps them apart.
                let token = seeded.fixture.token(role, namespaces);
                let status = seeded.outcome(call, &token).await;
                let status = if (200..300).contains(&status) { 200 } else { status };
                assert_eq!(status, expected(call.3, call.4, role, scope), "{role}, {scope}: {call:?}");
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
            let status = seeded.outcome(call, token).await;
            let expected = if call.3 == NoTokenNeeded { 200 } else { 401 };
            assert_eq!(status, expected, "{token:?}: {call:?}");
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
    let mut told = 0;
    for (method, path, ..) in CALLS {
        if *method != "GET" || path.contains('{') || ["/activity/events", "/openapi.json"].contains(path) {
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
    assert!(told >= 7, "the same lists contain it for its owner: {told}");
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
    for endpoint in crate::http::access::ENDPOINTS {
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
