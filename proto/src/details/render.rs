//! Text forms of compression details: TSV, CSV, JSON, and cells for a table.

use serde::Serialize;

use super::escape::{escape_line, escape_text, is_formula};
use super::{COLUMNS, ERROR_COLUMN, Factors, LATER_COLUMNS, Totals};
use crate::api::{DaysRow, DetailFigures, DetailRow, TotalsRow, UsedNow};
use crate::when::timestamp;

/// Tab-separated, one header line; tabs and line breaks inside a value become spaces. Other control characters
/// and marks that change the direction of text are escaped, a text that a spreadsheet would take for a formula has a `'`
/// before it, and one that begins with a quotation mark is quoted, as in [`csv`].
pub fn tsv(rows: &[DetailRow]) -> String {
    Delimited::new(Delimiter::Tab, None).table(rows)
}

/// Comma-separated (RFC 4180, lines end with LF), one header line; carriage returns inside a value become spaces.
/// Control characters and formulas are treated as in [`tsv`].
pub fn csv(rows: &[DetailRow]) -> String {
    Delimited::new(Delimiter::Comma, None).table(rows)
}

/// Separator of the values of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    Tab,
    Comma,
}

impl Delimiter {
    const fn as_char(self) -> char {
        match self {
            Self::Tab => '\t',
            Self::Comma => ',',
        }
    }

    fn quote(self, value: &str) -> String {
        let mark = if is_formula(value) { "'" } else { "" };
        match self {
            Self::Tab => {
                let line = value.replace(['\t', '\n', '\r'], " ");
                let value = format!("{mark}{}", escape_line(&line));
                // Readers take one at the beginning for the start of a quoted value, which may span lines.
                if value.starts_with('"') { quoted(&value) } else { value }
            }
            Self::Comma => {
                let lines = value.replace('\r', " ");
                let value = format!("{mark}{}", escape_text(&lines));
                if value.contains([',', '"', '\n']) { quoted(&value) } else { value }
            }
        }
    }

    /// Appends one line of `cells` to `text`.
    pub fn line(self, text: &mut String, cells: impl IntoIterator<Item = String>) {
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                text.push(self.as_char());
            }
            text.push_str(&self.quote(&cell));
        }
        text.push('\n');
    }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('"', "\"\""))
}

/// Writes a table piece by piece, so that a long one is never in memory as a whole.
#[derive(Debug, Clone)]
pub struct Delimited {
    delimiter: Delimiter,
    /// One flag for each column, in order: set if it is wanted.
    wanted: Vec<bool>,
}

impl Delimited {
    /// Creates a writer of the columns of these names, in the order of a report; `None`: all.
    pub fn new(delimiter: Delimiter, columns: Option<&[&str]>) -> Self {
        let wanted = |name: &&str| columns.is_none_or(|columns| columns.contains(name));
        Self { delimiter, wanted: names().map(|name| wanted(&name)).collect() }
    }

    /// The line of names.
    pub fn header(&self) -> String {
        let mut text = String::new();
        self.line(&mut text, names().map(str::to_owned));
        text
    }

    /// A line for each row.
    pub fn rows(&self, rows: &[DetailRow]) -> String {
        let mut text = String::new();
        for row in rows {
            self.line(&mut text, cells(row).into_iter());
        }
        text
    }

    fn table(&self, rows: &[DetailRow]) -> String {
        self.header() + &self.rows(rows)
    }

    fn line(&self, text: &mut String, cells: impl Iterator<Item = String>) {
        let wanted = cells.zip(&self.wanted).filter(|(_, wanted)| **wanted);
        self.delimiter.line(text, wanted.map(|(cell, _)| cell));
    }
}

/// Names of all columns, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain([ERROR_COLUMN]).chain(LATER_COLUMNS)
}

/// Columns of sums, in order.
const SUMS_COLUMNS: [&str; 21] = [
    "rows",
    "failed",
    "started",
    "finished",
    "virtual_bytes",
    "bytes",
    "read_bytes",
    "unchanged_bytes",
    "dup_bytes",
    "new_bytes",
    "post_lc",
    "meta_bytes",
    "wire_bytes",
    "chunks",
    "new_chunks",
    "global_factor",
    "local_factor",
    "bytes/post_lc",
    "reduction_pct",
    "done_bytes",
    "done_post_lc",
];

