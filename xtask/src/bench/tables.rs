//! Results as tables: for a terminal, or as Markdown.

use super::measure::{Measured, Results};
use super::targets::{self, Verdict, WALL};

/// All tables.
pub(super) fn render(results: &Results, markdown: bool) -> String {
    let mut text = String::new();
    let tools = results.tools();
    let tables = [wall(results, &tools), sums(results, &tools), verdicts(targets::verdicts(results))];
    for table in tables.into_iter().filter(|table| table.rows.len() > 1) {
        text.push_str(&table.render(markdown));
    }
    text
}

/// A title, and rows of which the first is the header.
pub(super) struct Table {
    pub(super) title: String,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn render(&self, markdown: bool) -> String {
        let text = if markdown { self.markdown() } else { self.plain() };
        text + "\n"
    }

    /// Columns padded; the first row is the header.
    fn plain(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns)
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = format!("{}\n", self.title);
        for row in &self.rows {
            for (cell, &width) in row.iter().zip(&widths) {
                text.push_str(&format!("  {cell:<width$}"));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    fn markdown(&self) -> String {
        let mut text = format!("### {}\n\n", self.title);
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                text.push_str(&format!("|{}\n", "---|".repeat(row.len())));
            }
        }
        text
    }
}

fn header(first: &str, tools: &[&str]) -> Vec<String> {
    std::iter::once(first).chain(tools.iter().copied()).map(str::to_owned).collect()
}

/// Wall seconds, and in parentheses the share of restic's.
fn wall(results: &Results, tools: &[&str]) -> Table {
    let mut rows = vec![header("step", tools)];
    for target in &WALL {
        let restic = targets::wall_secs(results, "restic", target.steps);
        let cells =
            tools.iter().map(|tool| match (targets::wall_secs(results, tool, target.steps), restic) {
                (Some(secs), Some(restic)) => format!("{secs:.2} ({:.2})", secs / restic),
                (Some(secs), None) => format!("{secs:.2}"),
                (None, _) => "–".to_owned(),
            });
        rows.push(std::iter::once(target.name.to_owned()).chain(cells).collect());
    }
    rows.retain(|row| row.iter().skip(1).any(|cell| cell != "–"));
    Table { title: "Wall time in seconds (share of restic's)".to_owned(), rows }
}

/// What is summed or taken at its highest over all steps.
fn sums(results: &Results, tools: &[&str]) -> Table {
    let of = |tool: &str| -> Vec<&Measured> { results.all().iter().filter(|m| m.tool == tool).collect() };
    let row = |name: &str, cell: &dyn Fn(&[&Measured]) -> String| -> Vec<String> {
        std::iter::once(name.to_owned()).chain(tools.iter().map(|tool| cell(&of(tool)))).collect()
    };
    let megabytes = |bytes: Option<u64>| match bytes {
        Some(bytes) if bytes > 0 => format!("{}", bytes / 1_000_000),
        _ => "–".to_owned(),
    };
    let last = |all: &[&Measured]| all.iter().rfind(|m| m.step == "repository").copied().cloned();
    Table {
        title: "All steps together".to_owned(),
        rows: vec![
            header("", tools),
            row("wall, s", &|all| format!("{:.1}", all.iter().map(|m| m.wall_secs).sum::<f64>())),
            row("CPU, s", &|all| format!("{:.1}", all.iter().map(|m| m.cpu_secs).sum::<f64>())),
            row("peak memory, MB", &|all| megabytes(all.iter().map(|m| m.peak_bytes).max())),
            row("server peak memory, MB", &|all| megabytes(all.iter().map(|m| m.server_peak_bytes).max())),
            row("repository, MB", &|all| megabytes(last(all).map(|m| m.repository_bytes))),
            row("repository in blocks, MB", &|all| megabytes(last(all).map(|m| m.allocated_bytes))),
        ],
    }
}

/// Targets, and whether they were reached.
pub(super) fn verdicts(verdicts: Vec<Verdict>) -> Table {
    let mut rows = vec![["target", "measured", "at most", ""].map(str::to_owned).to_vec()];
    rows.extend(verdicts.into_iter().map(|verdict| {
        let word = if verdict.reached { "reached" } else { "MISSED" };
        vec![verdict.name, verdict.measured, verdict.limit, word.to_owned()]
    }));
    Table { title: "Targets".to_owned(), rows }
}

#[cfg(test)]
mod tests {
    use super::super::targets::tests::results;
    use super::*;

    #[test]
    fn tables_have_every_tool_and_ratio() {
        let text = render(&results(2000, 2600), false);
        assert!(text.contains("web, next day  10.00 (1.00)  9.00 (0.90)  2.00 (0.20)"), "{text}");
        assert!(text.contains("MISSED"), "{text}");
        let markdown = render(&results(2000, 2200), true);
        assert!(
            markdown.contains("| step | restic | rustic | holdfast |\n|---|---|---|---|\n"),
            "{markdown}"
        );
        assert!(!markdown.contains("MISSED"), "{markdown}");
    }
}
