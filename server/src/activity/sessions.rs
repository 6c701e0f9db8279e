//! How many backups may be in progress. The engine owns the sessions; this only counts those started here.
//!
//! A session leaves the count when it is committed or aborted. One whose lease expired leaves it when the next
//! backup finds the limit reached: the engine is then asked which of the counted ones still exist.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;

use crate::error::ServiceError;

#[derive(Debug, Default)]
struct Counted {
    open: HashSet<SessionId>,
    starting: usize,
}

/// Counts backups in progress.
#[derive(Debug)]
pub struct SessionLimit {
    max: usize,
    counted: Mutex<Counted>,
}

impl SessionLimit {
    /// Allows `max`.
    pub fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max: max as usize, counted: Mutex::default() })
    }

    /// Reserves a slot for a backup about to start. When the limit seems to be reached, `is_open` says which
    /// sessions still exist.
    ///
    /// # Errors
    /// `Limit` when there are as many as there may be.
    pub fn reserve(
        self: &Arc<Self>,
        is_open: impl Fn(SessionId) -> bool,
    ) -> Result<SessionSlot, ServiceError> {
        let mut counted = self.counted.lock();
        if counted.open.len() + counted.starting >= self.max {
            counted.open.retain(|id| is_open(*id));
        }
        if counted.open.len() + counted.starting >= self.max {
            let max = self.max;
            return Err(ServiceError::new(
                ErrorCode::Limit,
                format!("this server allows {max} backups at once; try again when one of them is done"),
            ));
        }
        counted.starting += 1;
        Ok(SessionSlot { limit: Arc::clone(self) })
    }

    /// The session has ended.
    pub fn ended(&self, id: SessionId) {
        self.counted.lock().open.remove(&id);
    }
}

/// The slot of a backup about to start; dropping it frees the slot.
#[derive(Debug)]
pub struct SessionSlot {
    limit: Arc<SessionLimit>,
}

impl SessionSlot {
    /// The backup has started.
    pub fn taken_by(self, id: SessionId) {
        self.limit.counted.lock().open.insert(id);
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut counted = self.limit.counted.lock();
        debug_assert!(counted.starting > 0, "a slot was freed twice");
        counted.starting = counted.starting.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    #[test]
    fn slots_are_freed_when_sessions_end_fail_to_start_or_expire() {
        let limit = SessionLimit::new(2);
        let open = |_| true;
        limit.reserve(open).unwrap().taken_by(id(1));
        let starting = limit.reserve(open).unwrap();
        assert_eq!(limit.reserve(open).unwrap_err().code, ErrorCode::Limit);
        drop(starting);
        limit.reserve(open).unwrap().taken_by(id(2));
        assert!(limit.reserve(open).is_err());
        limit.ended(id(1));
        limit.reserve(open).unwrap().taken_by(id(3));
        assert!(limit.reserve(open).is_err());
        // Session 2 expired unnoticed.
        limit.reserve(|session| session != id(2)).unwrap();
    }
}
