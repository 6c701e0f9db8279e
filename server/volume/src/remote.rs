//! A remote volume does more than a [`Volume`]: it returns the properties of an object without its content, removes
//! many blobs in one request, and enforces retention.

use std::fmt;

use crate::{BlobName, Volume, VolumeError};

/// A checksum of a whole blob, as stored by the remote side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobChecksum {
    /// CRC-64/NVME.
    Crc64Nvme(u64),
    /// CRC-32C (Castagnoli).
    Crc32c(u32),
}

/// Properties of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteStat {
    /// Length in bytes.
    pub len: u64,
    /// `None`: the remote side keeps none for the whole blob.
    pub checksum: Option<BlobChecksum>,
    /// Storage class, in the remote side's words, or the archive that a class moved it to; `None`: the usual one.
    pub class: Option<String>,
}

/// State of an archived object: readable or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Thawed {
    #[default]
    No,
    /// A thaw was requested, and is not done yet.
    UnderWay,
    /// Readable until then, in milliseconds since the Unix epoch.
    Until(i64),
}

/// Properties of an object, including its tag, version and retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteLook {
    /// Length in bytes.
    pub len: u64,
    pub checksum: Option<BlobChecksum>,
    /// Entity tag; changes whenever another object is put under its name.
    pub tag: Option<String>,
    /// Storage class, in the remote side's words; `None`: the usual one.
    pub class: Option<String>,
    pub thawed: Thawed,
    /// Version of the object, where the remote side keeps replaced ones.
    pub version: Option<String>,
    /// Retention; `None`: there is none, or the remote side does not tell.
    pub retained: Option<Retained>,
}

/// A small object that is replaced only if unchanged since it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    pub bytes: Vec<u8>,
    /// Entity tag; changes with each replacement.
    pub tag: String,
}

/// An object in a listing of everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteObject {
    pub name: BlobName,
    /// Length in bytes.
    pub len: u64,
    /// Entity tag, if the remote side has such; changes whenever another object is put under the name.
    pub tag: Option<String>,
    /// Storage class, in the remote side's words; `None`: it has none, or does not tell.
    pub class: Option<String>,
}

/// A page of a listing of all objects, whoever put them there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemotePage {
    /// Objects by name, ascending.
    pub objects: Vec<RemoteObject>,
    /// Number of further objects, with names that no blob can have.
    pub strangers: u64,
    /// Start of the next page, unless this was the last one.
    pub next: Option<String>,
}

/// Size limit of an object that is changed in place.
pub const TAGGED_MAX_BYTES: u64 = 4096;

/// A remote volume.
pub trait RemoteVolume: Volume {
    /// Returns length, checksum and storage class of the object under `name`, without reading it.
    ///
    /// # Errors
    /// Same as [`Volume::open`].
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError>;

    /// Returns the page of all objects after the name `after` (from an earlier page): one request, and at most
    /// 1,000 objects.
    ///
    /// # Errors
    /// Same as [`Volume::list`].
    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError>;

    /// Removes all of `names` in as few requests as possible; missing ones count as removed.
    ///
    /// # Errors
    /// Same as [`Volume::remove`]; some may have been removed. Calling it again is safe.
    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError>;

    /// Reads an object that is changed in place, of at most [`TAGGED_MAX_BYTES`]; `None`: there is none.
    ///
    /// # Errors
    /// Same as [`Volume::open`].
    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError>;

    /// Returns the tag of an object that is changed in place.
    ///
    /// # Errors
    /// Same as [`Volume::open`].
    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError>;

    /// Replaces the object if it still has this tag, or creates it if there is none (`None`), atomically. Returns its
    /// new tag; `None`: it was changed by others.
    ///
    /// # Errors
    /// Same as [`crate::BlobWriter::seal`].
    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError>;

    /// Attaches this number, which identifies the writer, to all objects written from now on.
    fn sign_with(&self, number: u64);

    /// Returns all properties of the object under `name`, without reading it.
    ///
    /// # Errors
    /// Same as [`Volume::open`]; [`VolumeError::BadAnswer`] if there are no storage classes.
    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        Err(without_classes("look at", name))
    }

    /// Changes the storage class of the object with this tag, atomically: it is never missing.
    ///
    /// # Errors
    /// Same as [`crate::BlobWriter::seal`]; [`VolumeError::NotFound`] when it was replaced.
    fn set_class(&self, name: &BlobName, class: &str, tag: &str) -> Result<(), VolumeError> {
        let _ = (class, tag);
        Err(without_classes("move", name))
    }

    /// Requests a copy of an archived object that can be read for `days`, at `speed` in the remote side's words. A
    /// request in progress is not repeated.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; [`VolumeError::Unavailable`]: nothing was requested; [`VolumeError::OutcomeUnknown`].
    fn ask_thaw(&self, name: &BlobName, days: u32, speed: &str) -> Result<(), VolumeError> {
        let _ = (days, speed);
        Err(without_classes("thaw", name))
    }

    /// Returns true if objects can be put under retention.
    ///
    /// # Errors
    /// Same as [`Volume::open`].
    fn can_retain(&self) -> Result<bool, VolumeError> {
        Ok(false)
    }

    /// Puts this version of an object under retention. Fails if it has a longer one, or one of another mode.
    ///
    /// # Errors
    /// [`VolumeError::NotFound`]; same as [`crate::BlobWriter::seal`].
    fn retain(&self, name: &BlobName, version: &str, wanted: Retained) -> Result<(), VolumeError> {
        let _ = (version, wanted);
        Err(VolumeError::BadAnswer {
            action: "retain",
            name: name.to_string(),
            found: "no retention".to_owned(),
        })
    }

    /// Same as [`RemoteVolume::remove_all`]; where replaced and removed objects are kept, all versions under these
    /// names are removed for good. Returns the names of those under retention: they still exist, and are current again
    /// if others covered them.
    ///
    /// # Errors
    /// Same as [`RemoteVolume::remove_all`].
    fn remove_for_good(&self, names: &[BlobName]) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
        self.remove_all(names).map(|()| Vec::new())
    }

    /// Restores the newest removed or replaced version of this name and length by removing what covers it. It must
    /// have this tag; if that is not known, this checksum; if neither is, any will do. Returns true if it is the
    /// current version now.
    ///
    /// # Errors
    /// Same as [`Volume::open`] and [`Volume::remove`]; [`VolumeError::NotReadableNow`] when what covers it is
    /// under retention.
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

    /// Returns true if every object gets a checksum, which [`RemoteVolume::stat`] returns.
    fn keeps_checksums(&self) -> bool {
        false
    }
}

fn without_classes(action: &'static str, name: &BlobName) -> VolumeError {
    VolumeError::BadAnswer { action, name: name.to_string(), found: "no storage classes".to_owned() }
}

/// Who may end the retention of an object early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Users with a special permission, which a server should not have.
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

/// Retention of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    pub mode: LockMode,
    /// End of the retention, in milliseconds since the Unix epoch, by the remote side's clock.
    pub until_ms: i64,
}

/// How long an object cannot be removed; the longer hold is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Its retention ends then, in milliseconds since the Unix epoch.
    Until(i64),
    /// A legal hold without an end.
    Endless,
}
