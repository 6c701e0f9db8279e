//! Long work at the server that a command starts, watches and steers.

use std::process::ExitCode;
use std::time::Duration;

use holdfast_proto::ErrorCode;
use holdfast_proto::details::{bytes, escape_line};
use holdfast_proto::v1::{self, TaskControl, TaskStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::cli::Context;
use crate::cli::args::{Scrub, Steering};
use crate::cli::delete::time;
use crate::connect::Connection;
use crate::error::{ClientError, EXIT_INTERRUPTED};

/// How often the server is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Between two lines for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How lines of a log begin that name what cannot be restored.
const DAMAGED: &str = "DAMAGED: ";

/// Log lines that are asked for at the end.
const LOG_LINES: u32 = 1000;

/// How people speak of a kind of task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// As the server calls it.
    pub(super) word: &'static str,
    /// In a sentence, with its article.
    pub(super) noun: &'static str,
    /// At the beginning of a line.
    pub(super) title: &'static str,
    pub(super) command: &'static str,
    /// The figures that say that stored data is damaged when they are not 0.
    pub(super) damage: &'static [&'static str],
    /// What it came to, a sentence for each thing that was done or would be.
    pub(super) outcome: fn(&v1::Task, &Value) -> Vec<String>,
}

/// The last line of the log of a task that is done.
const CLOSING_LINE: &str = "done";

