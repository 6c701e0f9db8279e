//! The audit: compares a full listing of the bucket with the record. Finds objects that are gone, truncated, replaced,
//! or moved to an archive by someone else's rule before a restore needs them.
//!
//! A listing gives lengths, tags and storage classes, 1,000 objects a request. An object whose tag differs from the
//! one that was verified is asked for its checksum: once after it was copied, and whenever it was put again.
//!
//! A flawed object is repaired where possible: copied again if the blob is also in the data folder (T13); restored from
//! an older version if the bucket kept what was deleted or replaced (T19). If there is no other copy, the flaw is
//! recorded, so that nothing counts on the object until it is back (T14). Unknown objects are neither read nor removed.
//!
//! Copies and removals go on meanwhile: each suspected flaw is checked again, first in the bucket, then in the
//! record. The audit can resume from any key, so a stop costs nothing; after a crash, findings not yet noted are
//! found by the next audit.

mod retained;
mod sample;

use std::collections::BTreeMap;

use holdfast_volume::{Blob, BlobChecksum, BlobName, RemoteObject, VolumeError};

use self::retained::Brought;
use self::sample::Sample;
use crate::cold::is_archive;
use crate::compare::{There, compare, has_sum, is_comparable};
use crate::copies::Copies;
use crate::error::CopyError;
use crate::evict::{container_of, has_ends_of};
use crate::freeze::put_ends;
use crate::prices::DEFAULT_CLASS;
use crate::record::{Flaw, Known};
use crate::shared::Shared;
use crate::waiting::Kind;

/// Rows of the record read at a time.
const BATCH: usize = 1024;

/// Most stray objects that are named; the rest are only counted.
const STRAYS_NAMED: u64 = 20;

/// Totals of an audit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Repository objects in the listing.
    pub objects: u64,
    pub bytes: u64,
    /// List requests.
    pub lists: u64,
    /// Objects whose checksums were requested.
    pub asked: u64,
    /// Objects of the bucket that were read in full, and their bytes.
    pub read: u64,
    pub read_bytes: u64,
    pub missing: u64,
    pub wrong_length: u64,
    pub wrong_content: u64,
    pub cold: u64,
    /// Objects whose retention is shorter than was promised.
    pub short_retention: u64,
    /// Missing or altered objects restored from an older version that the bucket had kept.
    pub brought_back: u64,
    /// Flawed objects queued to be copied again.
    pub copied_again: u64,
    /// Flawed objects of which there is no other copy.
    pub lost: u64,
    /// Objects that had been lost and are back.
    pub back: u64,
    /// Repository objects missing from the record that were added to it.
    pub taken_in: u64,
    /// Repository objects that neither the record nor the data folder knows.
    pub strays: u64,
    /// Objects that do not belong to the repository.
    pub strangers: u64,
}

/// Outcome of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The data folder has the blob; it is copied again.
    CopiedAgain,
    /// The object was hidden by a delete marker or another version, and was restored.
    BroughtBack,
    /// Its retention was extended again.
    Extended,
    /// Its retention could not be extended.
    NotExtended,
    /// The object is archived, but the data folder has the blob: nothing needs the object now.
    AlsoHere,
    /// The local blob is damaged, too.
    DamagedHere,
    /// There is no other copy.
    Lost,
    /// There is no other copy, but the object can be thawed.
    Archived,
}

/// An object with a flaw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    pub name: BlobName,
    pub flaw: Flaw,
    pub outcome: Outcome,
}

/// Receives the progress and findings of an audit, and verifies the content of blobs.
pub trait AuditWatch {
    /// Called with the bytes read since the last call. Returns false to stop the audit.
    fn go_on(&mut self, bytes: u64) -> bool;

    /// Reads the blob from wherever it is and verifies it. Returns `None` if it cannot be verified now.
    fn is_sound(&mut self, name: &BlobName) -> Option<bool>;

    /// Called for each flaw that was found.
    fn found(&mut self, finding: &AuditFinding);

    /// Called when an object that was lost is back and intact.
    fn is_back(&mut self, name: &BlobName);

    /// Called for a repository object that neither the record nor the data folder knows.
    fn stray(&mut self, name: &BlobName, bytes: u64);

    /// Called with the totals so far once all objects up to the key `place` have been checked.
    fn told(&mut self, audited: &Audited, place: &str);
}

/// How an audit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEnd {
    Done,
    /// The watcher stopped it.
    Stopped,
}

