//! Whether backups or restores are in progress, so that other work on the disk has to wait.

use std::sync::Arc;

use holdfast_engine::Load;

use crate::activity::Activity;

/// Busy while any stream is open.
#[derive(Debug)]
pub(crate) struct DataPath {
    pub(crate) activity: Arc<Activity>,
}

impl Load for DataPath {
    fn is_busy(&self) -> bool {
        self.activity.streams.count() > 0
    }
}
