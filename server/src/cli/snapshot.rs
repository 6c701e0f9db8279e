//! `holdfast-server snapshot`: the backup of the server itself.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use holdfast_engine::clock::{Clock, SystemClock};
use serde_json::json;

use super::fail::Failure;
use super::out;
use super::token::who;
use super::{DataFolder, no_repository};
use crate::repository::{is_repository, snapshot};

pub(super) const EXAMPLES: &str = "\
Examples:
  holdfast-server snapshot --to /mnt/elsewhere/holdfast
  holdfast-server snapshot --data-dir /srv/holdfast --to /mnt/elsewhere/holdfast-$(date +%F)

The folder is created for this user alone (mode 0700), or holds an earlier backup, which is replaced. It gets:
  catalog.snapshot   restore points, tokens (hashed), jobs, reports, audit log
  config.toml        the settings in force
  tls/               the self-signed certificate that agents trust, and its key; not one named by --tls-cert
The volume (blobs/) is not in it. 'holdfast-server recover --snapshot FOLDER' uses it.";

#[derive(Debug, Args)]
pub(super) struct SnapshotArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Folder to write the backup to, on another disk than the data folder
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &SnapshotArgs) -> Result<ExitCode, Failure> {
    let resolved = args.folder.resolve()?;
    let data_dir = &resolved.settings.data_dir;
    if !is_repository(data_dir) {
        return Err(no_repository(data_dir));
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let bytes = snapshot::write(&resolved, &clock, &args.to, &who())?;
    let to = args.to.display().to_string();
    if args.json {
        out::say(json!({ "type": "summary", "folder": to, "catalog_bytes": bytes }));
    } else {
        out::say(format_args!("wrote the backup of the server to {to} (catalog: {bytes} bytes, compressed)"));
    }
    Ok(ExitCode::SUCCESS)
}
