//! Conversion: every blob that lies in the open, or is sealed with an old data key, is sealed anew, while others read,
//! write and remove.
//!
//! It happens below everyone who names blobs: the blob keeps its name, its owner and its bytes, and gets another form on
//! the volume below. Of one blob:
//!
//! 1. The new form is written, and made durable under the name that the old one does not have: now there are two.
//! 2. Both are read and compared.
//! 3. The old one is removed.
//!
//! A crash before 1 leaves nothing, one after it two forms of the same bytes: the next pass goes on at 2. Who reads finds
//! either, and who removes the blob removes both (`volume.rs`). Who has the old one open is given the new one, so that a
//! removed form takes no room (`blob.rs`). What cannot be read stays as it is and is counted; a
//! blob that is damaged but can be read is sealed with its damage, which its readers find as before.
//!
//! Copies in a bucket follow: the volume below copies the new form there, then removes the old one from there.
//!
//! A pass looks at all blobs. One that left nothing, neither here nor elsewhere, ends it for good: the table of keys says so
//! (K3), so there is no place to keep: what was done shows in the names and headers of blobs.

use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;

use holdfast_keys::DataKeyId;
use holdfast_volume::{Blob, BlobName, LIST_PAGE_ENTRIES, Owner, Volume, VolumeError};
use parking_lot::Mutex;

use crate::blob::Salt;
use crate::keys::{Keys, KeysError};
use crate::layout::Form;
use crate::volume::SealedVolume;

/// Read and written at a time; tests crash within each.
const PIECE_BYTES: usize = if cfg!(test) { 32 << 10 } else { 1 << 20 };

/// Entries of a listing that are held at a time: a step converts a few of them, and lists anew.
const PAGE_ENTRIES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// What a conversion needs from its caller.
pub trait Surroundings {
    /// Whose a blob is that lies in the open.
    ///
    /// # Errors
    /// It cannot be said now: the blob is left for the next pass.
    fn owner(&self, name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Owner, Cause>;
    /// Room for a second form of so many bytes; it is given back by dropping what is returned.
    ///
    /// # Errors
    /// There is no room.
    fn room(&self, bytes: u64) -> Result<Box<dyn Room>, Cause>;
    /// A write to the volume failed.
    fn write_failed(&self, error: &VolumeError);
    /// A mark of what was removed up to now, for [`Surroundings::lie_elsewhere`].
    ///
    /// # Errors
    /// It cannot be said now.
    fn removed_so_far(&self) -> Result<u64, Cause>;
    /// How many blobs that were removed up to this mark still lie in another place than the volume, such as a bucket.
    ///
    /// # Errors
    /// It cannot be said now.
    fn lie_elsewhere(&self, mark: u64) -> Result<u64, Cause>;
    /// Returns true if a blob of this name on the volume below was removed, and still lies in another place.
    ///
    /// # Errors
    /// It cannot be said now: the blob is left for the next pass.
    fn lies_elsewhere(&self, below: &BlobName) -> Result<bool, Cause>;
    /// So many blobs were looked at, and so many bytes read or written, since the last call.
    fn charge(&self, blobs: u64, bytes: u64);
    /// Whether to end after the blob at hand.
    fn is_spent(&self) -> bool;
    /// Whether to end at once. Then the blob at hand is begun anew.
    fn must_stop(&self) -> bool;
}

/// Room that was promised to one blob.
pub trait Room {
    /// So many bytes of it are written.
    fn wrote(&mut self, bytes: u64);
    /// It is on the volume, with so many bytes: the rest is free for others.
    fn sealed(self: Box<Self>, bytes: u64);
}

/// Why something of the surroundings failed.
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a step ended early. The next one goes on at the same blob.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Keys(#[from] KeysError),
    #[error("{name}: {source}")]
    Room { name: BlobName, source: Cause },
    #[error("cannot tell what is left in other places: {0}")]
    Elsewhere(#[source] Cause),
    #[error(
        "{name} was encrypted, and is not what it was: what was written is removed again, and the memory of this machine \
             should be tested"
    )]
    Different { name: BlobName },
}

/// What a step led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converting {
    /// There is more to do now.
    More,
    /// The pass is over, and so many blobs could not be converted. The next step begins another pass.
    Left(u64),
    /// Nothing is left here, and in other places so many blobs that were removed here. Ask again.
    Elsewhere(u64),
    /// What is sealed with old data keys is sealed anew but for what is still being written with them: a pass that begins
    /// before that has its name could miss it (K3).
    Waits,
    /// Nothing lies in the open, nothing is sealed with an old data key, and the table of keys says so.
    Done,
}

