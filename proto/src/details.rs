//! Compression details: the columns, the derived factors, the totals and their text forms. One module for
//! both sides, so that a report fetched from the server in any way is the same to the byte (H5).

mod escape;
mod render;
mod totals;

pub use escape::{escape_json, escape_line, escape_text, is_unsafe, shell_word};
pub use render::{
    DAYS_COLUMNS, Delimited, Delimiter, Table, bytes, csv, days_table, json, names, totals_columns,
    totals_table, tsv,
};

use crate::api::DetailRow;
pub use crate::api::Totals;

/// Column names, in order. `bytes`, `post_lc` and `bytes/post_lc` are the names Data Domain uses.
pub const COLUMNS: [&str; 26] = [
    "namespace",
    "job",
    "run",
    "vm",
    "disk",
    "backup",
    "status",
    "started",
    "finished",
    "seconds",
    "virtual_bytes",
    "bytes",
    "read_bytes",
    "unchanged_bytes",
    "dup_bytes",
    "new_bytes",
    "post_lc",
    "meta_bytes",
    "wire_bytes",
    "global_factor",
    "local_factor",
    "bytes/post_lc",
    "reduction_pct",
    "chunks",
    "new_chunks",
    "mb_per_s",
];

/// Kept apart because totals have none.
pub const ERROR_COLUMN: &str = "error";

/// The columns of a row after the error: what was added to the report later.
pub const LATER_COLUMNS: [&str; 12] = [
    "retried_post_lc",
    "first_full",
    "level",
    "host",
    "agent",
    "reading_ms",
    "compressing_ms",
    "waiting_ms",
    "point",
    "locked",
    "deleted",
    "deleted_by",
];

/// Numbers derived from a row or a total. `None` where the divisor is 0: nothing was written, so there is
/// no factor. The bytes are those of rows that are done. What attempts before them stored in vain counts as theirs, because
/// they find it there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    /// `bytes / new_bytes`: what deduplication saved (global compression).
    pub global: Option<f64>,
    /// `new_bytes / post_lc`: what compression saved (local compression).
    pub local: Option<f64>,
    /// `bytes / post_lc`.
    pub total: Option<f64>,
    /// `100 × (1 − post_lc / bytes)`.
    pub reduction_pct: Option<f64>,
}

impl Factors {
    /// From the three byte counts.
    #[expect(clippy::cast_precision_loss, reason = "ratios are shown with two decimals")]
    pub fn of(bytes: u64, new_bytes: u64, post_lc: u64) -> Self {
        let ratio = |a: u64, b: u64| (b != 0).then(|| a as f64 / b as f64);
        Self {
            global: ratio(bytes, new_bytes),
            local: ratio(new_bytes, post_lc),
            total: ratio(bytes, post_lc),
            reduction_pct: ratio(post_lc, bytes).map(|share| 100.0 * (1.0 - share)),
        }
    }
}

impl DetailRow {
    /// Factors of the run, with the attempts before it.
    pub fn factors(&self) -> Factors {
        Factors::of(
            self.bytes,
            self.new_bytes.saturating_add(self.retried_new_bytes),
            self.post_lc.saturating_add(self.retried_post_lc),
        )
    }

    /// Duration in seconds.
    pub fn seconds(&self) -> f64 {
        seconds_between(self.started_ms, self.finished_ms)
    }

    /// Protected megabytes (10⁶ of `bytes`) a second; `None` for a run of no duration.
    pub fn mb_per_s(&self) -> Option<f64> {
        mb_per_s(self.bytes, self.started_ms, self.finished_ms)
    }
}

/// Megabytes a second; `None` for no duration.
#[expect(clippy::cast_precision_loss, reason = "a rate is shown with one decimal")]
pub fn mb_per_s(bytes: u64, started_ms: i64, finished_ms: i64) -> Option<f64> {
    let seconds = seconds_between(started_ms, finished_ms);
    (seconds > 0.0).then(|| bytes as f64 / 1e6 / seconds)
}

#[expect(clippy::cast_precision_loss, reason = "durations are shown in milliseconds")]
fn seconds_between(started_ms: i64, finished_ms: i64) -> f64 {
    finished_ms.saturating_sub(started_ms).max(0) as f64 / 1000.0
}

/// Sorts rows so that what dedupes worst comes first: by bytes stored (`post_lc` + `meta_bytes`, with what attempts before it
/// stored in vain), then by the lower total factor.
pub fn sort_worst_first(rows: &mut [DetailRow]) {
    rows.sort_by(|a, b| {
        let stored = |r: &DetailRow| r.post_lc.saturating_add(r.meta_bytes).saturating_add(r.retried_post_lc);
        let factor = |r: &DetailRow| r.factors().total.unwrap_or(f64::INFINITY);
        stored(b).cmp(&stored(a)).then(factor(a).total_cmp(&factor(b)))
    });
}

#[cfg(test)]
pub(crate) mod tests;
