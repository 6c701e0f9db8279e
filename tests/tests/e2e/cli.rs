//! The command line in scripts and for people.

use holdfast_tests::{Agent, Disk, Server};
use serde_json::Value;
use tempfile::tempdir;

/// An agent without a server: usage needs none.
fn nowhere() -> Agent {
    Agent::new("127.0.0.1:1", &format!("hf_01ARZ3NDEKTSV4RRFFQ69G5FAV_{}", "0".repeat(64)), &"ab".repeat(32))
}

const COMMANDS: [&str; 7] = ["login", "backup", "list", "restore", "verify", "report", "estimate"];

#[test]
fn every_command_explains_itself_with_an_example() {
    let all = nowhere().run(&["--help"]).ok().text();
    for command in COMMANDS {
        assert!(all.contains(command), "{command} is not in --help");
        let help = nowhere().run(&[command, "--help"]).ok().text();
        assert!(help.contains(&format!("holdfast {command}")), "{help}");
        assert!(help.to_lowercase().contains("example"), "{command} --help has no examples:\n{help}");
        assert!(help.contains("--json"), "{command} has no --json:\n{help}");
    }
    assert!(nowhere().run(&["--version"]).ok().text().starts_with("holdfast 0."));
}

#[test]
fn shells_complete_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = nowhere().run(&["completions", shell]).ok().text();
        assert!(script.contains("holdfast") && script.contains("estimate"), "{shell}: {script}");
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = tempdir().unwrap();
    let disk = Disk::empty(folder.path().join("disk.raw"), 10);
    for args in [
        &[][..],
        &["bakcup"],
        &["backup", disk.arg()],
        &["backup", "--vm", "vm"],
        &["backup", "--vm", "vm", "--limit-upload", "fast", disk.arg()],
        &["restore", "latest"],
        &["report", "--format", "xml"],
        &["estimate"],
    ] {
        let ran = nowhere().run(args);
        assert_eq!(ran.code, Some(2), "{args:?} says {}", ran.said());
        assert!(!ran.stderr.is_empty(), "{args:?} says nothing");
    }
}

#[test]
fn json_is_lines_of_progress_and_one_summary() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 60 << 20);
    disk.put(40 << 20, &holdfast_tests::disk::noise(9, 1_200_000));
    let to = folder.path().join("restored.raw");
    for args in [
        // 3.7 MB that do not compress take more than a second, so progress is shown.
        &["backup", "--vm", "vm", "--limit-upload", "2M", disk.arg()][..],
        &["list"],
        &["restore", "latest", "--vm", "vm", "--to", to.to_str().unwrap()],
        &["verify", "latest", "--vm", "vm"],
        &["report"],
        &["estimate", disk.arg()],
    ] {
        let ran = agent.run(&[args, &["--json"]].concat()).ok();
        let text = ran.text();
        let kinds: Vec<String> = text
            .lines()
            .map(|line| {
                let value: Value =
                    serde_json::from_str(line).unwrap_or_else(|e| panic!("{args:?}: {e} in {line:?}"));
                value["type"].as_str().unwrap_or_else(|| panic!("no type in {line}")).to_owned()
            })
            .collect();
        let (last, before) = kinds.split_last().unwrap();
        assert_eq!(last, "summary", "{args:?}");
        assert!(before.iter().all(|kind| kind == "progress"), "{args:?}: {kinds:?}");
        assert!(!before.is_empty() || args[0] != "backup", "no progress in a second");
    }
    disk.assert_same(&to);
}

#[test]
fn a_failure_with_json_is_a_summary_too() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let ran = server.agent().run(&["verify", "latest", "--vm", "nobody", "--json"]).fails(1, &["nobody"]);
    let summary = ran.summary();
    assert!(summary.to_string().contains("nobody"), "{summary}");
}

#[test]
fn names_do_nothing_to_a_terminal_or_a_spreadsheet() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 1 << 20);
    agent.run(&["backup", "--vm", "=1+1", disk.arg()]).ok();
    for (format, delimiter) in [("tsv", '\t'), ("csv", ',')] {
        let text = agent.run(&["report", "--format", format]).ok().text();
        assert!(text.split(delimiter).any(|cell| cell == "'=1+1"), "{text}");
    }
    assert_eq!(agent.backups("=1+1").len(), 1, "only spreadsheets see another name");
    let missing = agent.run(&["verify", "latest", "--vm", "none\u{202e}", "--json"]);
    assert!(!missing.succeeded() && missing.said().contains("202e"), "{}", missing.said());
    assert!(!missing.said().contains('\u{202e}'), "{}", missing.said());
}

#[test]
fn a_backup_shows_its_compression_details() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 30 << 20);
    let ran = server.agent().back_up("vm", &[disk.arg()]);
    assert!(ran.said().contains("post_lc"), "{}", ran.said());
    let summary = server.agent().run(&["backup", "--vm", "vm", disk.arg(), "--json"]).ok().summary();
    assert!(summary.to_string().contains("unchanged_bytes"), "{summary}");
}

#[test]
fn login_keeps_a_profile_that_later_commands_use() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 2 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let login = |token: &str| {
        let mut command = server.agent().command(&["login"]);
        command.env("HOME", &home).env("HOLDFAST_TOKEN", token).output().unwrap()
    };
    let wrong = login(&format!("hf_01ARZ3NDEKTSV4RRFFQ69G5FAV_{}", "0".repeat(64)));
    assert_eq!(wrong.status.code(), Some(4), "{wrong:?}");
    let right = login(&server.admin_token());
    assert!(right.status.success(), "{right:?}");
    let mut later = server.agent().command(&["list"]);
    for name in ["HOLDFAST_SERVER", "HOLDFAST_TOKEN", "HOLDFAST_FINGERPRINT"] {
        later.env_remove(name);
    }
    let later = later.env("HOME", &home).output().unwrap();
    assert!(later.status.success(), "{later:?}");
    assert!(String::from_utf8_lossy(&later.stdout).contains("vm"));
    for file in holdfast_tests::repository::files(&home) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o077, 0, "{} may be read by others", file.display());
    }
}

#[test]
fn estimate_needs_no_server_and_tells_what_a_backup_will_come_to() {
    let folder = tempdir().unwrap();
    let disk = Disk::empty(folder.path().join("disk.raw"), 64 << 20);
    for copy in 0..4 {
        disk.put(copy * (16 << 20), &holdfast_tests::disk::text(1, 8 << 20));
    }
    let text = nowhere().run(&["estimate", disk.arg()]).ok().text();
    for word in ["4 KiB", "16 KiB", "64 KiB", "1 MiB", "4 MiB"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    nowhere().run(&["estimate", "--sample", "10%", disk.arg()]).ok();
}
