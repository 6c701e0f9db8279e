//! `holdfast reclaim`: starts it at the server and watches it.

use std::process::ExitCode;
use std::time::Duration;

use holdfast_proto::details::bytes;
use holdfast_proto::v1::{self, TaskControl, TaskStatus};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use super::Context;
use super::args::Reclaim;
use super::delete::time;
use crate::connect::Connection;
use crate::error::{ClientError, EXIT_INTERRUPTED};

const KIND: &str = "reclaim";

/// How often the server is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// Between two lines for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn run(context: &Context, reclaim: &Reclaim) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    if let Some(control) = control(reclaim) {
        let request =
            v1::ControlTaskRequest { id: String::new(), kind: KIND.to_owned(), control: control.into() };
        let task = connection.manage().control_task(request).await?.into_inner();
        return show(context, &task);
    }
    let request = v1::StartReclaimRequest {
        dry_run: reclaim.dry_run,
        squeeze: reclaim.squeeze,
        squeeze_level: reclaim.squeeze_level,
        squeeze_min_age_days: reclaim.squeeze_older_than,
    };
    let task = connection.manage().start_reclaim(request).await?.into_inner();
    if reclaim.no_wait {
        return show(context, &task);
    }
    let task = follow(context, &connection, task).await?;
    let Some(task) = task else {
        context
            .output
            .note("holdfast: the reclaim goes on at the server; 'holdfast reclaim --cancel' ends it");
        return Ok(ExitCode::from(EXIT_INTERRUPTED));
    };
    if task.status() == TaskStatus::Failed {
        return Err(ClientError::Refused {
            code: holdfast_proto::ErrorCode::Internal,
            message: format!("the reclaim failed: {}", task.error),
            passes: false,
        });
    }
    show(context, &task)
}

const fn control(reclaim: &Reclaim) -> Option<TaskControl> {
    match (reclaim.pause, reclaim.resume, reclaim.cancel) {
        (true, _, _) => Some(TaskControl::Pause),
        (_, true, _) => Some(TaskControl::Resume),
        (_, _, true) => Some(TaskControl::Cancel),
        _ => None,
    }
}

/// Watches a task to its end; `None`: the person watching went away.
async fn follow(
    context: &Context,
    connection: &Connection,
    mut task: v1::Task,
) -> Result<Option<v1::Task>, ClientError> {
    let mut progress = Progress::new(context);
    loop {
        progress.show(context, &task);
        if matches!(task.status(), TaskStatus::Done | TaskStatus::Failed | TaskStatus::Cancelled) {
            return Ok(Some(task));
        }
        tokio::select! {
            biased;
            () = context.cancel.cancelled() => return Ok(None),
            () = tokio::time::sleep(ASK_EVERY) => {}
        }
        task = connection.manage().get_task(v1::GetTaskRequest { id: task.id }).await?.into_inner();
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

    fn show(&mut self, context: &Context, task: &v1::Task) {
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
            context.output.note(&format!("reclaim: {}", sentence(task)));
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

fn show(context: &Context, task: &v1::Task) -> Result<ExitCode, ClientError> {
    context.output.summary(|| task_json(task), || task_text(task))?;
    Ok(ExitCode::SUCCESS)
}

/// What it came to, in words; of one that has not ended, how far it is.
fn task_text(task: &v1::Task) -> String {
    let mut lines = vec![format!("Reclaim {}: {}", task.id, sentence(task))];
    if let Ok(figures) = serde_json::from_str::<Value>(&task.figures) {
        lines.extend(outcome(&figures));
        if figure(&figures, "incomplete") > 0 {
            lines.extend(task.log.iter().cloned());
        }
    }
    if !task.error.is_empty() {
        lines.push(task.error.clone());
    }
    lines.join("\n  ")
}

fn figure(figures: &Value, name: &str) -> u64 {
    figures.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// A sentence for each thing that was done, or would be.
fn outcome(figures: &Value) -> Vec<String> {
    let of = |name: &str| figure(figures, name);
    let exact = |name: &str| format!("{} ({} bytes)", bytes(of(name)), of(name));
    let containers =
        |count: u64| if count == 1 { "1 container".to_owned() } else { format!("{count} containers") };
    let mut lines = Vec::new();
    let is_dry = figures.get("dry_run").and_then(Value::as_bool).unwrap_or(false);
    if is_dry {
        lines.push(format!("can be freed now: {}", exact("cleanable_bytes")));
    } else if figures.get("freed_bytes").is_some() {
        lines.push(format!("freed: {}", exact("freed_bytes")));
    }
    let stays = of("dead_bytes").saturating_sub(of("cleanable_bytes"));
    if stays > 0 {
        lines.push(format!(
            "not worth it yet: {} that no restore point needs, in containers that are mostly in use",
            bytes(stays)
        ));
    }
    let (deleted, written) = (of("containers_deleted"), of("containers_written"));
    if deleted + written > 0 {
        lines.push(format!(
            "deleted {} of {}, wrote {} of {}",
            containers(deleted),
            bytes(of("deleted_bytes")),
            containers(written),
            bytes(of("copied_bytes"))
        ));
    }
    if of("squeezed_bytes_before") > 0 {
        let (before, after) = (bytes(of("squeezed_bytes_before")), bytes(of("squeezed_bytes_after")));
        lines.push(format!("compressed again: {before}, now {after}"));
    }
    if of("containers_held") > 0 {
        lines.push(format!("{} stay until backups under way have ended", containers(of("containers_held"))));
    }
    lines
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

fn task_json(task: &v1::Task) -> Value {
    let at = |ms: i64| if ms == 0 { None } else { time(ms) };
    json!({
        "task": task.id,
        "kind": task.kind,
        "status": status_word(task.status()),
        "who": task.who,
        "started": at(task.started_ms),
        "finished": at(task.finished_ms),
        "figures": serde_json::from_str::<Value>(&task.figures).unwrap_or(Value::Null),
        "error": task.error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_read_them() {
        let figures = r#"{"freed_bytes":1500000,"cleanable_bytes":1500000,"dead_bytes":2500000,"containers_deleted":7,
            "deleted_bytes":3000000,"containers_written":1,"copied_bytes":1500000,"squeezed_bytes_before":0,"containers_held":0,
            "incomplete":0,"dry_run":false}"#;
        let task = v1::Task {
            id: "01T".into(),
            status: TaskStatus::Done.into(),
            figures: figures.into(),
            log: vec!["said".into()],
            ..v1::Task::default()
        };
        let text = task_text(&task);
        assert!(text.starts_with("Reclaim 01T: done\n"), "{text}");
        assert!(text.contains("freed: ") && text.contains("(1500000 bytes)"), "{text}");
        assert!(
            text.contains("deleted 7 containers of ") && text.contains("wrote 1 container of "),
            "{text}"
        );
        assert!(text.contains("not worth it yet"), "{text}");
        assert!(
            !text.contains("compressed again") && !text.contains("stay") && !text.contains("said"),
            "{text}"
        );
        let text = |from: &str, to: &str| {
            task_text(&v1::Task { figures: figures.replace(from, to), ..task.clone() })
        };
        assert!(text(r#""dry_run":false"#, r#""dry_run":true"#).contains("can be freed now: "));
        assert!(text(r#""incomplete":0"#, r#""incomplete":2"#).ends_with("said"));
        assert!(text(r#"before":0"#, r#"before":9"#).contains("compressed again"));
        let running = v1::Task { unit: "containers".into(), done: 3, total: 10, ..task };
        assert_eq!(sentence(&running), "done, 3 of 10 containers");
    }
}
