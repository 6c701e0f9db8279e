//! Status of tasks, and the latest figures of each kind.

use holdfast_engine::catalog::{Catalog, TaskKind, TaskRecord, TaskStatus};
use serde::Deserialize;

use super::super::exposition::Samples;
use super::super::names as n;
use crate::error::ServiceError;

/// Figures of a reclaim round; other kinds, and versions that say less, leave them out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ReclaimFigures {
    freed_bytes: Option<u64>,
    cleanable_bytes: Option<u64>,
}

/// Figures of tasks, as of one moment.
#[derive(Debug)]
pub(super) struct TaskFigures {
    unfinished: Vec<(TaskKind, TaskStatus)>,
    last_done: Vec<TaskRecord>,
}

impl TaskFigures {
    /// Asks the catalog.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) fn gather(catalog: &Catalog) -> Result<Self, ServiceError> {
        let unfinished =
            catalog.unfinished_tasks()?.into_iter().map(|task| (task.kind, task.status)).collect();
        let mut last_done = Vec::new();
        for kind in TaskKind::ALL {
            last_done.extend(catalog.last_done_task(kind)?);
        }
        Ok(Self { unfinished, last_done })
    }

    /// Adds all of them.
    pub(super) fn add(&self, now_ms: i64, samples: &mut Samples) {
        for kind in TaskKind::ALL {
            for status in TaskStatus::ALL.into_iter().filter(|status| !status.has_ended()) {
                let count = self.unfinished.iter().filter(|task| **task == (kind, status)).count();
                samples.whole(&n::TASKS, &[kind.word(), status.word()], count as u64);
            }
        }
        for task in &self.last_done {
            let finished_ms = task.finished_ms.unwrap_or(now_ms);
            let age_secs =
                u32::try_from(now_ms.saturating_sub(finished_ms).max(0) / 1000).unwrap_or(u32::MAX);
            samples.float(&n::TASK_AGE, &[task.kind.word()], age_secs.into());
            if task.kind == TaskKind::Reclaim {
                let figures: ReclaimFigures = serde_json::from_str(&task.figures).unwrap_or_default();
                if let Some(freed) = figures.freed_bytes {
                    samples.whole(&n::RECLAIM_FREED, &[], freed);
                }
                if let Some(cleanable) = figures.cleanable_bytes {
                    samples.whole(&n::RECLAIM_CLEANABLE, &[], cleanable);
                }
            }
        }
    }
}
