//! Measured rates, beside the targets.

use std::time::Duration;

use super::super::tables::Table;

/// Smallest share of the link for a backup and a restore without losses.
const SHARE_MIN: f64 = 0.85;
/// Smallest multiple of the rate of one TCP connection, with losses.
const TIMES_MIN: f64 = 4.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// A plain TCP connection.
    Plain,
    Backup,
    Restore,
}

impl What {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain TCP",
            Self::Backup => "backup",
            Self::Restore => "restore",
        }
    }
}

/// Number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    One,
    /// As many as the agent chooses, or as requested.
    Several,
}

impl Way {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Several => "several",
        }
    }
}

/// Bytes transferred over the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Figure {
    /// Loss in percent.
    pub(super) loss: f64,
    pub(super) what: What,
    pub(super) way: Way,
    pub(super) bytes: u64,
    pub(super) wall: Duration,
}

impl Figure {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn bits_per_sec(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.wall.as_secs_f64().max(1e-9)
    }
}

/// All figures of one line.
#[derive(Debug)]
pub(super) struct Figures {
    link_bits_per_sec: u64,
    rtt_ms: u64,
    all: Vec<Figure>,
}

struct Verdict {
    name: String,
    measured: String,
    limit: String,
    reached: bool,
}

impl Figures {
    pub(super) const fn new(link_bits_per_sec: u64, rtt_ms: u64) -> Self {
        Self { link_bits_per_sec, rtt_ms, all: Vec::new() }
    }

    pub(super) fn push(&mut self, figure: Figure) {
        self.all.push(figure);
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn share(&self, figure: &Figure) -> f64 {
        figure.bits_per_sec() / self.link_bits_per_sec as f64
    }

    /// Rate as a multiple of that of one plain TCP connection on the same line.
    fn times(&self, figure: &Figure) -> Option<f64> {
        let same = |one: &&Figure| one.what == What::Plain && one.loss.total_cmp(&figure.loss).is_eq();
        Some(figure.bits_per_sec() / self.all.iter().find(same)?.bits_per_sec())
    }

    /// Renders one figure.
    pub(super) fn line(&self, figure: &Figure) -> String {
        self.cells(figure).join("  ")
    }

    fn cells(&self, figure: &Figure) -> Vec<String> {
        vec![
            format!("{} %", figure.loss),
            figure.what.name().to_owned(),
            figure.way.name().to_owned(),
            format!("{:.1}", figure.bytes as f64 / 1e6),
            format!("{:.1}", figure.wall.as_secs_f64()),
            format!("{:.1}", figure.bits_per_sec() / 1e6),
            format!("{:.1} %", self.share(figure) * 100.0),
            self.times(figure).map_or_else(|| "–".to_owned(), |times| format!("{times:.1}")),
        ]
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let several = |one: &&Figure| one.way == Way::Several && one.what != What::Plain;
        let verdict = |figure: &Figure| {
            let name = format!("{}, {} % loss", figure.what.name(), figure.loss);
            if figure.loss > 0.0 {
                let times = self.times(figure)?;
                let measured = format!("{times:.1} × one TCP connection");
                let limit = format!("{TIMES_MIN} ×");
                return Some(Verdict { name, measured, limit, reached: times >= TIMES_MIN });
            }
            let share = self.share(figure);
            let measured = format!("{:.1} % of the link", share * 100.0);
            Some(Verdict {
                name,
                measured,
                limit: format!("{} %", SHARE_MIN * 100.0),
                reached: share >= SHARE_MIN,
            })
        };
        self.all.iter().filter(several).filter_map(verdict).collect()
    }

    pub(super) fn missed(&self) -> usize {
        self.verdicts().iter().filter(|verdict| !verdict.reached).count()
    }

    pub(super) fn render(&self, markdown: bool) -> String {
        let header =
            ["loss", "what", "connections", "data, MB", "seconds", "Mbit/s", "of the link", "× plain TCP"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.all.iter().map(|figure| self.cells(figure)));
        let title = format!("{} ms round trip, {} Mbit/s", self.rtt_ms, self.link_bits_per_sec / 1_000_000);
        let mut verdicts = vec![["target", "measured", "at least", ""].map(str::to_owned).to_vec()];
        verdicts.extend(self.verdicts().into_iter().map(|verdict| {
            let word = if verdict.reached { "reached" } else { "MISSED" };
            vec![verdict.name, verdict.measured, verdict.limit, word.to_owned()]
        }));
        let tables = [Table { title, rows }, Table { title: "Targets".to_owned(), rows: verdicts }];
        tables.iter().filter(|table| table.rows.len() > 1).map(|table| table.render(markdown)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Megabits in ten seconds, over a line of 200 Mbit/s.
    fn figures(all: &[(f64, What, Way, u64)]) -> Figures {
        let mut figures = Figures::new(200_000_000, 150);
        for &(loss, what, way, megabits) in all {
            let (bytes, wall) = (megabits * 125_000, Duration::from_secs(10));
            figures.push(Figure { loss, what, way, bytes, wall });
        }
        figures
    }

    #[test]
    fn a_line_without_loss_is_to_be_filled() {
        let reached = figures(&[(0.0, What::Backup, Way::Several, 1700), (0.0, What::Backup, Way::One, 10)]);
        assert_eq!(reached.missed(), 0, "{}", reached.render(false));
        let missed = figures(&[(0.0, What::Restore, Way::Several, 1690)]);
        assert_eq!(missed.missed(), 1);
        assert!(missed.render(true).contains("| restore, 0 % loss | 84.5 % of the link | 85 % | MISSED |"));
    }

    #[test]
    fn with_loss_the_plain_connection_of_that_line_is_the_measure() {
        let plain = [(0.0, What::Plain, Way::One, 1900), (0.5, What::Plain, Way::One, 15)];
        let with =
            |megabits| figures(&[&plain[..], &[(0.5, What::Restore, Way::Several, megabits)]].concat());
        assert_eq!((with(60).missed(), with(59).missed()), (0, 1));
        let text = with(60).render(true);
        assert!(text.contains("| 0.5 % | restore | several | 7.5 | 10.0 | 6.0 | 3.0 % | 4.0 |"), "{text}");
    }
}
