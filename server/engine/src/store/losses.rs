//! Containers that are missing or cannot be read at all. One can be lost; when many are missing at once, more
//! likely a file system is not mounted or a copy is not complete.
//!
//! Then nothing of it is remembered for good and no backup may begin: it would store everything again, beside
//! what is only away, and mostly on the disk below the mount point.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::health::{Health, Part};

/// Missing containers that are believed to be lost, whatever there is in all.
const BELIEVED: u64 = 16;

/// More than `BELIEVED` must also be more than one of this many.
const SHARE: u64 = 1000;

/// What follows from containers that are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// A few are remembered as lost; many stop all writing.
    #[default]
    Stop,
    /// They are remembered as lost, however many they are.
    Accept,
    /// They are noted in memory only and stop nothing: for a recovery, which drops the rows that nothing needs first.
    Hold,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Losses {
    health: Arc<Health>,
    on_loss: OnLoss,
    /// Found missing since the start: what was known before does not count.
    missing: Mutex<HashSet<ContainerId>>,
    reason: OnceLock<String>,
}

impl Losses {
    pub(super) fn new(health: Arc<Health>, on_loss: OnLoss) -> Self {
        Self { health, on_loss, missing: Mutex::default(), reason: OnceLock::new() }
    }

    /// Counts a missing container. Whether it may be remembered as lost; `total` says how many containers
    /// there should be.
    pub(super) fn is_believed(&self, container: ContainerId, total: impl FnOnce() -> u64) -> bool {
        match self.on_loss {
            OnLoss::Accept => return true,
            OnLoss::Hold => return false,
            OnLoss::Stop => {}
        }
        if self.reason.get().is_some() {
            return false;
        }
        let mut missing = self.missing.lock();
        missing.insert(container);
        let count = missing.len() as u64;
        drop(missing);
        if count <= BELIEVED {
            return true;
        }
        let total = total();
        if count <= total / SHARE {
            return true;
        }
        let reason = self.reason.get_or_init(|| {
            format!(
                "more than {BELIEVED} of {total} containers are missing or unreadable at once, {container} the latest, so they are taken for absent, not for lost: see that the file system of the blobs is mounted and complete, then restart the server; if they are lost for good, run `holdfast-server check --accept-loss`"
            )
        });
        self.health.stop(Part::Data, reason);
        false
    }

    /// It is not missing.
    pub(super) fn is_back(&self, container: ContainerId) {
        self.missing.lock().remove(&container);
    }

    /// Why writing has stopped, when too many are missing.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(on_loss: OnLoss) -> (Losses, Arc<Health>) {
        let health = Arc::new(Health::default());
        (Losses::new(Arc::clone(&health), on_loss), health)
    }

    fn believed(losses: &Losses, count: u64, total: u64) -> u64 {
        (0..count).filter(|number| losses.is_believed(ContainerId::new(*number).unwrap(), || total)).count()
            as u64
    }

    #[test]
    fn a_few_are_lost_and_many_are_absent() {
        let (few, health) = losses(OnLoss::Stop);
        assert_eq!(believed(&few, 16, 16), 16);
        assert!(few.reason().is_none() && health.read_only_reason().is_none());
        let (many, health) = losses(OnLoss::Stop);
        assert_eq!(believed(&many, 40, 16_000), 16);
        assert_eq!(many.reason(), health.read_only_reason());
        let reason = many.reason().unwrap();
        assert!(reason.contains("16000") && reason.contains("mounted"), "{reason}");
        let (share, _) = losses(OnLoss::Stop);
        assert_eq!(believed(&share, 40, 30_000), 30, "0.1 % may be lost");
    }

    #[test]
    fn what_is_back_does_not_count_and_accepted_loss_is_no_limit() {
        let (losses, _) = losses(OnLoss::Stop);
        for number in 0..100 {
            let id = ContainerId::new(number).unwrap();
            assert!(losses.is_believed(id, || 100));
            losses.is_back(id);
        }
        let (accepted, health) = self::losses(OnLoss::Accept);
        assert_eq!(believed(&accepted, 40, 40), 40);
        assert!(health.read_only_reason().is_none());
        let (held, health) = self::losses(OnLoss::Hold);
        assert_eq!(believed(&held, 40, 40), 0);
        assert!(held.reason().is_none() && health.read_only_reason().is_none());
    }
}
