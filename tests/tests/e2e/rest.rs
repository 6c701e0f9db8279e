//! The REST API beside the command line: both return the same things in the same words.

use holdfast_tests::web::{get, post};
use holdfast_tests::{Disk, Server};
use serde_json::json;
use tempfile::tempdir;

#[test]
fn tables_downloaded_are_those_of_the_command_line() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let (agent, token) = (server.agent(), server.admin_token());
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 9 << 20);
    agent.run(&["backup", "--vm", "web, \"quoted\"", "--job", "nightly", disk.arg()]).ok();
    agent.run(&["backup", "--vm", "db", "--job", "hourly", disk.arg()]).ok();
    agent.run(&["backup", "--vm", "db", "--job", "hourly", disk.arg()]).ok();
    for (filters, query) in [
        (&[][..], ""),
        (&["--job", "hourly"], "&job=hourly"),
        (&["--vm", "db", "--since", "1h"], "&vm=db&since=1h"),
        (&["--vm", "absent"], "&vm=absent"),
    ] {
        for format in ["tsv", "csv"] {
            let printed = agent.run(&[&["report", "--format", format], filters].concat()).ok();
            let downloaded = get(&server, &format!("/api/v1/details?format={format}{query}"), &token);
            assert_eq!(downloaded.status, 200);
            assert_eq!(downloaded.text(), printed.text(), "{format} {filters:?}");
        }
    }
    let rows = get(&server, "/api/v1/details", &token).json();
    let printed = agent.run(&["report", "--format", "json"]).ok().text();
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    for (item, row) in rows["items"].as_array().unwrap().iter().zip(printed.as_array().unwrap()) {
        for (column, value) in row.as_object().unwrap() {
            assert_eq!(&item[column], value, "{column}");
        }
    }
}

#[test]
fn what_the_api_shows_the_command_line_can_use() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let admin = server.admin_token();
    let made = post(
        &server,
        "/api/v1/tokens",
        &admin,
        &json!({ "name": "hv1", "role": "backup", "namespaces": ["berlin"] }),
    );
    assert_eq!(made.status, 201);
    let token = made.json()["token"].as_str().unwrap().to_owned();
    let agent = server.agent().with_token(&token);
    let disk = Disk::varied(folder.path().join("my disk.raw"), 2, 5 << 20);
    agent.run(&["backup", "--namespace", "berlin", "--vm", "web 1", disk.arg()]).ok();

    let backups = get(&server, "/api/v1/backups", &token).json();
    let command = backups["items"][0]["restore_commands"][0]["command"].as_str().unwrap();
    // As a shell would split it; nothing here needs more than its single quotes.
    let words: Vec<String> = command
        .split('\'')
        .enumerate()
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![part.to_owned()],
        })
        .collect();
    assert_eq!(words[0], "holdfast");
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut run = agent.command(&words);
    let output = run.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let restored = std::fs::read(folder.path().join(words.last().unwrap())).unwrap();
    assert_eq!(blake3::hash(&restored), blake3::hash(&std::fs::read(disk.path()).unwrap()));

    let id = backups["items"][0]["id"].as_str().unwrap();
    agent.run(&["verify", "--namespace", "berlin", id]).ok();
    let verified = get(&server, &format!("/api/v1/backups/{id}"), &token).json();
    assert_eq!((&verified["verify"]["ok"], &verified["verify"]["by"]), (&json!(true), &json!("hv1")));
}

#[test]
fn a_change_is_placed_on_its_disk() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let (agent, token) = (server.agent(), server.admin_token());
    let path = folder.path().join("disk.raw");
    for seed in 1..=3 {
        let disk = Disk::of_noise(path.clone(), seed, 12 << 20);
        agent.back_up("vm", &[disk.arg()]);
    }
    let rows = get(&server, "/api/v1/details?sort=-started&limit=1", &token).json();
    let id = rows["items"][0]["id"].as_str().unwrap();
    let row = get(&server, &format!("/api/v1/details/{id}"), &token).json();
    let extents = &row["explanation"]["extents"];
    assert_eq!((&extents["total"], &extents["changed"]), (&json!(3), &json!(3)), "{row}");
    assert_eq!(extents["compared_backups"], 2, "{row}");
}
