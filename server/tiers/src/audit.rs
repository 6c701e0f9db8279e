//! The audit: what the bucket has, by a listing of all of it, against what the record says. Objects that are gone, cut off,
//! replaced, or in an archive by someone else's rule are found before a restore needs them.
//!
//! A listing tells lengths, tags and storage classes, 1,000 objects a request. An object whose tag is not the one it had
//! when it was found to be what was sent is asked for its checksum: once after it was copied, and whenever it was put anew.
//!
//! What is wrong is put right where the blob lies here, too: it is copied again (T13); and where the bucket kept what was
//! deleted or replaced, that is brought back (T19). What lies nowhere else is noted, so that nothing counts on it until it is
//! back (T14). What the record does not know is neither read nor removed.
//!
//! Copies and removals go on meanwhile: whatever looks wrong is asked for once more, and the record after that. The audit
//! goes on from any key, so a stop costs nothing; a crash leaves findings noted, or objects that the next audit misses.

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

/// Rows of the record at a time.
const BATCH: usize = 1024;

/// Objects of ours that no one knows of which are named; more are counted.
const STRAYS_NAMED: u64 = 20;

/// What an audit looked at and found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Objects of ours in the listing.
    pub objects: u64,
    pub bytes: u64,
    /// Requests that list.
    pub lists: u64,
    /// Objects asked for their checksums.
    pub asked: u64,
    /// Objects of the bucket that were read, and their bytes.
    pub read: u64,
    pub read_bytes: u64,
    pub missing: u64,
    pub wrong_length: u64,
    pub wrong_content: u64,
    pub cold: u64,
    /// Objects that need not stay as long as was promised.
    pub short_retention: u64,
    /// Of those that were missing or not what was sent, those that were brought back from below.
    pub brought_back: u64,
    /// Of all these, those that are copied again.
    pub copied_again: u64,
    /// Those that lie nowhere else.
    pub lost: u64,
    /// Those that had been lost.
    pub back: u64,
    /// Objects of ours that the record did not know and took in.
    pub taken_in: u64,
    /// Objects of ours that neither record nor data folder know.
    pub strays: u64,
    /// Objects of others.
    pub strangers: u64,
}

/// What becomes of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The blob lies here: it is copied again.
    CopiedAgain,
    /// It lay in the bucket below a delete marker or another object, and is there again.
    BroughtBack,
    /// It stays as long as was promised again.
    Extended,
    /// It does not.
    NotExtended,
    /// It lies in an archive, and here: nothing needs it now.
    AlsoHere,
    /// The blob here is not what was sent, either.
    DamagedHere,
    /// It lies nowhere else.
    Lost,
    /// It lies nowhere else, and can be brought back.
    Archived,
}

/// What is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditFinding {
    pub name: BlobName,
    pub flaw: Flaw,
    pub outcome: Outcome,
}

/// Who follows an audit, and knows what blobs hold.
pub trait AuditWatch {
    /// So many bytes were read since the last call. Whether to go on.
    fn go_on(&mut self, bytes: u64) -> bool;

    /// Reads the blob from wherever it lies: whether it is what it should be; `None`: that cannot be told now.
    fn is_sound(&mut self, name: &BlobName) -> Option<bool>;

    /// Something is wrong.
    fn found(&mut self, finding: &AuditFinding);

    /// An object that was lost is there again, as it should be.
    fn is_back(&mut self, name: &BlobName);

    /// An object of ours that neither the record nor the data folder knows.
    fn stray(&mut self, name: &BlobName, bytes: u64);

    /// All up to the key `place` was looked at.
    fn told(&mut self, audited: &Audited, place: &str);
}

/// How an audit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditEnd {
    Done,
    /// It was told to stop.
    Stopped,
}

/// What was found of one object.
enum Found {
    /// It is what was sent.
    Sound,
    Flaw(Flaw),
    /// It cannot be told now. What was known of it stays.
    Nothing,
}

/// An audit under way.
struct Audit<'a> {
    copies: &'a Copies,
    shared: &'a Shared,
    /// The storage class that objects are put in.
    class: Option<&'a str>,
    sample: Sample,
    audited: Audited,
    watch: &'a mut dyn AuditWatch,
}

/// Whether the audit goes on.
type Goes = Result<bool, CopyError>;

