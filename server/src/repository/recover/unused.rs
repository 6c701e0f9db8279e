//! A repository that was never used, such as the one that a package's first start made, in the way of a recovery.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::clock::Clock;

use crate::error::ServiceError;
use crate::files;
use crate::repository::snapshot::cannot;
use crate::repository::{BLOBS, is_repository, open_beside};
use crate::tls::CERTIFICATE_FILE;

/// Folder below the data folder; a number follows where there is one already.
const ASIDE_FOLDER: &str = "unused-repository";

const CATALOG: &str = "catalog.db";

/// What a first start makes, in the order of moving. The catalog goes last: it is what says, after a crash, that the rest is
/// to be moved. Nothing else is touched: a key or a kit that was put there for the recovery, `lost+found`.
const MADE: [&str; 11] = [
    BLOBS,
    "tls",
    "settings.toml",
    "admin.token",
    // What lies in its own bucket is not what lies in that of the recovered one.
    "tiers.db-shm",
    "tiers.db-wal",
    "tiers.db",
    "catalog.room",
    "catalog.db-shm",
    "catalog.db-wal",
    CATALOG,
];

/// Returns true if the data folder has a repository to which nothing was ever backed up, to which no one but its first
/// administrator has a token, and whose volume is not the one to recover, `from`.
pub(super) fn is_unused(data_dir: &Path, from: Option<&Path>, clock: &Arc<dyn Clock>) -> bool {
    let look = || -> Result<bool, ServiceError> {
        let catalog = open_beside(data_dir, clock)?;
        let unused = catalog.commits()?.last == 0 && catalog.list_tokens()?.len() <= 1;
        catalog.checkpoint()?;
        Ok(unused)
    };
    let is_elsewhere = from.is_none_or(|from| !from.starts_with(data_dir));
    // One that cannot be read was used, as far as anyone knows.
    is_elsewhere && is_repository(data_dir) && can_be_moved(data_dir) && look().unwrap_or(false)
}

/// Returns true if all of it can be moved, and the volume has neither data, nor restore points, nor keys: a catalog may be
/// older than its volume, and a key file beside it may be the one to recover with.
fn can_be_moved(data_dir: &Path) -> bool {
    let blobs = data_dir.join(BLOBS);
    let is_empty = |folder: &str| match fs::read_dir(blobs.join(folder)) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    let home = fs::symlink_metadata(data_dir).map(|found| found.dev()).ok();
    let is_ours = |name: &str| match fs::symlink_metadata(data_dir.join(name)) {
        // Neither a mounted disk nor a link to one.
        Ok(found) => Some(found.dev()) == home && !found.is_symlink(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    };
    MADE.into_iter().all(is_ours) && ["containers", "points", "keys"].into_iter().all(is_empty)
}

/// Moves what a first start made of a repository that [is unused](is_unused) to a folder of its own; nothing is deleted. The
/// caller holds the lock of the data folder.
///
/// # Errors
/// When something cannot be moved; another try goes on.
pub(super) fn set_aside(data_dir: &Path) -> Result<(), ServiceError> {
    let aside = aside_folder(data_dir);
    files::create_private_folder(&aside).map_err(cannot("create", &aside))?;
    for name in MADE {
        let path = data_dir.join(name);
        if fs::symlink_metadata(&path).is_ok() {
            files::rename_durably(&path, &aside.join(name)).map_err(cannot("rename", &path))?;
        }
    }
    tracing::warn!(folder = %aside.display(), "the repository that was here was never used; it was moved to this folder");
    Ok(())
}

/// The folder that was set aside last and has a certificate: someone may have put it there for the recovery, or agents may have
/// been told its fingerprint.
pub(super) fn with_certificate(data_dir: &Path) -> Option<PathBuf> {
    asides(data_dir)
        .take_while(|path| path.exists())
        .filter(|path| path.join(CERTIFICATE_FILE).exists())
        .last()
}

/// The first that is free, or that an earlier try did not complete.
fn aside_folder(data_dir: &Path) -> PathBuf {
    asides(data_dir).find(|path| !path.join(CATALOG).exists()).unwrap_or_else(|| data_dir.join(ASIDE_FOLDER))
}

fn asides(data_dir: &Path) -> impl Iterator<Item = PathBuf> {
    let numbered = (2..).map(|number: u32| format!("{ASIDE_FOLDER}.{number}"));
    std::iter::once(ASIDE_FOLDER.to_owned()).chain(numbered).map(|name| data_dir.join(name))
}
