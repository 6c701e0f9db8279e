//! `holdfast reclaim`: starts it at the server and watches it.

use std::process::ExitCode;

use holdfast_proto::api::{ReclaimOptions, Task, TaskKind};
use holdfast_proto::details::{bytes, escape_line};
use serde_json::Value;

use super::Context;
use super::args::Reclaim;
use super::task::{self, Kind, figure};
use crate::error::ClientError;

const KIND: Kind = Kind {
    kind: TaskKind::Reclaim,
    noun: "the reclaim",
    title: "Reclaim",
    command: "holdfast reclaim",
    damage: &[],
    outcome,
};

pub(super) async fn run(context: &Context, reclaim: &Reclaim) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    if let Some(control) = task::control(&reclaim.steering) {
        return task::steer(context, &connection, KIND, control).await;
    }
    let options = ReclaimOptions {
        dry_run: reclaim.dry_run,
        squeeze: reclaim.squeeze,
        squeeze_level: reclaim.squeeze_level,
        squeeze_min_age_days: reclaim.squeeze_older_than,
        ..ReclaimOptions::default()
    };
    let started = task::start(&connection, KIND, &options).await?;
    task::watch(context, &connection, KIND, started, reclaim.no_wait).await
}

/// A sentence for each thing that was done, or would be.
fn outcome(task: &Task) -> Vec<String> {
    let figures = &task.figures;
    let of = |name: &str| figure(task, name);
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
    if of("moved_containers") > 0 {
        lines.push(format!(
            "moved {} of {}: their data lies in the bucket alone now",
            containers(of("moved_containers")),
            bytes(of("moved_bytes"))
        ));
    }
    if of("frozen_containers") > 0 {
        lines.push(format!(
            "moved {} of {} to the archive: they must be thawed before they can be restored",
            containers(of("frozen_containers")),
            bytes(of("frozen_bytes"))
        ));
    }
    if of("kept_back_containers") > 0 {
        lines.push(format!(
            "kept {} of {} out of the archive: what needs them will be deleted before it has paid off",
            containers(of("kept_back_containers")),
            bytes(of("kept_back_bytes"))
        ));
    }
    if of("containers_held") > 0 {
        lines.push(format!("{} stay until backups under way have ended", containers(of("containers_held"))));
    }
    if of("incomplete") + of("moving_failed") + of("freezing_failed") > 0 {
        lines.extend(task.log.iter().map(|line| escape_line(&line.text).into_owned()));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_read_them() {
        let figures = r#"{"freed_bytes":1500000,"cleanable_bytes":1500000,"dead_bytes":2500000,"containers_deleted":7,
            "deleted_bytes":3000000,"containers_written":1,"copied_bytes":1500000,"squeezed_bytes_before":0,"containers_held":0,
            "incomplete":0,"dry_run":false}"#;
        let said = |figures: &str| {
            let figures = serde_json::from_str(figures).expect("JSON");
            outcome(&task::done(&figures, &["said"])).join("\n")
        };
        let text = said(figures);
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
        let text = |from: &str, to: &str| said(&figures.replace(from, to));
        assert!(text(r#""dry_run":false"#, r#""dry_run":true"#).contains("can be freed now: "));
        assert!(text(r#""incomplete":0"#, r#""incomplete":2"#).ends_with("said"));
        assert!(text(r#"before":0"#, r#"before":9"#).contains("compressed again"));
    }
}
