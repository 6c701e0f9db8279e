//! Long work at the server that a command starts, watches and steers.

use std::process::ExitCode;
use std::time::Duration;

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Keyset, StartTask, Task, TaskKind, TaskProgress, TaskStatus};
use holdfast_proto::details::{bytes, escape_line};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::cli::Context;
use crate::cli::args::{Scrub, Steering};
use crate::connect::{Connection, retrying};
use crate::error::{ClientError, EXIT_INTERRUPTED};

/// Interval at which the server is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Time that a server may be away while a task is watched.
const AWAY_FOR: Duration = Duration::from_secs(60);

/// Interval between two lines for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Prefix of log lines that name what cannot be restored.
const DAMAGED: &str = "DAMAGED: ";

/// Log lines that are asked for at the end.
const LOG_LINES: &str = "1000";

/// Tasks looked through for the one that has not ended.
const UNFINISHED_LOOKED_AT: &str = "100";

/// Texts for people about a kind of task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    pub(super) kind: TaskKind,
    /// Name of the kind in a sentence, with its article.
    pub(super) noun: &'static str,
    /// Name of the kind at the beginning of a line.
    pub(super) title: &'static str,
    pub(super) command: &'static str,
    /// The figures that say that stored data is damaged when they are not 0.
    pub(super) damage: &'static [&'static str],
    /// Describes the result, a sentence for each thing that was done or would be.
    pub(super) outcome: fn(&Task) -> Vec<String>,
}

/// The last line of the log of a task that is done.
const CLOSING_LINE: &str = "done";

