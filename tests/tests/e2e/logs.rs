//! Logs of both sides: JSON if requested, the same ids in both, and no secrets.

use std::collections::BTreeSet;

use holdfast_tests::proxy::Proxy;
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

/// All values of `field`.
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

/// Waits until the server has logged `message` where `field` is `value`: an agent may have its answer before the
/// server has written its line, and this process has read it.
fn wait_for_line(server: &Server, field: &str, value: &str, message: &str) -> Value {
    wait_for(&format!("the server to log {message:?} with {field} {value}"), || {
        let all = lines(&server.stderr());
        all.into_iter().find(|line| line["message"] == message && values(line, field).contains(&value))
    })
}

fn assert_no_secret(server: &Server, what: &str, text: &str) {
    assert!(!text.contains(&secret_of(server)), "{what} has the token:\n{text}");
}

fn secret_of(server: &Server) -> String {
    let token = server.admin_token();
    let secret = token.rsplit('_').next().unwrap();
    assert!(secret.len() > 20, "a token's last part is its secret");
    secret.to_owned()
}

#[test]
fn both_sides_name_the_session_and_the_request() {
    let folder = tempdir().unwrap();
    let server = Server::options().arg("--log-format=json").start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 6 << 20);
    let ran = agent.run(&["backup", "--vm", "web", "--log-format", "json", "--json", disk.arg()]).ok();
    // Standard output has results and nothing else.
    lines(&String::from_utf8(ran.stdout.clone()).unwrap());
    let ours = lines(&ran.stderr);
    let session = only(&ours, "session");
    let request = only(&ours, "request");
    for message in ["session started", "disk sent", "backup committed"] {
        assert!(messages(&ours, "session", &session).contains(&message), "{message}: {}", ran.stderr);
    }
    let backup = ran.summary()["backup"].as_str().unwrap().to_owned();
    assert!(all(&ours, "backup").contains(&backup), "{}", ran.stderr);

    for message in ["backup started", "session opened", "backup committed"] {
        wait_for_line(&server, "session", &session, message);
    }
    wait_for_line(&server, "request", &request, "backup committed");

    let ran = agent.run(&["verify", "latest", "--vm", "web", "--log-format", "json"]).ok();
    let request = only(&lines(&ran.stderr), "request");
    for message in ["reading back ended", "a client verified a backup"] {
        wait_for_line(&server, "request", &request, message);
    }
    let (status, _) = server.stop();
    assert!(status.success());
}

#[test]
fn a_failure_names_the_session_to_look_for() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 24 << 20);
    let proxy = Proxy::holding(server.grpc(), 4 << 20);
    let agent = server.agent().through(proxy.address());
    let running = agent.start(&["backup", "--vm", "web", "--retry-for", "0s", disk.arg()]);
    // The agent knows its session only once it has the answer. Data it sends of the disk shows that it has.
    super::crash::wait_until_sending(&server, 1 << 20);
    let log = wait_for("the server to log the session", || {
        let log = server.log();
        log.contains("session opened").then_some(log)
    });
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
    let found = wait_for_line(&server, "request", &request, "a client found a backup damaged");
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
    let secret = secret_of(&server);
    let (_, log) = server.stop();
    assert!(log.contains("TRACE"));
    assert!(!log.contains(&secret), "the server's log has the token:\n{log}");
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
