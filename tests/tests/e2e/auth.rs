//! Permissions: what each role may do, and that nobody else may.

use std::time::Duration;

use holdfast_tests::http2::Http2;
use holdfast_tests::repository::files;
use holdfast_tests::web::get;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use tempfile::{TempDir, tempdir};

fn setup() -> (TempDir, Server, Disk) {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 5 << 20);
    (folder, server, disk)
}

fn forged(token: &str) -> String {
    let (name, secret) = token.rsplit_once('_').unwrap();
    let turned: String = secret.chars().rev().collect();
    assert_ne!(secret, turned);
    format!("{name}_{turned}")
}

#[test]
fn wrong_tokens_open_nothing() {
    let (_folder, server, disk) = setup();
    let agent = server.agent();
    agent.back_up("vm", &[disk.arg()]);
    let unknown = format!("hf_01ARZ3NDEKTSV4RRFFQ69G5FAV_{}", "0".repeat(64));
    for token in [forged(&server.admin_token()).as_str(), &unknown, "hf_nonsense"] {
        let stranger = agent.with_token(token);
        stranger.run(&["list"]).fails(4, &["token"]);
        stranger.run(&["report"]).fails(4, &["token"]);
        stranger.run(&["backup", "--vm", "vm", disk.arg()]).fails(4, &["token"]);
        stranger.run(&["restore", "latest", "--vm", "vm", "--to", "-"]).fails(4, &["token"]);
    }
    assert_eq!(agent.backups("vm").len(), 1);
}

