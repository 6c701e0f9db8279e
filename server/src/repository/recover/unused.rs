//! A repository that was never used, such as the one that a package's first start made, in the way of a recovery.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::clock::Clock;

use crate::error::ServiceError;
use crate::files;
use crate::repository::snapshot::cannot;
use crate::repository::{LOCK_FILE, is_repository, open_beside};

/// Below the data folder; a number follows where there is one already.
const ASIDE_FOLDER: &str = "unused-repository";

const CATALOG: &str = "catalog.db";

/// Moves everything of a repository that was never used to a folder of its own, its key and certificate included; nothing is
/// deleted. One that was used stays, and so does one whose volume is the one to recover, `from`. The caller holds the lock of
/// the data folder.
///
/// # Errors
/// When something cannot be moved; another try goes on.
pub(super) fn set_aside_unused(
    data_dir: &Path,
    from: Option<&Path>,
    clock: &Arc<dyn Clock>,
) -> Result<(), ServiceError> {
    if from.is_some_and(|from| from.starts_with(data_dir)) || !is_unused(data_dir, clock) {
        return Ok(());
    }
    let aside = free_name(data_dir);
    let mut entries = fs::read_dir(data_dir)
        .and_then(|entries| {
            entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()
        })
        .map_err(cannot("read", data_dir))?;
    entries.retain(|name| name != LOCK_FILE && !name.as_encoded_bytes().starts_with(ASIDE_FOLDER.as_bytes()));
    // The catalog goes last: it is what says, after a crash, that the rest is to be moved.
    let is_catalog = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(CATALOG.as_bytes());
    entries.sort_unstable_by_key(|name| (is_catalog(name), Reverse(name.clone())));
    files::create_private_folder(&aside).map_err(cannot("create", &aside))?;
    for name in entries {
        let path = data_dir.join(&name);
        files::rename_durably(&path, &aside.join(&name)).map_err(cannot("rename", &path))?;
    }
    tracing::warn!(folder = %aside.display(), "the repository that was here was never used; it was moved to this folder");
    Ok(())
}

/// Whether there is a repository to which nothing was ever backed up, and to which no one but its first administrator has a
/// token.
fn is_unused(data_dir: &Path, clock: &Arc<dyn Clock>) -> bool {
    let look = || -> Result<bool, ServiceError> {
        let catalog = open_beside(data_dir, clock)?;
        let unused = catalog.commits()?.last == 0 && catalog.list_tokens()?.len() <= 1;
        catalog.checkpoint()?;
        Ok(unused)
    };
    // One that cannot be read was used, as far as anyone knows.
    is_repository(data_dir) && look().unwrap_or(false)
}

fn free_name(data_dir: &Path) -> PathBuf {
    let names = (2..).map(|number: u32| format!("{ASIDE_FOLDER}.{number}"));
    let mut names = std::iter::once(ASIDE_FOLDER.to_owned()).chain(names).map(|name| data_dir.join(name));
    names.find(|path| !path.exists()).unwrap_or_else(|| data_dir.join(ASIDE_FOLDER))
}
