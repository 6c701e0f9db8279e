//! [`Quotas`] on SQLite.

use holdfast_types::ids::NamespaceId;

use super::super::{SqliteCatalog, quotas};
use crate::{NamespaceQuota, Quota, Quotas, Result, StartAccount, validate};

impl Quotas for SqliteCatalog {
    fn set_quota(&self, namespace: NamespaceId, quota: &Quota, who: &str) -> Result<Quota> {
        self.write(|tx| quotas::set(tx, self.clock.as_ref(), namespace, quota, who))
    }

    fn quotas(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<NamespaceQuota>> {
        validate::scope(namespaces)?;
        self.look_up(|c| quotas::list(c, self.clock.as_ref(), namespaces))
    }

    fn start_account(&self, namespace: NamespaceId, vm: &str, job: &str) -> Result<StartAccount> {
        self.look_up(|c| quotas::start_account(c, self.clock.as_ref(), namespace, vm, job))
    }

    fn count_session(&self, namespace: NamespaceId) -> Result<bool> {
        self.write(|tx| quotas::count_session(tx, self.clock.as_ref(), namespace))
    }
}