/// Anyone can cause them, so they must not fill the catalog; each is counted, and the counts survive a restart.
#[test]
fn wrong_tokens_leave_few_audit_entries_that_count_them_all() {
    const EACH: u64 = 50;
    let (folder, server, _disk) = setup();
    let unknown = format!("hf_01ARZ3NDEKTSV4RRFFQ69G5FAV_{}", "0".repeat(64));
    let wrong = [forged(&server.admin_token()), unknown, "hf_nonsense".to_owned()];
    for token in &wrong {
        for _ in 0..EACH {
            let status = get(&server, "/api/v1/session", token).status;
            assert!(matches!(status, 401 | 429), "{status}");
            let mut peer = Http2::connect(&server, 1 << 20);
            let stream = peer.call("Backup/Hello", token).unwrap();
            while !peer.read(Duration::from_secs(120)).expect("an answer").ends(stream) {}
        }
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let server = Server::start(&folder.path().join("repository"));
    let answer = get(&server, "/api/v1/audit?page_size=1000", &server.admin_token());
    let log = answer.json()["items"].as_array().unwrap().clone();
    let refused: Vec<_> = log.iter().filter(|entry| entry["action"] == "login.refuse").collect();
    let count: u64 = refused.iter().map(|entry| entry["count"].as_u64().unwrap()).sum();
    assert_eq!(count, 300, "{refused:?}");
    // One a kind of token in ten minutes, and the ten minutes may end meanwhile.
    assert!((3..=6).contains(&refused.len()), "{refused:?}");
    assert!(refused.iter().all(|entry| entry["who"].as_str().unwrap().contains("127.0.0.1")), "{refused:?}");
    let admin = server.admin_token();
    let id = admin.split('_').nth(1).unwrap();
    assert!(refused.iter().any(|entry| entry["object"] == id), "{refused:?}");
    let text = answer.text();
    for token in &wrong {
        let (_, secret) = token.rsplit_once('_').unwrap();
        assert!(!text.contains(secret), "a stranger's text is in the log");
    }
}

#[test]
fn another_certificate_is_not_trusted() {
    let (_folder, server, disk) = setup();
    let wrong = server.agent().trusting(&"ab".repeat(32));
    wrong.run(&["backup", "--vm", "vm", disk.arg()]).fails(4, &["certificate"]);
    wrong.run(&["list"]).fails(4, &[&server.fingerprint()[..8]]);
    server.agent().back_up("vm", &[disk.arg()]);
}

#[test]
fn tokens_are_for_their_namespaces() {
    let (_folder, server, disk) = setup();
    let red = server.agent().with_token(&server.token("red-agent", "backup", &["red"]));
    let blue = server.agent().with_token(&server.token("blue-agent", "backup", &["blue"]));
    red.back_up("vm", &[disk.arg()]);
    let id = red.backups("vm").remove(0);
    assert!(blue.backups("vm").is_empty());
    for args in [
        &["backup", "--namespace", "red", "--vm", "vm", disk.arg()][..],
        &["list", "--namespace", "red"],
        &["restore", "latest", "--namespace", "red", "--vm", "vm", "--to", "-"],
    ] {
        blue.run(args).fails(4, &["red"]);
    }
    // By id, another namespace's backup looks like a missing one.
    blue.run(&["restore", &id, "--to", "-"]).fails(1, &[&id]);
    blue.run(&["verify", &id]).fails(1, &[&id]);
    assert_eq!(red.backups("vm").len(), 1);
    assert_eq!(
        server.agent().run(&["list", "--namespace", "red", "--json"]).ok().summary()["backups"][0]["backup"],
        id
    );
}

#[test]
fn the_first_start_suggests_a_token_for_one_namespace() {
    let (_folder, server, disk) = setup();
    let log = server.log();
    let line = log.lines().map(str::trim).find(|line| line.starts_with("holdfast-server token create"));
    let words: Vec<&str> = line.expect("a command to create a token").split_whitespace().skip(2).collect();
    let words: Vec<&str> =
        words.into_iter().map(|word| if word == "--join" { "--role=backup" } else { word }).collect();
    let data_dir =
        words.iter().position(|word| *word == "--data-dir").expect("the folder is not the default");
    let (status, said) = server.tokens(&words[..data_dir]);
    assert!(status.success(), "{said}");
    let token = said.lines().map(str::trim).find(|line| line.starts_with("hf_")).expect("a token");
    let agent = server.agent().with_token(token);
    agent.back_up("vm", &[disk.arg()]);
    agent.run(&["backup", "--namespace", "other", "--vm", "vm", disk.arg()]).fails(4, &["other"]);
}

fn may(agent: &Agent, disk: &Disk) -> [bool; 5] {
    let tries: [&[&str]; 5] = [
        &["backup", "--vm", "vm", disk.arg()],
        &["restore", "latest", "--vm", "vm", "--to", "-"],
        &["verify", "latest", "--vm", "vm"],
        &["list"],
        &["report"],
    ];
    tries.map(|args| {
        let ran = agent.run(args);
        assert!(matches!(ran.code, Some(0 | 4)), "{args:?}: {:?} {}", ran.code, ran.stderr);
        ran.succeeded()
    })
}

#[test]
fn each_role_may_do_its_own() {
    let (_folder, server, disk) = setup();
    server.agent().back_up("vm", &[disk.arg()]);
    // backup, restore, verify, list, report
    for (role, expected) in [
        ("backup", [true, true, true, true, true]),
        ("restore", [false, true, true, true, true]),
        ("operator", [true, true, true, true, true]),
        ("admin", [true, true, true, true, true]),
    ] {
        let namespaces: &[&str] = if role == "admin" { &[] } else { &["default"] };
        let agent = server.agent().with_token(&server.token(&format!("new {role}"), role, namespaces));
        assert_eq!(may(&agent, &disk), expected, "{role}");
    }
}

#[test]
fn a_revoked_token_ends_at_once_even_while_serving() {
    let (folder, server, disk) = setup();
    let agent = server.agent().with_token(&server.token("hypervisor", "backup", &["default"]));
    agent.back_up("vm", &[disk.arg()]);
    let large = Disk::of_noise(folder.path().join("large.raw"), 3, 64 << 20);
    let slow = agent.start(&["backup", "--vm", "slow", large.arg(), "--limit-upload", "512K"]);
    let (status, said) = server.tokens(&["revoke", "hypervisor"]);
    assert!(status.success(), "{said}");
    agent.run(&["list"]).fails(4, &["token"]);
    slow.wait().fails(4, &["token"]);
    assert!(server.agent().backups("slow").is_empty(), "nothing half done is visible");
    assert_eq!(server.agent().backups("vm").len(), 1, "what it did before stays");
}

#[test]
fn tokens_are_shown_once_and_kept_as_hashes() {
    let (_folder, server, disk) = setup();
    let token = server.token("hypervisor", "backup", &["default"]);
    server.agent().with_token(&token).back_up("vm", &[disk.arg()]);
    let (status, list) = server.tokens(&["list"]);
    assert!(status.success(), "{list}");
    assert!(list.contains("hypervisor") && list.contains("backup"), "{list}");
    let (_, secret) = token.rsplit_once('_').unwrap();
    assert!(!list.contains(secret));
    assert!(!server.log().contains(secret), "a secret is in the log");
    let admin = server.admin_token();
    for file in files(server.data_dir()) {
        let bytes = std::fs::read(&file).unwrap();
        let holds = |secret: &str| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!holds(secret), "{} holds a token's secret", file.display());
        assert!(file.ends_with("admin.token") || !holds(&admin), "{} holds the admin token", file.display());
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(server.data_dir().join("admin.token")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn names_of_tokens_in_use_are_not_given_twice() {
    let (_folder, server, _disk) = setup();
    server.token("hypervisor", "backup", &["default"]);
    let again = ["create", "--name", "hypervisor", "--role", "restore", "--namespace", "default"];
    let (status, said) = server.tokens(&again);
    assert!(!status.success() && said.contains("hypervisor"), "{status} {said}");
    let (status, said) = server.tokens(&["revoke", "nobody"]);
    assert!(!status.success() && said.contains("nobody"), "{status} {said}");
    // It works while the server runs; the server serves on.
    wait_for("an answer", || server.agent().run(&["list"]).succeeded().then_some(()));
}
