//! Looking for damage, naming what it costs, and making damaged containers again.

use std::sync::Arc;

use holdfast_catalog::DamagedDisk;

use super::Engine;
use crate::damage_job::DamageJob;
use crate::damage_report::DamageReportJob;
use crate::error::EngineError;
use crate::jobs::{Budget, Job};
use crate::parity_job::{ParityJob, ParityScheme};
use crate::progress::Progress;
use crate::scrub::{Load, ScrubFindings, ScrubJob, ScrubStatus, ScrubWatch};

impl Engine {
    /// Background work that never ends: looks at damage again, and closes what is healed.
    pub fn damage_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageJob::new(Arc::clone(&self.core)))
    }

    /// Background work that never ends: keeps in the catalog what of which restore point cannot be restored.
    pub fn damage_report_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageReportJob::new(Arc::clone(&self.core)))
    }

    /// Names what the damage that is known now costs: which bytes of which disks of which restore points. Keeps it in the
    /// catalog and returns the first `limit` of these disks.
    ///
    /// # Errors
    /// When recipes cannot be read at the moment, or the catalog cannot be written.
    pub fn name_damage(&self, limit: u32) -> Result<Vec<DamagedDisk>, EngineError> {
        self.core.check_unlocked()?;
        DamageReportJob::new(Arc::clone(&self.core)).run()?;
        Ok(self.core.catalog.damaged_disks(None, None, limit)?)
    }

    /// Background work that never ends: reads everything again within `days` (0: never), while `load` allows.
    pub fn scrub_job(&self, days: u32, load: Arc<dyn Load>) -> Arc<dyn Job> {
        Arc::new(ScrubJob { core: Arc::clone(&self.core), scrub: Arc::clone(&self.scrub), days, load })
    }

    /// Background work that never ends: repairs damaged containers with parity, and writes parity as `scheme` says
    /// (`None`: no more of it), while `load` allows.
    pub fn parity_job(&self, scheme: Option<ParityScheme>, load: Arc<dyn Load>) -> Arc<dyn Job> {
        Arc::new(ParityJob::new(Arc::clone(&self.core), scheme, load))
    }

    /// Goes on with the pass of the scrub that is under way, or begins one, at full speed, until it has ended or the
    /// budget is spent. Says what it found.
    ///
    /// # Errors
    /// When something cannot be read at the moment, or the catalog cannot be written; the next call goes on there.
    pub fn scrub(&self, budget: &Budget, progress: &dyn Progress) -> Result<ScrubFindings, EngineError> {
        self.core.check_unlocked()?;
        self.scrub.run(&self.core, budget, progress)
    }

    /// A pass of the scrub that someone asked for: over everything there is, in place of the one under way, or the pass
    /// `pass` from where it is. At the speed of `watch`; the background job leaves the pass alone meanwhile. Returns
    /// whether it has ended; `false`: `watch` said to stop, and the pass is where it is.
    ///
    /// # Errors
    /// As [`Engine::scrub`].
    pub fn scrub_pass(&self, pass: Option<u64>, watch: &mut dyn ScrubWatch) -> Result<bool, EngineError> {
        self.core.check_unlocked()?;
        self.scrub.pass(&self.core, pass, watch)
    }

    /// How far the scrub is.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn scrub_status(&self) -> Result<ScrubStatus, EngineError> {
        self.scrub.status(&self.core)
    }
}
