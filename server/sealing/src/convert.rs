//! Conversion: seals anew every blob that is plain, or sealed with an old data key, while others read, write and
//! remove.
//!
//! It happens below the layers that name blobs: a blob keeps its name, its owner and its bytes, and changes its form
//! on the volume below. For each blob:
//!
//! 1. The new form is written, and made durable under the name that the old one does not have: now there are two.
//! 2. Both are read and compared.
//! 3. The old one is removed.
//!
//! A crash before step 1 ends leaves nothing, one after it two forms of the same bytes: the next pass continues at
//! step 2. Readers find either form, and a removal removes both (`volume.rs`). Readers that have the old form open are
//! moved to the new one, so that a removed form takes no space (`blob.rs`). A blob that cannot be read stays as it is
//! and is counted; one that is damaged but readable is sealed with its damage, which its readers find as before.
//!
//! Copies in a bucket follow: the volume below copies the new form there, then removes the old one from there.
//!
//! A pass visits all blobs. One that left nothing, neither here nor elsewhere, ends the conversion: the table of keys
//! says so (K3). No progress is stored: the names and headers of blobs show what was done.

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

/// Bytes read and written at a time; tests crash within each piece.
const PIECE_BYTES: usize = if cfg!(test) { 32 << 10 } else { 1 << 20 };

/// Entries of a listing held at a time: a step converts a few of them, and lists again.
const PAGE_ENTRIES: NonZeroUsize = NonZeroUsize::new(256).unwrap();

/// Services that a conversion needs from its caller.
pub trait Surroundings {
    /// Returns the owner of a plain blob.
    ///
    /// # Errors
    /// The owner is unknown for now: the blob is left for the next pass.
    fn owner(&self, name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Owner, Cause>;
    /// Reserves `bytes` bytes for a second form; dropping the result gives them back.
    ///
    /// # Errors
    /// There is no room.
    fn room(&self, bytes: u64) -> Result<Box<dyn Room>, Cause>;
    /// Reports that a write to the volume failed.
    fn write_failed(&self, error: &VolumeError);
    /// Returns a mark of the removals up to now, for [`Surroundings::lie_elsewhere`].
    ///
    /// # Errors
    /// It is unknown for now.
    fn removed_so_far(&self) -> Result<u64, Cause>;
    /// Number of blobs removed up to this mark that another place than the volume, such as a bucket, still has.
    ///
    /// # Errors
    /// It is unknown for now.
    fn lie_elsewhere(&self, mark: u64) -> Result<u64, Cause>;
    /// Returns true if another place still has a removed blob of this name on the volume below.
    ///
    /// # Errors
    /// It is unknown for now: the blob is left for the next pass.
    fn lies_elsewhere(&self, below: &BlobName) -> Result<bool, Cause>;
    /// Reports the blobs visited, and the bytes read or written, since the last call.
    fn charge(&self, blobs: u64, bytes: u64);
    /// Returns true to end the step after the current blob.
    fn is_spent(&self) -> bool;
    /// Returns true to end the step at once. The current blob is started over.
    fn must_stop(&self) -> bool;
}

/// Space reserved for one blob.
pub trait Room {
    /// Reports the number of bytes written of it.
    fn wrote(&mut self, bytes: u64);
    /// Reports that the blob is on the volume, with this many bytes: the rest of the reservation is released.
    fn sealed(self: Box<Self>, bytes: u64);
}

/// Cause of a failure in [`Surroundings`].
pub type Cause = Box<dyn Error + Send + Sync>;

/// Why a step ended early. The next one resumes at the same blob.
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

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converting {
    /// There is more to do now.
    More,
    /// The pass is over, and this many blobs could not be converted. The next step begins another pass.
    Left(u64),
    /// Nothing is left here, but other places still have this many blobs that were removed here. Call again later.
    Elsewhere(u64),
    /// Everything sealed with old data keys was converted, except blobs still being written with them: a pass that
    /// begins before they have their names could miss them (K3).
    Waits,
    /// No blob is plain or sealed with an old data key, and the table of keys says so.
    Done,
}

/// Progress of a conversion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversionFigures {
    /// Blobs visited by this pass, and their number when it began.
    pub looked_at: u64,
    pub total: u64,
    /// Blobs and bytes sealed anew since the process began.
    pub converted: u64,
    pub converted_bytes: u64,
    /// Blobs that this pass, or the one before, could not convert, and the reason for the first of them.
    pub left: u64,
    pub why: Option<String>,
    /// Old forms that another place, such as a bucket, still has, when nothing is left here.
    pub elsewhere: u64,
    pub done: bool,
}

#[derive(Debug)]
struct Pass {
    /// Data keys that were old when the pass began, and with which nothing was being written any more.
    old: Vec<DataKeyId>,
    /// `true` while the pass still counts the blobs.
    counts: bool,
    /// Index in the list of folders, and position within the folder as the volume below names it.
    folder: usize,
    after: Option<BlobName>,
    left: u64,
    /// Set once nothing is left here: removals up to this mark are to reach other places, too.
    mark: Option<u64>,
}

