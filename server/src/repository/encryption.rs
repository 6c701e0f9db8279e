//! The volume of a repository as the engine gets it: as it is, or with everything on it encrypted.
//!
//! The volume itself says if it is encrypted: it holds a table of keys, or none. The settings say what opens the
//! table, and whether a new repository gets one.

pub(crate) mod at_work;

use std::fmt;
use std::io::Read as _;
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::RepositoryId;
use holdfast_keys::kit::{Kit, PAGE_MAX_BYTES};
use holdfast_keys::slots::{NewSlot, SlotId, SlotSecret, UnlockError};
use holdfast_keys::source::command;
use holdfast_keys::source::key_file::{self, KeyFileError};
use holdfast_keys::{KeyTable, OpenKeys, SecretBytes, SystemRandom};
use holdfast_proto::ErrorCode;
use holdfast_sealing::{Keys, SealedVolume, is_sealed_name, read_table, settle_table, write_table};
use holdfast_volume::{BlobName, LIST_PAGE_ENTRIES, Volume, list_all};

use crate::config::{Encryption, Settings};
use crate::error::ServiceError;
use crate::files;
pub use at_work::Encryption as AtWork;
pub(crate) use at_work::{NO_KIT, folders, wants_kit};

/// The key file, in the data folder.
const KEY_FILE: &str = "repository.key";

/// A key command may ask a vault over the network.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// Longest passphrase, however it comes.
pub(crate) const PASSPHRASE_MAX_BYTES: usize = 4 << 10;

/// Source of the secret that opens the keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeySource {
    File(PathBuf),
    PassphraseFile(PathBuf),
    Command(String),
}

impl KeySource {
    /// The source that the settings name; a key file in the data folder unless they do.
    pub(crate) fn of(settings: &Settings) -> Self {
        match (&settings.key_command, &settings.key_passphrase_file, &settings.key_file) {
            (Some(command), ..) => Self::Command(command.clone()),
            (_, Some(file), _) => Self::PassphraseFile(file.clone()),
            (_, _, Some(file)) => Self::File(file.clone()),
            _ => Self::File(settings.data_dir.join(KEY_FILE)),
        }
    }

    /// Label for people, in the list of what opens the repository, which anyone can read who has a copy of the volume:
    /// a command may have secrets in it, so it is not shown.
    pub(crate) fn label(&self) -> String {
        let label = match self {
            Self::File(path) | Self::PassphraseFile(path) => {
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
            }
            Self::Command(_) => "key_command of the settings".to_owned(),
        };
        let label: String = label.chars().filter(|c| !c.is_control()).collect();
        let end = label.floor_char_boundary(holdfast_keys::slots::LABEL_MAX_BYTES);
        label.get(..end).unwrap_or_default().to_owned()
    }

    /// Reads the secret.
    ///
    /// # Errors
    /// The secret is missing, refused or not what it should be; the message says what to do.
    pub(crate) fn read(&self) -> Result<SlotSecret, ServiceError> {
        match self {
            Self::File(path) => Ok(SlotSecret::key_file(key_file::read(path).map_err(no_key)?)),
            Self::PassphraseFile(path) => Ok(SlotSecret::passphrase(read_passphrase(path)?)),
            Self::Command(line) => {
                Ok(SlotSecret::command(command::run_line(line, COMMAND_LIMIT).map_err(no_key)?))
            }
        }
    }

    /// A secret in place of today's: of a key file a new one, beside it until [`KeySource::adopt_renewed`]. What comes from
    /// elsewhere is changed there.
    ///
    /// # Errors
    /// As [`KeySource::read`]; when the file cannot be made.
    pub(crate) fn renew(&self) -> Result<SlotSecret, ServiceError> {
        let Self::File(path) = self else { return self.read() };
        let renewed = renewed_path(path);
        match std::fs::remove_file(&renewed) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(no_key(error)),
            _ => {}
        }
        Ok(SlotSecret::key_file(key_file::create(&renewed, &SystemRandom).map_err(no_key)?))
    }

    /// Takes [`KeySource::renew`] back, as long as nothing opens with it.
    pub(crate) fn drop_renewed(&self) {
        let Self::File(path) = self else { return };
        let _ = std::fs::remove_file(renewed_path(path));
    }

    /// Puts the renewed key file in the place of the one before.
    ///
    /// # Errors
    /// When it cannot be renamed; the next [`unlock`] does it.
    pub(crate) fn adopt_renewed(&self) -> Result<(), ServiceError> {
        let Self::File(path) = self else { return Ok(()) };
        files::rename_durably(&renewed_path(path), path).map_err(no_key)
    }

    /// The new key file's secret, if a crash came between the new table and that file's name.
    fn renewed(&self) -> Option<SlotSecret> {
        let Self::File(path) = self else { return None };
        key_file::read(&renewed_path(path)).ok().map(SlotSecret::key_file)
    }

    /// The secret; a key file that is not there is made.
    ///
    /// # Errors
    /// As [`KeySource::read`].
    pub(crate) fn read_or_make(&self) -> Result<SlotSecret, ServiceError> {
        let Self::File(path) = self else { return self.read() };
        match key_file::create(path, &SystemRandom) {
            Ok(secret) => Ok(SlotSecret::key_file(secret)),
            Err(KeyFileError::Exists { .. }) => self.read(),
            Err(error) => Err(no_key(error)),
        }
    }
}