/// A group's sums as text, written as those of one row are.
fn sums_cells(totals: &Totals) -> [String; 21] {
    let Factors { global, local, total, reduction_pct } = totals.factors();
    [
        totals.rows.to_string(),
        totals.failed.to_string(),
        timestamp(totals.started_ms),
        timestamp(totals.finished_ms),
        totals.virtual_bytes.to_string(),
        totals.bytes.to_string(),
        totals.read_bytes.to_string(),
        totals.unchanged_bytes.to_string(),
        totals.dup_bytes.to_string(),
        totals.new_bytes.to_string(),
        totals.post_lc.to_string(),
        totals.meta_bytes.to_string(),
        totals.wire_bytes.to_string(),
        totals.chunks.to_string(),
        totals.new_chunks.to_string(),
        two(global),
        two(local),
        two(total),
        two(reduction_pct),
        totals.done_bytes.to_string(),
        totals.done_post_lc.to_string(),
    ]
}

/// Columns of a table of totals: the names that make a group, its sums, and what it takes now.
pub fn totals_columns() -> impl Iterator<Item = &'static str> {
    let names = ["namespace", "job", "vm", "disk", "run", "vms", "runs"];
    let used = ["used_bytes", "used_at", "used_is_complete"];
    names.into_iter().chain(SUMS_COLUMNS).chain(used)
}

/// Totals as a table of text.
pub fn totals_table(rows: &[TotalsRow], delimiter: Delimiter) -> String {
    let mut text = String::new();
    delimiter.line(&mut text, totals_columns().map(str::to_owned));
    for row in rows {
        let names = [&row.namespace, &row.job, &row.vm, &row.disk, &row.run].map(String::clone);
        let counts = [row.vms.to_string(), row.runs.to_string()];
        let used = row.used.map_or_else(Default::default, |used| {
            [used.used_bytes.to_string(), timestamp(used.at.unix_ms), used.is_complete.to_string()]
        });
        let cells = names.into_iter().chain(counts).chain(sums_cells(&row.sums.totals));
        delimiter.line(&mut text, cells.chain::<[String; 3]>(used));
    }
    text
}

/// The first columns of a table of days.
pub const DAYS_COLUMNS: [&str; 4] = ["span", "day", "namespace", "name"];

/// Days and weeks as a table of text.
pub fn days_table(rows: &[DaysRow], delimiter: Delimiter) -> String {
    let mut text = String::new();
    delimiter.line(&mut text, DAYS_COLUMNS.into_iter().chain(SUMS_COLUMNS).map(str::to_owned));
    for row in rows {
        let names = [row.span.word().to_owned(), row.day.clone(), row.namespace.clone(), row.name.clone()];
        delimiter.line(&mut text, names.into_iter().chain(sums_cells(&row.sums.totals)));
    }
    text
}

/// Two decimals; empty where there is no number.
fn two(number: Option<f64>) -> String {
    number.map(|number| format!("{number:.2}")).unwrap_or_default()
}

/// One row's values as text, in column order; empty where there is no number.
fn cells(row: &DetailRow) -> Vec<String> {
    let Factors { global, local, total, reduction_pct } = row.factors();
    vec![
        row.namespace.clone(),
        row.job.clone(),
        row.run.clone(),
        row.vm.clone(),
        row.disk.clone(),
        row.backup.clone(),
        row.status.word().to_owned(),
        timestamp(row.started_ms),
        timestamp(row.finished_ms),
        format!("{:.3}", row.seconds()),
        row.virtual_bytes.to_string(),
        row.bytes.to_string(),
        row.read_bytes.to_string(),
        row.unchanged_bytes.to_string(),
        row.dup_bytes.to_string(),
        row.new_bytes.to_string(),
        row.post_lc.to_string(),
        row.meta_bytes.to_string(),
        row.wire_bytes.to_string(),
        two(global),
        two(local),
        two(total),
        two(reduction_pct),
        row.chunks.to_string(),
        row.new_chunks.to_string(),
        row.mb_per_s().map(|rate| format!("{rate:.1}")).unwrap_or_default(),
        row.error.clone(),
        row.retried_post_lc.to_string(),
        row.first_full.to_string(),
        row.level.to_string(),
        row.host.clone(),
        row.agent.clone(),
        row.reading_ms.to_string(),
        row.compressing_ms.to_string(),
        row.waiting_ms.to_string(),
        row.point.word().to_owned(),
        row.locked.to_string(),
        timestamp(row.deleted_ms),
        row.deleted_by.clone(),
    ]
}

