//! The backup of the server itself: everything that is not on the volume, in one folder.
//!
//! | file | what |
//! |---|---|
//! | `catalog.snapshot` | the catalog, in the format of the snapshots on the volume |
//! | `config.toml` | the settings in force: those that the server was started with |
//! | `tls/cert.pem`, `tls/key.pem` | the self-signed certificate that agents pin, unless the settings name another |
//!
//! A crash leaves either the old files or the new ones, and perhaps a temporary file beside them.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use holdfast_engine::catalog::{AuditEntry, Catalog};
use holdfast_engine::clock::Clock;
use holdfast_engine::{EngineError, SnapshotHeader, seal_snapshot};
use holdfast_volume::{BlobName, LocalVolume, Volume as _, VolumeError};

use super::open_beside;
use crate::config::{Given, Resolved, Settings, resolve};
use crate::error::{ServiceError, io_code};
use crate::files;
use crate::tls::{CERTIFICATE_FILE, KEY_FILE};

/// Name of the catalog's copy.
pub(crate) const CATALOG_FILE: &str = "catalog.snapshot";
const CONFIG_FILE: &str = "config.toml";
/// File in the data folder: the settings that the server was started with last.
const STARTED_FILE: &str = "settings.toml";
/// Largest PEM file: above any certificate or key.
const PEM_MAX_BYTES: u64 = 1 << 20;

/// Writes the backup of the server to the folder `to` on behalf of `who`, replacing an earlier one there. Returns the bytes
/// of the catalog's copy.
///
/// # Errors
/// `Invalid` when the folder holds anything else; the catalog's; when a file cannot be written.
pub fn write(resolved: &Resolved, clock: &Arc<dyn Clock>, to: &Path, who: &str) -> Result<u64, ServiceError> {
    let data_dir = &resolved.settings.data_dir;
    let catalog = open_beside(data_dir, clock)?;
    prepare(to)?;
    let entry = AuditEntry {
        who: who.to_owned(),
        action: "server.snapshot".to_owned(),
        object: to.display().to_string(),
        detail: "a copy of the catalog, the settings and the certificate's key".to_owned(),
    };
    // A server whose catalog takes no changes needs its backup most.
    if let Err(error) = catalog.audit(&entry) {
        tracing::warn!(%error, "this backup of the server is not in the audit log");
    }
    if resolved.settings.tls_cert.is_none() {
        for (file, mode) in [(KEY_FILE, files::MODE_SECRET), (CERTIFICATE_FILE, files::MODE_PUBLIC)] {
            copy_small(&data_dir.join(file), &to.join(file), mode)?;
        }
    }
    // The settings that the server was started with: this command may have been told others, or none.
    let started = data_dir.join(STARTED_FILE);
    let config = match fs::read_to_string(&started) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => text_of(resolved),
        read => read.map_err(cannot("read", &started))?,
    };
    let path = to.join(CONFIG_FILE);
    files::write_durably(&path, config.as_bytes(), files::MODE_SECRET).map_err(cannot("write", &path))?;
    write_catalog(&catalog, clock, to)
}

/// Keeps the settings that a server was started with, for its [backups](write()).
///
/// # Errors
/// When the file cannot be written.
pub fn keep_settings(resolved: &Resolved) -> Result<(), ServiceError> {
    let path = resolved.settings.data_dir.join(STARTED_FILE);
    files::write_durably(&path, text_of(resolved).as_bytes(), files::MODE_SECRET)
        .map_err(cannot("write", &path))
}

/// The settings that the server of the same data folder was started with last, if it ever was.
///
/// # Errors
/// `Invalid` when the file cannot be read.
pub fn started_settings(settings: &Settings) -> Result<Option<Settings>, ServiceError> {
    let path = settings.data_dir.join(STARTED_FILE);
    if !path.exists() {
        return Ok(None);
    }
    let started = resolve(&Given::default(), Some(&path), &|_| None);
    started.map(|started| Some(started.settings)).map_err(|error| ServiceError::invalid(error.to_string()))
}

/// The settings as a configuration file says them.
fn text_of(resolved: &Resolved) -> String {
    resolved.entries().map(|(key, value, origin)| format!("{key} = {value}  # {origin}\n")).collect()
}

fn write_catalog(catalog: &Catalog, clock: &Arc<dyn Clock>, to: &Path) -> Result<u64, ServiceError> {
    let header = SnapshotHeader {
        number: 0,
        repository: catalog.repository()?.id,
        created_ms: clock.now_ms(),
        last_commit: catalog.commits()?.last,
    };
    let mut copy = catalog.snapshot(&Arc::default())?;
    let volume = LocalVolume::open(to).map_err(EngineError::from)?;
    volume.discard_unfinished().map_err(EngineError::from)?;
    let unnamed = BlobName::new(format!("{CATALOG_FILE}.new"));
    let unnamed =
        unnamed.ok_or_else(|| ServiceError::defect("the name of the catalog's copy is not valid"))?;
    match volume.remove(&unnamed) {
        Ok(()) | Err(VolumeError::NotFound { .. }) => {}
        Err(error) => return Err(EngineError::from(error).into()),
    }
    let bytes = seal_snapshot(&volume, &unnamed, &header, &mut *copy, &mut |_| Ok(()))?;
    let path = to.join(CATALOG_FILE);
    files::rename_durably(&to.join(unnamed.as_str()), &path).map_err(cannot("write", &path))?;
    Ok(bytes)
}

/// A folder for this user alone, empty or with an earlier backup in it.
fn prepare(to: &Path) -> Result<(), ServiceError> {
    files::create_private_folder(to).map_err(cannot("create", to))?;
    let tls = to.join("tls");
    let holds_other = !to.join(CATALOG_FILE).exists() && {
        let mut entries = fs::read_dir(to).map_err(cannot("read", to))?;
        // Left by an earlier try, which writes the catalog last.
        entries.any(|entry| {
            entry.is_ok_and(|entry| {
                let name = entry.file_name();
                ![CONFIG_FILE, "tls", ".tmp"].iter().any(|ours| name.to_string_lossy().starts_with(ours))
                    && !name.to_string_lossy().starts_with(CATALOG_FILE)
            })
        })
    };
    if holds_other {
        return Err(ServiceError::invalid(format!(
            "{} holds other files; name a new folder, or one with an earlier backup of this server",
            to.display()
        )));
    }
    files::create_private_folder(&tls).map_err(cannot("create", &tls))
}

/// Copies a file of the data folder, if it is there.
pub(super) fn copy_small(from: &Path, to: &Path, mode: u32) -> Result<(), ServiceError> {
    match fs::metadata(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(found) if found.len() > PEM_MAX_BYTES => {
            return Err(ServiceError::invalid(format!(
                "{} is too long for a certificate or key",
                from.display()
            )));
        }
        _ => {}
    }
    let bytes = fs::read(from).map_err(cannot("read", from))?;
    files::write_durably(to, &bytes, mode).map_err(cannot("write", to))
}

pub(super) fn cannot(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServiceError {
    let path = path.display().to_string();
    move |error| ServiceError::new(io_code(&error), format!("cannot {action} {path}: {error}"))
}