/// A figure of a task; 0: it has none of that name.
pub(super) fn figure(task: &Task, name: &str) -> u64 {
    task.figures.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// An outcome for what ends its log with one.
pub(super) fn verdict(task: &Task) -> Vec<String> {
    // The server closes each log with a line of its own.
    let mut lines = texts(task).rev().filter(|line| *line != CLOSING_LINE);
    let last = if task.status == TaskStatus::Done { lines.next() } else { None };
    last.map(|line| escape_line(line).into_owned()).into_iter().collect()
}

fn texts(task: &Task) -> impl DoubleEndedIterator<Item = &str> {
    task.log.iter().map(|line| line.text.as_str())
}

/// Starts a task.
pub(super) async fn start(
    connection: &Connection,
    kind: Kind,
    options: &impl Serialize,
) -> Result<Task, ClientError> {
    let unable = |_| ClientError::Internal("options have no JSON form");
    let options = match serde_json::to_value(options).map_err(unable)? {
        Value::Object(options) => options,
        _ => Map::new(),
    };
    connection.api().post(&["tasks"], &StartTask { kind: kind.kind, options }).await
}

/// Does `what` to the task of that kind that has not ended.
pub(super) async fn steer(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    what: &str,
) -> Result<ExitCode, ClientError> {
    let id = under_way(connection, kind.kind).await?;
    let mut task: Task = connection.api().post(&["tasks", &id, what], &json!({})).await?;
    // Nothing has come of it yet.
    task.log.clear();
    show(context, kind, &task)
}

/// The task of that kind that works; else the one that waits.
async fn under_way(connection: &Connection, kind: TaskKind) -> Result<String, ClientError> {
    let parameters = [("kind", kind.word()), ("page_size", UNFINISHED_LOOKED_AT)];
    let page: Keyset<Task> = connection.api().get(&["tasks"], &parameters).await?;
    let unfinished = || page.items.iter().filter(|task| !task.status.has_ended());
    let works = unfinished().find(|task| matches!(task.status, TaskStatus::Running | TaskStatus::Paused));
    works.or_else(|| unfinished().next()).map(|task| task.id.clone()).ok_or_else(|| ClientError::Refused {
        code: ErrorCode::NotFound,
        message: format!("no {} is under way", kind.word()),
        passes: false,
    })
}

/// Watches a task that was started, unless `no_wait`, and says what it came to.
pub(super) async fn watch(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    task: Task,
    no_wait: bool,
) -> Result<ExitCode, ClientError> {
    if no_wait {
        return show(context, kind, &task);
    }
    let goes_on = || {
        let Kind { noun, command, .. } = kind;
        context.output.note(&format!("holdfast: {noun} goes on at the server; '{command} --cancel' ends it"));
    };
    // Watching ends, the work does not.
    let followed = follow(context, connection, kind, task).await.inspect_err(|_| goes_on())?;
    let Some(task) = followed else {
        goes_on();
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    };
    if task.status == TaskStatus::Failed {
        return Err(ClientError::Refused {
            code: ErrorCode::Internal,
            message: format!("{} failed: {}", kind.noun, task.error),
            passes: false,
        });
    }
    show(context, kind, &task)?;
    if task.status == TaskStatus::Cancelled {
        return Ok(ExitCode::FAILURE);
    }
    Ok(if found_damage(kind, &task) {
        ExitCode::from(ErrorCode::Damaged.exit_code())
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the control that a command's options ask for, at most one.
pub(super) const fn control(steering: &Steering) -> Option<&'static str> {
    match (steering.pause, steering.resume, steering.cancel) {
        (true, _, _) => Some("pause"),
        (_, true, _) => Some("resume"),
        (_, _, true) => Some("cancel"),
        _ => None,
    }
}

fn found_damage(kind: Kind, task: &Task) -> bool {
    kind.damage.iter().any(|name| figure(task, name) > 0)
}

/// Watches a task to its end; `None`: the person watching went away.
async fn follow(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    mut task: Task,
) -> Result<Option<Task>, ClientError> {
    let get = async |id: &str, log_lines: &str| -> Result<Task, ClientError> {
        let api = connection.api();
        retrying(AWAY_FOR, async || api.get(&["tasks", id], &[("log_lines", log_lines)]).await).await
    };
    let mut progress = Progress::new(context);
    loop {
        progress.show(context, kind, &task);
        if task.status.has_ended() {
            return get(&task.id, LOG_LINES).await.map(Some);
        }
        let asked = async {
            tokio::time::sleep(ASK_EVERY).await;
            get(&task.id, "1").await
        };
        task = tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(None),
            answer = asked => answer?,
        };
    }
}

/// A bar for a person, lines for a log or for programs.
struct Progress {
    bar: ProgressBar,
    looks: bool,
    said: Option<std::time::Instant>,
}

impl Progress {
    fn new(context: &Context) -> Self {
        let looks = context.output.person_looks();
        let target = if looks { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        Self { bar, looks, said: None }
    }

    fn show(&mut self, context: &Context, kind: Kind, task: &Task) {
        if context.output.json {
            // A reader that went away does not end the work.
            drop(context.output.json_line(&progress_json(task)));
            return;
        }
        if self.looks {
            if task.progress.total > 0 {
                self.bar.set_length(task.progress.total);
            }
            self.bar.set_position(task.progress.done);
            self.bar.set_message(sentence(task));
        } else if self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY) {
            self.said = Some(std::time::Instant::now());
            context.output.note(&format!("{}: {}", kind.kind.word(), sentence(task)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn sentence(task: &Task) -> String {
    let status = task.status.word();
    let TaskProgress { done, total, unit } = &task.progress;
    if unit.is_empty() {
        return status.to_owned();
    }
    let amount = |value: u64| if unit == "bytes" { bytes(value) } else { value.to_string() };
    let of = if *total > 0 { format!(" of {}", amount(*total)) } else { String::new() };
    let unit = if unit == "bytes" { "" } else { unit };
    format!("{status}, {}{of} {unit}", amount(*done)).trim_end().to_owned()
}

fn show(context: &Context, kind: Kind, task: &Task) -> Result<ExitCode, ClientError> {
    context.output.summary(|| task_json(kind, task), || task_text(kind, task))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes the result of a task, or its progress if it has not ended, and all that its log says is damaged.
fn task_text(kind: Kind, task: &Task) -> String {
    let mut lines = vec![format!("{} {}: {}", kind.title, task.id, sentence(task))];
    if !task.figures.is_empty() {
        lines.extend((kind.outcome)(task).into_iter().map(|line| format!("  {line}")));
    }
    if !task.error.is_empty() {
        lines.push(format!("  {}", task.error));
    }
    let damaged = texts(task).filter(|line| line.starts_with(DAMAGED));
    lines.extend(damaged.map(|line| escape_line(line).into_owned()));
    lines.join("\n")
}

fn progress_json(task: &Task) -> Value {
    json!({
        "type": "progress",
        "task": task.id,
        "status": task.status,
        "done": task.progress.done,
        "total": task.progress.total,
        "unit": task.progress.unit,
    })
}

fn task_json(kind: Kind, task: &Task) -> Value {
    json!({
        "ok": !found_damage(kind, task),
        "task": task.id,
        "kind": task.kind,
        "status": task.status,
        "who": task.who,
        "started": task.started,
        "finished": task.finished,
        // Until there are any.
        "figures": if task.figures.is_empty() { Value::Null } else { Value::Object(task.figures.clone()) },
        "error": task.error,
        "log": texts(task).collect::<Vec<_>>(),
    })
}

const SCRUB: Kind = Kind {
    kind: TaskKind::Scrub,
    noun: "the scrub",
    title: "Scrub",
    command: "holdfast scrub",
    // A container of which everything has other copies, or parity, loses nothing.
    damage: &["unsound_restore_points", "false_digests", "lost_bytes"],
    outcome: verdict,
};

/// `holdfast scrub`: starts it at the server and watches it.
pub(super) async fn run_scrub(context: &Context, scrub: &Scrub) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    if let Some(control) = control(&scrub.steering) {
        return steer(context, &connection, SCRUB, control).await;
    }
    let started = start(&connection, SCRUB, &json!({})).await?;
    watch(context, &connection, SCRUB, started, scrub.no_wait).await
}

/// A task that came to that.
#[cfg(test)]
pub(super) fn done(figures: &Value, log: &[&str]) -> Task {
    let log: Vec<Value> = log
        .iter()
        .map(|text| json!({ "number": 1, "at": "2026-01-31T00:00:00.000Z", "text": text }))
        .collect();
    serde_json::from_value(json!({
        "id": "01T", "kind": "scrub", "status": "done", "who": "admin", "scheduled": false, "options": {},
        "created": "2026-01-31T00:00:00.000Z", "started": null, "finished": null, "attempts": 1,
        "progress": { "done": 0, "total": 0, "unit": "" }, "figures": figures, "error": "", "log": log,
    }))
    .expect("a task")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_came_to_reads_as_people_read_it() {
        let task = done(&json!({ "read_bytes": 1_500_000 }), &[]);
        let outcome = |task: &Task| vec![format!("read {}", figure(task, "read_bytes"))];
        let kind = Kind {
            kind: TaskKind::Scrub,
            noun: "the scrub",
            title: "Scrub",
            command: "",
            damage: &["lost"],
            outcome,
        };
        assert_eq!(task_text(kind, &task), "Scrub 01T: done\n  read 1500000");
        assert!(!found_damage(kind, &task));
        let lost = done(&json!({ "lost": 1 }), &["begun", "DAMAGED: VM \"web\""]);
        let text = task_text(kind, &lost);
        assert!(found_damage(kind, &lost) && text.ends_with("\nDAMAGED: VM \"web\""), "{text}");
        let progress = TaskProgress { done: 3, total: 10, unit: "containers".into() };
        assert_eq!(sentence(&Task { progress, ..task }), "done, 3 of 10 containers");
        assert_eq!(task_json(kind, &done(&json!({}), &[]))["figures"], Value::Null);
    }
}
