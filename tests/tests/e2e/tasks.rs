//! Tasks of a real server: started, paused, kept over a restart and a kill, resumed, and in the history.

use std::path::Path;

use holdfast_tests::web::{get, post};
use holdfast_tests::{Disk, Server, wait_for};
use serde_json::{Value, json};
use tempfile::tempdir;

fn tell(server: &Server, path: &str, body: &Value) -> Value {
    let answer = post(server, &format!("/api/v1/tasks{path}"), &server.admin_token(), body);
    assert!((200..300).contains(&answer.status), "{path}: {}", answer.text());
    answer.json()
}

fn task(server: &Server, id: &str) -> Value {
    get(server, &format!("/api/v1/tasks/{id}"), &server.admin_token()).json()
}

fn until(server: &Server, id: &str, status: &str) -> Value {
    wait_for(&format!("a task that is {status}"), || {
        Some(task(server, id)).filter(|task| task["status"] == status)
    })
}

/// So slow that no task ends by itself.
fn slow(data_dir: &Path) -> Server {
    Server::options().arg("--task-rate=1KiB").start(data_dir)
}

/// A repository with a VM of several extents, and a running verification; returns its id.
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by them")]
fn begun(data_dir: &Path, folder: &Path) -> (Server, String) {
    let server = slow(data_dir);
    let disk = Disk::of_noise(folder.join("disk.raw"), 1, 13 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    let started = tell(&server, "", &json!({ "kind": "verify" }));
    let id = started["id"].as_str().unwrap().to_owned();
    until(&server, &id, "running");
    (server, id)
}

#[test]
fn a_paused_verification_outlives_a_restart_and_is_resumed() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let (server, id) = begun(&data_dir, folder.path());
    assert_eq!(tell(&server, &format!("/{id}/pause"), &json!({}))["status"], "paused");
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");

    let server = Server::start(&data_dir);
    assert_eq!(task(&server, &id)["status"], "paused", "{}", task(&server, &id));
    tell(&server, &format!("/{id}/resume"), &json!({}));
    let done = until(&server, &id, "done");
    assert_eq!((&done["attempts"], &done["figures"]["sound"]), (&json!(2), &json!(1)), "{done}");
    assert_eq!(done["figures"]["bytes"], json!(13 << 20), "{done}");
    let points = get(&server, "/api/v1/backups", &server.admin_token()).json();
    assert!(points.to_string().contains("read and found sound by the server"), "{points}");
    let history = get(&server, "/api/v1/tasks?kind=verify", &server.admin_token()).json();
    assert_eq!((&history["items"][0]["id"], &history["items"][0]["status"]), (&json!(id), &json!("done")));
}

#[test]
fn what_ran_begins_again_after_a_shutdown_and_after_a_kill() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let (server, id) = begun(&data_dir, folder.path());
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let server = slow(&data_dir);
    let second = until(&server, &id, "running");
    assert_eq!(second["attempts"], 2, "{second}");
    server.kill();
    let server = Server::start(&data_dir);
    let done = until(&server, &id, "done");
    assert_eq!(done["attempts"], 3, "{done}");
    let log: Vec<_> = done["log"].as_array().unwrap().iter().map(|line| line["text"].clone()).collect();
    let interrupted = "interrupted by the end of the server; begins again";
    assert_eq!(log.iter().filter(|text| **text == interrupted).count(), 2, "{log:?}");
}

#[test]
fn a_cancelled_task_ends_and_the_next_one_begins() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let (server, id) = begun(&data_dir, folder.path());
    let next = tell(&server, "", &json!({ "kind": "verify", "options": { "vm": "another" } }));
    assert_eq!(next["status"], "queued");
    tell(&server, &format!("/{id}/cancel"), &json!({}));
    until(&server, &id, "cancelled");
    let next = until(&server, next["id"].as_str().unwrap(), "done");
    assert_eq!(next["progress"]["total"], 0, "there is no such VM: {next}");
}