/// How far a conversion is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversionFigures {
    /// Blobs that this pass has looked at, and all there were when it began.
    pub looked_at: u64,
    pub total: u64,
    /// Blobs and bytes sealed anew since the start.
    pub converted: u64,
    pub converted_bytes: u64,
    /// Blobs that this pass, or the one before, could not convert, and why the first of them.
    pub left: u64,
    pub why: Option<String>,
    /// Old forms that still lie in another place, such as a bucket, when nothing is left here.
    pub elsewhere: u64,
    pub done: bool,
}

#[derive(Debug)]
struct Pass {
    /// The data keys that were old when it began, and with which nothing was being written any more.
    old: Vec<DataKeyId>,
    /// Whether it still counts what there is.
    counts: bool,
    /// Place in the list of folders, and within the folder as the volume below names it.
    folder: usize,
    after: Option<BlobName>,
    left: u64,
    /// Nothing is left here; what was removed up to this mark is to go from other places, too.
    mark: Option<u64>,
}

/// What became of a blob.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It is as it should be.
    Current,
    /// It was sealed anew.
    Converted(u64),
    /// It was removed meanwhile.
    Gone,
    Stopped,
    Left(String),
}

/// See the module's text.
#[derive(Debug)]
pub struct Conversion {
    volume: SealedVolume,
    keys: Arc<Keys>,
    folders: Vec<BlobName>,
    pass: Mutex<Option<Pass>>,
    figures: Mutex<ConversionFigures>,
}

impl Conversion {
    /// Of all blobs in `folders` of `volume`, which has these keys. At most one at a time.
    pub fn new(volume: SealedVolume, keys: Arc<Keys>, folders: Vec<BlobName>) -> Self {
        let figures = ConversionFigures { done: !keys.is_to_convert(), ..ConversionFigures::default() };
        Self { volume, keys, folders, pass: Mutex::default(), figures: Mutex::new(figures) }
    }

    /// How far it is.
    pub fn figures(&self) -> ConversionFigures {
        let mut figures = self.figures.lock().clone();
        // Keys may have been changed since the last step.
        figures.done &= !self.keys.is_to_convert();
        figures
    }

    /// Goes on until the surroundings say that it is enough.
    ///
    /// # Errors
    /// [`ConvertError`].
    pub fn step(&self, around: &dyn Surroundings) -> Result<Converting, ConvertError> {
        if !self.keys.is_to_convert() {
            self.figures.lock().done = true;
            return Ok(Converting::Done);
        }
        let mut slot = self.pass.lock();
        if slot.is_none() && self.waits() {
            return Ok(Converting::Waits);
        }
        let pass = slot.get_or_insert_with(|| self.begin());
        while let Some(folder) = self.folders.get(pass.folder) {
            let is_over =
                if pass.counts { self.count(pass, folder)? } else { self.page(pass, folder, around)? };
            if is_over {
                (pass.folder, pass.after) = (pass.folder + 1, None);
                if pass.counts && pass.folder == self.folders.len() {
                    (pass.folder, pass.counts) = (0, false);
                }
            }
            if around.is_spent() {
                return Ok(Converting::More);
            }
        }
        let left = pass.left;
        if left > 0 {
            *slot = None;
            return Ok(Converting::Left(left));
        }
        // (K3) A copy that still lies in the open elsewhere is not encrypted, and one with an old data key needs it.
        let elsewhere = elsewhere(pass, around).map_err(ConvertError::Elsewhere)?;
        self.figures.lock().elsewhere = elsewhere;
        if elsewhere > 0 {
            return Ok(Converting::Elsewhere(elsewhere));
        }
        let old = std::mem::take(&mut pass.old);
        *slot = None;
        self.keys.converted(&old)?;
        // Keys that were changed meanwhile, or were being written with, need a pass of their own.
        let is_done = !self.keys.is_to_convert();
        self.figures.lock().done = is_done;
        Ok(if is_done { Converting::Done } else { Converting::More })
    }

    /// Whether nothing lies in the open, and something is being written with each data key that is old.
    fn waits(&self) -> bool {
        self.keys.is_to_convert() && !self.keys.accepts_plain() && self.keys.old_and_quiet().is_empty()
    }

