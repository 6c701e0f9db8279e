//! Joining: a machine becomes an agent by one line, and needs nothing else from then on.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use holdfast_tests::{Disk, Server, program};
use tempfile::{TempDir, tempdir};

/// A machine whose agent knows no server.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Self(tempdir().unwrap())
    }

    fn profile(&self) -> PathBuf {
        self.0.path().join("holdfast/profile.toml")
    }

    fn run(&self, args: &[&str]) -> Output {
        program("holdfast").arg("--profile").arg(self.profile()).args(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = said(&output);
        assert!(output.status.success(), "{args:?}: {said}");
        said
    }

    fn fails(&self, args: &[&str], code: i32, word: &str) {
        let output = self.run(args);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

fn server(folder: &Path) -> Server {
    Server::start(&folder.join("repository"))
}

#[test]
fn one_line_makes_a_machine_an_agent() {
    let folder = tempdir().unwrap();
    let (server, machine) = (server(folder.path()), Machine::new());
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 5 << 20);
    let code = server.join_code("hv1", &["--namespace", "berlin"]);
    let joined = machine.ok(&["agent", "join", &code]);
    assert!(joined.contains("\"hv1\", role backup, namespace berlin"), "{joined}");
    assert!(!joined.contains("hf_"), "the token is on the screen: {joined}");
    let profile = std::fs::metadata(machine.profile()).unwrap();
    assert_eq!(profile.permissions().mode() & 0o777, 0o600);
    assert!(joined.contains("agent.toml") && joined.contains("holdfast agent run --file"), "{joined}");
    assert_eq!(
        std::fs::read_dir(machine.profile().parent().unwrap()).unwrap().count(),
        2,
        "nothing but the profile and the agent's file stays"
    );
    machine.ok(&["agent", "check"]);
    machine.ok(&["backup", "--vm", "web", disk.arg()]);
    let restored = folder.path().join("restored.raw");
    machine.ok(&["restore", "latest", "--vm", "web", "--to", restored.to_str().unwrap()]);
    assert_eq!(std::fs::read(restored).unwrap(), std::fs::read(disk.path()).unwrap());

    // The code is in this machine's history; it gives nothing to whoever finds it.
    Machine::new().fails(&["agent", "join", &code], 4, "was used");
    machine.fails(&["agent", "join", &code], 4, "was used");
    machine.ok(&["list"]);
}

#[test]
fn joining_again_keeps_what_was_configured() {
    let folder = tempdir().unwrap();
    let (server, machine) = (server(folder.path()), Machine::new());
    std::fs::create_dir_all(machine.profile().parent().unwrap()).unwrap();
    std::fs::write(
        machine.profile(),
        "server = 'old.example'\nca = '/old/ca.pem'\ntoken_file = '/old/token'\nnamespace = 'berlin'\n\
         namespace_key = '/keys/berlin'\n",
    )
    .unwrap();
    let agent_file = machine.profile().with_file_name("agent.toml");
    let vms =
        "[[vm]]\nname = 'gone'\nschedule = '@daily'\nnamespace = 'rome'\ndisks = ['/nonexistent/disk.raw']\n";
    std::fs::write(&agent_file, vms).unwrap();
    for name in ["hv1", "hv1-again"] {
        let code = server.join_code(name, &["--namespace", "berlin", "--namespace", "paris"]);
        // As a terminal breaks a long line, in capitals.
        let (begin, end) = code.split_at(60);
        machine.ok(&["agent", "join", begin, &end.to_uppercase()]);
        let profile = std::fs::read_to_string(machine.profile()).unwrap();
        assert!(
            profile.contains("namespace_key = \"/keys/berlin\"")
                && profile.contains("namespace = \"berlin\"")
        );
        assert!(profile.contains(server.grpc()) && !profile.contains("old"), "{profile}");
    }
    assert_eq!(std::fs::read_to_string(&agent_file).unwrap(), vms);
    for problem in ["cannot open /nonexistent/disk.raw", "not valid for namespace rome"] {
        machine.fails(&["agent", "check"], 1, problem);
    }
    std::fs::remove_file(&agent_file).unwrap();
    let code = server.join_code("hv-paris", &["--namespace", "paris", "--role", "restore"]);
    machine.ok(&["agent", "join", &code]);
    assert!(
        !std::fs::read_to_string(machine.profile()).unwrap().contains("namespace = "),
        "it may not use berlin"
    );
    assert!(!agent_file.exists(), "an agent that restores has nothing to do by the clock");
}

#[test]
fn what_cannot_work_is_said_before_the_code_is_spent() {
    let folder = tempdir().unwrap();
    let (server, machine) = (server(folder.path()), Machine::new());
    let code = server.join_code("hv1", &[]);
    let mut mistyped = code.clone();
    mistyped.replace_range(40..41, if &code[40..41] == "a" { "b" } else { "a" });
    machine.fails(&["agent", "join", &mistyped], 2, "typing error");
    machine.fails(&["agent", "join", &code[..80]], 2, "typing error");
    machine.fails(&["agent", "join", &server.admin_token()], 2, "no join code");
    // A folder cannot be made where a file is.
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let profile = file.join("profile.toml");
    let mut command = program("holdfast");
    let output = command.args(["agent", "join", &code, "--profile"]).arg(profile).output().unwrap();
    assert!(!output.status.success(), "{}", said(&output));
    machine.ok(&["agent", "join", &code]);
}

#[test]
fn the_first_address_with_the_right_certificate_is_taken() {
    let folder = tempdir().unwrap();
    let (server, machine) = (server(folder.path()), Machine::new());
    let other = Server::start(&folder.path().join("other"));
    // Nothing listens at the first, another server at the second.
    let elsewhere = format!("127.0.0.1:1,{}", other.grpc());
    let (status, text) = server.tokens(&["create", "--join", "--name", "hv0", "--advertise", &elsewhere]);
    assert!(status.success() && text.contains("Only this machine reaches that"), "{text}");
    let code = text.lines().find_map(|line| line.strip_prefix("holdfast agent join ")).unwrap();
    machine.fails(&["agent", "join", code], 9, other.grpc());
    let all = format!("{elsewhere},{}", server.grpc());
    // The code above was not redeemed, so its name is free.
    let (_, text) = server.tokens(&["create", "--join", "--name", "hv0", "--advertise", &all]);
    let second = text.lines().find_map(|line| line.strip_prefix("holdfast agent join ")).unwrap();
    machine.ok(&["agent", "join", second]);
    assert!(std::fs::read_to_string(machine.profile()).unwrap().contains(server.grpc()));
}

/// The agent dies after the server has redeemed the code and before it has the answer: what is left is its key.
#[test]
fn an_answer_that_was_lost_is_asked_for_again() {
    let folder = tempdir().unwrap();
    let (server, machine) = (server(folder.path()), Machine::new());
    let code = server.join_code("hv1", &[]);
    let (profile, key) = (machine.profile(), machine.profile().with_extension("toml.joining"));
    std::fs::create_dir_all(profile.parent().unwrap()).unwrap();
    std::fs::write(&key, "ab".repeat(32)).unwrap();
    machine.ok(&["agent", "join", &code]);
    let first = std::fs::read_to_string(&profile).unwrap();
    std::fs::remove_file(&profile).unwrap();
    assert!(!key.exists());
    std::fs::write(&key, "ab".repeat(32)).unwrap();
    machine.ok(&["agent", "join", &code]);
    assert_eq!(std::fs::read_to_string(&profile).unwrap(), first);
    machine.ok(&["list"]);
}
