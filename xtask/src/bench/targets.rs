//! Targets of Holdfast, and verdicts.

use super::holdfast::{HOLDFAST, PLAIN};
use super::measure::{Measured, Results};

/// Steps taken together, and Holdfast's largest share of restic's wall time for them.
pub(super) struct WallTarget {
    pub(super) name: &'static str,
    pub(super) steps: &'static [&'static str],
    pub(super) share: f64,
}

/// Wall time targets, relative to restic in the same run.
pub(super) const WALL: [WallTarget; 9] = [
    WallTarget { name: "three first fulls", steps: &["web-day0", "db-day0", "build-day0"], share: 0.30 },
    WallTarget { name: "web, next day", steps: &["web-day1"], share: 0.30 },
    WallTarget { name: "db, next day", steps: &["db-day1"], share: 0.30 },
    WallTarget { name: "build, next day", steps: &["build-day1"], share: 0.30 },
    WallTarget { name: "web, day after", steps: &["web-day2"], share: 0.30 },
    WallTarget { name: "db, day after", steps: &["db-day2"], share: 0.30 },
    WallTarget { name: "build, day after", steps: &["build-day2"], share: 0.30 },
    WallTarget { name: "unchanged disk again", steps: &["build-day2-again"], share: 0.10 },
    WallTarget { name: "restore", steps: &["restore"], share: 0.60 },
];

/// Steps for which encryption may take [`ENCRYPTED_SHARE`] of the wall time without it.
const ENCRYPTED: [(&str, &[&str]); 3] = [
    ("encrypted, three first fulls", &["web-day0", "db-day0", "build-day0"]),
    (
        "encrypted, six daily backups",
        &["web-day1", "db-day1", "build-day1", "web-day2", "db-day2", "build-day2"],
    ),
    ("encrypted, restore", &["restore"]),
];
const ENCRYPTED_SHARE: f64 = 1.05;

/// Share of the smallest peer's repository.
const REPOSITORY_SHARE: f64 = 0.90;
const SERVER_PEAK_MAX_BYTES: u64 = 400_000_000;
const AGENT_PEAK_MAX_BYTES: u64 = 256_000_000;

/// A target and its measured figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Verdict {
    pub(super) name: String,
    pub(super) measured: String,
    pub(super) limit: String,
    pub(super) reached: bool,
}

/// Wall seconds of `steps` together; `None` unless all were measured.
pub(super) fn wall_secs(results: &Results, tool: &str, steps: &[&str]) -> Option<f64> {
    steps.iter().map(|step| results.get(tool, step).map(|measured| measured.wall_secs)).sum()
}