    fn begin(&self) -> Pass {
        {
            let mut figures = self.figures.lock();
            (figures.looked_at, figures.total, figures.done) = (0, 0, false);
        }
        Pass { old: self.keys.old_and_quiet(), counts: true, folder: 0, after: None, left: 0, mark: None }
    }

    /// Counts a page of names. Whether it was the last of the folder.
    fn count(&self, pass: &mut Pass, folder: &BlobName) -> Result<bool, ConvertError> {
        let page = self.volume.inner().list(folder, pass.after.as_ref(), LIST_PAGE_ENTRIES)?;
        pass.after = page.entries.last().map(|entry| entry.name.clone());
        self.figures.lock().total += page.entries.len() as u64;
        Ok(!page.more)
    }

    /// Converts what a page of names has. Whether it was the last of the folder, and all of it is done.
    fn page(
        &self,
        pass: &mut Pass,
        folder: &BlobName,
        around: &dyn Surroundings,
    ) -> Result<bool, ConvertError> {
        let page = self.volume.inner().list(folder, pass.after.as_ref(), PAGE_ENTRIES)?;
        let mut blobs: Vec<(BlobName, Vec<Form>, BlobName)> = Vec::new();
        for entry in page.entries {
            let (name, form) = Form::parse(&entry.name);
            match blobs.last_mut().filter(|(last, ..)| *last == name) {
                Some((_, forms, end)) => {
                    forms.push(form);
                    *end = entry.name;
                }
                None => blobs.push((name, vec![form], entry.name)),
            }
        }
        // Its other forms may be on the next page.
        if page.more && blobs.len() > 1 {
            blobs.pop();
        }
        let is_all = !page.more;
        for (name, mut forms, end) in blobs {
            forms.sort_unstable();
            let outcome = self.convert(&name, &forms, !pass.old.is_empty(), around)?;
            around.charge(1, 0);
            if outcome == Outcome::Stopped {
                return Ok(false);
            }
            self.note(pass, &name, outcome, forms.len() as u64);
            pass.after = Some(end);
            if around.is_spent() {
                return Ok(false);
            }
        }
        Ok(is_all)
    }

    fn note(&self, pass: &mut Pass, name: &BlobName, outcome: Outcome, looked_at: u64) {
        let mut figures = self.figures.lock();
        figures.looked_at = (figures.looked_at + looked_at).min(figures.total);
        match outcome {
            Outcome::Converted(bytes) => {
                figures.converted += 1;
                figures.converted_bytes += bytes;
            }
            Outcome::Left(why) => {
                if pass.left == 0 {
                    figures.why = Some(format!("{name}: {why}"));
                }
                pass.left += 1;
            }
            Outcome::Current | Outcome::Gone | Outcome::Stopped => {}
        }
        figures.left = pass.left;
    }

    /// Brings one blob, which lies there in these forms, into the one it should have. `look`: what is sealed may be so
    /// with an old data key.
    fn convert(
        &self,
        name: &BlobName,
        forms: &[Form],
        look: bool,
        around: &dyn Surroundings,
    ) -> Result<Outcome, ConvertError> {
        let converted = match *forms {
            [] => return Ok(Outcome::Gone),
            [Form::Sealed | Form::Resealed] if !look => return Ok(Outcome::Current),
            [form] => self.convert_one(name, form, around),
            _ => self.settle(name, forms, look, around),
        };
        converted.or_else(|error| match error {
            Failed::Read(VolumeError::NotFound { .. }) => Ok(Outcome::Gone),
            Failed::Read(error @ (VolumeError::Unavailable { .. } | VolumeError::OutcomeUnknown { .. })) => {
                Err(error.into())
            }
            Failed::Read(error) => Ok(Outcome::Left(error.to_string())),
            Failed::Write(VolumeError::Exists { .. }) => {
                Ok(Outcome::Left("it got another form meanwhile".to_owned()))
            }
            Failed::Write(error) => {
                around.write_failed(&error);
                Err(error.into())
            }
            Failed::Owner(error) => Ok(Outcome::Left(error.to_string())),
            Failed::Room(source) => Err(ConvertError::Room { name: name.clone(), source }),
            Failed::Different => Err(ConvertError::Different { name: name.clone() }),
        })
    }

