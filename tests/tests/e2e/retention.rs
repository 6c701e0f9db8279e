//! Deleting, rules, locks and policies with the real programs over TLS: what is deleted, what stays, and who may do it.

use holdfast_tests::agent::Agent;
use holdfast_tests::{Disk, Server};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

struct Scene {
    _folder: TempDir,
    server: Server,
    disk: Disk,
}

#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by them")]
impl Scene {
    /// Creates a VM "web" with so many restore points, each with some data of its own.
    fn new(backups: u64) -> Self {
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 200_000);
        let scene = Self { _folder: folder, server, disk };
        for number in 0..backups {
            scene.disk.put(number * 50_000, &holdfast_tests::disk::noise(100 + number, 40_000));
            scene.server.agent().back_up("web", &[&format!("disk={}", scene.disk.arg())]);
        }
        scene
    }

    fn as_role(&self, role: &str) -> Agent {
        self.server.agent().with_token(&self.server.token(role, role, &["default"]))
    }

    fn backups(&self) -> Vec<String> {
        self.server.agent().backups("web")
    }

    fn json(&self, args: &[&str]) -> Value {
        let args = [args, &["--json"]].concat();
        self.server.agent().run(&args).ok().summary()
    }

    fn audited(&self, action: &str) -> usize {
        let answer = holdfast_tests::web::get(
            &self.server,
            "/api/v1/audit?page_size=1000",
            &self.server.admin_token(),
        );
        let entries = answer.json();
        entries["items"].as_array().unwrap().iter().filter(|entry| entry["action"] == action).count()
    }
}

#[test]
fn what_is_deleted_is_gone_and_the_rest_is_not() {
    let mut scene = Scene::new(3);
    let backups = scene.backups();
    let doomed = backups[1].clone();
    let shown = scene.json(&["delete", &doomed[..12], "--vm", "web", "--dry-run"]);
    assert_eq!((&shown["dry_run"], &shown["backups"][0]["backup"]), (&true.into(), &doomed.as_str().into()));
    assert_eq!(scene.backups(), backups, "a dry run deletes nothing");
    let deleted = scene.json(&["delete", &doomed, "--reason", "an experiment"]);
    assert_eq!(deleted["deleted"], serde_json::json!([doomed]));
    let left = [backups[0].clone(), backups[2].clone()];
    assert_eq!(scene.backups(), left);
    scene.server.agent().run(&["delete", &doomed, "--yes"]).fails(1, &["there is no backup"]);
    scene.server.agent().run(&["verify", &left[1]]).ok();
    assert!(scene.server.agent().read_back("web") == scene.disk.bytes(), "the newest is whole");
    // It does not come back after a restart.
    let data_dir = scene.server.data_dir().to_owned();
    scene.server.terminate();
    scene.server.wait();
    scene.server = Server::start(&data_dir);
    assert_eq!(scene.backups(), left);
    assert_eq!(scene.audited("backup.delete"), 1);
}

#[test]
fn rules_keep_what_they_say_and_a_dry_run_says_so() {
    let scene = Scene::new(4);
    let backups = scene.backups();
    let forget = ["forget", "--vm", "web", "--keep-last", "2", "--keep-yearly", "1"];
    let shown = scene.json(&[&forget[..], &["--dry-run"]].concat());
    let decisions = shown["decisions"].as_array().unwrap();
    let ids: Vec<&str> = decisions.iter().map(|one| one["backup"].as_str().unwrap()).collect();
    assert_eq!(ids, backups, "every restore point, newest first");
    assert_eq!(decisions[0]["reasons"], serde_json::json!(["last", "yearly"]));
    assert_eq!(decisions[1]["reasons"], serde_json::json!(["last"]));
    assert_eq!((&decisions[2]["keep"], &decisions[3]["keep"]), (&false.into(), &false.into()));
    assert_eq!((&shown["kept"], &shown["deleted"]), (&2.into(), &2.into()));
    assert_eq!(scene.backups(), backups);
    let text = scene.server.agent().run(&[&forget[..], &["--dry-run"]].concat()).ok().text();
    assert!(text.contains("keep: last, yearly") && text.contains("2 restore points kept"), "{text}");
    let done = scene.json(&[&forget[..], &["--yes"]].concat());
    assert_eq!((&done["dry_run"], &done["deleted"]), (&false.into(), &2.into()));
    assert_eq!(scene.backups(), backups[..2]);
    let again = scene.json(&forget);
    assert_eq!(again["deleted"], 0, "to decide again deletes nothing more");
    let agent = scene.server.agent();
    agent.run(&["forget", "--vm", "web", "--yes"]).fails(1, &["no rule says what to keep"]);
    agent.run(&["forget", "--vm", "wbe", "--keep-last", "1"]).fails(1, &["no backup of VM \"wbe\""]);
}

