//! Keeps a flood of wrong tokens from becoming a flood of log and audit entries.

use parking_lot::Mutex;

/// At most one entry in this time, for all callers together: strangers must not make the audit log grow.
const INTERVAL_MS: i64 = 60_000;

#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    unreported: u64,
    reported_ms: Option<i64>,
}

impl Failures {
    /// Counts one. Returns the number to report when a report is due.
    pub(super) fn count(&self, now_ms: i64) -> Option<u64> {
        let mut state = self.0.lock();
        state.unreported = state.unreported.saturating_add(1);
        if state.reported_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < INTERVAL_MS) {
            return None;
        }
        state.reported_ms = Some(now_ms);
        Some(std::mem::take(&mut state.unreported))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_report_an_interval_counts_all() {
        let failures = Failures::default();
        assert_eq!(failures.count(0), Some(1));
        assert_eq!(failures.count(1), None);
        assert_eq!(failures.count(INTERVAL_MS - 1), None);
        assert_eq!(failures.count(INTERVAL_MS), Some(3));
    }
}