    /// A blob that has one form.
    fn convert_one(&self, name: &BlobName, from: Form, around: &dyn Surroundings) -> Result<Outcome, Failed> {
        let salt = self.salt(name, from)?;
        let old = self.volume.open_form(name, from).map_err(Failed::Read)?;
        let owner = match salt {
            None => around.owner(name, &old).map_err(Failed::Owner)?,
            Some((_, key)) => match self.keys.of(key) {
                Some((_, true)) => return Ok(Outcome::Current),
                Some((owner, false)) => owner,
                None => return Ok(Outcome::Left(format!("there is no data key {key}"))),
            },
        };
        let to = if from == Form::Sealed { Form::Resealed } else { Form::Sealed };
        // (K2) The name was that of a form before. Its removal there would take what is now the only copy.
        if to.of(name).map_or(Ok(false), |to| around.lies_elsewhere(&to)).map_err(Failed::Owner)? {
            return Ok(Outcome::Left("its form of two data keys ago still lies in the bucket".to_owned()));
        }
        // As much again for the moment in which there are both.
        let room = around.room(old.len().saturating_add(old.len() >> 10).saturating_add(4096));
        let mut room = room.map_err(Failed::Room)?;
        let mut writer = self.volume.writer(name, to, owner).map_err(Failed::Write)?;
        let mut failure = None;
        let copied = pieces(&*old, &mut |_, piece| {
            around.charge(0, 2 * piece.len() as u64);
            failure = writer.append(piece).err();
            room.wrote(writer.len());
            failure.is_none() && !around.must_stop()
        });
        if let Some(error) = failure {
            return Err(Failed::Write(error));
        }
        if !copied.map_err(Failed::Read)? {
            return Ok(Outcome::Stopped);
        }
        {
            let _alone = self.volume.moves.settled.write();
            // (K2) What was removed meanwhile does not come back.
            if !self.is_still(name, from, salt)? {
                return Ok(Outcome::Gone);
            }
            let bytes = writer.len();
            writer.seal().map_err(Failed::Write)?;
            room.sealed(bytes);
            self.volume.moves.moved();
        }
        let is_done = self.finish(name, (from, salt), to, around)?;
        Ok(if is_done { Outcome::Converted(old.len()) } else { Outcome::Stopped })
    }

    /// A blob that has more than one form: a crash came in between, or a stop.
    fn settle(
        &self,
        name: &BlobName,
        forms: &[Form],
        look: bool,
        around: &dyn Surroundings,
    ) -> Result<Outcome, Failed> {
        let mut kept = None;
        for form in forms {
            if let Some((_, key)) = self.salt(name, *form)?
                && (kept.is_none() || self.keys.of(key).is_some_and(|(_, is_current)| is_current))
            {
                kept = Some(*form);
            }
        }
        let Some(kept) = kept else { return Ok(Outcome::Left("no form of it is encrypted".to_owned())) };
        for form in forms.iter().filter(|form| **form != kept) {
            let salt = self.salt(name, *form)?;
            if !self.is_equal(name, kept, *form, around)?.is_some_and(|is_equal| is_equal) {
                if around.must_stop() {
                    return Ok(Outcome::Stopped);
                }
                return Ok(Outcome::Left(format!(
                    "it lies there twice, and {} is not the same as {}: find out which is right, and move the other out of \
                     the volume",
                    below(name, *form),
                    below(name, kept)
                )));
            }
            self.drop_form(name, *form, salt)?;
        }
        if !look {
            return Ok(Outcome::Converted(0));
        }
        match self.convert_one(name, kept, around)? {
            Outcome::Current => Ok(Outcome::Converted(0)),
            other => Ok(other),
        }
    }

    /// (K2) Removes the old form of a blob once the new one was read back and is the same. `false`: told to stop.
    fn finish(
        &self,
        name: &BlobName,
        (from, old): (Form, Salt),
        to: Form,
        around: &dyn Surroundings,
    ) -> Result<bool, Failed> {
        let new = self.salt(name, to)?;
        match self.is_equal(name, from, to, around)? {
            None => Ok(false),
            Some(true) => self.drop_form(name, from, old).map(|()| true),
            Some(false) => self.drop_form(name, to, new).and(Err(Failed::Different)),
        }
    }

