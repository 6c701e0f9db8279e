//! How fast tasks may be.

use std::num::NonZeroU64;

use crate::config::Settings;
use crate::jobs::Throttle;

/// What tasks may take, each of those that run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    idle: Throttle,
    busy: Throttle,
}

impl Limits {
    /// Without bounds, but with that share while something else is in progress.
    pub(crate) const fn new(bytes_per_sec: Option<NonZeroU64>, share_pct: u32, busy_pct: u32) -> Self {
        let (idle, busy) = (Throttle::share(share_pct), Throttle::share(busy_pct));
        match bytes_per_sec {
            Some(rate) => Self { idle: idle.with_bytes_per_sec(rate), busy: busy.with_bytes_per_sec(rate) },
            None => Self { idle, busy },
        }
    }

    /// As the settings say.
    pub(crate) const fn of(settings: &Settings) -> Self {
        let rate = NonZeroU64::new(settings.task_rate.0);
        Self::new(rate, settings.task_share, settings.task_share_busy)
    }

    /// What holds now. `busy`: a backup or restore is in progress.
    pub(super) const fn now(&self, busy: bool) -> Throttle {
        if busy { self.busy } else { self.idle }
    }
}
