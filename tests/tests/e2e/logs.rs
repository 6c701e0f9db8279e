//! Logs of both sides: JSON where asked for, the same ids in both, and no secrets.

use std::collections::BTreeSet;

use holdfast_tests::repository::{Class, containers_of};
use holdfast_tests::{Disk, Ran, Server, wait_for};
use serde_json::Value;
use tempfile::tempdir;

/// Every line as JSON.
fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// The values of `field` in a line and the spans around it.
fn values<'a>(line: &'a Value, field: &str) -> Vec<&'a str> {
    let spans = line["spans"].as_array().map_or(&[][..], Vec::as_slice);
    spans.iter().chain([line]).filter_map(|place| place[field].as_str()).collect()
}

/// All values of `field` there are.
fn all(lines: &[Value], field: &str) -> BTreeSet<String> {
    lines.iter().flat_map(|line| values(line, field)).map(str::to_owned).collect()
}

/// The messages of lines in which `field` is `value`.
fn messages<'a>(lines: &'a [Value], field: &str, value: &str) -> Vec<&'a str> {
    let of_it = lines.iter().filter(|line| values(line, field).contains(&value));
    of_it.filter_map(|line| line["message"].as_str()).collect()
}

/// The one value of `field`.
fn only(lines: &[Value], field: &str) -> String {
    let found = all(lines, field);
    assert_eq!(found.len(), 1, "{field}: {found:?}");
    found.into_iter().next().unwrap()
}

fn assert_no_secret(server: &Server, what: &str, text: &str) {
    let token = server.admin_token();
    let secret = token.rsplit('_').next().unwrap();
    assert!(secret.len() > 20, "a token's last part is its secret");
    assert!(!text.contains(secret), "{what} has the token:\n{text}");
}

#[test]
fn both_sides_name_the_session_and_the_request() {
    let folder = tempdir().unwrap();
    let server = Server::options().arg("--log-format=json").start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 6 << 20);
    let ran = agent.run(&["backup", "--vm", "web", "--log-format", "json", "--json", disk.arg()]).ok();
    // Standard output is results and nothing else.
    lines(&String::from_utf8(ran.stdout.clone()).unwrap());
    let ours = lines(&ran.stderr);
    let session = only(&ours, "session");
    let request = only(&ours, "request");
    for message in ["session started", "disk sent", "backup committed"] {
        assert!(messages(&ours, "session", &session).contains(&message), "{message}: {}", ran.stderr);
    }
    let backup = ran.summary()["backup"].as_str().unwrap().to_owned();
    assert!(all(&ours, "backup").contains(&backup), "{}", ran.stderr);

    let theirs = lines(&server.stderr());
    let said = messages(&theirs, "session", &session);
    for message in ["backup started", "session opened", "backup committed"] {
        assert!(said.contains(&message), "{message}: {said:?}");
    }
    assert!(messages(&theirs, "request", &request).contains(&"backup committed"), "{}", server.stderr());

    let ran = agent.run(&["verify", "latest", "--vm", "web", "--log-format", "json"]).ok();
    let request = only(&lines(&ran.stderr), "request");
    // The server counts a stream as ended when it has sent its end, which the agent may see first.
    let said = wait_for("the server to log the end of the stream", || {
        let theirs = lines(&server.stderr());
        let said = messages(&theirs, "request", &request).join("; ");
        said.contains("reading back ended").then_some(said)
    });
    assert!(said.contains("a client verified a backup"), "{said}");
    let (status, _) = server.stop();
    assert!(status.success());
}

#[test]
fn a_failure_names_the_session_to_look_for() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 24 << 20);
    let slow = ["backup", "--vm", "web", "--retry-for", "0s", "--limit-upload", "1MB"];
    let running = server.agent().start(&[&slow[..], &[disk.arg()]].concat());
    wait_for("a session", || server.log().contains("session opened").then_some(()));
    let log = server.log();
    server.kill();
    let ran = running.wait().fails(9, &["session"]);
    let session = ran.summary()["session"].as_str().expect("the summary has it, too").to_owned();
    assert!(ran.said().contains(&session), "{}", ran.said());
    assert!(log.contains(&session), "{log}");
}

#[test]
fn damage_found_by_a_client_reaches_the_servers_log() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 20 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    server.stop();
    let containers = containers_of(&data_dir, Class::Data);
    let container = containers.first().unwrap();
    container.flip_bit(container.len / 2);

    let server = Server::options().arg("--log-format=json").start(&data_dir);
    let ran = server.agent().run(&["verify", "latest", "--vm", "web", "--log-format=json"]).fails(5, &[]);
    let ours = lines(&ran.stderr);
    let request = only(&ours, "request");
    assert!(ours.iter().any(|line| line["level"] == "ERROR" && line["exit_code"] == 5), "{}", ran.stderr);
    let theirs = lines(&server.stderr());
    let found = theirs.iter().find(|line| line["message"] == "a client found a backup damaged");
    let found = found.unwrap_or_else(|| panic!("{}", server.stderr()));
    assert_eq!(values(found, "request"), [request]);
    assert_eq!(found["vm"], "web");
    assert!(found["detail"].as_str().unwrap().contains("damaged"), "{found}");
}

#[test]
fn secrets_are_logged_at_no_level() {
    let folder = tempdir().unwrap();
    let server = Server::options()
        .arg("--log-format=json")
        .arg("--log-level=trace")
        .start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 1 << 20);
    let loud = |args: &[&str]| -> Ran {
        server.agent().run(&[args, &["--log-format=json", "--log-level=trace"]].concat())
    };
    for args in [&["backup", "--vm", "web", disk.arg()][..], &["verify", "latest", "--vm", "web"], &["list"]]
    {
        let ran = loud(args).ok();
        lines(&ran.stderr);
        assert!(ran.stderr.contains("TRACE"), "the filter lets everything through");
        assert_no_secret(&server, "the agent's log", &ran.said());
    }
    let wrong = server.agent().with_token(&server.admin_token().replace("hf_", "hf_x"));
    wrong.run(&["list", "--log-level=trace"]).fails(4, &[]);
    assert!(server.stderr().contains("TRACE"));
    assert_no_secret(&server, "the server's log", &server.stderr());
}

#[test]
fn the_format_comes_from_the_environment_as_well() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let mut command = server.agent().command(&["backup", "--vm", "web", "/nonexistent/disk.raw"]);
    command.env("HOLDFAST_LOG_FORMAT", "json").env("HOLDFAST_LOG_LEVEL", "error");
    let output = command.output().unwrap();
    let said = lines(std::str::from_utf8(&output.stderr).unwrap());
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0]["message"].as_str().unwrap().contains("/nonexistent/disk.raw"), "{said:?}");
}
