//! Text forms of compression details: TSV, CSV, JSON, and cells for a table.

use super::{COLUMNS, ERROR_COLUMN, Factors, RowExt, Totals, status_word};
use crate::v1::DetailRow;
use crate::when::timestamp;

/// Tab-separated, one header line; tabs and line breaks inside a value become spaces.
pub fn tsv(rows: &[DetailRow]) -> String {
    delimited(rows, '\t', |value| value.replace(['\t', '\n', '\r'], " "))
}

/// Comma-separated (RFC 4180, lines end with LF), one header line.
pub fn csv(rows: &[DetailRow]) -> String {
    delimited(rows, ',', |value| {
        if value.contains([',', '"', '\n', '\r']) {
            format!("\"{}\"", value.replace('"', "\"\""))
        } else {
            value
        }
    })
}

fn delimited(rows: &[DetailRow], separator: char, quote: impl Fn(String) -> String) -> String {
    let mut text = String::new();
    let mut line = |cells: Vec<String>| {
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                text.push(separator);
            }
            text.push_str(&quote(cell));
        }
        text.push('\n');
    };
    line(COLUMNS.iter().chain([&ERROR_COLUMN]).map(ToString::to_string).collect());
    for row in rows {
        line(cells(row));
    }
    text
}

/// One row's values as text, in column order; empty where there is no number.
fn cells(row: &DetailRow) -> Vec<String> {
    let Factors { global, local, total, reduction_pct } = row.factors();
    let two = |number: Option<f64>| number.map(|n| format!("{n:.2}")).unwrap_or_default();
    vec![
        row.namespace.clone(),
        row.job.clone(),
        row.run.clone(),
        row.vm.clone(),
        row.disk.clone(),
        row.backup.clone(),
        status_word(row.status).to_owned(),
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
    ]
}

/// The same values as a JSON array of objects keyed by column name; numbers are numbers, and `null` where
/// there is none.
pub fn json(rows: &[DetailRow]) -> serde_json::Value {
    rows.iter().map(json_row).collect()
}

fn json_row(row: &DetailRow) -> serde_json::Value {
    const TEXT: [&str; 10] =
        ["namespace", "job", "run", "vm", "disk", "backup", "status", "started", "finished", "error"];
    COLUMNS
        .iter()
        .chain([&ERROR_COLUMN])
        .zip(cells(row))
        .map(|(name, value)| {
            let value = if TEXT.contains(name) {
                value.into()
            } else {
                value.parse::<serde_json::Number>().map_or(serde_json::Value::Null, Into::into)
            };
            ((*name).to_owned(), value)
        })
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Cells for people: a header and rows, all text; whoever shows it draws the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub header: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// What fits a terminal, one line a row.
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
                    status_word(row.status).to_owned(),
                ]
            })
            .collect();
        Self { header, rows }
    }

    /// One line a group.
    pub fn of_totals(groups: &[Totals], what: &'static str) -> Self {
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
        ];
        let rows = groups
            .iter()
            .map(|group| {
                let factors = group.factors();
                vec![
                    group.name.clone(),
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
                ]
            })
            .collect();
        Self { header, rows }
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