/// Verdicts for every target with figures.
pub(super) fn verdicts(results: &Results) -> Vec<Verdict> {
    let walls = WALL.iter().filter_map(|target| {
        let ours = wall_secs(results, HOLDFAST, target.steps)?;
        let restic = wall_secs(results, "restic", target.steps)?;
        Some(Verdict {
            name: target.name.to_owned(),
            measured: format!("{ours:.2} s = {:.2} × restic", ours / restic),
            limit: format!("{:.2} × {restic:.2} s", target.share),
            reached: ours <= target.share * restic,
        })
    });
    let encrypted = ENCRYPTED.iter().filter_map(|&(name, steps)| {
        let (ours, plain) = (wall_secs(results, HOLDFAST, steps)?, wall_secs(results, PLAIN, steps)?);
        Some(Verdict {
            name: name.to_owned(),
            measured: format!("{ours:.2} s = {:.2} × plain", ours / plain),
            limit: format!("{ENCRYPTED_SHARE:.2} × {plain:.2} s"),
            reached: ours <= ENCRYPTED_SHARE * plain,
        })
    });
    walls.chain(encrypted).chain(repository(results)).chain(memory(results)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn repository(results: &Results) -> Option<Verdict> {
    let ours = results.get(HOLDFAST, "repository")?.repository_bytes as f64;
    let is_peer = |measured: &&Measured| measured.tool != HOLDFAST && measured.tool != PLAIN;
    let peers = results.all().iter().filter(is_peer).filter(|measured| measured.step == "repository");
    let smallest = peers.min_by_key(|measured| measured.repository_bytes)?;
    let theirs = smallest.repository_bytes as f64;
    Some(Verdict {
        name: "repository".to_owned(),
        measured: format!("{:.0} MB = {:.2} × {}", ours / 1e6, ours / theirs, smallest.tool),
        limit: format!("{REPOSITORY_SHARE:.2} × {:.0} MB", theirs / 1e6),
        reached: ours <= REPOSITORY_SHARE * theirs,
    })
}

fn memory(results: &Results) -> Vec<Verdict> {
    let peak = |of: fn(&Measured) -> u64| {
        results.all().iter().filter(|measured| measured.tool == HOLDFAST).map(of).max()
    };
    let verdict = |name: &str, peak_bytes: u64, max_bytes: u64| Verdict {
        name: name.to_owned(),
        measured: format!("{} MB", peak_bytes / 1_000_000),
        limit: format!("{} MB", max_bytes / 1_000_000),
        reached: peak_bytes <= max_bytes,
    };
    let server = peak(|measured| measured.server_peak_bytes);
    let agent = peak(|measured| measured.peak_bytes);
    [
        server.map(|bytes| verdict("server peak memory", bytes, SERVER_PEAK_MAX_BYTES)),
        agent.map(|bytes| verdict("agent peak memory", bytes, AGENT_PEAK_MAX_BYTES)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Number of missed targets.
pub(super) fn missed(results: &Results) -> usize {
    verdicts(results).iter().filter(|verdict| !verdict.reached).count()
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::super::corpus::Size;
    use super::super::measure::Usage;
    use super::*;

    pub(crate) fn results(ours_ms: u64, ours_mb: u64) -> Results {
        let mut results = Results::default();
        for (tool, ms, mb) in
            [("restic", 10_000, 2549), ("rustic", 9000, 2493), ("holdfast", ours_ms, ours_mb)]
        {
            let wall = Duration::from_millis(ms);
            let data_bytes = 1_000_000_000;
            let usage = Usage { wall, cpu: wall, peak_bytes: 100 << 20, data_bytes, ..Usage::default() };
            for step in ["web-day1", "restore"] {
                results.push(Measured::of(tool, step, &usage, Size::default()));
            }
            let size = Size { apparent_bytes: mb * 1_000_000, allocated_bytes: mb * 1_000_000 };
            results.push(Measured::of(tool, "repository", &Usage::default(), size));
        }
        results
    }

    #[test]
    fn only_measured_targets_are_judged_and_at_their_limits() {
        let missed_names = |results: &Results| {
            let all = verdicts(results);
            assert_eq!(all.len(), 5, "web-day1, restore, repository, two peaks");
            all.into_iter().filter(|v| !v.reached).map(|v| v.name).collect::<Vec<_>>()
        };
        assert!(missed_names(&results(3000, 2243)).is_empty());
        assert_eq!(missed_names(&results(3001, 2243)), ["web, next day"]);
        assert_eq!(missed_names(&results(3000, 2244)), ["repository"]);
        assert_eq!(missed(&results(6001, 2244)), 3);
    }

    #[test]
    fn encryption_is_judged_against_the_same_without() {
        let mut results = results(3000, 2000);
        for (plain_ms, reached) in [(2858, true), (2800, false)] {
            results.forget(PLAIN);
            let usage = Usage { wall: Duration::from_millis(plain_ms), ..Usage::default() };
            results.push(Measured::of(PLAIN, "restore", &usage, Size::default()));
            let verdicts = verdicts(&results);
            let restore = verdicts.iter().find(|verdict| verdict.name == "encrypted, restore").unwrap();
            assert_eq!(restore.reached, reached, "{restore:?}");
        }
    }
}
