//! Looks at open damage again and again: what proves sound counts again, and what has other copies costs no backup
//! anything any more. So does what agents reported once it was sent again.

use std::sync::Arc;
use std::time::Duration;

use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::core::Core;
use crate::jobs::{Budget, Job, JobError, Step};

/// Between two rounds. A container is looked at once a minute at most.
const INTERVAL: Duration = Duration::from_secs(60);

/// Bytes charged for a container: its directory and, mostly, a region or two.
const CONTAINER_BYTES: u64 = 512 << 10;

/// See the module's text. A crash loses nothing: the next process looks at all open damage.
#[derive(Debug)]
pub(crate) struct DamageJob {
    core: Arc<Core>,
    after: Mutex<After>,
}

/// The places that this round looked at last.
#[derive(Debug, Default)]
struct After {
    damaged: Option<ContainerId>,
    reported: Option<(ContainerId, u16)>,
}

impl DamageJob {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, after: Mutex::default() }
    }
}

impl Job for DamageJob {
    fn name(&self) -> &'static str {
        "damage"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let store = &self.core.store;
        let mut after = self.after.lock();
        for container in store.open_damage() {
            if after.damaged.is_some_and(|after| container <= after) {
                continue;
            }
            // (R4)
            store.look_again(container)?;
            store.close_healed(container)?;
            after.damaged = Some(container);
            budget.charge(1, CONTAINER_BYTES);
            if budget.is_spent() {
                return Ok(Step::More);
            }
        }
        for place in store.reported() {
            if after.reported.is_some_and(|after| place <= after) {
                continue;
            }
            // (N6)
            store.settle_report(place.0, place.1)?;
            after.reported = Some(place);
            budget.charge(1, CONTAINER_BYTES);
            if budget.is_spent() {
                return Ok(Step::More);
            }
        }
        *after = After::default();
        Ok(Step::Idle(INTERVAL))
    }
}