impl Copies {
    /// Compares the bucket with the record, from the key `place` on (empty: from the beginning), and puts right what can
    /// be. `class`: the storage class that objects are put in, which is no finding.
    ///
    /// # Errors
    /// [`CopyError::Leased`] when another server writes there: what lies there is its business. When the bucket or the
    /// record cannot be asked; what was told stays, and a later audit goes on there.
    pub fn audit(
        &self,
        place: &str,
        audited: Audited,
        class: Option<&str>,
        watch: &mut dyn AuditWatch,
    ) -> Result<AuditEnd, CopyError> {
        // (T8) Of a bucket that another server writes to, the record is out of date.
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
    /// What lies behind `after` and up to `up_to`. The listing is older than what the record is asked now.
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

    /// An object that should be there.
    fn one(&mut self, known: &Known, object: Option<RemoteObject>) -> Result<(), CopyError> {
        let flaw = match object {
            None => self.confirm_missing(known)?,
            Some(object) => {
                self.audited.objects += 1;
                self.audited.bytes += object.len;
                self.judge(known, &object)?
            }
        };
        // Written anew since, or removed: what was listed was another.
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

    /// It may have been put there since the listing, or be removed now.
    fn confirm_missing(&mut self, known: &Known) -> Result<Found, CopyError> {
        self.audited.asked += 1;
        match self.shared.remote.store.stat(&known.name) {
            // (T14) What was found wrong is looked at when it is listed, with its length and checksum.
            Ok(_) => Ok(Found::Nothing),
            Err(VolumeError::NotFound { .. }) => Ok(Found::Flaw(Flaw::Missing)),
            Err(error) => Err(CopyError::Remote(error)),
        }
    }

    /// What is wrong with an object that is listed.
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
            // A listing may be old, and does not tell all archives.
            self.audited.asked += 1;
            class = match self.shared.remote.store.stat(&known.name) {
                Ok(stat) => stat.class.filter(|class| is_archive(class)),
                Err(VolumeError::NotFound { .. }) => return Ok(Found::Nothing),
                Err(error) => return Err(CopyError::Remote(error)),
            };
        }
        let class = class.as_deref();
        // (T10) Where it was put there on purpose, the record says so.
        let meant = self.known_class(&known.name, class)?;
        let flaw = class
            .filter(|class| self.class != Some(class) && meant.as_deref() != Some(class))
            .map(|class| Flaw::Cold { class: class.to_owned() });
        if flaw.is_none() && !self.reads_well(known, class.is_some())? {
            return Ok(Found::Flaw(Flaw::Content));
        }
        Ok(flaw.map_or(Found::Sound, Found::Flaw))
    }