/// Result of checking one object.
enum Found {
    /// The object is what was sent.
    Sound,
    Flaw(Flaw),
    /// It cannot be verified now; its recorded state is kept.
    Nothing,
}

/// An audit in progress.
struct Audit<'a> {
    copies: &'a Copies,
    shared: &'a Shared,
    /// Storage class that objects are put in.
    class: Option<&'a str>,
    sample: Sample,
    audited: Audited,
    watch: &'a mut dyn AuditWatch,
}

/// `Ok(true)`: the audit continues.
type Goes = Result<bool, CopyError>;

impl Copies {
    /// Compares the bucket with the record, from the key `place` on (empty: from the beginning), and repairs what it
    /// can. `class`: the storage class that objects are put in, which is no finding.
    ///
    /// # Errors
    /// [`CopyError::Leased`] when another server writes to the bucket; when the bucket or the record cannot be read.
    /// Findings reported by then stay, and a later audit resumes there.
    pub fn audit(
        &self,
        place: &str,
        audited: Audited,
        class: Option<&str>,
        watch: &mut dyn AuditWatch,
    ) -> Result<AuditEnd, CopyError> {
        // (T8) The record is out of date for a bucket that another server writes to.
        self.lease()?.check(&self.shared)?;
        let Shared { record, clock, .. } = &*self.shared;
        let sample = Sample::begin(record, !place.is_empty(), clock.now_ms())?;
        let mut audit = Audit { copies: self, shared: &self.shared, class, sample, audited, watch };
        let mut after = place.to_owned();
        loop {
            let page =
                self.shared.remote.store.list_objects(Some(after.as_str()).filter(|at| !at.is_empty()));
            let page = page.map_err(CopyError::Remote)?;
            audit.audited.lists += 1;
            audit.audited.strangers += page.strangers;
            let next = page.next;
            if !audit.page(&after, next.as_deref(), page.objects)? {
                return Ok(AuditEnd::Stopped);
            }
            let Some(next) = next else { break };
            audit.watch.told(&audit.audited, &next);
            after = next;
        }
        sample.end(record)?;
        audit.watch.told(&audit.audited, "");
        Ok(AuditEnd::Done)
    }
}

