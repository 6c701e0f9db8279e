//! A parent's extent digests going out.

use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::v1;

use crate::app::App;
use crate::error::ServiceError;

/// Pulls the digests of a disk's parent block by block.
pub(super) struct ParentDigests {
    app: Arc<App>,
    session: SessionId,
    disk: u32,
    /// First extent of the next block; `None` after the last or an error.
    next: Option<u64>,
}

impl ParentDigests {
    /// From the first extent on.
    pub(super) fn new(app: Arc<App>, session: SessionId, disk: u32) -> Self {
        Self { app, session, disk, next: Some(0) }
    }
}

impl Iterator for ParentDigests {
    type Item = Result<v1::DigestBlock, ServiceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let first = self.next.take()?;
        match self.app.engine.parent_digests(self.session, self.disk, first) {
            Ok(Some(block)) => {
                let count = (block.digests.len() / FINGERPRINT_BYTES) as u64;
                // A block without digests would be asked for again without end.
                if count == 0 || block.first_extent != first {
                    let found = block.first_extent;
                    return Some(Err(ServiceError::defect(format!(
                        "a block of {count} digests from extent {found} instead of {first}"
                    ))));
                }
                self.next = first.checked_add(count);
                Some(Ok(block))
            }
            Ok(None) => None,
            Err(error) => Some(Err(error.into())),
        }
    }
}
