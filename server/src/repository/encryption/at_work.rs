//! The encryption of a repository that is open: what is told of it, and what converts it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::BLOB_FOLDERS;
use holdfast_engine::ids::{NamespaceId, RepositoryId};
use holdfast_keys::slots::{NewSlot, SlotInfo, SlotKind, SlotSecret};
use holdfast_keys::{DataKeyId, KeyTable, Owner, RepositoryKeyId};
use holdfast_proto::ErrorCode;
use holdfast_sealing::{Conversion, Keys, KeysError, SealedVolume, TakeOverError};
use holdfast_volume::BlobName;

use crate::error::ServiceError;
use crate::files;
use crate::repository::encryption::{KeySource, refused, table_error, unlock};

/// Advice for a repository that a lost file would lose.
pub(crate) const NO_KIT: &str = "no recovery kit was exported: when the key file is lost, all backups are. Run \
                                 'holdfast-server key export-kit'";

/// The folders of all blobs that are encrypted.
pub(crate) fn folders() -> Vec<BlobName> {
    BLOB_FOLDERS.iter().filter_map(|folder| BlobName::new(*folder)).collect()
}

/// Returns true if nothing but key files opens the repository: neither a kit, nor a passphrase or command, whose secret lies
/// elsewhere.
pub(crate) fn wants_kit(table: &KeyTable) -> bool {
    table.slots().all(|slot| slot.kind == SlotKind::KeyFile)
}

/// The encryption of a repository that is open.
#[derive(Debug)]
pub struct Encryption {
    keys: Arc<Keys>,
    conversion: Arc<Conversion>,
    /// Source of the secret that opens the keys at a start.
    source: KeySource,
}

impl Encryption {
    pub(super) fn new(
        volume: &SealedVolume,
        keys: &Arc<Keys>,
        data_dir: &Path,
        source: KeySource,
    ) -> Arc<Self> {
        let data_dir = data_dir.to_owned();
        keys.on_change(Box::new(move |table| note(&data_dir, table)));
        let conversion = Conversion::new(volume.clone(), Arc::clone(keys), folders());
        Arc::new(Self { keys: Arc::clone(keys), conversion: Arc::new(conversion), source })
    }

    /// (K1) Goes on with a table of keys that a command made of the one with number `based_on`.
    ///
    /// # Errors
    /// `Busy`: another one counts by now, so the change is to be made again; `Unauthenticated`: what the settings of this
    /// server name does not open it; `Invalid`: it loses a data key, or is not a table. Nothing was changed then. The volume's.
    pub(crate) fn take_over(&self, based_on: u64, table: &[u8]) -> Result<(), ServiceError> {
        let table = KeyTable::decode(table).map_err(refused)?;
        // The next start must open it, and it has the same settings.
        let (open, _) = unlock(table, &self.source).map_err(|error| {
            ServiceError::new(
                error.code,
                format!("what the settings of the running server name must open the keys; nothing was changed. {error}"),
            )
        })?;
        self.keys.take_over(based_on, open).map_err(|error| match error {
            TakeOverError::Outdated { .. } => ServiceError::new(ErrorCode::Busy, error.to_string()),
            TakeOverError::Keys(error) => Refused::from(error).0,
            error => refused(format!("the keys are not taken over: {error}; nothing was changed")),
        })
    }

    /// (K8) Writes anew what is damaged or missing of the table of keys on the volume.
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn mend(&self) -> Result<(), ServiceError> {
        super::tell_mended(&self.keys.mend().map_err(table_error)?);
        Ok(())
    }

    /// Encrypts blobs that are plain, or not encrypted with today's keys.
    pub(crate) const fn conversion(&self) -> &Arc<Conversion> {
        &self.conversion
    }

    /// The id of the repository key.
    pub(crate) fn repository_key(&self) -> String {
        self.keys.with_table(|table| table.key().to_string())
    }

    /// Advice for the administrator, if any.
    pub(crate) fn reminder(&self) -> Option<&'static str> {
        self.keys.with_table(wants_kit).then_some(NO_KIT)
    }

    /// Returns true if blobs may lie in the open that were written before the repository was encrypted.
    pub(crate) fn accepts_plain(&self) -> bool {
        self.keys.accepts_plain()
    }

    /// (K4) Destroys the data keys of a namespace, and makes a new repository key that only `source` opens: one table has
    /// both. `secret` is from [`KeySource::renew`].
    ///
    /// # Errors
    /// The volume's.
    pub(crate) fn shred(
        &self,
        namespace: NamespaceId,
        source: &KeySource,
        secret: &SlotSecret,
    ) -> Result<Shredded, ServiceError> {
        let label = source.label();
        let shredded = self
            .keys
            .change(|keys, now_ms, random| {
                let before = keys.table().key();
                let gone = keys
                    .drop_owner(Owner::Namespace(namespace), now_ms)
                    .map_err(|error| Refused(refused(error)))?;
                let slots = keys.rotate_repository_key(&[NewSlot::new(secret, &label)], now_ms, random);
                let slots = slots.map_err(|error| Refused(refused(error)))?;
                // The slot that replaces the one that opened it is not gone.
                let slots = slots.into_iter().filter(|slot| slot.label != label).collect();
                Ok::<_, Refused>(Shredded {
                    keys: gone,
                    before,
                    repository_key: keys.table().key().to_string(),
                    slots,
                })
            })
            .map_err(|Refused(error)| error)?;
        source.adopt_renewed()?;
        Ok(shredded)
    }
}

