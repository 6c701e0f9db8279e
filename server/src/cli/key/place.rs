//! Location of a data folder's keys, and changes to them by a command: as the only process of the folder, or with the
//! help of the server that runs (`control`).

use std::sync::Arc;

use holdfast_engine::EngineError;
use holdfast_engine::catalog::AuditEntry;
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_keys::{KeyTable, OpenKeys, Owner};
use holdfast_proto::ErrorCode;
use holdfast_sealing::read_table;
use holdfast_volume::{LocalVolume, Volume};

use crate::cli::fail::Failure;
use crate::cli::{DataFolder, no_repository, out, token};
use crate::config::Settings;
use crate::control::{Running, beside};
use crate::error::ServiceError;
use crate::repository::encryption::{self, KeySource, at_work, refused};
use crate::repository::{BLOBS, FolderLock, copies_of, is_repository, open_beside};

/// Tries of a change that the server's own changes of keys made void: it changes them when a namespace gets its first
/// backup, and when it drops old data keys.
const TRIES: u32 = 8;

/// The keys of a data folder.
pub(super) struct Place {
    pub(super) settings: Settings,
    pub(super) volume: Arc<dyn Volume>,
    pub(super) table: KeyTable,
}

/// Other process that may change them.
enum Held {
    /// None.
    Alone(#[expect(dead_code, reason = "held, never read")] FolderLock),
    Server(Running),
}

/// Changes the keys of a data folder: `change` makes changed ones of those that count, more than once if need be. Returns the
/// place as it was, and what was made of it.
///
/// # Errors
/// Those of `change`; another process has the folder, and is no server that can be asked; the server refuses the change; the
/// volume's.
pub(super) fn change<T>(
    folder: &DataFolder,
    change: impl Fn(&Place) -> Result<(OpenKeys, T), ServiceError>,
) -> Result<(Place, OpenKeys, T), Failure> {
    let data_dir = folder.resolve()?.settings.data_dir;
    let held = match FolderLock::take(&data_dir) {
        Ok(lock) => Held::Alone(lock),
        Err(error) if error.code == ErrorCode::Busy => Held::Server(beside(&data_dir).ok_or(error)?),
        Err(error) => return Err(error.into()),
    };
    let mut tries = 1;
    loop {
        let place = Place::find(folder)?;
        at_work::check(&place.settings.data_dir, &place.table)?;
        let (open, answer) = change(&place)?;
        match place.replace(&held, &open) {
            Ok(()) => return Ok((place, open, answer)),
            Err(error) if error.code == ErrorCode::Busy && tries < TRIES => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

impl Place {
    pub(super) fn find(folder: &DataFolder) -> Result<Self, Failure> {
        let settings = folder.resolve()?.settings;
        let blobs = settings.data_dir.join(BLOBS);
        if !blobs.is_dir() {
            return Err(no_repository(&settings.data_dir));
        }
        let volume: Arc<dyn Volume> = Arc::new(LocalVolume::open(blobs).map_err(EngineError::from)?);
        let table = read_table(&*volume).map_err(encryption::table_error)?;
        let table = table.ok_or_else(|| {
            refused(
                "the repository is not encrypted; start the server with --encrypt to encrypt what it writes",
            )
        })?;
        Ok(Self { settings, volume, table })
    }

    pub(super) fn open(&self) -> Result<OpenKeys, ServiceError> {
        Ok(encryption::unlock(self.table.clone(), &KeySource::of(&self.settings))?.0)
    }

    /// Owners of the data keys of the namespaces with these names.
    pub(super) fn owners(&self, names: &[String]) -> Result<Vec<Owner>, ServiceError> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let catalog = open_beside(&self.settings.data_dir, &clock)?;
        let owner = |name: &String| {
            let found = catalog.namespace_by_name(name)?.ok_or_else(|| {
                ServiceError::new(ErrorCode::NotFound, format!("there is no namespace {name:?}"))
            })?;
            Ok(Owner::Namespace(found.id))
        };
        names.iter().map(owner).collect()
    }

    /// (K1) Makes the changed keys those that count.
    fn replace(&self, held: &Held, open: &OpenKeys) -> Result<(), ServiceError> {
        if open.table().sequence() == self.table.sequence() {
            return Ok(());
        }
        match held {
            Held::Server(server) => server.take_over(self.table.sequence(), open.table()),
            Held::Alone(_) => {
                encryption::replace_table(&*self.volume, open)?;
                at_work::note(&self.settings.data_dir, open.table());
                if let Some((location, _)) = copies_of(&self.settings.data_dir)? {
                    out::note(format_args!(
                        "the copies in {location} have the keys as they were until the server has run again: start it, and \
                         see that 'holdfast-server tier status' says that they are up to date"
                    ));
                }
                Ok(())
            }
        }
    }

    /// Writes into the audit log what was done. The keys are changed by then, so that it cannot be written is only said.
    pub(super) fn note(&self, action: &str, detail: String) {
        if !is_repository(&self.settings.data_dir) {
            return;
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let entry = AuditEntry {
            who: token::who(),
            action: action.to_owned(),
            object: self.table.repository().to_string(),
            detail,
        };
        let told = open_beside(&self.settings.data_dir, &clock)
            .and_then(|catalog| catalog.audit(&entry).map_err(ServiceError::from));
        if let Err(error) = told {
            out::note(format_args!("it cannot be written into the audit log: {error}"));
        }
    }
}
