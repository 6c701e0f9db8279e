//! How many backups may be in progress. The engine owns the sessions; this only counts those started here.
//!
//! A session leaves the count when it is committed or aborted. One whose lease expired leaves it when the next
//! backup finds the limit reached: the engine is then asked which of the counted ones still exist.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_engine::Tenant;
use holdfast_engine::ids::SessionId;
use parking_lot::Mutex;

use super::shares;
use crate::error::ServiceError;

#[derive(Debug, Default)]
struct Counted {
    open: HashMap<SessionId, Tenant>,
    starting: Vec<Tenant>,
}

impl Counted {
    /// How many there are, and how many that `is_own` tells.
    fn count(&self, is_own: impl Fn(&Tenant) -> bool) -> (usize, usize) {
        let all = || self.open.values().chain(&self.starting);
        (all().count(), all().filter(|tenant| is_own(tenant)).count())
    }
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

    /// Reserves a slot for a backup that `tenant` is about to start. When the limit seems to be reached, `is_open` says
    /// which sessions still exist.
    ///
    /// # Errors
    /// `Limit` when there are as many as there may be, or the token or the namespace has its share (see `shares`).
    pub fn reserve(
        self: &Arc<Self>,
        tenant: Tenant,
        is_open: impl Fn(SessionId) -> bool,
    ) -> Result<SessionSlot, ServiceError> {
        let mut counted = self.counted.lock();
        if self.refusal(&counted, tenant).is_some() {
            counted.open.retain(|id, _| is_open(*id));
        }
        if let Some(text) = self.refusal(&counted, tenant) {
            return Err(ServiceError::at_capacity(text));
        }
        counted.starting.push(tenant);
        Ok(SessionSlot { limit: Arc::clone(self), tenant })
    }

    fn refusal(&self, counted: &Counted, tenant: Tenant) -> Option<String> {
        let of_token = counted.count(|other| other.token == tenant.token);
        let of_namespace = counted.count(|other| other.namespace == tenant.namespace);
        let tenants = [(of_token, "this token"), (of_namespace, "this namespace")];
        let ((in_use, own), whose) =
            tenants.into_iter().find(|((in_use, own), _)| !shares::admits(self.max, *in_use, *own))?;
        Some(shares::refusal(self.max, in_use, own, "backups", whose))
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
    tenant: Tenant,
}

impl SessionSlot {
    /// The backup has started.
    pub fn taken_by(self, id: SessionId) {
        self.limit.counted.lock().open.insert(id, self.tenant);
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut counted = self.limit.counted.lock();
        let place = counted.starting.iter().position(|tenant| *tenant == self.tenant);
        debug_assert!(place.is_some(), "a slot was freed twice");
        if let Some(place) = place {
            counted.starting.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_engine::ids::{NamespaceId, TokenId};

    use holdfast_proto::ErrorCode;

    use super::*;

    fn tenant(number: u8) -> Tenant {
        Tenant { namespace: NamespaceId::from_bytes([number; 16]), token: TokenId::from_bytes([number; 16]) }
    }

    fn id(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    #[test]
    fn slots_are_freed_when_sessions_end_fail_to_start_or_expire() {
        let limit = SessionLimit::new(2);
        let open = |_| true;
        limit.reserve(tenant(1), open).unwrap().taken_by(id(1));
        let starting = limit.reserve(tenant(1), open).unwrap();
        assert_eq!(limit.reserve(tenant(1), open).unwrap_err().code, ErrorCode::Limit);
        drop(starting);
        limit.reserve(tenant(1), open).unwrap().taken_by(id(2));
        assert!(limit.reserve(tenant(1), open).is_err());
        limit.ended(id(1));
        limit.reserve(tenant(1), open).unwrap().taken_by(id(3));
        assert!(limit.reserve(tenant(1), open).is_err());
        // Session 2 expired unnoticed.
        limit.reserve(tenant(1), |session| session != id(2)).unwrap();
    }

    #[test]
    fn one_tenant_leaves_room_for_another() {
        let limit = SessionLimit::new(8);
        let open = |_| true;
        for number in 0..6 {
            limit.reserve(tenant(1), open).unwrap().taken_by(id(number));
        }
        let refused = limit.reserve(tenant(1), open).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Limit);
        assert!(refused.message.contains("this token has 6 of the 8 backups"), "{refused}");
        let same_namespace = Tenant { token: tenant(2).token, ..tenant(1) };
        let refused = limit.reserve(same_namespace, open).unwrap_err();
        assert!(refused.message.contains("this namespace has 6 of the 8 backups"), "{refused}");
        limit.reserve(tenant(2), open).unwrap().taken_by(id(6));
        limit.reserve(tenant(3), open).unwrap().taken_by(id(7));
        assert!(limit.reserve(tenant(4), open).is_err());
    }
}