/// The same values as a JSON array of objects keyed by column name; numbers are numbers, and `null` where
/// there is none.
pub fn json(rows: &[DetailRow]) -> serde_json::Value {
    let columns = |row: &DetailRow| {
        let mut columns = object(row);
        columns.remove("retried_new_bytes");
        columns.extend(object(&row.figures()));
        serde_json::Value::Object(columns)
    };
    rows.iter().map(columns).collect()
}

/// A struct of texts and numbers, which always has a JSON form.
fn object(fields: &impl Serialize) -> serde_json::Map<String, serde_json::Value> {
    match serde_json::to_value(fields) {
        Ok(serde_json::Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

impl DetailRow {
    /// The columns that follow from the others, rounded as they are shown.
    pub fn figures(&self) -> DetailFigures {
        let Factors { global, local, total, reduction_pct } = self.factors();
        let two = |number: Option<f64>| number.map(|number| rounded(number, 2));
        DetailFigures {
            seconds: rounded(self.seconds(), 3),
            global_factor: two(global),
            local_factor: two(local),
            total_factor: two(total),
            reduction_pct: two(reduction_pct),
            mb_per_s: self.mb_per_s().map(|rate| rounded(rate, 1)),
        }
    }
}

/// The number that its text with so many decimals stands for.
fn rounded(number: f64, decimals: usize) -> f64 {
    format!("{number:.decimals$}").parse().unwrap_or(number)
}

/// Cells for people: a header and rows, all text; the caller draws the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table that fits a terminal, one line a row.
    pub fn of_rows(rows: &[DetailRow]) -> Self {
        let header = vec![
            "job",
            "vm",
            "disk",
            "started",
            "time",
            "size",
            "data",
            "unchanged",
            "dup",
            "new",
            "post_lc",
            "meta",
            "global",
            "local",
            "total",
            "MB/s",
            "status",
        ];
        let rows = rows
            .iter()
            .map(|row| {
                let factors = row.factors();
                vec![
                    row.job.clone(),
                    row.vm.clone(),
                    row.disk.clone(),
                    timestamp(row.started_ms).replace('T', " ").chars().take(19).collect(),
                    format!("{:.1} s", row.seconds()),
                    bytes(row.virtual_bytes),
                    bytes(row.bytes),
                    bytes(row.unchanged_bytes),
                    bytes(row.dup_bytes),
                    bytes(row.new_bytes),
                    bytes(row.post_lc),
                    bytes(row.meta_bytes),
                    factor(factors.global),
                    factor(factors.local),
                    factor(factors.total),
                    row.mb_per_s().map_or("-".into(), |rate| format!("{rate:.0}")),
                    row.status.word().to_owned(),
                ]
            })
            .collect();
        Self { header, rows }
    }

    /// One line a group: its name, its sums, and what it takes now.
    pub fn of_totals(groups: &[(String, &Totals, Option<UsedNow>)], what: &'static str) -> Self {
        let header = vec![
            what,
            "disks",
            "failed",
            "size",
            "data",
            "unchanged",
            "dup",
            "new",
            "post_lc",
            "meta",
            "global",
            "local",
            "total",
            "saved",
            "used now",
        ];
        let rows = groups
            .iter()
            .map(|(name, group, used)| {
                let factors = group.factors();
                vec![
                    name.clone(),
                    group.rows.to_string(),
                    group.failed.to_string(),
                    bytes(group.virtual_bytes),
                    bytes(group.bytes),
                    bytes(group.unchanged_bytes),
                    bytes(group.dup_bytes),
                    bytes(group.new_bytes),
                    bytes(group.post_lc),
                    bytes(group.meta_bytes),
                    factor(factors.global),
                    factor(factors.local),
                    factor(factors.total),
                    factors.reduction_pct.map_or("-".into(), |pct| format!("{pct:.1} %")),
                    used.map_or("-".into(), |used| {
                        format!(
                            "{}{}",
                            if used.is_complete { "" } else { "at least " },
                            bytes(used.used_bytes)
                        )
                    }),
                ]
            })
            .collect();
        let mut table = Self { header, rows };
        if groups.iter().all(|(.., used)| used.is_none()) {
            table.header.pop();
            table.rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        table
    }
}

/// "2.34x", or "-" when nothing was stored.
fn factor(factor: Option<f64>) -> String {
    factor.map_or("-".into(), |f| if f < 1000.0 { format!("{f:.2}x") } else { format!("{f:.0}x") })
}

/// Bytes for people: binary units, three significant digits.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = UNITS[0];
    for next in &UNITS[1..] {
        if value < 999.5 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}
