//! Output to stdout and stderr. Names, reasons and messages come from the server and from other agents: whatever a
//! terminal would act on is escaped here, on its way out.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use holdfast_proto::details;
use serde_json::{Value, json};

use super::args::Global;
use crate::error::ClientError;

/// Form and amount of a command's output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// Standard error is read by programs: write nothing but log lines to it.
    logs: bool,
}

impl Output {
    /// Creates the output that the flags ask for.
    pub(super) fn new(global: &Global) -> Self {
        Self { json: global.json, quiet: global.quiet, logs: global.log.is_json() }
    }

    /// Text, everything shown.
    pub(super) const fn plain() -> Self {
        Self { json: false, quiet: false, logs: false }
    }

    /// Returns true if a person watches stderr, and may be shown something that moves.
    pub(super) fn person_looks(self) -> bool {
        !self.json && !self.quiet && !self.logs && io::stderr().is_terminal()
    }

    /// Writes text to stdout, with a line break at its end. Only its line breaks and tabs reach the terminal as
    /// control characters.
    ///
    /// # Errors
    /// [`ClientError::File`] when stdout cannot be written. A reader that closed the pipe is not an error: it
    /// has seen what it wanted.
    pub(super) fn text(self, text: &str) -> Result<(), ClientError> {
        self.raw(&details::escape_text(text))
    }

    fn raw(self, text: &str) -> Result<(), ClientError> {
        let mut stdout = io::stdout().lock();
        let line_end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        match write!(stdout, "{text}{line_end}").and_then(|()| stdout.flush()) {
            Err(source) if source.kind() != io::ErrorKind::BrokenPipe => Err(ClientError::File {
                what: "writing",
                path: Path::new("standard output").to_owned(),
                source,
            }),
            _ => Ok(()),
        }
    }

    /// Writes one JSON line to stdout.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(super) fn json_line(self, value: &Value) -> Result<(), ClientError> {
        self.raw(&details::escape_json(&value.to_string()))
    }

    /// Writes the result: a JSON summary, or text.
    ///
    /// # Errors
    /// As [`Output::text`].
    pub(super) fn summary(
        self,
        value: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<(), ClientError> {
        if !self.json {
            return self.text(&text());
        }
        let mut summary = json!({ "type": "summary", "ok": true });
        if let (Some(summary), Value::Object(more)) = (summary.as_object_mut(), value()) {
            summary.extend(more);
        }
        self.json_line(&summary)
    }

    /// Writes something worth knowing to stderr, away from results.
    pub(super) fn note(self, text: &str) {
        if self.logs {
            tracing::info!("{text}");
        } else if !self.quiet {
            // When stderr is closed, no one is left to tell.
            drop(writeln!(io::stderr().lock(), "{}", details::escape_text(text)));
        }
    }

    /// Writes how a command failed.
    pub(super) fn failure(self, error: &ClientError) {
        if self.logs {
            tracing::error!(exit_code = error.exit_code(), session = error.session(), "{error}");
        } else {
            let text = error.to_string();
            drop(writeln!(io::stderr().lock(), "holdfast: {}", details::escape_text(&text)));
        }
        if self.json {
            let summary = json!({
                "type": "summary",
                "ok": false,
                "error": error.to_string(),
                "exit_code": error.exit_code(),
                "session": error.session(),
            });
            drop(self.json_line(&summary));
        }
    }
}

/// Draws a table: one line per row, numbers on the right.
pub(super) fn draw(table: &details::Table) -> String {
    let rows = table.rows.iter().map(|row| row.iter().map(String::as_str));
    draw_cells(&table.header, rows)
}

/// Draws any table; a cell is one line, whatever is in it. Cells that begin with a digit, `-`, `~` or `±` are aligned on the right.
pub(super) fn draw_cells<'a, R>(header: &[&str], rows: impl IntoIterator<Item = R>) -> String
where
    R: IntoIterator<Item = &'a str>,
{
    use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
    let mut drawn = Table::new();
    drawn.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    drawn.set_header(header.iter().copied());
    for row in rows {
        drawn.add_row(row.into_iter().map(|text| {
            let number = text.starts_with(|c: char| c.is_ascii_digit() || "-~±".contains(c));
            let numeric = number && text.chars().count() < 20;
            Cell::new(details::escape_line(text)).set_alignment(if numeric {
                CellAlignment::Right
            } else {
                CellAlignment::Left
            })
        }));
    }
    drawn.trim_fmt()
}

/// `12.3 s`, `4 min 5 s`.
pub(super) fn seconds(seconds: f64) -> String {
    if seconds < 120.0 {
        return format!("{seconds:.1} s");
    }
    let whole = std::time::Duration::from_secs_f64(seconds.min(1e9)).as_secs();
    format!("{} min {} s", whole / 60, whole % 60)
}

/// Bytes per second, in decimal megabytes.
#[expect(clippy::cast_precision_loss, reason = "shown without decimals")]
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".to_owned();
    }
    format!("{:.0} MB/s", bytes as f64 / 1e6 / seconds)
}

/// RFC 3339 to the second, in UTC, for people.
pub(super) fn timestamp(unix_ms: i64) -> String {
    jiff::Timestamp::from_millisecond(unix_ms)
        .map(|time| time.strftime("%Y-%m-%d %H:%M:%S").to_string())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_keeps_to_its_line_and_its_column() {
        let drawn = draw_cells(&["vm", "job"], [["web\nfake\u{1b}[2K", "a\u{202e}b"]]);
        assert_eq!(drawn.lines().count(), 2, "{drawn:?}");
        assert!(drawn.contains("web\\u{a}fake\\u{1b}[2K") && drawn.contains("a\\u{202e}b"), "{drawn:?}");
    }
}
