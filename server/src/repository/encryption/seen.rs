//! Which table of keys a data folder has used last. Who can write to the volume could put an older one back, and slots
//! that were removed since would open it again; the table itself cannot tell. So the number is kept beside the catalog.
//!
//! A crash leaves the number before: an older table than the last is then noticed all the same, unless it is the very one
//! before.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use holdfast_engine::ids::RepositoryId;
use holdfast_keys::KeyTable;
use holdfast_proto::ErrorCode;

use crate::error::ServiceError;
use crate::files;

/// In the data folder: the repository's id, and the number.
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
