//! `holdfast export`.

use std::path::PathBuf;
use std::process::ExitCode;

use holdfast_nbd::{Exports, Listener, Place, Server};
use holdfast_proto::details::{bytes, shell_word};
use serde_json::json;

use super::Context;
use super::disk_args::ExportArgs;
use super::readable::{self, Opened};
use crate::error::ClientError;

pub(super) async fn run(context: &Context, export: &ExportArgs) -> Result<ExitCode, ClientError> {
    // First, so that nothing is asked for when it fails.
    let listener = listen(&export.listen)?;
    let Some(opened) = readable::open(context, &export.readable).await? else { return Ok(ExitCode::SUCCESS) };
    let Opened { backup, disks } = opened;
    let sizes: Vec<(String, u64)> =
        disks.iter().map(|(name, disk)| (name.clone(), disk.size_bytes())).collect();
    let server = serve(listener, disks)?;
    let only = sizes.len() == 1;
    let mut exports = Vec::new();
    let mut lines = Vec::new();
    for (name, size_bytes) in &sizes {
        let uri = server.uri(if only { "" } else { name }).map_err(|error| failed(&export.listen, error))?;
        lines.push(format!(
            "Disk {name} of {} ({}), {}, read-only: {uri}\n  nbdinfo '{uri}'\n  qemu-img convert -f raw -O qcow2 '{uri}' {}",
            backup.vm,
            backup.id,
            bytes(*size_bytes),
            shell_word(&format!("{}.qcow2", name.replace('/', "-"))),
        ));
        exports.push(json!({ "disk": name, "size_bytes": size_bytes, "uri": uri }));
    }
    if context.output.json {
        context.output.json_line(&json!({ "type": "listening", "backup": backup.id, "exports": exports }))?;
    } else {
        context.output.text(&format!("{}\nCtrl-C ends it.", lines.join("\n")))?;
    }
    tracing::info!(backup = backup.id, vm = backup.vm, disks = sizes.len(), "serving disks");
    context.cancel.cancelled().await;
    drop(server);
    if context.output.json {
        context.output.summary(|| json!({ "backup": backup.id }), String::new)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Listens where the user said.
pub(super) fn listen(place: &Place) -> Result<Listener, ClientError> {
    Listener::bind(place).map_err(|error| failed(place, error))
}

/// Serves the disks by name; the only one also without a name.
pub(super) fn serve(
    listener: Listener,
    disks: Vec<(String, std::sync::Arc<dyn holdfast_nbd::Disk>)>,
) -> Result<Server, ClientError> {
    let default = match disks.as_slice() {
        [(_, only)] => Some(std::sync::Arc::clone(only)),
        _ => None,
    };
    let server = Server::start(listener, Exports::new(disks, default));
    server.map_err(|_| ClientError::Internal("the thread that serves disks could not be started"))
}

fn failed(place: &Place, source: std::io::Error) -> ClientError {
    let path = match place {
        Place::Unix(path) => path.clone(),
        Place::Tcp(address) => PathBuf::from(address),
    };
    ClientError::File { what: "listening at", path, source }
}
