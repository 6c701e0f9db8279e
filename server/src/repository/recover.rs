//! A data folder made of a volume alone: the newest catalog snapshot that can be read, then every restore point that is
//! newer than it.
//!
//! The catalog is made under another name and gets its own as the last step, so a crash anywhere leaves a folder without
//! catalog, in which recovery begins again, or a whole one.

mod bucket;
mod settings;
mod unused;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::catalog::{AuditEntry, Catalog, DEFAULT_NAMESPACE};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::RepositoryId;
use holdfast_engine::owner::adopt;
use holdfast_engine::{
    Comparison, EngineError, Progress, SnapshotHeader, enter_points, list_snapshots, read_snapshot,
    read_snapshot_blob, repository_on,
};
use holdfast_proto::ErrorCode;
use holdfast_volume::{Blob, LocalVolume, Volume, VolumeError};

pub use self::bucket::Brought;
use self::bucket::{bring, bucket_of, find_missing, refuse_empty};
pub use self::settings::Needed;
use super::snapshot::{CATALOG_FILE, cannot, copy_small};
use super::{BLOBS, catalog_path, encryption, record_path};
use crate::config::Settings;
use crate::error::ServiceError;
use crate::files;
use crate::memory::Budget;
use crate::repository::{FolderLock, LOCK_FILE};
use crate::tls::{CERTIFICATE_FILE, KEY_FILE};

/// Name of the catalog until it is whole.
const UNFINISHED: &str = "catalog.db.recovering";
/// Added to the names of files that are in the way.
const ASIDE: &str = "before-recovery";
/// Suffixes of the files that SQLite keeps beside a database.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// A recovery under way; holds the locks of the folders.
#[derive(Debug)]
pub struct Recovery {
    data_dir: PathBuf,
    volume: Arc<dyn Volume>,
    /// Repository that the volume belongs to.
    pub repository: RepositoryId,
    /// Data that came from a bucket.
    pub brought: Option<Brought>,
    /// A bucket with containers that the volume lacks, and how many these are.
    pub missing: Option<(String, u64)>,
    _locks: Vec<FolderLock>,
}

/// Sources of the recovered catalog.
#[derive(Debug)]
pub struct Recovered {
    /// The snapshot that was used, and how messages call it; `None`: there was none that could be read.
    pub snapshot: Option<(String, SnapshotHeader)>,
    /// Snapshots that could not be used, and why.
    pub unusable: Vec<(String, String)>,
    /// Result of entering points.
    pub points: Comparison,
    /// Tokens that wait to be enabled.
    pub disabled_tokens: u64,
}

/// A catalog out of a snapshot, and what messages call that.
type Restored = (Catalog, (String, SnapshotHeader));

