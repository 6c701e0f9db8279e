//! Plans a disk's windows in their order, each while the one before is being read: where containers lie far away, their
//! directories have to be fetched first, and reads would wait for that.

use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::limits::WINDOW_EXTENTS;

use super::open::{OnDamage, OpenDisk};
use super::plan::{WindowPlan, plan_window};
use crate::container::RecentDirectories;
use crate::error::EngineError;
use crate::fair::Tenant;
use crate::task::{self, Task};

/// Planner of a disk's windows, one ahead of the window being read.
pub(super) struct Windows {
    disk: Arc<OpenDisk>,
    next_extent: u64,
    end_extent: u64,
    /// Bytes of the disk that are asked for.
    only: Range<u64>,
    on_damage: OnDamage,
    planning: Option<Task<Planning>>,
    /// Directories met by the window before; owned by the planning while there is one.
    recent: RecentDirectories,
}

struct Planning {
    plan: Result<WindowPlan, EngineError>,
    recent: RecentDirectories,
}

impl Windows {
    /// The windows of these extents, with the chunks that have any of the bytes `only` of the disk.
    pub(super) fn new(
        disk: &Arc<OpenDisk>,
        extents: Range<u64>,
        only: Range<u64>,
        on_damage: OnDamage,
    ) -> Self {
        let (next_extent, end_extent) = (extents.start, extents.end);
        let recent = RecentDirectories::default();
        Self { disk: Arc::clone(disk), next_extent, end_extent, only, on_damage, planning: None, recent }
    }

    /// First extent of the next window that is not being planned.
    pub(super) const fn next_extent(&self) -> u64 {
        self.next_extent
    }

    /// Returns true if there is another window.
    pub(super) const fn has_more(&self) -> bool {
        self.planning.is_some() || self.next_extent < self.end_extent
    }

    /// The next window, once it is planned; `None` after the last. The one after it is begun.
    ///
    /// # Errors
    /// Error of reading the recipe.
    pub(super) fn next(&mut self, tenant: Tenant) -> Result<Option<WindowPlan>, EngineError> {
        let Some(planning) = self.planning.take().or_else(|| self.begin(tenant)) else { return Ok(None) };
        let Planning { plan, recent } = planning.wait()?;
        self.recent = recent;
        let plan = plan.map_err(|error| self.disk.name_damage(error))?;
        self.planning = self.begin(tenant);
        Ok(Some(plan))
    }

    fn begin(&mut self, tenant: Tenant) -> Option<Task<Planning>> {
        let (disk, first, on_damage) = (Arc::clone(&self.disk), self.next_extent, self.on_damage);
        let count = self.end_extent.saturating_sub(first).min(WINDOW_EXTENTS as u64);
        if count == 0 {
            return None;
        }
        self.next_extent += count;
        let mut recent = std::mem::take(&mut self.recent);
        let only = self.only.clone();
        Some(task::spawn(&self.disk.core.read_pool, tenant, "planning reads for a restore", move || {
            let plan = plan_window(&disk, (first, count), &only, &mut recent, on_damage);
            Planning { plan, recent }
        }))
    }
}