/// Result of visiting one blob.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// It had the right form.
    Current,
    /// It was sealed anew.
    Converted(u64),
    /// It was removed meanwhile.
    Gone,
    Stopped,
    Left(String),
}

/// The conversion of a volume (see the module documentation).
#[derive(Debug)]
pub struct Conversion {
    volume: SealedVolume,
    keys: Arc<Keys>,
    folders: Vec<BlobName>,
    pass: Mutex<Option<Pass>>,
    figures: Mutex<ConversionFigures>,
}

impl Conversion {
    /// Creates the conversion of all blobs in `folders` of `volume`, which uses `keys`. At most one may exist at a
    /// time.
    pub fn new(volume: SealedVolume, keys: Arc<Keys>, folders: Vec<BlobName>) -> Self {
        let figures = ConversionFigures { done: !keys.is_to_convert(), ..ConversionFigures::default() };
        Self { volume, keys, folders, pass: Mutex::default(), figures: Mutex::new(figures) }
    }

    /// Returns the current progress.
    pub fn figures(&self) -> ConversionFigures {
        let mut figures = self.figures.lock().clone();
        // Keys may have changed since the last step.
        figures.done &= !self.keys.is_to_convert();
        figures
    }

    /// Continues until the surroundings end the step.
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
        // (K3) A plain copy elsewhere is not encrypted, and one sealed with an old data key still needs it.
        let elsewhere = elsewhere(pass, around).map_err(ConvertError::Elsewhere)?;
        self.figures.lock().elsewhere = elsewhere;
        if elsewhere > 0 {
            return Ok(Converting::Elsewhere(elsewhere));
        }
        let old = std::mem::take(&mut pass.old);
        *slot = None;
        self.keys.converted(&old)?;
        // Keys that changed meanwhile, or were in use by writers, need a pass of their own.
        let is_done = !self.keys.is_to_convert();
        self.figures.lock().done = is_done;
        Ok(if is_done { Converting::Done } else { Converting::More })
    }

    /// Returns true if no blob is plain, and each old data key is in use by a writer.
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

    /// Counts a page of names. Returns true if it was the last of the folder.
    fn count(&self, pass: &mut Pass, folder: &BlobName) -> Result<bool, ConvertError> {
        let page = self.volume.inner().list(folder, pass.after.as_ref(), LIST_PAGE_ENTRIES)?;
        pass.after = page.entries.last().map(|entry| entry.name.clone());
        self.figures.lock().total += page.entries.len() as u64;
        Ok(!page.more)
    }

    /// Converts the blobs of a page of names. Returns true if it was the last of the folder, and all of it is done.
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

    /// Brings one blob, which exists in these forms, into the right form. `look`: its sealed form may use an old data
    /// key.
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

    /// Converts a blob that has one form.
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
        // (K2) An earlier form had this name. Its pending removal in the bucket would take what is now the only copy.
        if to.of(name).map_or(Ok(false), |to| around.lies_elsewhere(&to)).map_err(Failed::Owner)? {
            return Ok(Outcome::Left("its form of two data keys ago still lies in the bucket".to_owned()));
        }
        // Space for both forms at once.
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
            // (K2) A blob removed meanwhile does not come back.
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

    /// Finishes a blob that has several forms after a crash or a stop.
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

    /// (K2) Removes the old form of a blob once the new one was read back and is equal. Returns `false` if told to
    /// stop.
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

    /// Returns true if two forms have the same bytes; `None`: told to stop.
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

    /// Removes one form of a blob, if it is still the one sealed with this salt: the name may have been reused.
    fn drop_form(&self, name: &BlobName, form: Form, salt: Salt) -> Result<(), Failed> {
        let _alone = self.volume.moves.settled.write();
        if !self.is_still(name, form, salt)? {
            return Ok(());
        }
        let Some(below) = form.of(name) else { return Ok(()) };
        match self.volume.inner().remove(&below) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {
                // (K2) Its space is not freed while a reader has it open.
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

    /// Identifies the writing of a form of a blob, with its data key. A plain form is never written again.
    fn salt(&self, name: &BlobName, form: Form) -> Result<Salt, Failed> {
        let header = self.volume.header(name, form).map_err(Failed::Read)?;
        Ok(header.map(|header| (header.salt, header.key)))
    }
}

/// Name of a form of a blob on the volume below.
fn below(name: &BlobName, form: Form) -> String {
    form.of(name).unwrap_or_else(|| name.clone()).to_string()
}

/// Number of blobs removed by the pass that other places still have.
fn elsewhere(pass: &mut Pass, around: &dyn Surroundings) -> Result<u64, Cause> {
    let mark = match pass.mark {
        Some(mark) => mark,
        None => *pass.mark.insert(around.removed_so_far()?),
    };
    around.lie_elsewhere(mark)
}

/// Reason why a blob was not converted.
enum Failed {
    Read(VolumeError),
    Write(VolumeError),
    Owner(Cause),
    Room(Cause),
    Different,
}

/// Passes a blob's bytes to `take` with their offsets, until it returns false. Returns true if it reached the end.
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

/// Totals of plain and sealed blobs on a volume.
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
