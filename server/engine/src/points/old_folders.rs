//! Points in folders that show names: earlier versions called the folders of namespaces and VMs by what people call these.
//! Where everything else on a volume is encrypted, such a point is sealed anew where it belongs (L5), and the folders go.
//!
//! There is no place to keep: what was done shows in the names. A crash leaves a stale row, which the next start seals, or a
//! folder without anything in it, which the next pass removes.

use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_volume::{BlobName, Volume as _};
use parking_lot::Mutex;

use super::change::reseal_looking;
use super::name::{PointName, folder, is_hashed};
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};

/// Names of a listing at a time.
const PAGE: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// See the module's text.
#[derive(Debug)]
pub(crate) struct OldFoldersJob {
    pub(crate) core: Arc<Core>,
    /// The last name that was looked at.
    pub(crate) after: Mutex<Option<BlobName>>,
}

impl Job for OldFoldersJob {
    fn name(&self) -> &'static str {
        "point-folders"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let mut after = self.after.lock();
        loop {
            let page = self.core.volume.list(&folder(), after.as_ref(), PAGE)?;
            for entry in page.entries {
                if let Some(point) = PointName::parse(&entry.name).filter(|_| !is_hashed(&entry.name)) {
                    move_point(&self.core, point)?;
                }
                *after = Some(entry.name);
                budget.charge(1, 0);
                if budget.is_spent() {
                    return Ok(Step::More);
                }
            }
            if !page.more {
                break;
            }
        }
        // Nothing is written to such a folder by this version.
        self.core.volume.remove_empty_folders(&folder(), &|folder| !is_hashed(folder))?;
        Ok(Step::Finished)
    }
}

/// One that the catalog does not know is left: it is damaged, or was there before (P3).
fn move_point(core: &Core, point: PointName) -> Result<(), EngineError> {
    let _changing = core.changing_points.lock();
    core.check_writable()?;
    // (P7) It is left, too, and its folder with it.
    if core.unrecorded.unread().points.contains(&point.backup) {
        return Ok(());
    }
    core.catalog.mark_point_stale(point.backup, point.revision)?;
    reseal_looking(&*core.volume, &*core.catalog, core.repository, point.backup, true)
        .map(drop)
        .map_err(|error| core.write_failure(error))
}