impl Recovery {
    /// Looks whether the volume in the folder `from` can be recovered into the settings' data folder, and makes it that
    /// folder's. `kit`: a recovery kit that opens an encrypted volume, in place of what the settings name.
    ///
    /// # Errors
    /// `Invalid` when the data folder holds a catalog that was used, or `from` is no volume; `Busy` when either is in use;
    /// `Unauthenticated` when the volume is encrypted and its keys are not opened.
    pub fn begin(
        from: &Path,
        settings: &Settings,
        kit: Option<&Path>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServiceError> {
        let data_dir = &settings.data_dir;
        let missing: Vec<&Path> = data_dir.ancestors().take_while(|folder| !folder.exists()).collect();
        let begun = Self::begin_in(data_dir, from, settings, kit, clock);
        if begun.is_err() && !missing.is_empty() {
            give_back(data_dir, &missing);
        }
        begun
    }

    fn begin_in(
        data_dir: &Path,
        from: &Path,
        settings: &Settings,
        kit: Option<&Path>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServiceError> {
        let from = fs::canonicalize(from).map_err(cannot("find", from))?;
        if !from.is_dir() {
            return Err(ServiceError::invalid(format!(
                "{} is no folder; name the folder {BLOBS:?}",
                from.display()
            )));
        }
        files::create_private_folder(data_dir).map_err(cannot("create", data_dir))?;
        let data_dir = fs::canonicalize(data_dir).map_err(cannot("find", data_dir))?;
        let mut locks = vec![FolderLock::take(&data_dir)?];
        let is_unused = unused::is_unused(&data_dir, Some(&from), clock);
        if !is_unused {
            refuse_catalog(
                &data_dir,
                "recovery never replaces a catalog; move it away first, or name another --data-dir",
            )?;
        }
        if let Some(home) = from.parent().filter(|home| **home != data_dir && is_home_of(home, &from)) {
            refuse_catalog(
                home,
                "so the volume is in use by that data folder; recover there, or move the catalog away",
            )?;
            locks.push(FolderLock::take(home)?);
        }
        let local: Arc<dyn Volume> = Arc::new(LocalVolume::open(&from).map_err(EngineError::from)?);
        let volume = encryption::recovered(&local, settings, kit, clock)?;
        let repository = repository_on(&*volume)?.ok_or_else(|| {
            ServiceError::invalid(format!(
                "{} holds nothing of a repository that can be read; name the folder {BLOBS:?} of the lost server",
                from.display()
            ))
        })?;
        encryption::refuse_plain(&local, &volume, &data_dir, repository)?;
        let bucket = bucket_of(&*local, repository, settings, !is_unused)?;
        if is_unused {
            unused::set_aside(&data_dir)?;
        }
        adopt_volume(&from, &data_dir.join(BLOBS))?;
        // (T15) Before anything is called lost.
        let missing = match bucket {
            Some(bucket) => find_missing(&local, bucket, settings, &Budget::find(settings)?, clock)?,
            None => None,
        };
        Ok(Self { data_dir, volume, repository, brought: None, missing, _locks: locks })
    }

    /// As [`Recovery::begin`], of the bucket that the settings name: what is always needed is copied into the data folder,
    /// data stays there and is read from there. What an earlier try has brought is not brought again.
    ///
    /// # Errors
    /// As [`Recovery::begin`]; `Unavailable` when the bucket cannot be read.
    pub fn begin_from_bucket(
        settings: &Settings,
        kit: Option<&Path>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServiceError> {
        let data_dir = &settings.data_dir;
        files::create_private_folder(data_dir).map_err(cannot("create", data_dir))?;
        let data_dir = fs::canonicalize(data_dir).map_err(cannot("find", data_dir))?;
        let locks = vec![FolderLock::take(&data_dir)?];
        if unused::is_unused(&data_dir, None, clock) {
            // A wrong name, or a store that is out of reach, must not cost this server its identity.
            refuse_empty(settings)?;
            unused::set_aside(&data_dir)?;
        }
        refuse_catalog(&data_dir, "recovery never replaces a catalog; name another --data-dir")?;
        let blobs = data_dir.join(BLOBS);
        // A recovery from a folder makes a record, too, and a link.
        if blobs.is_symlink() || (!record_path(&data_dir).exists() && blobs.exists()) {
            return Err(ServiceError::invalid(format!(
                "{} holds a volume already; name an empty --data-dir",
                data_dir.display()
            )));
        }
        let budget = Budget::find(settings)?;
        let (raw, brought) = bring(blobs, settings, &budget, clock)?;
        let volume = encryption::recovered(&raw, settings, kit, clock)?;
        let repository = repository_on(&*volume)?.ok_or_else(|| {
            ServiceError::invalid("the bucket holds nothing of a repository that can be read")
        })?;
        encryption::refuse_plain(&raw, &volume, &data_dir, repository)?;
        Ok(Self { data_dir, volume, repository, brought: Some(brought), missing: None, _locks: locks })
    }

    /// Makes the catalog, not yet under its name. `given`: a file or folder of `holdfast-server snapshot` to use in place
    /// of the volume's snapshots.
    ///
    /// # Errors
    /// When `given` cannot be used; the volume's and the catalog's.
    pub fn catalog(
        &self,
        clock: &Arc<dyn Clock>,
        given: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<(Catalog, Recovered), ServiceError> {
        let path = self.data_dir.join(UNFINISHED);
        discard(&path)?;
        let mut unusable = Vec::new();
        let found = match given {
            Some(given) => Some(self.use_given(clock, given, &path)?),
            None => self.use_newest(clock, &path, &mut unusable)?,
        };
        let (catalog, snapshot) = match found {
            Some((catalog, snapshot)) => (catalog, Some(snapshot)),
            None => (Catalog::create_for(&path, Arc::clone(clock), self.repository)?, None),
        };
        self.use_certificate(given)?;
        let disabled_tokens = catalog.disable_tokens()?;
        let points = enter_points(&*self.volume, &catalog, progress)?;
        // A point that cannot be read yet may bring it, with its id (P6): a second one would part its VMs from their backups.
        if points.unread.is_empty() {
            catalog.ensure_namespace(DEFAULT_NAMESPACE)?;
        }
        let of = snapshot
            .as_ref()
            .map_or_else(|| "no snapshot".to_owned(), |(name, _)| format!("snapshot {name}"));
        catalog.audit(&AuditEntry {
            who: "recovery".to_owned(),
            action: "server.recover".to_owned(),
            object: self.repository.to_string(),
            detail: format!(
                "from {of} and {} restore points newer than it; {disabled_tokens} tokens disabled",
                points.entered_count
            ),
        })?;
        Ok((catalog, Recovered { snapshot, unusable, points, disabled_tokens }))
    }

    /// Gives the catalog its name: from here on the data folder works.
    ///
    /// # Errors
    /// When a file cannot be renamed; recovery can be started again.
    pub fn finish(self, catalog: Catalog) -> Result<(), ServiceError> {
        catalog.checkpoint()?;
        drop(catalog);
        let unfinished = self.data_dir.join(UNFINISHED);
        let path = catalog_path(&self.data_dir);
        // A log that belongs to a lost catalog would be folded into this one.
        for name in with_companions(&path) {
            set_aside(&name)?;
        }
        File::open(&unfinished)
            .and_then(|file| file.sync_all())
            .map_err(cannot("make durable", &unfinished))?;
        files::rename_durably(&unfinished, &path).map_err(cannot("create", &path))
    }

    /// The newest of the volume's snapshots that can be used.
    fn use_newest(
        &self,
        clock: &Arc<dyn Clock>,
        path: &Path,
        unusable: &mut Vec<(String, String)>,
    ) -> Result<Option<Restored>, ServiceError> {
        for (_, name) in list_snapshots(&*self.volume).map_err(EngineError::from)? {
            let read =
                |out: &mut dyn io::Write| read_snapshot(&*self.volume, &name, Some(self.repository), out);
            match self.open_snapshot(clock, path, read) {
                Ok((catalog, header)) => return Ok(Some((catalog, (name.to_string(), header)))),
                Err(error)
                    if matches!(
                        error.code,
                        ErrorCode::Damaged
                            | ErrorCode::Invalid
                            | ErrorCode::Unsupported
                            | ErrorCode::Unavailable
                    ) =>
                {
                    tracing::warn!(%name, %error, "a catalog snapshot cannot be used; trying the one before it");
                    unusable.push((name.to_string(), error.message));
                    discard(path)?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Restores from a file, or a folder of `holdfast-server snapshot`.
    fn use_given(&self, clock: &Arc<dyn Clock>, given: &Path, path: &Path) -> Result<Restored, ServiceError> {
        let file = if given.is_dir() { given.join(CATALOG_FILE) } else { given.to_owned() };
        let name = file.display().to_string();
        let blob = FileBlob::open(&file).map_err(cannot("read", &file))?;
        let read =
            |out: &mut dyn io::Write| read_snapshot_blob(Arc::new(blob), &name, Some(self.repository), out);
        let (catalog, header) = self.open_snapshot(clock, path, read)?;
        Ok((catalog, (name, header)))
    }

    /// Brings back the certificate that agents trust, where there is none: that of the server's backup, else that of the unused
    /// repository that was in the way. Key and certificate belong together: both come or neither, the certificate last.
    fn use_certificate(&self, given: Option<&Path>) -> Result<(), ServiceError> {
        let certificate = self.data_dir.join(CERTIFICATE_FILE);
        if certificate.exists() {
            return Ok(());
        }
        let has_both =
            |folder: &PathBuf| folder.join(KEY_FILE).exists() && folder.join(CERTIFICATE_FILE).exists();
        let found = given.map(Path::to_path_buf).filter(has_both);
        let Some(found) = found.or_else(|| unused::with_certificate(&self.data_dir).filter(has_both)) else {
            return Ok(());
        };
        let folder = self.data_dir.join("tls");
        files::create_private_folder(&folder).map_err(cannot("create", &folder))?;
        set_aside(&self.data_dir.join(KEY_FILE))?;
        copy_small(&found.join(KEY_FILE), &self.data_dir.join(KEY_FILE), files::MODE_SECRET)?;
        copy_small(&found.join(CERTIFICATE_FILE), &certificate, files::MODE_PUBLIC)
    }

    /// Writes a snapshot's catalog to `path` and opens it; only one that is sound, and this repository's, counts.
    fn open_snapshot(
        &self,
        clock: &Arc<dyn Clock>,
        path: &Path,
        read: impl FnOnce(&mut dyn io::Write) -> Result<SnapshotHeader, EngineError>,
    ) -> Result<(Catalog, SnapshotHeader), ServiceError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(files::MODE_SECRET).open(path);
        let file = file.map_err(cannot("create", path))?;
        adopt(&file, path).map_err(cannot("create", path))?;
        let mut out = BufWriter::new(file);
        let header = read(&mut out).map_err(|error| match error {
            // (S12) Sealed with a missing key, in an archive, or not given: an older one may do.
            EngineError::Volume(_) | EngineError::Archived(_) => {
                ServiceError::new(ErrorCode::Unavailable, error.to_string())
            }
            error => error.into(),
        })?;
        out.flush().and_then(|()| out.get_ref().sync_all()).map_err(cannot("write", path))?;
        drop(out);
        let catalog = Catalog::open(path, Arc::clone(clock))?;
        let found = catalog.repository()?.id;
        if found != self.repository {
            let of = self.repository;
            return Err(ServiceError::new(
                ErrorCode::Damaged,
                format!("it is of repository {found}, not of {of}"),
            ));
        }
        // Sums follow from other rows: a wrong one costs no snapshot.
        catalog.add_up()?;
        match catalog.integrity_check()?.first() {
            Some(problem) => {
                Err(ServiceError::new(ErrorCode::Damaged, format!("its database is damaged: {problem}")))
            }
            None => Ok((catalog, header)),
        }
    }
}

/// Removes the folders that were made for a data folder that does not become one, if nothing but its lock is in them.
fn give_back(data_dir: &Path, made: &[&Path]) {
    let Ok(lock) = FolderLock::take(data_dir) else { return };
    if lock.remove(data_dir).is_ok() {
        // Folders that are not empty stay.
        let _ = made.iter().try_for_each(fs::remove_dir);
    }
}

/// A crash while a catalog is created leaves an empty file; anything else may be data that is still needed.
fn refuse_catalog(folder: &Path, what_to_do: &str) -> Result<(), ServiceError> {
    let path = catalog_path(folder);
    match fs::metadata(&path) {
        Ok(found) if found.len() > 0 => {
            Err(ServiceError::invalid(format!("{} exists; {what_to_do}", path.display())))
        }
        _ => Ok(()),
    }
}

/// Returns true if `home` is the data folder whose volume is in the folder `from`.
fn is_home_of(home: &Path, from: &Path) -> bool {
    from.file_name().is_some_and(|name| name == BLOBS)
        && (catalog_path(home).exists() || home.join(LOCK_FILE).exists())
}

/// Makes the volume the data folder's own: it is there already, or a link leads to it. Nothing is copied.
fn adopt_volume(from: &Path, blobs: &Path) -> Result<(), ServiceError> {
    match fs::canonicalize(blobs) {
        Ok(found) if found == from => return Ok(()),
        Ok(_) if fs::remove_dir(blobs).is_ok() => {}
        Ok(_) => {
            return Err(ServiceError::invalid(format!(
                "{} holds another volume than {}; name another --data-dir",
                blobs.display(),
                from.display()
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(cannot("read", blobs)(error)),
    }
    symlink(from, blobs).map_err(cannot("create", blobs))
}

fn with_companions(path: &Path) -> Vec<PathBuf> {
    let beside = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    std::iter::once("").chain(COMPANIONS).map(beside).collect()
}

/// Removes what an earlier try left.
fn discard(path: &Path) -> Result<(), ServiceError> {
    for path in with_companions(path) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(cannot("remove", &path)(error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Renames a file that is in the way; nothing is thrown away.
pub fn set_aside(path: &Path) -> Result<(), ServiceError> {
    if !path.exists() {
        return Ok(());
    }
    let named = |suffix: String| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(suffix);
        PathBuf::from(aside)
    };
    let numbered = (2..).map(|number: u32| format!(".{ASIDE}.{number}"));
    let mut names = std::iter::once(format!(".{ASIDE}")).chain(numbered).map(named);
    let aside = names.find(|aside| fs::symlink_metadata(aside).is_err());
    let aside = aside.ok_or_else(|| ServiceError::defect("every name for a file in the way is taken"))?;
    files::rename_durably(path, &aside).map_err(cannot("rename", path))
}

/// A file outside of any volume, such as on read-only media.
#[derive(Debug)]
struct FileBlob {
    file: File,
    len: u64,
}

impl FileBlob {
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, len })
    }
}

impl Blob for FileBlob {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.file.read_exact_at(buffer, offset).map_err(|source| VolumeError::Io {
            action: "read",
            name: CATALOG_FILE.to_owned(),
            source: source.into(),
        })
    }
}

#[cfg(test)]
mod tests;
