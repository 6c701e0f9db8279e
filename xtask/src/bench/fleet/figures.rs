//! Measured figures, beside the targets of Holdfast.

use super::disks::Kind;
use super::round::Round;
use crate::bench::tables::{self, Table};
use crate::bench::targets::Verdict;

/// Most bytes stored at once, as a multiple of those stored one after another.
const STORED_SHARE_MAX: f64 = 1.02;
/// Limits of the server's memory while all back up, and while all restore.
const BACKUP_PEAK_MAX_BYTES: u64 = 400_000_000;
const RESTORE_PEAK_MAX_BYTES: u64 = 600_000_000;

/// Figures of one tool with one fleet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) tool: &'static str,
    pub(super) kind: Kind,
    pub(super) vms: usize,
    pub(super) one_by_one: Round,
    pub(super) at_once: Round,
    pub(super) restore: Round,
}

impl Row {
    fn fleet(&self) -> String {
        format!("{} {}", self.vms, self.kind.name())
    }

    /// Bytes stored at once, as a multiple of those stored one after another.
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn share(&self) -> f64 {
        self.at_once.stored.bytes as f64 / (self.one_by_one.stored.bytes as f64).max(1.0)
    }

    /// Text shown while the benchmark runs.
    pub(super) fn line(&self) -> String {
        format!(
            "{:<18} stored {:>9} MB one after another, {:>9} MB at once ({:.3}); {:.2} s, {:.2} s; restored in {:.2} s",
            self.fleet(),
            megabytes(self.one_by_one.stored.bytes),
            megabytes(self.at_once.stored.bytes),
            self.share(),
            self.one_by_one.wall.as_secs_f64(),
            self.at_once.wall.as_secs_f64(),
            self.restore.wall.as_secs_f64(),
        )
    }

    fn stored(&self) -> Vec<String> {
        vec![
            self.fleet(),
            self.tool.to_owned(),
            megabytes(self.one_by_one.stored.bytes),
            megabytes(self.at_once.stored.bytes),
            format!("{:.3}", self.share()),
            optional(self.one_by_one.stored.sent_bytes),
            optional(self.at_once.stored.sent_bytes),
        ]
    }

    fn taken(&self, what: &str, round: &Round) -> Vec<String> {
        vec![
            self.fleet(),
            self.tool.to_owned(),
            what.to_owned(),
            format!("{:.2}", round.wall.as_secs_f64()),
            format!("{:.2}", round.cpu.as_secs_f64()),
            megabytes(round.agent_peak_bytes),
            optional(round.server_peak_bytes),
        ]
    }

    /// Verdicts about Holdfast's targets; other tools have none.
    fn verdicts(&self) -> Vec<Verdict> {
        if self.tool != "holdfast" {
            return Vec::new();
        }
        let (share, alone) = (self.share(), self.one_by_one.stored.bytes);
        let stored = Verdict {
            name: format!("{}, stored", self.fleet()),
            measured: format!("{} MB = {share:.3} × one after another", megabytes(self.at_once.stored.bytes)),
            limit: format!("{STORED_SHARE_MAX} × {} MB", megabytes(alone)),
            reached: share <= STORED_SHARE_MAX,
        };
        let memory = |what: &str, round: &Round, max_bytes: u64| {
            round.server_peak_bytes.map(|bytes| Verdict {
                name: format!("{}, server's memory, {what}", self.fleet()),
                measured: format!("{} MB", megabytes(bytes)),
                limit: format!("{} MB", megabytes(max_bytes)),
                reached: bytes <= max_bytes,
            })
        };
        let backup = memory("backups at once", &self.at_once, BACKUP_PEAK_MAX_BYTES);
        let restore = memory("restores at once", &self.restore, RESTORE_PEAK_MAX_BYTES);
        [Some(stored), backup, restore].into_iter().flatten().collect()
    }
}

/// All figures.
#[derive(Debug, Default)]
pub(super) struct Figures(Vec<Row>);

impl Figures {
    pub(super) fn push(&mut self, row: Row) {
        self.0.push(row);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn verdicts(&self) -> Vec<Verdict> {
        self.0.iter().flat_map(Row::verdicts).collect()
    }

    /// Number of missed targets.
    pub(super) fn missed(&self) -> usize {
        self.verdicts().iter().filter(|verdict| !verdict.reached).count()
    }

    pub(super) fn render(&self, markdown: bool) -> String {
        let stored = table(
            "Stored by a fleet, MB",
            [
                "fleet",
                "tool",
                "one after another",
                "at once",
                "ratio",
                "sent one after another",
                "sent at once",
            ],
            self.0.iter().map(Row::stored),
        );
        let taken = self.0.iter().flat_map(|row| {
            [
                row.taken("backups one after another", &row.one_by_one),
                row.taken("backups at once", &row.at_once),
                row.taken("restores at once", &row.restore),
            ]
        });
        let taken = table(
            "What it took",
            ["fleet", "tool", "step", "wall, s", "CPU, s", "largest agent, MB", "server, MB"],
            taken,
        );
        let verdicts = tables::verdicts(self.verdicts());
        [stored, taken, verdicts].map(|table| table.render(markdown)).concat()
    }
}

fn table<const N: usize>(title: &str, header: [&str; N], rows: impl Iterator<Item = Vec<String>>) -> Table {
    let header = header.map(str::to_owned).to_vec();
    Table { title: title.to_owned(), rows: std::iter::once(header).chain(rows).collect() }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn optional(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "–".to_owned(), megabytes)
}

#[cfg(test)]
mod tests {
    use super::super::tools::Stored;
    use super::*;

    fn row(tool: &'static str, at_once_bytes: u64, server_peak_bytes: u64) -> Row {
        let round = |bytes| Round {
            server_peak_bytes: Some(server_peak_bytes),
            stored: Stored { bytes, sent_bytes: Some(bytes) },
            ..Round::default()
        };
        let (one_by_one, at_once, restore) = (round(100_000_000), round(at_once_bytes), round(0));
        Row { tool, kind: Kind::Clones, vms: 8, one_by_one, at_once, restore }
    }

    fn figures(rows: &[Row]) -> Figures {
        Figures(rows.to_vec())
    }

    #[test]
    fn targets_are_judged_at_their_limits_and_for_holdfast_alone() {
        assert_eq!(figures(&[row("holdfast", 102_000_000, 400_000_000)]).missed(), 0);
        assert_eq!(figures(&[row("holdfast", 102_000_001, 400_000_000)]).missed(), 1);
        assert_eq!(figures(&[row("holdfast", 0, 400_000_001)]).missed(), 1);
        assert_eq!(figures(&[row("holdfast", 200_000_000, 600_000_001)]).missed(), 3);
        assert_eq!(figures(&[row("restic", 200_000_000, 600_000_001)]).missed(), 0);
    }

    #[test]
    fn tables_have_every_fleet_and_verdict() {
        let text = figures(&[row("holdfast", 150_000_000, 0), row("restic", 150_000_000, 0)]).render(true);
        assert!(text.contains("| 8 clones | restic | 100.0 | 150.0 | 1.500 | 100.0 | 150.0 |"), "{text}");
        let verdict =
            "| 8 clones, stored | 150.0 MB = 1.500 × one after another | 1.02 × 100.0 MB | MISSED |";
        assert!(text.contains(verdict), "{text}");
        assert!(text.contains("| 8 clones | holdfast | restores at once | 0.00 |"), "{text}");
    }
}
