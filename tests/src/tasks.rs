//! Tasks of a server, over its REST interface.

use serde_json::{Value, json};

use crate::web::{Answer, get, post};
use crate::{Server, wait_for};

/// Tries to start a task; returns the server's answer.
pub fn try_start(server: &Server, kind: &str, options: &Value) -> Answer {
    post(server, "/api/v1/tasks", &server.admin_token(), &json!({ "kind": kind, "options": options }))
}

/// Starts a task, and returns its id.
///
/// # Panics
/// When the server refuses.
pub fn start(server: &Server, kind: &str, options: &Value) -> String {
    let answer = try_start(server, kind, options);
    assert!((200..300).contains(&answer.status), "start {kind}: {}", answer.text());
    text(&answer.json(), "id").to_owned()
}

/// The current state of a task.
pub fn task(server: &Server, id: &str) -> Value {
    get(server, &format!("/api/v1/tasks/{id}"), &server.admin_token()).json()
}

/// All tasks, newest first.
///
/// # Panics
/// When the list is not as documented.
pub fn all(server: &Server) -> Vec<Value> {
    let answer = get(server, "/api/v1/tasks?page_size=1000", &server.admin_token()).json();
    answer.get("items").and_then(Value::as_array).cloned().unwrap_or_else(|| panic!("no tasks in {answer}"))
}

/// Returns true if a task has ended, in success or failure.
pub fn has_ended(task: &Value) -> bool {
    matches!(text(task, "status"), "done" | "failed" | "cancelled")
}

/// Waits until a task has ended.
pub fn end(server: &Server, id: &str) -> Value {
    wait_for("the end of a task", || Some(task(server, id)).filter(has_ended))
}

/// Runs a task to its end, which must be a success.
///
/// # Panics
/// When it fails.
pub fn run(server: &Server, kind: &str, options: &Value) -> Value {
    let task = end(server, &start(server, kind, options));
    assert_eq!(text(&task, "status"), "done", "{task}");
    task
}

/// Waits until every task has ended, all of them in success.
///
/// # Panics
/// When one failed.
pub fn settle(server: &Server) {
    let tasks = wait_for("all tasks to end", || Some(all(server)).filter(|all| all.iter().all(has_ended)));
    for task in tasks {
        assert_ne!(text(&task, "status"), "failed", "{task}");
    }
}

/// A text of a JSON object.
///
/// # Panics
/// When it has no such text.
pub fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("no text {key:?} in {object}"))
}
