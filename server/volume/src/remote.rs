//! A volume far away does more than a [`Volume`]: it tells what lies under a name without sending it, removes many blobs in
//! one request, and sees to it that an object stays as long as it must.

use std::fmt;

use crate::{BlobName, Volume, VolumeError};

/// A checksum of a whole blob, as the far side keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobChecksum {
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// CRC-32C (Castagnoli).
    Crc32c(u32),
}

/// An object under a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteStat {
    /// In bytes.
    pub len: u64,
    /// `None`: the far side keeps none that counts for the whole blob.
    pub checksum: Option<BlobChecksum>,
    /// Its storage class, in the far side's words, or that of the archive in which a class keeps it; `None`: the usual one.
    pub class: Option<String>,
}

/// State of an object in an archive: readable or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thawed {
    #[default]
    No,
    /// It was asked for, and is not there yet.
    UnderWay,
    /// Until then, in milliseconds since the Unix epoch.
    Until(i64),
}

/// Facts about an object that the far side tells without sending it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteLook {
    /// In bytes.
    pub len: u64,
    pub checksum: Option<BlobChecksum>,
    /// Another one whenever another object is put under its name.
    pub tag: Option<String>,
    /// Its storage class, in the far side's words; `None`: the usual one.
    pub class: Option<String>,
    pub thawed: Thawed,
    /// Which of several objects of its name it is, where the far side keeps those that were replaced.
    pub version: Option<String>,
    /// How long it must stay; `None`: it may go, or the far side does not tell.
    pub retained: Option<Retained>,
}

/// A small object that is changed in place, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    pub bytes: Vec<u8>,
    /// Another one after each change.
    pub tag: String,
}

/// An object, as a listing of everything tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteObject {
    pub name: BlobName,
    /// In bytes.
    pub len: u64,
    /// Another one whenever another object is put under the name, if the far side tells of such.
    pub tag: Option<String>,
    /// Its storage class, in the far side's words; `None`: it has none, or does not tell.
    pub class: Option<String>,
}

/// A page of a listing of everything that lies there, no matter who put it there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemotePage {
    /// By name, ascending.
    pub objects: Vec<RemoteObject>,
    /// Further objects, whose names no blob can have.
    pub strangers: u64,
    /// Where the next page goes on, unless this was the last one.
    pub next: Option<String>,
}

/// Most that an object changed in place has.
pub const TAGGED_MAX_BYTES: u64 = 4096;

/// A volume far away.
pub trait RemoteVolume: Volume {
    /// Length, checksum and storage class of the object under `name`, without reading it.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError>;

    /// The page behind the name `after` (of a page before) of everything that lies there: one request, and at most 1,000
    /// objects.
    ///
    /// # Errors
    /// As [`Volume::list`].
    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError>;

    /// Removes all of `names` in as few requests as may be; those that are not there count as removed.
    ///
    /// # Errors
    /// As [`Volume::remove`]; some may have been removed. Calling it again is safe.
    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError>;

    /// An object that is changed in place, of at most [`TAGGED_MAX_BYTES`]; `None`: there is none.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError>;

    /// Its tag alone.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError>;

    /// Changes it if it still has this tag, or makes it where nothing is (`None`), in one step for everyone. Returns its
    /// new tag; `None`: it is another by now.
    ///
    /// # Errors
    /// As [`crate::BlobWriter::seal`].
    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError>;

    /// Whatever is written from now on carries this number: who wrote it.
    fn sign_with(&self, number: u64);

    /// All that is told of what lies under `name`, without reading it.
    ///
    /// # Errors
    /// As [`Volume::open`]; [`VolumeError::BadAnswer`] where there are no storage classes.
    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        Err(without_classes("look at", name))
    }

    /// Gives the object with this tag another storage class, in one step: it is never missing.
    ///
    /// # Errors
    /// As [`crate::BlobWriter::seal`]; [`VolumeError::NotFound`] when it is another by now.
    fn set_class(&self, name: &BlobName, class: &str, tag: &str) -> Result<(), VolumeError> {
        let _ = (class, tag);
        Err(without_classes("move", name))
    }

    /// Asks for a copy of an object in an archive that can be read for `days`, as fast as `speed` says in the far side's words.
    /// Where it was asked for before, nothing is asked for twice.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; [`VolumeError::Unavailable`]: nothing was asked for; [`VolumeError::OutcomeUnknown`].
    fn ask_thaw(&self, name: &BlobName, days: u32, speed: &str) -> Result<(), VolumeError> {
        let _ = (days, speed);
        Err(without_classes("thaw", name))
    }

    /// Returns whether objects can be made to stay.
    ///
    /// # Errors
    /// As [`Volume::open`].
    fn can_retain(&self) -> Result<bool, VolumeError> {
        Ok(false)
    }

    /// Makes this version of an object stay for so long. One that must stay for longer, or in another mode, is refused.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; as [`crate::BlobWriter::seal`].
    fn retain(&self, name: &BlobName, version: &str, wanted: Retained) -> Result<(), VolumeError> {
        let _ = (version, wanted);
        Err(VolumeError::BadAnswer {
            action: "retain",
            name: name.to_string(),
            found: "no retention".to_owned(),
        })
    }

    /// As [`RemoteVolume::remove_all`], and where objects that were replaced or removed are kept, all that were ever put under
    /// these names are removed for good. Returns the names of those that must stay: they are there still, and lie there again if
    /// others covered them.
    ///
    /// # Errors
    /// As [`RemoteVolume::remove_all`].
    fn remove_for_good(&self, names: &[BlobName]) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
        self.remove_all(names).map(|()| Vec::new())
    }

    /// Brings back the newest object of this name and length that was removed or replaced and is kept: what covers it goes.
    /// It has this tag; where that is not known, this checksum; where neither is, it is any. Returns true if it is what lies
    /// there now.
    ///
    /// # Errors
    /// As [`Volume::open`] and [`Volume::remove`]; [`VolumeError::NotReadableNow`] when what covers it must stay.
    fn uncover(
        &self,
        name: &BlobName,
        len: u64,
        tag: Option<&str>,
        sum: Option<BlobChecksum>,
    ) -> Result<bool, VolumeError> {
        let _ = (name, len, tag, sum);
        Ok(false)
    }

    /// Returns true if all that is put there gets a checksum, which [`RemoteVolume::stat`] tells.
    fn keeps_checksums(&self) -> bool {
        false
    }
}

fn without_classes(action: &'static str, name: &BlobName) -> VolumeError {
    VolumeError::BadAnswer { action, name: name.to_string(), found: "no storage classes".to_owned() }
}

/// Who may let go of an object before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Users who have a permission for it, which a server should not have.
    Governance,
    /// No one.
    Compliance,
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governance => "governance",
            Self::Compliance => "compliance",
        })
    }
}

/// How long an object must stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    pub mode: LockMode,
    /// In milliseconds since the Unix epoch, by the clock there.
    pub until_ms: i64,
}

/// Until when an object cannot be removed; the longer one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Its retention ends then, in milliseconds since the Unix epoch.
    Until(i64),
    /// Someone holds it, without an end.
    Endless,
}
