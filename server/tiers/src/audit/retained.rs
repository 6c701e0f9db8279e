//! Audit of objects that locked restore points need: checks their retention, and restores deleted or replaced versions.

use holdfast_volume::{BlobName, RemoteObject, VolumeError};

use super::{Audit, AuditFinding, Found, Outcome};
use crate::error::CopyError;
use crate::record::{Behind, Flaw, Known};
use crate::retain::extend;
use crate::shared::Shared;

/// Result of restoring a flawed object from a version that the bucket kept.
pub(super) enum Brought {
    /// Restored; the object had this flaw.
    Back(Flaw),
    /// Not restored; the object has this flaw.
    Not(Flaw),
    /// An object was restored, but it cannot be verified now.
    Unknown,
}

impl Audit<'_> {
    /// (T19) Restores a deleted or replaced object from the version that the bucket kept: that one has its retention,
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
            // An unreachable bucket ends the audit. A version that cannot be restored does not: a newer one above it
            // may be under retention.
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
        // Its content is checked, whatever the record says.
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

    /// (T17) Checks that an object's retention is as long as the bucket had said; if not, extends it again.
    pub(super) fn check_retention(&mut self, name: &BlobName) -> Result<(), CopyError> {
        let Shared { remote, record, clock, .. } = self.shared;
        let Some(promised_ms) = record.retained_until(name, clock.now_ms())? else { return Ok(()) };
        self.audited.asked += 1;
        let look = match remote.store.look(name) {
            Ok(look) => look,
            // Removed since the listing; if this server did not remove it, the next audit reports it missing.
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
            // (T18) Recorded before it is reported: no restore point that needs the object counts as kept from now on.
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
