//! Presents another certificate once its file has it.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Job, JobError, Step};

use crate::config::Settings;
use crate::tls::Certificate;

/// How long a changed file may go unnoticed.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// A step reads two small files.
#[derive(Debug)]
pub(crate) struct CertificateFile {
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) settings: Settings,
}

impl Job for CertificateFile {
    fn name(&self) -> &'static str {
        "certificate"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        self.certificate.reload(&self.settings.identity_source());
        budget.charge(1, 0);
        Ok(Step::Idle(LOOK_INTERVAL))
    }
}
