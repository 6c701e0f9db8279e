//! Results as tables: for a terminal, or as Markdown.

use super::measure::{Measured, Results};
use super::targets::{self, Verdict, WALL};

/// Renders all tables.
pub(super) fn render(results: &Results, markdown: bool) -> String {
    let mut text = String::new();
    let tools = results.tools();
    let tables = [
        wall(results, &tools),
        throughput(results, &tools),
        sums(results, &tools),
        verdicts(targets::verdicts(results)),
    ];
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

    /// Renders padded columns; the first row is the header.
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

/// Data of the disks by CPU seconds: of all processes, and in parentheses of each end where there are two.
#[expect(clippy::cast_precision_loss, reason = "shown as whole megabytes")]
fn throughput(results: &Results, tools: &[&str]) -> Table {
    let cell = |tool: &str, steps: &[&str]| -> Option<String> {
        let all: Vec<_> = steps.iter().map(|step| results.get(tool, step)).collect::<Option<_>>()?;
        let sum = |of: fn(&Measured) -> f64| all.iter().copied().map(of).sum::<f64>();
        let megabytes = sum(|m| m.data_bytes as f64 / 1e6);
        let (cpu, server) = (sum(|m| m.cpu_secs), sum(|m| m.server_cpu_secs));
        (megabytes > 0.0 && cpu > 0.0).then(|| match server {
            0.0 => format!("{:.0}", megabytes / cpu),
            _ => format!(
                "{:.0} ({:.0}, {:.0})",
                megabytes / cpu,
                megabytes / (cpu - server),
                megabytes / server
            ),
        })
    };
    let mut rows = vec![header("step", tools)];
    for target in &WALL {
        let cells: Vec<_> = tools.iter().map(|tool| cell(tool, target.steps)).collect();
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
            rows.push(std::iter::once(target.name.to_owned()).chain(cells).collect());
        }
    }
    Table { title: "Disk's data in MB per CPU-second (of the agent, of the server)".to_owned(), rows }
}

/// Runs of one build differ by this much on a quiet machine.
const NOISE_SHARE: f64 = 1.05;

/// Steps that took longer or more CPU time than `earlier`, for every tool: if peers got slower as well, the machine
/// did.
pub(super) fn slower(results: &Results, earlier: &Results) -> Table {
    let mut rows =
        vec![["tool", "step", "what", "earlier, s", "now, s", "ratio"].map(str::to_owned).to_vec()];
    for now in results.all() {
        let Some(before) = earlier.get(&now.tool, &now.step) else { continue };
        for (what, was, is) in
            [("wall", before.wall_secs, now.wall_secs), ("CPU", before.cpu_secs, now.cpu_secs)]
        {
            if is > was * NOISE_SHARE {
                let figures = [format!("{was:.2}"), format!("{is:.2}"), format!("{:.2}", is / was)];
                rows.push(
                    [now.tool.clone(), now.step.clone(), what.to_owned()]
                        .into_iter()
                        .chain(figures)
                        .collect(),
                );
            }
        }
    }
    let title = if rows.len() > 1 { "Slower than before" } else { "Nothing is slower than before" };
    Table { title: format!("{title} (by more than {:.0} %)", (NOISE_SHARE - 1.0) * 100.0), rows }
}

/// Sums and maxima over all steps.
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

/// Targets and verdicts.
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
        assert!(text.contains("web, next day  100     111     500"), "{text}");
    }

    #[test]
    fn what_became_slower_is_named() {
        let (before, now) = (results(2000, 2000), results(2101, 2000));
        let text = slower(&now, &before).render(false);
        assert!(text.contains("holdfast  web-day1  wall  2.00        2.10    1.05"), "{text}");
        assert!(!text.contains("restic"), "{text}");
        let text = slower(&before, &now).render(false);
        assert!(text.starts_with("Nothing is slower"), "{text}");
    }
}
