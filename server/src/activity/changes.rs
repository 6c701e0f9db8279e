//! What has changed since the start, by kind of thing: lists that are shown, or kept, are asked for again after it.

use tokio::sync::watch;

/// How often each kind of thing changed since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) details: u64,
    pub(crate) backups: u64,
    pub(crate) tokens: u64,
    pub(crate) tasks: u64,
    pub(crate) policies: u64,
}

/// A change worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A restore point was made, or verified.
    Backup,
    /// A run ended without one.
    Run,
    Tokens,
    /// A task or schedule, or how far a task is.
    Tasks,
    /// A retention policy.
    Policies,
}

/// Counts changes, and wakes those who wait for one.
#[derive(Debug, Default)]
pub(crate) struct ChangeCounts(watch::Sender<Changes>);

impl ChangeCounts {
    /// Counts a change.
    pub(super) fn note(&self, change: Change) {
        self.0.send_modify(|changes| match change {
            Change::Backup => {
                changes.details = changes.details.wrapping_add(1);
                changes.backups = changes.backups.wrapping_add(1);
            }
            Change::Run => changes.details = changes.details.wrapping_add(1),
            Change::Tokens => changes.tokens = changes.tokens.wrapping_add(1),
            Change::Tasks => changes.tasks = changes.tasks.wrapping_add(1),
            Change::Policies => changes.policies = changes.policies.wrapping_add(1),
        });
    }

    /// The counts now.
    pub(crate) fn now(&self) -> Changes {
        *self.0.borrow()
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Changes> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_restore_point_changes_details_too() {
        let counts = ChangeCounts::default();
        let waiting = counts.subscribe();
        assert!(!waiting.has_changed().unwrap());
        counts.note(Change::Backup);
        counts.note(Change::Run);
        counts.note(Change::Tokens);
        counts.note(Change::Tasks);
        counts.note(Change::Policies);
        assert!(waiting.has_changed().unwrap());
        assert_eq!(counts.now(), Changes { details: 2, backups: 1, tokens: 1, tasks: 1, policies: 1 });
    }
}