#[test]
fn what_is_locked_or_held_stays() {
    let scene = Scene::new(3);
    let (agent, backups) = (scene.server.agent(), scene.backups());
    agent.run(&["lock", &backups[2], "--for", "2d"]).ok();
    agent.run(&["hold", &backups[1], "--reason", "case 17"]).ok();
    for id in [&backups[1], &backups[2]] {
        agent.run(&["delete", id, "--yes"]).fails(4, &[id]);
    }
    agent.run(&["delete", &backups[0], &backups[2], "--yes"]).fails(4, &["locked until"]);
    assert_eq!(scene.backups(), backups, "all or none");
    let forget = scene.json(&["forget", "--vm", "web", "--keep-last", "1"]);
    assert_eq!((&forget["kept"], &forget["deleted"]), (&3.into(), &0.into()));
    let reasons = &forget["decisions"][2]["reasons"][0];
    assert!(reasons.as_str().unwrap().starts_with("locked until "), "{reasons}");
    assert_eq!(forget["decisions"][1]["reasons"], serde_json::json!(["legal hold"]));
    // A shorter lock changes nothing.
    let shorter = scene.json(&["lock", &backups[2], "--for", "1d"]);
    assert_eq!(shorter["locked"], serde_json::json!([]));
    let listed = scene.json(&["list", "--vm", "web"]);
    assert_eq!(listed["backups"][1]["protection"]["hold"]["reason"], "case 17");
    assert!(listed["backups"][2]["protection"]["locked_until"].is_string());
    assert!(listed["backups"][0]["protection"].is_null());
    let text = agent.run(&["list"]).ok().text();
    assert!(text.contains("held: case 17") && text.contains("until "), "{text}");
    // A hold ends, with a reason; a lock does not.
    agent.run(&["hold", &backups[1], "--release", "--reason", "closed"]).ok();
    agent.run(&["delete", &backups[1], "--yes"]).ok();
    assert_eq!(scene.backups(), [backups[0].clone(), backups[2].clone()]);
}

#[test]
fn each_role_does_what_it_may() {
    let scene = Scene::new(2);
    let backups = scene.backups();
    let admin = scene.server.agent();
    admin.run(&["policy", "set", "p", "--keep-last", "1"]).ok();
    let (backup, operator) = (scene.as_role("backup"), scene.as_role("operator"));
    let restore = scene.as_role("restore");
    let id = backups[1].as_str();
    for agent in [&backup, &restore] {
        agent.run(&["delete", id, "--yes"]).fails(4, &["which may not do this"]);
        agent.run(&["delete", id, "--dry-run"]).fails(4, &["which may not do this"]);
        agent.run(&["forget", "--vm", "web", "--keep-last", "1", "--dry-run"]).fails(4, &["may not"]);
        agent.run(&["policy", "run", "p", "--yes"]).fails(4, &["may not"]);
        agent.run(&["reclaim"]).fails(4, &["may not"]);
    }
    operator.run(&["delete", id, "--yes"]).fails(4, &["operator", "which may not do this"]);
    operator.run(&["forget", "--vm", "web", "--keep-last", "1", "--yes"]).fails(4, &["may not"]);
    operator.run(&["lock", id, "--for", "1d"]).fails(4, &["may not"]);
    operator.run(&["hold", id, "--reason", "x"]).fails(4, &["may not"]);
    operator.run(&["policy", "set", "q", "--keep-last", "1"]).fails(4, &["may not"]);
    operator.run(&["policy", "remove", "p"]).fails(4, &["may not"]);
    operator.run(&["delete", id, "--dry-run"]).ok();
    operator.run(&["forget", "--vm", "web", "--keep-last", "1", "--dry-run"]).ok();
    assert_eq!(scene.backups(), backups, "nothing of this deleted anything");
    operator.run(&["policy", "run", "p", "--yes"]).ok();
    assert_eq!(scene.backups(), backups[..1]);
}

