//! Storage of the table of keys: two small blobs of the same bytes, `keys/` and its sequence number, and the same name
//! with `.second`: without the table nothing can be read, so one damaged sector must not lose it. It is replaced,
//! never changed: the new one is durable before older ones are removed, and the newest intact one counts.

use holdfast_keys::{DecodeError, KEY_TABLE_MAX_BYTES, KeyTable};
use holdfast_volume::{Blob, BlobName, Volume, VolumeError, list_all};

const FOLDER: &str = "keys";

/// Suffix of the second blob of a table.
const SECOND: &str = ".second";

/// Errors of reading or writing the table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("{name}: {source}; put a copy of it back, nothing of the repository can be read without it")]
    Damaged { name: BlobName, source: DecodeError },
    #[error("{name} has {bytes} bytes: that is no table of keys")]
    Length { name: BlobName, bytes: u64 },
    /// Unreachable: all names are made here.
    #[error("{0} is no name of a table of keys")]
    Name(String),
}

impl TableError {
    /// Returns true if a table is damaged or gone, false if it merely cannot be read now.
    const fn is_damage(&self) -> bool {
        match self {
            Self::Volume(error) => matches!(error, VolumeError::Io { .. } | VolumeError::NotFound { .. }),
            Self::Damaged { .. } | Self::Length { .. } => true,
            Self::Name(_) => false,
        }
    }

    const fn is_of_newer_version(&self) -> bool {
        matches!(self, Self::Damaged { source: DecodeError::Unsupported { .. }, .. })
    }
}

fn folder() -> Result<BlobName, TableError> {
    BlobName::new(FOLDER).ok_or_else(|| TableError::Name(FOLDER.to_owned()))
}

fn name(sequence: u64) -> Result<BlobName, TableError> {
    let text = format!("{FOLDER}/{sequence:020}");
    BlobName::new(text.clone()).ok_or(TableError::Name(text))
}

fn second_name(sequence: u64) -> Result<BlobName, TableError> {
    let text = format!("{FOLDER}/{sequence:020}{SECOND}");
    BlobName::new(text.clone()).ok_or(TableError::Name(text))
}

/// The sequence number in the name of a table or its second blob.
fn number(name: &BlobName) -> Option<&str> {
    let number = name.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?;
    let number = number.strip_suffix(SECOND).unwrap_or(number);
    Some(number).filter(|number| number.len() == 20 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Names of all tables and their second blobs, oldest first.
fn tables(volume: &dyn Volume) -> Result<Vec<BlobName>, TableError> {
    let mut found = Vec::new();
    for entry in list_all(volume, &folder()?) {
        let name = entry?.name;
        if number(&name).is_some() {
            found.push(name);
        }
    }
    Ok(found)
}

/// How often a running server may replace the table during a lookup.
const TRIES: u32 = 8;

/// Reads the newest intact table on `volume`; `None`: nothing is encrypted. Works beside a server that replaces it.
///
/// # Errors
/// The volume's; when there are tables, and none is intact.
pub fn read_table(volume: &dyn Volume) -> Result<Option<KeyTable>, TableError> {
    for _ in 1..TRIES {
        match read_newest(volume) {
            Err(TableError::Volume(VolumeError::NotFound { .. })) => {}
            read => return read,
        }
    }
    read_newest(volume)
}

fn read_newest(volume: &dyn Volume) -> Result<Option<KeyTable>, TableError> {
    let mut refused = None;
    let mut newer_version: Option<u64> = None;
    for name in tables(volume)?.into_iter().rev() {
        match read_one(volume, &name) {
            // A table of a newer version is not skipped in favour of an older table.
            Ok(table) if newer_version.is_some_and(|newer| newer > table.sequence()) => break,
            Ok(table) => return Ok(Some(table)),
            // After a crash the previous table may still exist.
            Err(error) if error.is_damage() => {
                if error.is_of_newer_version() {
                    newer_version = newer_version.max(number(&name).and_then(|number| number.parse().ok()));
                }
                refused = refused.or(Some(error));
            }
            Err(error) => return Err(error),
        }
    }
    refused.map_or(Ok(None), Err)
}

fn read_one(volume: &dyn Volume, name: &BlobName) -> Result<KeyTable, TableError> {
    let blob = volume.open(name)?;
    let bytes = blob.len();
    let len = usize::try_from(bytes).ok().filter(|len| *len <= KEY_TABLE_MAX_BYTES);
    let len = len.ok_or_else(|| TableError::Length { name: name.clone(), bytes })?;
    let bytes = <dyn Blob>::read_vec(&*blob, name, 0, len)?;
    KeyTable::decode(&bytes).map_err(|source| TableError::Damaged { name: name.clone(), source })
}

/// Durably makes `table` the current one. [`settle_table`] must follow.
///
/// # Errors
/// The volume's. [`VolumeError::Exists`]: another process replaced it meanwhile.
pub fn write_table(volume: &dyn Volume, table: &KeyTable) -> Result<(), TableError> {
    write(volume, &name(table.sequence())?, table)
}

fn write(volume: &dyn Volume, name: &BlobName, table: &KeyTable) -> Result<(), TableError> {
    let mut blob = volume.create(name)?;
    blob.append(&table.encode())?;
    Ok(blob.seal()?)
}

/// Names of the blobs that [`settle_table`] found damaged or missing, and rewrote.
pub type Mended = Vec<BlobName>;

/// (K8) Called after [`write_table`], and while `table` is current: makes both blobs of it intact, and removes all
/// older tables and their second blobs, as a leaked secret could go on opening them.
///
/// # Errors
/// The volume's; some may be left.
pub fn settle_table(volume: &dyn Volume, table: &KeyTable) -> Result<Mended, TableError> {
    let new = name(table.sequence())?;
    let mended = mend(volume, table);
    // (K4) Also if there is no space for the second blob.
    for old in tables(volume)?.into_iter().filter(|old| *old < new) {
        match volume.remove(&old) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    mended
}

/// Rewrites the blobs of `table`: a missing one before a damaged one is replaced, which may be intact after all.
fn mend(volume: &dyn Volume, table: &KeyTable) -> Result<Mended, TableError> {
    let (mut missing, mut damaged) = (Vec::new(), Vec::new());
    for name in [name(table.sequence())?, second_name(table.sequence())?] {
        match read_one(volume, &name) {
            Ok(found) if found == *table => {}
            Err(TableError::Volume(VolumeError::NotFound { .. })) => missing.push(name),
            Err(error) if !error.is_damage() => return Err(error),
            Ok(_) | Err(_) => damaged.push(name),
        }
    }
    for name in &missing {
        write(volume, name, table)?;
    }
    for name in &damaged {
        match volume.remove(name) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        write(volume, name, table)?;
    }
    missing.append(&mut damaged);
    Ok(missing)
}