impl Audit<'_> {
    /// Compares one page of the listing, with keys after `after` and up to `up_to`, with the record, which is newer.
    fn page(&mut self, after: &str, up_to: Option<&str>, objects: Vec<RemoteObject>) -> Goes {
        let mut listed: BTreeMap<BlobName, RemoteObject> =
            objects.into_iter().map(|object| (object.name.clone(), object)).collect();
        let mut from = after.to_owned();
        loop {
            let known = self.shared.record.known(&from, up_to, BATCH)?;
            let Some(last) = known.last() else { break };
            last.name.as_str().clone_into(&mut from);
            for known in known {
                if !self.watch.go_on(0) {
                    return Ok(false);
                }
                let object = listed.remove(&known.name);
                self.one(&known, object)?;
            }
        }
        for object in listed.into_values() {
            self.unknown(object)?;
        }
        Ok(true)
    }

    /// Checks an object that the record says is in the bucket.
    fn one(&mut self, known: &Known, object: Option<RemoteObject>) -> Result<(), CopyError> {
        let flaw = match object {
            None => self.confirm_missing(known)?,
            Some(object) => {
                self.audited.objects += 1;
                self.audited.bytes += object.len;
                self.judge(known, &object)?
            }
        };
        // Rewritten or removed since the listing: the finding is about an older object.
        let is_same = |now: &Known| (now.len, now.sum) == (known.len, known.sum);
        if matches!(&flaw, Found::Flaw(_))
            && !self.shared.record.known_one(&known.name)?.is_some_and(|now| is_same(&now))
        {
            return Ok(());
        }
        match flaw {
            Found::Flaw(flaw) => return self.act(known, flaw),
            // (T14)
            Found::Sound if known.flaw.as_ref().is_some_and(Flaw::is_of_content) => {
                self.shared.record.note_flaw(&known.name, None, 0)?;
                self.audited.back += 1;
                self.watch.is_back(&known.name);
            }
            Found::Sound if known.flaw.is_some() => self.shared.record.note_flaw(&known.name, None, 0)?,
            Found::Sound => {}
            Found::Nothing => return Ok(()),
        }
        self.check_retention(&known.name)
    }

    /// Confirms that an unlisted object is missing: it may have been put since the listing, or be removed by now.
    fn confirm_missing(&mut self, known: &Known) -> Result<Found, CopyError> {
        self.audited.asked += 1;
        match self.shared.remote.store.stat(&known.name) {
            // (T14) A flaw that was recorded is only cleared by an audit that lists the object, with its length and
            // checksum.
            Ok(_) => Ok(Found::Nothing),
            Err(VolumeError::NotFound { .. }) => Ok(Found::Flaw(Flaw::Missing)),
            Err(error) => Err(CopyError::Remote(error)),
        }
    }

    /// Finds the flaw of an object that is listed, if any.
    fn judge(&mut self, known: &Known, object: &RemoteObject) -> Result<Found, CopyError> {
        let was_lost = known.flaw.as_ref().is_some_and(Flaw::is_loss);
        let is_same = known.tag.is_some() && known.tag == object.tag && !was_lost;
        if object.len != known.len || !is_same {
            match self.look_closer(known, object)? {
                Found::Sound => {}
                found => return Ok(found),
            }
        }
        let mut class = object.class.clone().filter(|class| is_archive(class));
        if class.is_none() && matches!(known.flaw, Some(Flaw::Cold { .. })) {
            // A listing may be old, and not every store lists the archive class.
            self.audited.asked += 1;
            class = match self.shared.remote.store.stat(&known.name) {
                Ok(stat) => stat.class.filter(|class| is_archive(class)),
                Err(VolumeError::NotFound { .. }) => return Ok(Found::Nothing),
                Err(error) => return Err(CopyError::Remote(error)),
            };
        }
        let class = class.as_deref();
        // (T10) The record says so if this server archived it.
        let meant = self.known_class(&known.name, class)?;
        let flaw = class
            .filter(|class| self.class != Some(class) && meant.as_deref() != Some(class))
            .map(|class| Flaw::Cold { class: class.to_owned() });
        if flaw.is_none() && !self.reads_well(known, class.is_some())? {
            return Ok(Found::Flaw(Flaw::Content));
        }
        Ok(flaw.map_or(Found::Sound, Found::Flaw))
    }

    /// Returns the archive class recorded for an object that is listed in archive class `listed` (or none), corrected
    /// if the object has since been restored or moved to a colder class.
    fn known_class(&mut self, name: &BlobName, listed: Option<&str>) -> Result<Option<String>, CopyError> {
        let Shared { remote, record, .. } = self.shared;
        let Some(row) = record.cold(name)? else { return Ok(None) };
        if !row.is_done || Some(row.class.as_str()).filter(|class| is_archive(class)) == listed {
            return Ok(Some(row.class));
        }
        // It may have been given its class since the listing.
        self.audited.asked += 1;
        let now = match remote.store.look(name) {
            Ok(look) => look.class.unwrap_or_else(|| DEFAULT_CLASS.to_owned()),
            Err(VolumeError::NotFound { .. }) => return Ok(Some(row.class)),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        if now != row.class {
            record.note_seen(name, Some(&row), &now)?;
        }
        Ok(Some(row.class))
    }

    /// Compares the object's current length and checksum with what was sent: a listing may be old.
    fn look_closer(&mut self, known: &Known, object: &RemoteObject) -> Result<Found, CopyError> {
        self.audited.asked += 1;
        let stat = match self.shared.remote.store.stat(&known.name) {
            Ok(stat) => stat,
            // Removed since the listing; if this server did not remove it, the next audit reports it missing.
            Err(VolumeError::NotFound { .. }) => return Ok(Found::Nothing),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        if stat.len != known.len {
            return Ok(Found::Flaw(Flaw::Length { there: stat.len }));
        }
        match self.has_content(known, stat.checksum)? {
            Some(true) => {
                // An old listing shows the tag of an older object; then the object is checked again next time.
                let tag = object.tag.as_deref().filter(|_| object.len == stat.len);
                self.shared.record.proved(&known.name, stat.checksum, tag)?;
                Ok(Found::Sound)
            }
            Some(false) => Ok(Found::Flaw(Flaw::Content)),
            None => Ok(Found::Nothing),
        }
    }

    /// Returns whether an object with checksum `there` is what was sent; `None`: unknown for now.
    fn has_content(&mut self, known: &Known, there: Option<BlobChecksum>) -> Result<Option<bool>, CopyError> {
        let Shared { local, remote, record, clock, .. } = self.shared;
        if let (Some(there), Some(sent)) = (there, known.sum)
            && is_comparable(there, sent)
        {
            // (T21) An object that could not be read once is read again from then on, although its checksum matches.
            let is_read = there == sent && known.flaw.as_ref().is_some_and(Flaw::is_loss);
            return if is_read { self.reads_as(known, sent) } else { Ok(Some(there == sent)) };
        }
        // (T20) An object that lacks the checksum it was sent with counts as replaced, unless its content proves
        // to be the same.
        let lacks_sum = there.is_none() && known.sum.is_some() && remote.store.keeps_checksums();
        let is_first_look = known.tag.is_none() && known.flaw.is_none() && !lacks_sum;
        // Without a checksum on record, only the local blob tells what was sent.
        match local.open(&known.name) {
            Ok(here) if there.is_some() || !is_first_look => {
                self.watch.go_on(here.len());
                match compare(&*remote.store, &known.name, &*here) {
                    Ok(found) => Ok(Some(matches!(found, There::Same(_)))),
                    // (T14) The local blob cannot be read, so the object cannot be judged.
                    Err(VolumeError::Io { .. }) => Ok(None),
                    Err(error) => Err(CopyError::Remote(error)),
                }
            }
            // Not read on the first check: the bucket has confirmed that it has the whole object (T4).
            _ if is_first_look => Ok(Some(true)),
            // It cannot be read, and its tag changed with its storage class.
            _ if record.cold(&known.name)?.is_some() && !lacks_sum => Ok(Some(true)),
            _ if lacks_sum => known.sum.map_or(Ok(None), |sum| self.reads_as(known, sum)),
            _ => {
                // Or it could not be read.
                record.note_flaw(&known.name, None, 0)?;
                let is_sound = self.watch.is_sound(&known.name);
                if is_sound.is_none() && known.flaw.is_some() {
                    record.note_flaw(&known.name, known.flaw.as_ref(), clock.now_ms())?;
                }
                Ok(is_sound)
            }
        }
    }

    /// Repairs a flaw, or records it.
    fn act(&mut self, known: &Known, flaw: Flaw) -> Result<(), CopyError> {
        let Shared { local, record, clock, .. } = self.shared;
        let name = &known.name;
        // The ends of a container are removed with it.
        if let Some(container) = container_of(name)
            && record.visible(&container)?.is_none()
        {
            return Ok(());
        }
        let (brought_back, flaw) = match self.bring_back(known, flaw)? {
            Brought::Back(flaw) => (true, flaw),
            Brought::Not(flaw) => (false, flaw),
            // The next audit finds it there.
            Brought::Unknown => return Ok(()),
        };
        let outcome = match local.open(name) {
            _ if brought_back => {
                record.note_flaw(name, None, 0)?;
                Outcome::BroughtBack
            }
            Ok(_) if !flaw.is_loss() => Outcome::AlsoHere,
            Ok(here) => match self.is_what_was_sent(known, &*here) {
                Some(true) => {
                    self.replace(known, &flaw)?;
                    Outcome::CopiedAgain
                }
                Some(false) => Outcome::DamagedHere,
                // The next audit finds it again.
                None => return Ok(()),
            },
            Err(VolumeError::Io { .. }) => Outcome::DamagedHere,
            Err(VolumeError::NotFound { .. }) => {
                // (T3) Its removal is noted before the blob here goes.
                if record.visible(name)?.is_none() {
                    return Ok(());
                }
                if flaw.is_loss() { Outcome::Lost } else { Outcome::Archived }
            }
            Err(error) => return Err(CopyError::Local(error)),
        };
        if !matches!(outcome, Outcome::CopiedAgain | Outcome::BroughtBack) {
            // (T14) Recorded before it is reported: from now on nothing counts on the object.
            record.note_flaw(name, Some(&flaw), clock.now_ms())?;
        }
        match &flaw {
            Flaw::Missing => self.audited.missing += 1,
            Flaw::Length { .. } => self.audited.wrong_length += 1,
            Flaw::Content => self.audited.wrong_content += 1,
            Flaw::Cold { .. } => self.audited.cold += 1,
            // Retention flaws do not reach this function.
            Flaw::Retention { .. } => {}
        }
        self.audited.copied_again += u64::from(outcome == Outcome::CopiedAgain);
        self.audited.lost += u64::from(outcome == Outcome::Lost);
        self.watch.found(&AuditFinding { name: name.clone(), flaw, outcome });
        if brought_back {
            if known.flaw.as_ref().is_some_and(Flaw::is_loss) {
                self.audited.back += 1;
                self.watch.is_back(name);
            }
            // The restored version may be an older one, or put there by an attacker.
            self.check_retention(name)?;
        }
        Ok(())
    }

    /// (T13) Returns whether the local blob is fit to be copied again; `None`: unknown for now.
    fn is_what_was_sent(&mut self, known: &Known, here: &dyn Blob) -> Option<bool> {
        self.watch.go_on(here.len());
        if let Some(container) = container_of(&known.name) {
            let len = self.shared.record.visible(&container).ok()??;
            return Some(has_ends_of(&*self.shared.local, &container, len));
        }
        if here.len() != known.len {
            return Some(false);
        }
        match known.sum.map(|sum| has_sum(here, sum)) {
            Some(Ok(is_same)) => Some(is_same),
            Some(Err(VolumeError::Io { .. })) => Some(false),
            Some(Err(_)) => None,
            None => self.watch.is_sound(&known.name),
        }
    }

    /// (T13) Removes the flawed object, and queues the local blob to be copied again.
    fn replace(&mut self, known: &Known, flaw: &Flaw) -> Result<(), CopyError> {
        let Shared { remote, record, waiting, clock, .. } = self.shared;
        let name = &known.name;
        if let Some(container) = container_of(name) {
            // (T8) (T20) Ends are not copied by a round, so they are put again at once.
            self.copies.lease()?.check(self.shared)?;
            put_ends(self.shared, &container).map_err(CopyError::Remote)?;
            return Ok(record.note_flaw(name, None, 0)?);
        }
        if *flaw != Flaw::Missing {
            // (T8)
            self.copies.lease()?.check(self.shared)?;
            // Removed first: a crash in between leaves a missing object, which the next process copies.
            remote.store.remove_all(std::slice::from_ref(name)).map_err(CopyError::Remote)?;
        }
        record.note_flaw(name, None, 0)?;
        record.forget(name)?;
        waiting.note(name, known.len, clock.now_ms());
        Ok(())
    }

    /// Handles an object that the record does not know.
    fn unknown(&mut self, object: RemoteObject) -> Result<(), CopyError> {
        let Shared { local, record, waiting, clock, .. } = self.shared;
        let RemoteObject { name, len, .. } = object;
        let Some(kind) = Kind::of(&name) else {
            let container = container_of(&name);
            let is_end = container.map_or(Ok(None), |container| record.cold(&container))?.is_some();
            self.audited.strangers += u64::from(!is_end && !crate::lease::is_lease(&name));
            if !is_end {
                return Ok(());
            }
            // (T20) Put before a crash, or by a version that did not record it.
            self.check_retention(&name)?;
            return Ok(record.add(&name, len)?);
        };
        self.audited.objects += 1;
        self.audited.bytes += len;
        // Copied since the listing, about to be copied, or due for removal.
        if record.recorded(&name)?.is_some() || record.is_to_go(&name)? {
            return Ok(());
        }
        match local.open(&name) {
            Ok(here) => {
                // Copying compares it with the blob, and accepts it as the copy if they are equal (T6).
                if self.shared.travels(&name).is_some() && waiting.number(&name).is_none() {
                    waiting.note(&name, here.len(), clock.now_ms());
                    self.audited.taken_in += 1;
                }
                return Ok(());
            }
            Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(CopyError::Local(error)),
        }
        let archive = match self.shared.remote.store.stat(&name) {
            Ok(stat) if stat.len == len => stat.class.filter(|class| is_archive(class)),
            // Removed since the listing, or put again.
            Ok(_) | Err(VolumeError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        // (T15) A container whose ends are kept here, intact and of the same length, was moved to the bucket. Nothing
        // else is taken in: it may have been deleted.
        let has_ends = has_ends_of(&**local, &name, len);
        if kind == Kind::Container && has_ends {
            match archive {
                Some(class) => {
                    tracing::warn!(%name, class, "a container that was taken into the record lies in an archive");
                    record.add_cold(&name, len, &class)?;
                }
                None => record.add(&name, len)?,
            }
            self.audited.taken_in += 1;
            self.watch.is_back(&name);
            return Ok(());
        }
        self.audited.strays += 1;
        if self.audited.strays <= STRAYS_NAMED {
            self.watch.stray(&name, len);
        }
        Ok(())
    }
}