    /// The class that the record has of an object which is listed as one of the archive `listed`, or of none: as it is now, when
    /// someone brought it back or took it further.
    fn known_class(&mut self, name: &BlobName, listed: Option<&str>) -> Result<Option<String>, CopyError> {
        let Shared { remote, record, .. } = self.shared;
        let Some(row) = record.cold(name)? else { return Ok(None) };
        if !row.is_done || Some(row.class.as_str()).filter(|class| is_archive(class)) == listed {
            return Ok(Some(row.class));
        }
        // It may have got its class since the listing.
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

    /// Whether the object is what was sent, by its length and checksum as they are now: a listing may be old.
    fn look_closer(&mut self, known: &Known, object: &RemoteObject) -> Result<Found, CopyError> {
        self.audited.asked += 1;
        let stat = match self.shared.remote.store.stat(&known.name) {
            Ok(stat) => stat,
            // Removed since the listing; if not by us, the next audit misses it.
            Err(VolumeError::NotFound { .. }) => return Ok(Found::Nothing),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        if stat.len != known.len {
            return Ok(Found::Flaw(Flaw::Length { there: stat.len }));
        }
        match self.has_content(known, stat.checksum)? {
            Some(true) => {
                // The tag is that of an older object, when the listing is: then it is looked at again.
                let tag = object.tag.as_deref().filter(|_| object.len == stat.len);
                self.shared.record.proved(&known.name, stat.checksum, tag)?;
                Ok(Found::Sound)
            }
            Some(false) => Ok(Found::Flaw(Flaw::Content)),
            None => Ok(Found::Nothing),
        }
    }

    /// Whether an object of this checksum is what was sent; `None`: that cannot be told now.
    fn has_content(&mut self, known: &Known, there: Option<BlobChecksum>) -> Result<Option<bool>, CopyError> {
        let Shared { local, remote, record, clock, .. } = self.shared;
        if let (Some(there), Some(sent)) = (there, known.sum)
            && is_comparable(there, sent)
        {
            // (T21) What could not be read once has this checksum ever after.
            let is_read = there == sent && known.flaw.as_ref().is_some_and(Flaw::is_loss);
            return if is_read { self.reads_as(known, sent) } else { Ok(Some(there == sent)) };
        }
        // (T20) Without a checksum where one was sent it is not what was sent, unless it reads like that.
        let lacks_sum = there.is_none() && known.sum.is_some() && remote.store.keeps_checksums();
        let is_first_look = known.tag.is_none() && known.flaw.is_none() && !lacks_sum;
        // Nothing says what was sent but the blob itself, if it is here.
        match local.open(&known.name) {
            Ok(here) if there.is_some() || !is_first_look => {
                self.watch.go_on(here.len());
                match compare(&*remote.store, &known.name, &*here) {
                    Ok(found) => Ok(Some(matches!(found, There::Same(_)))),
                    // (T14) It cannot be read here: then nothing is known of it.
                    Err(VolumeError::Io { .. }) => Ok(None),
                    Err(error) => Err(CopyError::Remote(error)),
                }
            }
            // It is not read for the first look: the bucket answered that it has it, whole (T4).
            _ if is_first_look => Ok(Some(true)),
            // It cannot be read, and got another tag as it got its class.
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

    /// Puts right what is wrong, or notes it.
    fn act(&mut self, known: &Known, flaw: Flaw) -> Result<(), CopyError> {
        let Shared { local, record, clock, .. } = self.shared;
        let name = &known.name;
        // What lies beside a container goes with it.
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
            // (T14) Before anyone is told: nothing counts on it from now on.
            record.note_flaw(name, Some(&flaw), clock.now_ms())?;
        }
        match &flaw {
            Flaw::Missing => self.audited.missing += 1,
            Flaw::Length { .. } => self.audited.wrong_length += 1,
            Flaw::Content => self.audited.wrong_content += 1,
            Flaw::Cold { .. } => self.audited.cold += 1,
            // Never judged so.
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
            // It may be an older one, or someone's who knew what to put there.
            self.check_retention(name)?;
        }
        Ok(())
    }

    /// (T13) Whether the blob here is fit to be copied again; `None`: that cannot be told now.
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

    /// (T13) What lies there in its place goes, and the blob here is copied again.
    fn replace(&mut self, known: &Known, flaw: &Flaw) -> Result<(), CopyError> {
        let Shared { remote, record, waiting, clock, .. } = self.shared;
        let name = &known.name;
        if let Some(container) = container_of(name) {
            // (T8) (T20) They are not copied with a round, so they are put anew at once.
            self.copies.lease()?.check(self.shared)?;
            put_ends(self.shared, &container).map_err(CopyError::Remote)?;
            return Ok(record.note_flaw(name, None, 0)?);
        }
        if *flaw != Flaw::Missing {
            // (T8)
            self.copies.lease()?.check(self.shared)?;
            // First: a crash in between leaves one that is missing.
            remote.store.remove_all(std::slice::from_ref(name)).map_err(CopyError::Remote)?;
        }
        record.note_flaw(name, None, 0)?;
        record.forget(name)?;
        waiting.note(name, known.len, clock.now_ms());
        Ok(())
    }

    /// An object that the record does not know.
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
            // (T20) Put there before a crash, or by a version that did not note them.
            self.check_retention(&name)?;
            return Ok(record.add(&name, len)?);
        };
        self.audited.objects += 1;
        self.audited.bytes += len;
        // Copied since the listing, or about to be; or it is to go.
        if record.recorded(&name)?.is_some() || record.is_to_go(&name)? {
            return Ok(());
        }
        match local.open(&name) {
            Ok(here) => {
                // Copying asks for it, and takes it for the copy if it is the same (T6).
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
            // Removed since the listing, or put anew.
            Ok(_) | Err(VolumeError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        // (T15) A container whose ends are kept here, whole and of one of this length, lies there alone. Nothing else comes
        // back: it may have been deleted.
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