    /// Whether two forms hold the same bytes; `None`: told to stop.
    fn is_equal(
        &self,
        name: &BlobName,
        one: Form,
        other: Form,
        around: &dyn Surroundings,
    ) -> Result<Option<bool>, Failed> {
        let open = |form| self.volume.open_form(name, form).map_err(Failed::Read);
        let (one, other) = (open(one)?, open(other)?);
        if one.len() != other.len() {
            return Ok(Some(false));
        }
        let (mut is_equal, mut failure) = (true, None);
        let read = pieces(&*one, &mut |offset, piece| {
            around.charge(0, 2 * piece.len() as u64);
            match other.read_vec(name, offset, piece.len()) {
                Ok(found) => is_equal = found == piece,
                Err(error) => failure = Some(error),
            }
            is_equal && failure.is_none() && !around.must_stop()
        });
        let is_over = read.map_err(Failed::Read)?;
        match failure {
            Some(error) => Err(Failed::Read(error)),
            None if !is_equal => Ok(Some(false)),
            None => Ok(is_over.then_some(true)),
        }
    }

    /// Removes one form of a blob, if it is still the one that was sealed with this salt: the name may have been used again.
    fn drop_form(&self, name: &BlobName, form: Form, salt: Salt) -> Result<(), Failed> {
        let _alone = self.volume.moves.settled.write();
        if !self.is_still(name, form, salt)? {
            return Ok(());
        }
        let Some(below) = form.of(name) else { return Ok(()) };
        match self.volume.inner().remove(&below) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {
                // (K2) As long as someone has it open, its room is not free.
                self.volume.moves.open.form_removed(name, form, salt);
                Ok(())
            }
            Err(error) => Err(Failed::Write(error)),
        }
    }

    fn is_still(&self, name: &BlobName, form: Form, salt: Salt) -> Result<bool, Failed> {
        match self.salt(name, form) {
            Ok(found) => Ok(found == salt),
            Err(Failed::Read(VolumeError::NotFound { .. })) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What tells one writing of a sealed blob from another, and its data key. What lies in the open is never written again.
    fn salt(&self, name: &BlobName, form: Form) -> Result<Salt, Failed> {
        let header = self.volume.header(name, form).map_err(Failed::Read)?;
        Ok(header.map(|header| (header.salt, header.key)))
    }
}

/// What a form of a blob is called on the volume below.
fn below(name: &BlobName, form: Form) -> String {
    form.of(name).unwrap_or_else(|| name.clone()).to_string()
}

/// Of what the pass removed here, how much is left in other places.
fn elsewhere(pass: &mut Pass, around: &dyn Surroundings) -> Result<u64, Cause> {
    let mark = match pass.mark {
        Some(mark) => mark,
        None => *pass.mark.insert(around.removed_so_far()?),
    };
    around.lie_elsewhere(mark)
}

/// What kept a blob from being converted.
enum Failed {
    Read(VolumeError),
    Write(VolumeError),
    Owner(Cause),
    Room(Cause),
    Different,
}

/// Hands over a blob's bytes with their offsets, until told to end. Whether it came to the end.
fn pieces(blob: &dyn Blob, take: &mut dyn FnMut(u64, &[u8]) -> bool) -> Result<bool, VolumeError> {
    let len = blob.len();
    let mut buffer = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(PIECE_BYTES)];
    let mut offset = 0;
    while offset < len {
        let wanted = usize::try_from(len - offset).unwrap_or(usize::MAX).min(buffer.len());
        let (piece, _) = buffer.split_at_mut(wanted);
        blob.read_at(offset, piece)?;
        if !take(offset, piece) {
            return Ok(false);
        }
        offset += wanted as u64;
    }
    Ok(true)
}

/// What lies in the open on a volume, and what is encrypted: blobs and bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inventory {
    pub plain: u64,
    pub plain_bytes: u64,
    pub sealed: u64,
    pub sealed_bytes: u64,
}

/// Counts the blobs in `folders` of the volume below by their names.
///
/// # Errors
/// The volume's.
pub fn inventory(below: &dyn Volume, folders: &[BlobName]) -> Result<Inventory, VolumeError> {
    let mut found = Inventory::default();
    for folder in folders {
        for entry in holdfast_volume::list_all(below, folder) {
            let entry = entry?;
            if Form::parse(&entry.name).1 == Form::Plain {
                found.plain += 1;
                found.plain_bytes += entry.len;
            } else {
                found.sealed += 1;
                found.sealed_bytes += entry.len;
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