/// Keys and slots that are gone for good.
#[derive(Debug)]
pub(crate) struct Shredded {
    pub(crate) keys: Vec<DataKeyId>,
    /// The repository key that was replaced.
    pub(crate) before: RepositoryKeyId,
    pub(crate) repository_key: String,
    /// Slots that opened only the key before.
    pub(crate) slots: Vec<SlotInfo>,
}

/// Why keys were not changed.
struct Refused(ServiceError);

impl From<KeysError> for Refused {
    fn from(error: KeysError) -> Self {
        Self(match error {
            KeysError::Table(error) => table_error(error),
            KeysError::Key(error) => refused(error),
        })
    }
}

// Number of the table of keys that a data folder used last. Who can write to the volume could put an older one back, and slots
// that were removed since would open it again; the table itself cannot tell. So the number is kept beside the catalog.
//
// A crash leaves the number before: an older table than the last is then noticed all the same, unless it is the very one
// before.

/// File in the data folder: the repository's id, and the number.
const FILE: &str = "keys-seen";

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// The number that is remembered of this repository; 0: none.
fn seen(data_dir: &Path, repository: RepositoryId) -> u64 {
    let path = path(data_dir);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return 0,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "cannot tell which table of keys was used last");
            return 0;
        }
    };
    let Some((id, Ok(number))) = text.trim().split_once(' ').map(|(id, number)| (id, number.parse())) else {
        tracing::warn!(path = %path.display(), "does not say which table of keys was used last; it is written anew");
        return 0;
    };
    if id == repository.to_string() { number } else { 0 }
}

/// (K5) Refuses a table that is older than the one that was used last.
///
/// # Errors
/// It is older.
pub(crate) fn check(data_dir: &Path, table: &KeyTable) -> Result<(), ServiceError> {
    let (seen, found) = (seen(data_dir, table.repository()), table.sequence());
    if found >= seen {
        return Ok(());
    }
    Err(ServiceError::new(
        ErrorCode::Unauthenticated,
        format!(
            "the keys on the volume are an older version ({found}) than those that were used last ({seen}): someone put them \
             back, and keys, passphrases and kits that were removed since would open the repository again. Nothing was \
             changed. Put the newer blobs/keys back; or, if the whole volume was put back from an older copy on purpose, \
             accept them with 'holdfast-server key accept-older'"
        ),
    ))
}

/// (K5) Refuses a volume without any table when one was used: what lies there in the open would be believed, and written
/// to.
///
/// # Errors
/// One was used.
pub(crate) fn refuse_none(data_dir: &Path, repository: RepositoryId) -> Result<(), ServiceError> {
    let seen = seen(data_dir, repository);
    if seen == 0 {
        return Ok(());
    }
    let path = path(data_dir);
    Err(ServiceError::new(
        ErrorCode::Unauthenticated,
        format!(
            "repository {repository} is encrypted (table {seen} of its keys was used last), and the volume has no keys (the folder \
             keys): they were lost, or the volume was put back as it was before, and new backups would lie in the open. \
             Nothing was changed. Put blobs/keys back, or the whole volume from a newer copy; or, if it was put back \
             unencrypted on purpose, remove {} and start again",
            path.display()
        ),
    ))
}

/// Remembers a table that is durable (K1). One that cannot be remembered stops nothing.
pub(crate) fn note(data_dir: &Path, table: &KeyTable) {
    if seen(data_dir, table.repository()) >= table.sequence() {
        return;
    }
    if let Err(error) = accept(data_dir, table) {
        tracing::warn!(%error, "cannot remember which table of keys was used last");
    }
}

/// Remembers this table, and no later one.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn accept(data_dir: &Path, table: &KeyTable) -> Result<(), ServiceError> {
    let text = format!("{} {}\n", table.repository(), table.sequence());
    let path = path(data_dir);
    files::write_durably(&path, text.as_bytes(), files::MODE_SECRET).map_err(|error| {
        ServiceError::new(ErrorCode::Internal, format!("cannot write {}: {error}", path.display()))
    })
}
