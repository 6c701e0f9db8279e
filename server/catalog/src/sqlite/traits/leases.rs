//! [`Leases`] on SQLite.

use ulid::Ulid;

use super::super::{SqliteCatalog, leases};
use crate::{LeaseRecord, Leases, Result, validate};

impl Leases for SqliteCatalog {
    fn acquire_lease(&self, lease: &LeaseRecord) -> Result<Option<LeaseRecord>> {
        let now_ms = self.clock.now_ms();
        validate::lease(lease, now_ms)?;
        self.write(|tx| leases::acquire(tx, now_ms, lease))
    }

    fn renew_lease(&self, lease: &LeaseRecord) -> Result<()> {
        let now_ms = self.clock.now_ms();
        validate::lease(lease, now_ms)?;
        self.write(|tx| leases::renew(tx, now_ms, lease))
    }

    fn release_lease(&self, name: &str, owner: Ulid) -> Result<()> {
        self.write(|tx| leases::release(tx, name, owner))
    }

    fn lease(&self, name: &str) -> Result<Option<LeaseRecord>> {
        let now_ms = self.clock.now_ms();
        self.look_up(|c| leases::by_name(c, now_ms, name))
    }
}
