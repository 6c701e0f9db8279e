//! Progress: a bar for a person, a line every 10 s for a log, JSON lines for programs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_proto::details::{bytes, escape_line};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tokio::task::JoinHandle;

use super::output::{self, Output};
use crate::progress::{Snapshot, Tally};

const BAR_EVERY: Duration = Duration::from_millis(200);
const JSON_EVERY: Duration = Duration::from_millis(500);
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows a tally until dropped.
#[derive(Debug)]
pub(super) struct Display {
    tally: Arc<Tally>,
    task: JoinHandle<()>,
    bar: ProgressBar,
    output: Output,
}

impl Display {
    /// Starts to show work on `total_bytes`.
    pub(super) fn start(output: Output, total_bytes: u64) -> Self {
        let tally = Arc::new(Tally::default());
        let looks = output.person_looks();
        let target = if looks { ProgressDrawTarget::stderr_with_hz(5) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(total_bytes), target);
        let template = "{prefix} {wide_bar} {percent:>3} %  {msg}  ETA {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        }
        let shown = Shown { tally: Arc::clone(&tally), bar: bar.clone(), output, total_bytes };
        let every = match (output.json, looks) {
            (true, _) => JSON_EVERY,
            (false, true) => BAR_EVERY,
            (false, false) => LINE_EVERY,
        };
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            loop {
                tokio::time::sleep(every).await;
                shown.show(begun.elapsed().as_secs_f64(), looks);
            }
        });
        Self { tally, task, bar, output }
    }

    /// Returns the tally that progress is reported to.
    pub(super) fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }
}

impl Drop for Display {
    fn drop(&mut self) {
        self.task.abort();
        self.bar.finish_and_clear();
        for notice in self.tally.take_notices() {
            self.output.note(&notice.to_string());
        }
    }
}

struct Shown {
    tally: Arc<Tally>,
    bar: ProgressBar,
    output: Output,
    total_bytes: u64,
}

impl Shown {
    fn show(&self, seconds: f64, looks: bool) {
        let now = self.tally.snapshot();
        for notice in self.tally.take_notices() {
            // On standard error also with --json: standard output has progress and one summary.
            self.bar.suspend(|| self.output.note(&notice.to_string()));
        }
        if self.output.json {
            // A reader that went away does not end the work.
            drop(self.output.json_line(&progress_line(&now, self.total_bytes, seconds)));
        } else if looks {
            self.bar.set_prefix(escape_line(&now.disk).into_owned());
            self.bar.set_position(now.done.done_bytes.min(self.total_bytes));
            self.bar.set_message(sentence(&now, seconds));
        } else {
            let percent = share(&now, self.total_bytes) * 100.0;
            let eta = eta_seconds(&now, self.total_bytes, seconds).map(output::seconds);
            let eta = eta.map(|eta| format!(", ETA {eta}")).unwrap_or_default();
            self.output.note(&format!("{} {percent:.0} %: {}{eta}", now.disk, sentence(&now, seconds)));
        }
    }
}

fn sentence(now: &Snapshot, seconds: f64) -> String {
    if let Some(ahead) = now.ahead {
        return match ahead {
            0 => "waiting for its turn, next in line".to_owned(),
            _ => format!("waiting for its turn, {ahead} ahead"),
        };
    }
    let done = &now.done;
    let new = if done.new_bytes > 0 { format!(", {} new", bytes(done.new_bytes)) } else { String::new() };
    let over =
        if now.connections > 1 { format!(" over {} connections", now.connections) } else { String::new() };
    format!(
        "{} data{new}, {} transferred{over}, {}",
        bytes(done.data_bytes),
        bytes(done.wire_bytes),
        output::rate(done.data_bytes, seconds)
    )
}

#[expect(clippy::cast_precision_loss, reason = "a share is shown in percent")]
fn share(now: &Snapshot, total_bytes: u64) -> f64 {
    if total_bytes == 0 { 1.0 } else { (now.done.done_bytes as f64 / total_bytes as f64).min(1.0) }
}

fn eta_seconds(now: &Snapshot, total_bytes: u64, seconds: f64) -> Option<f64> {
    let share = share(now, total_bytes);
    (share > 0.01).then(|| seconds / share * (1.0 - share))
}

#[expect(clippy::cast_precision_loss, reason = "a rate needs no more than 53 bits")]
fn progress_line(now: &Snapshot, total_bytes: u64, seconds: f64) -> serde_json::Value {
    let rate = if seconds > 0.0 { now.done.data_bytes as f64 / seconds } else { 0.0 };
    json!({
        "type": "progress",
        "disk": now.disk,
        "done_bytes": now.done.done_bytes.min(total_bytes),
        "total_bytes": total_bytes,
        "data_bytes": now.done.data_bytes,
        "new_bytes": now.done.new_bytes,
        "wire_bytes": now.done.wire_bytes,
        "connections": now.connections,
        "seconds": seconds,
        "bytes_per_second": rate.round(),
        "ahead": now.ahead,
        "eta_seconds": eta_seconds(now, total_bytes, seconds).map(f64::round),
    })
}