/// Path beside a key file.
fn renewed_path(path: &Path) -> PathBuf {
    let mut renewed = path.as_os_str().to_owned();
    renewed.push(".new");
    renewed.into()
}

/// Within messages: "the … opens it".
impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "key file {}", path.display()),
            Self::PassphraseFile(path) => write!(f, "passphrase in {}", path.display()),
            Self::Command(_) => f.write_str("key command"),
        }
    }
}

/// The keys cannot be opened: nothing is damaged.
pub(crate) fn no_key(why: impl std::fmt::Display) -> ServiceError {
    ServiceError::new(ErrorCode::Unauthenticated, why.to_string())
}

fn read_passphrase(path: &Path) -> Result<SecretBytes, ServiceError> {
    let failed = |why: String| no_key(format!("the passphrase file {}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let found = file.metadata().map_err(|error| failed(error.to_string()))?;
    // Where secrets are handed to containers they often have this mode, within a folder that is closed.
    if found.permissions().mode() & 0o007 != 0 {
        tracing::warn!(path = %path.display(), "everyone on this machine may read the passphrase file: run chmod 600 on it");
    }
    let mut text = Vec::with_capacity(PASSPHRASE_MAX_BYTES + 1);
    let read = file.take(PASSPHRASE_MAX_BYTES as u64 + 1).read_to_end(&mut text);
    read.map_err(|error| failed(error.to_string()))?;
    passphrase(text).ok_or_else(|| failed(format!("it has more than {PASSPHRASE_MAX_BYTES} bytes")))
}

/// The passphrase that a file or a pipe has: all of it, but for line ends at its end. `None`: it is too long.
pub(crate) fn passphrase(mut text: Vec<u8>) -> Option<SecretBytes> {
    if text.len() > PASSPHRASE_MAX_BYTES {
        return None;
    }
    while matches!(text.last(), Some(b'\n' | b'\r')) {
        text.pop();
    }
    Some(SecretBytes::new(text))
}

/// Opens a table.
///
/// # Errors
/// Another secret than that of any slot: names the repository key that is wanted, and what to do.
pub(crate) fn unlock(table: KeyTable, source: &KeySource) -> Result<(OpenKeys, SlotId), ServiceError> {
    unlock_with(
        table,
        source,
        "with a recovery kit, run 'holdfast-server key import --kit FILE'; until the key is found, 'holdfast-server serve \
         --without-keys' serves what the catalog knows",
    )
}

/// As [`unlock`]; `otherwise` says what else may be done.
///
/// # Errors
/// As [`unlock`].
fn unlock_with(
    table: KeyTable,
    source: &KeySource,
    otherwise: &str,
) -> Result<(OpenKeys, SlotId), ServiceError> {
    let wanted = table.key();
    let locked = |why: &dyn std::fmt::Display| {
        no_key(format!(
            "the repository is encrypted with repository key {wanted}, and the {source} does not open it: {why}. \
             Nothing is damaged. Put the key back, or say in the settings what has it (key_file, key_passphrase_file or \
             key_command); or {otherwise}"
        ))
    };
    let secret = source.read().map_err(|error| locked(&error))?;
    let mut is_renewed = false;
    let renewed = source.renewed().map(|secret| (secret, table.clone()));
    let opened = table.unlock(&secret).or_else(|error| {
        is_renewed = true;
        renewed.and_then(|(secret, table)| table.unlock(&secret).ok()).ok_or(error)
    });
    let opened = opened.map_err(|error| match error {
        UnlockError::Forged { .. } => ServiceError::new(ErrorCode::Damaged, error.to_string()),
        error => locked(&error),
    })?;
    if is_renewed {
        // (K4) The table came first. What is left under that name is made anew, so it must not be the key.
        source.adopt_renewed()?;
    }
    Ok(opened)
}

/// A volume, and the encryption around it.
pub(crate) type Opened = (Arc<dyn Volume>, Option<Arc<AtWork>>);

/// The volume with what the repository `id` needs around it, and what that is.
///
/// # Errors
/// The volume's; when the keys cannot be opened or made.
pub(crate) fn around(
    raw: &Arc<dyn Volume>,
    id: RepositoryId,
    settings: &Settings,
    has_data: bool,
    clock: &Arc<dyn Clock>,
) -> Result<Opened, ServiceError> {
    let source = KeySource::of(settings);
    let open = match read_table(&**raw).map_err(table_error)? {
        Some(table) if table.repository() == id => {
            // (K5) Before anything is believed of it.
            at_work::check(&settings.data_dir, &table)?;
            let open = unlock(table, &source)?.0;
            // (K4) What a crash left of the tables before would open with the secrets of then.
            let mended = settle_table(&**raw, open.table()).map_err(table_error)?;
            tell_mended(&mended);
            open
        }
        Some(table) => {
            return Err(ServiceError::new(
                ErrorCode::Damaged,
                format!("the keys on the volume are those of repository {}, not of {id}", table.repository()),
            ));
        }
        None => {
            refuse_without_keys(&**raw)?;
            // (K5) Plain blobs that were put there are not believed again, nor is anything written beside them.
            at_work::refuse_none(&settings.data_dir, id)?;
            if settings.encryption != Some(Encryption::On) {
                return Ok((Arc::clone(raw), None));
            }
            switch_on(raw, id, &source, has_data, clock)?
        }
    };
    if settings.encryption == Some(Encryption::Off) {
        tracing::warn!("encryption is off in the settings, but the repository is encrypted, and stays so");
    }
    at_work::note(&settings.data_dir, open.table());
    let keys = Arc::new(Keys::new(open, Arc::clone(raw), Arc::clone(clock), Arc::new(SystemRandom)));
    let volume = SealedVolume::new(Arc::clone(raw), Arc::clone(&keys));
    let at_work = AtWork::new(&volume, &keys, &settings.data_dir, source);
    Ok((Arc::new(volume), Some(at_work)))
}

/// The volume of a server that is lost: opened with a recovery kit, or with what the settings name.
///
/// # Errors
/// As [`around`].
pub(crate) fn recovered(
    raw: &Arc<dyn Volume>,
    settings: &Settings,
    kit: Option<&Path>,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<dyn Volume>, ServiceError> {
    let Some(table) = read_table(&**raw).map_err(table_error)? else {
        refuse_without_keys(&**raw)?;
        return Ok(Arc::clone(raw));
    };
    let source = KeySource::of(settings);
    let open = match kit {
        Some(kit) => {
            let (open, is_changed) = open_with_kit(table, kit, &source, &**clock)?;
            if is_changed {
                replace_table(&**raw, &open)?;
            }
            open
        }
        None => unlock_with(table, &source, "name a recovery kit with --kit FILE")?.0,
    };
    // Recovery was told to use this copy.
    at_work::accept(&settings.data_dir, open.table())?;
    let keys = Keys::new(open, Arc::clone(raw), Arc::clone(clock), Arc::new(SystemRandom));
    Ok(Arc::new(SealedVolume::new(Arc::clone(raw), Arc::new(keys))))
}

/// (K5) Refuses what [`recovered`] gave when it is not encrypted, and the repository was when this data folder used it last.
///
/// # Errors
/// That.
pub(crate) fn refuse_plain(
    raw: &Arc<dyn Volume>,
    recovered: &Arc<dyn Volume>,
    data_dir: &Path,
    id: RepositoryId,
) -> Result<(), ServiceError> {
    if Arc::ptr_eq(raw, recovered) { at_work::refuse_none(data_dir, id) } else { Ok(()) }
}

/// Opens the table with a kit, and makes `source` open it from now on. Also returns true if that changed the table:
/// then it is still to be written.
///
/// # Errors
/// Another kit; when the key file cannot be made.
pub(crate) fn open_with_kit(
    table: KeyTable,
    kit: &Path,
    source: &KeySource,
    clock: &dyn Clock,
) -> Result<(OpenKeys, bool), ServiceError> {
    let kit = read_kit(kit)?;
    if let Some(of) = kit.repository.filter(|of| *of != table.repository()) {
        let here = table.repository();
        return Err(no_key(format!(
            "the recovery kit is of repository {of}, and the volume of repository {here}"
        )));
    }
    let (mut open, _) = table.clone().unlock(&SlotSecret::recovery_kit(kit.secret)).map_err(no_key)?;
    let secret = source.read_or_make()?;
    let is_changed = table.unlock(&secret).is_err();
    if is_changed {
        let label = source.label();
        open.add_slot(&NewSlot::new(&secret, &label), clock.now_ms(), &SystemRandom).map_err(refused)?;
    }
    Ok((open, is_changed))
}

fn read_kit(path: &Path) -> Result<Kit, ServiceError> {
    let failed = |why: String| no_key(format!("the recovery kit {}: {why}", path.display()));
    let found = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?;
    if found.len() > PAGE_MAX_BYTES as u64 {
        return Err(failed(format!("it has more than {PAGE_MAX_BYTES} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    Kit::parse(&text).map_err(|error| failed(error.to_string()))
}

/// (K1) Makes a changed table the one that counts.
///
/// # Errors
/// The volume's.
pub(crate) fn replace_table(raw: &dyn Volume, open: &OpenKeys) -> Result<(), ServiceError> {
    write_table(raw, open.table()).map_err(table_error)?;
    settle_table(raw, open.table()).map_err(table_error).map(drop)
}

/// (K8) Says what of the table of keys was not on the volume as it should be.
pub(crate) fn tell_mended(mended: &[BlobName]) {
    for name in mended {
        tracing::error!(
            %name,
            "the table of keys was missing or damaged there, and was written anew: without it nothing can be read. Look at the \
             disk, and at who can write to the volume"
        );
    }
}

/// Keys are not changed so.
pub(crate) fn refused(why: impl std::fmt::Display) -> ServiceError {
    ServiceError::invalid(why.to_string())
}

/// Fails when there are encrypted blobs: their keys are lost, or were taken away so that others would be believed. In a
/// repository that was made without encryption the oldest blobs are none of these, so the folders that are small and
/// always written to are looked at as a whole.
pub(crate) fn refuse_without_keys(raw: &dyn Volume) -> Result<(), ServiceError> {
    let (all, first) = (NonZeroUsize::MAX, NonZeroUsize::MIN);
    for (folder, limit) in [("snapshots", all), ("index", all), ("points", first), ("containers", first)] {
        let Some(folder) = BlobName::new(folder) else { continue };
        for entry in list_all(raw, &folder).in_pages_of(limit.min(LIST_PAGE_ENTRIES)).take(limit.get()) {
            let name = entry.map_err(holdfast_engine::EngineError::from)?.name;
            if is_sealed_name(&name) {
                return Err(no_key(format!(
                    "the volume holds encrypted data ({name}), but no keys (the folder keys): put a copy of them back; \
                     nothing was changed"
                )));
            }
        }
    }
    Ok(())
}

/// A repository's first table of keys. What is there already stays readable.
fn switch_on(
    raw: &Arc<dyn Volume>,
    id: RepositoryId,
    source: &KeySource,
    has_data: bool,
    clock: &Arc<dyn Clock>,
) -> Result<OpenKeys, ServiceError> {
    let secret = source.read_or_make()?;
    let label = source.label();
    let slot = NewSlot::new(&secret, &label);
    let open = OpenKeys::create(id, &slot, has_data, clock.now_ms(), &SystemRandom).map_err(refused)?;
    // (K1) What opens it was durable before.
    replace_table(&**raw, &open)?;
    tracing::warn!(
        repository_key = %open.table().key(),
        "the repository is encrypted from now on, and the {source} opens it: without it nothing can be restored. Run \
         'holdfast-server key export-kit' and keep the page elsewhere"
    );
    Ok(open)
}

pub(crate) fn table_error(error: holdfast_sealing::TableError) -> ServiceError {
    match error {
        holdfast_sealing::TableError::Volume(error) => holdfast_engine::EngineError::from(error).into(),
        other => ServiceError::new(ErrorCode::Damaged, other.to_string()),
    }
}

#[cfg(test)]
mod tests;
