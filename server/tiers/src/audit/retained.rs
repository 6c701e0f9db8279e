//! Of what locked restore points need: whether it stays as long as was promised, and whether it lies below something else.

use holdfast_volume::{BlobName, RemoteObject, VolumeError};

use super::{Audit, AuditFinding, Found, Outcome};
use crate::error::CopyError;
use crate::record::{Behind, Flaw, Known};
use crate::retain::extend;
use crate::shared::Shared;

/// What became of an object that was not as it should be, where the bucket keeps what was.
pub(super) enum Brought {
    /// It is there again; it was wrong in that way.
    Back(Flaw),
    /// It is not, and that is wrong.
    Not(Flaw),
    /// Something is there again, and it cannot be told now whether it is what was sent.
    Unknown,
}

impl Audit<'_> {
    /// (T19) Where what was deleted or replaced is kept, the object that was put there is brought back: it has its retention,
    /// and nothing is sent.
    pub(super) fn bring_back(&mut self, known: &Known, flaw: Flaw) -> Result<Brought, CopyError> {
        let Shared { remote, record, clock, .. } = self.shared;
        let is_promised = record.retained_until(&known.name, clock.now_ms())?.is_some();
        if !flaw.is_loss() || (self.copies.retention().is_none() && !is_promised) {
            return Ok(Brought::Not(flaw));
        }
        // (T8)
        self.copies.lease()?.check(self.shared)?;
        let uncovered = remote.store.uncover(&known.name, known.len, known.tag.as_deref(), known.sum);
        match uncovered {
            Ok(true) => {}
            Ok(false) => return Ok(Brought::Not(flaw)),
            // A bucket that is away ends the audit. One object that it keeps covered does not: someone may have made stay what
            // lies above it.
            Err(error) if error.is_retryable() => return Err(CopyError::Remote(error)),
            Err(error) => {
                tracing::warn!(name = %known.name, %error, "what was put into the bucket lies there, and cannot be brought back");
                return Ok(Brought::Not(flaw));
            }
        }
        self.audited.asked += 1;
        let look = match remote.store.look(&known.name) {
            Ok(look) => look,
            Err(VolumeError::NotFound { .. }) => return Ok(Brought::Not(Flaw::Missing)),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        let (name, len) = (known.name.clone(), look.len);
        let object = RemoteObject { name, len, tag: look.tag, class: look.class };
        // Its content is looked at, whatever is known of it.
        let known = Known { flaw: Some(flaw.clone()), ..known.clone() };
        match self.judge(&known, &object)? {
            Found::Flaw(other) if other.is_loss() => Ok(Brought::Not(other)),
            Found::Nothing => Ok(Brought::Unknown),
            Found::Sound | Found::Flaw(_) => {
                self.audited.brought_back += 1;
                Ok(Brought::Back(flaw))
            }
        }
    }

    /// (T17) Whether an object stays as long as the bucket said that it does; else it is extended again.
    pub(super) fn check_retention(&mut self, name: &BlobName) -> Result<(), CopyError> {
        let Shared { remote, record, clock, .. } = self.shared;
        let Some(promised_ms) = record.retained_until(name, clock.now_ms())? else { return Ok(()) };
        self.audited.asked += 1;
        let look = match remote.store.look(name) {
            Ok(look) => look,
            // Removed since the listing; if not by us, the next audit misses it.
            Err(VolumeError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        let until_ms = look.retained.map_or(0, |retained| retained.until_ms);
        if until_ms >= promised_ms {
            return Ok(());
        }
        self.audited.short_retention += 1;
        let outcome = match self.extend_again(name, promised_ms) {
            Ok(()) => Outcome::Extended,
            Err(error @ (CopyError::Leased(_) | CopyError::Record(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(%name, %error, "what is to stay in the bucket cannot be made to");
                Outcome::NotExtended
            }
        };
        let flaw = Flaw::Retention { until_ms };
        if outcome == Outcome::NotExtended {
            // (T18) Nothing that needs it is kept from now on, before anyone is told.
            record.note_short(name, until_ms)?;
            record.note_flaw(name, Some(&flaw), clock.now_ms())?;
        }
        self.watch.found(&AuditFinding { name: name.clone(), flaw, outcome });
        Ok(())
    }

    fn extend_again(&self, name: &BlobName, promised_ms: i64) -> Result<(), CopyError> {
        let Some(mode) = self.copies.retention() else { return Err(CopyError::NoObjectLock) };
        // (T8)
        self.copies.lease()?.check(self.shared)?;
        extend(self.shared, &Behind { name: name.clone(), wanted_ms: promised_ms }, mode)
    }
}
