//! How many backups may be under way. The engine owns the sessions; this only counts the ones started here.
//!
//! A session leaves the count when it is committed or given up, and one whose lease ran out when the next
//! backup finds no place: the engine is then asked which of the counted ones still live.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;

use crate::error::ServiceError;

#[derive(Debug, Default)]
struct Counted {
    live: HashSet<SessionId>,
    starting: usize,
}

/// Counts backups under way.
#[derive(Debug)]
pub struct SessionLimit {
    max: usize,
    counted: Mutex<Counted>,
}

impl SessionLimit {
    /// Allows `max`.
    pub fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max: usize::try_from(max).unwrap_or(usize::MAX), counted: Mutex::default() })
    }

    /// Takes a place for a backup about to start; `is_live` is asked when there seems to be none.
    ///
    /// # Errors
    /// `Limit` when there is none.
    pub fn reserve(
        self: &Arc<Self>,
        is_live: impl Fn(SessionId) -> bool,
    ) -> Result<SessionPlace, ServiceError> {
        let mut counted = self.counted.lock();
        if counted.live.len() + counted.starting >= self.max {
            counted.live.retain(|id| is_live(*id));
        }
        if counted.live.len() + counted.starting >= self.max {
            let max = self.max;
            return Err(ServiceError::new(
                ErrorCode::Limit,
                format!("this server allows {max} backups at once; try again when one is done"),
            ));
        }
        counted.starting += 1;
        Ok(SessionPlace { limit: Arc::clone(self) })
    }

    /// The session has ended.
    pub fn ended(&self, id: SessionId) {
        self.counted.lock().live.remove(&id);
    }
}

/// A place of a backup about to start; dropping it gives the place back.
#[derive(Debug)]
pub struct SessionPlace {
    limit: Arc<SessionLimit>,
}

impl SessionPlace {
    /// The backup has started.
    pub fn taken_by(self, id: SessionId) {
        self.limit.counted.lock().live.insert(id);
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        let mut counted = self.limit.counted.lock();
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
    fn places_come_back_when_sessions_end_fail_to_start_or_die() {
        let limit = SessionLimit::new(2);
        let alive = |_| true;
        limit.reserve(alive).unwrap().taken_by(id(1));
        let starting = limit.reserve(alive).unwrap();
        assert_eq!(limit.reserve(alive).unwrap_err().code, ErrorCode::Limit);
        drop(starting);
        limit.reserve(alive).unwrap().taken_by(id(2));
        assert!(limit.reserve(alive).is_err());
        limit.ended(id(1));
        limit.reserve(alive).unwrap().taken_by(id(3));
        assert!(limit.reserve(alive).is_err());
        // Session 2 expired unnoticed.
        limit.reserve(|session| session != id(2)).unwrap();
    }
}