/// A figure of a task; 0: it has none of that name.
pub(super) fn figure(figures: &Value, name: &str) -> u64 {
    figures.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// An outcome for what ends its log with one.
pub(super) fn verdict(task: &v1::Task, _: &Value) -> Vec<String> {
    // The server closes each log with a line of its own.
    let mut lines = task.log.iter().rev().filter(|line| *line != CLOSING_LINE);
    let last = if task.status() == TaskStatus::Done { lines.next() } else { None };
    last.map(|line| escape_line(line).into_owned()).into_iter().collect()
}

/// Does what `steering` says to the task of that kind that has not ended.
pub(super) async fn steer(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    control: TaskControl,
) -> Result<ExitCode, ClientError> {
    let request =
        v1::ControlTaskRequest { id: String::new(), kind: kind.word.to_owned(), control: control.into() };
    let task = connection.manage().control_task(request).await?.into_inner();
    show(context, kind, &task)
}

/// Watches a task that was started, unless `no_wait`, and says what it came to.
pub(super) async fn watch(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    task: v1::Task,
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
    if task.status() == TaskStatus::Failed {
        return Err(ClientError::Refused {
            code: ErrorCode::Internal,
            message: format!("{} failed: {}", kind.noun, task.error),
            passes: false,
        });
    }
    show(context, kind, &task)?;
    if task.status() == TaskStatus::Cancelled {
        return Ok(ExitCode::FAILURE);
    }
    Ok(if found_damage(kind, &task) {
        ExitCode::from(ErrorCode::Damaged.exit_code())
    } else {
        ExitCode::SUCCESS
    })
}

/// What the options of a command say, at most one of them.
pub(super) const fn control(steering: &Steering) -> Option<TaskControl> {
    match (steering.pause, steering.resume, steering.cancel) {
        (true, _, _) => Some(TaskControl::Pause),
        (_, true, _) => Some(TaskControl::Resume),
        (_, _, true) => Some(TaskControl::Cancel),
        _ => None,
    }
}

fn found_damage(kind: Kind, task: &v1::Task) -> bool {
    let figures: Value = serde_json::from_str(&task.figures).unwrap_or_default();
    kind.damage.iter().any(|name| figure(&figures, name) > 0)
}

/// Watches a task to its end; `None`: the person watching went away.
async fn follow(
    context: &Context,
    connection: &Connection,
    kind: Kind,
    mut task: v1::Task,
) -> Result<Option<v1::Task>, ClientError> {
    let get = async |id: String, log_lines| -> Result<v1::Task, ClientError> {
        Ok(connection.manage().get_task(v1::GetTaskRequest { id, log_lines }).await?.into_inner())
    };
    let mut progress = Progress::new(context);
    loop {
        progress.show(context, kind, &task);
        if matches!(task.status(), TaskStatus::Done | TaskStatus::Failed | TaskStatus::Cancelled) {
            return get(task.id, LOG_LINES).await.map(Some);
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(None),
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
        task = get(task.id, 0).await?;
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

    fn show(&mut self, context: &Context, kind: Kind, task: &v1::Task) {
        if context.output.json {
            // A reader that went away does not end the work.
            drop(context.output.json_line(&progress_json(task)));
            return;
        }
        if self.looks {
            if task.total > 0 {
                self.bar.set_length(task.total);
            }
            self.bar.set_position(task.done);
            self.bar.set_message(sentence(task));
        } else if self.said.is_none_or(|said| said.elapsed() >= LINE_EVERY) {
            self.said = Some(std::time::Instant::now());
            context.output.note(&format!("{}: {}", kind.word, sentence(task)));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn sentence(task: &v1::Task) -> String {
    let status = status_word(task.status());
    if task.unit.is_empty() {
        return status.to_owned();
    }
    let amount = |value: u64| if task.unit == "bytes" { bytes(value) } else { value.to_string() };
    let unit = if task.unit == "bytes" { "" } else { &task.unit };
    let of = if task.total > 0 { format!(" of {}", amount(task.total)) } else { String::new() };
    format!("{status}, {}{of} {unit}", amount(task.done)).trim_end().to_owned()
}

const fn status_word(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Unspecified => "unknown",
        TaskStatus::Queued => "queued",
        TaskStatus::Running => "running",
        TaskStatus::Paused => "paused",
        TaskStatus::Done => "done",
        TaskStatus::Failed => "failed",
        TaskStatus::Interrupted => "interrupted",
        TaskStatus::Cancelled => "cancelled",
    }
}

fn show(context: &Context, kind: Kind, task: &v1::Task) -> Result<ExitCode, ClientError> {
    context.output.summary(|| task_json(kind, task), || task_text(kind, task))?;
    Ok(ExitCode::SUCCESS)
}

/// What it came to, in words; of one that has not ended, how far it is; and all that the log says is damaged.
fn task_text(kind: Kind, task: &v1::Task) -> String {
    let mut lines = vec![format!("{} {}: {}", kind.title, task.id, sentence(task))];
    if let Ok(figures) = serde_json::from_str::<Value>(&task.figures) {
        lines.extend((kind.outcome)(task, &figures).into_iter().map(|line| format!("  {line}")));
    }
    if !task.error.is_empty() {
        lines.push(format!("  {}", task.error));
    }
    let damaged = task.log.iter().filter(|line| line.starts_with(DAMAGED));
    lines.extend(damaged.map(|line| escape_line(line).into_owned()));
    lines.join("\n")
}

fn progress_json(task: &v1::Task) -> Value {
    json!({
        "type": "progress",
        "task": task.id,
        "status": status_word(task.status()),
        "done": task.done,
        "total": task.total,
        "unit": task.unit,
    })
}

fn task_json(kind: Kind, task: &v1::Task) -> Value {
    let at = |ms: i64| if ms == 0 { None } else { time(ms) };
    json!({
        "ok": !found_damage(kind, task),
        "task": task.id,
        "kind": task.kind,
        "status": status_word(task.status()),
        "who": task.who,
        "started": at(task.started_ms),
        "finished": at(task.finished_ms),
        "figures": serde_json::from_str::<Value>(&task.figures).unwrap_or(Value::Null),
        "error": task.error,
        "log": task.log,
    })
}

const SCRUB: Kind = Kind {
    word: "scrub",
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
    let started = connection.manage().start_scrub(v1::StartScrubRequest {}).await?.into_inner();
    watch(context, &connection, SCRUB, started, scrub.no_wait).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_came_to_reads_as_people_read_it() {
        let task = v1::Task {
            id: "01T".into(),
            status: TaskStatus::Done.into(),
            figures: r#"{"read_bytes":1500000}"#.into(),
            ..v1::Task::default()
        };
        let outcome = |_: &v1::Task, figures: &Value| vec![format!("read {}", figure(figures, "read_bytes"))];
        let kind = Kind {
            word: "scrub",
            noun: "the scrub",
            title: "Scrub",
            command: "",
            damage: &["lost"],
            outcome,
        };
        assert_eq!(task_text(kind, &task), "Scrub 01T: done\n  read 1500000");
        assert!(!found_damage(kind, &task));
        let lost = v1::Task {
            figures: r#"{"lost":1}"#.into(),
            log: vec!["begun".into(), "DAMAGED: VM \"web\"".into()],
            ..task.clone()
        };
        let text = task_text(kind, &lost);
        assert!(found_damage(kind, &lost) && text.ends_with("\nDAMAGED: VM \"web\""), "{text}");
        let running = v1::Task { unit: "containers".into(), done: 3, total: 10, ..task };
        assert_eq!(sentence(&running), "done, 3 of 10 containers");
    }
}