#[test]
fn policies_decide_by_their_scope() {
    let scene = Scene::new(3);
    let (agent, backups) = (scene.server.agent(), scene.backups());
    agent.run(&["policy", "set", "all", "--keep-last", "1"]).ok();
    let set = ["policy", "set", "web only", "--vm", "web", "--keep-last", "2", "--schedule", "30 6 * * *"];
    let created = scene.json(&[&set[..], &["--time-zone", "Europe/Berlin"]].concat());
    assert_eq!(created["created"], true);
    assert!(created["policy"]["next_run"].is_string());
    agent.run(&["policy", "set", "same", "--vm", "web", "--keep-last", "9"]).fails(1, &["\"web only\""]);
    agent
        .run(&["policy", "set", "bad", "--vm", "db", "--schedule", "61 * * * *"])
        .fails(1, &["calendar expression"]);
    agent.run(&["policy", "set", "bad", "--vm", "db", "--time-zone", "Mars"]).fails(1, &["no time zone"]);
    // The broader one decides nothing.
    let all = scene.json(&["policy", "run", "all", "--yes"]);
    assert_eq!((&all["kept"], &all["deleted"]), (&0.into(), &0.into()));
    let web = scene.json(&["policy", "run", "web only", "--yes"]);
    assert_eq!((&web["kept"], &web["deleted"]), (&2.into(), &1.into()));
    assert_eq!(scene.backups(), backups[..2]);
    // Disabled, it still overrides the broader one.
    agent.run(&["policy", "set", "web only", "--vm", "web", "--keep-last", "2", "--disable"]).ok();
    agent.run(&["policy", "run", "web only", "--yes"]).fails(1, &["switched off"]);
    assert_eq!(scene.json(&["policy", "run", "all", "--yes"])["deleted"], 0);
    agent.run(&["policy", "remove", "web only"]).ok();
    assert_eq!(scene.json(&["policy", "run", "all", "--yes"])["deleted"], 1);
    let listed = scene.json(&["policy", "list"]);
    assert_eq!(listed["policies"].as_array().unwrap().len(), 1);
    let simulated = scene.json(&["policy", "simulate", "--keep-daily", "3", "--days", "10"]);
    assert_eq!(simulated["days"][9]["points"].as_array().unwrap().len(), 3);
}

#[test]
fn a_policy_locks_what_comes() {
    let scene = Scene::new(1);
    let agent = scene.server.agent();
    agent
        .run(&["policy", "set", "lock", "--vm", "web", "--lock-days", "3", "--archive-after-days", "90"])
        .ok();
    let listed = scene.json(&["policy", "list"]);
    assert_eq!(listed["policies"][0]["archive_after_days"], 90);
    agent.run(&["policy", "set", "lock", "--archive-after-days", "40000"]).fails(1, &["36500 days at most"]);
    agent.back_up("web", &[&format!("disk={}", scene.disk.arg())]);
    agent.run(&["policy", "remove", "lock"]).ok();
    let backups = scene.backups();
    agent.run(&["delete", &backups[0], "--yes"]).fails(4, &["locked until"]);
    agent.run(&["delete", &backups[1], "--yes"]).ok();
    assert_eq!(scene.backups(), backups[..1]);
}
