//! `holdfast boot`: QEMU on overlays over the export of a restore point's disks.
//!
//! A machine's writes go into a qcow2 file a disk, temporary or in a folder that the user names. A file that is kept says which
//! restore point it belongs to by the name of the export that it is based on, and is used with no other.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use holdfast_nbd::{Place, Server};
use holdfast_proto::details::escape_line;
use rustix::process::{Pid, Signal, kill_process};

use super::disk_args::{BootArgs, Bus};
use super::readable::{self, Opened, missing};
use super::{Context, export};
use crate::child::{PrivateFolder, bound_to_thread, is_installed};
use crate::error::ClientError;

const QEMU: &str = "qemu-system-x86_64";
const IMAGES: &str = "qemu-img";
/// Firmware, and its variables, of the package ovmf, by its age.
const FIRMWARE: [(&str, &str); 2] = [
    ("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"),
    ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd"),
];
/// Time for QEMU to end when it is told to; then it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn run(context: &Context, boot: &BootArgs) -> Result<ExitCode, ClientError> {
    // What is missing on this machine is said before anything is fetched.
    installed(QEMU, "qemu-system-x86")?;
    installed(IMAGES, "qemu-utils")?;
    let folder = PrivateFolder::new().map_err(|error| failed("using", &std::env::temp_dir(), error))?;
    let firmware = boot.uefi.then(|| firmware(folder.path())).transpose()?;
    let Some(opened) = readable::open(context, &boot.readable).await? else { return Ok(ExitCode::SUCCESS) };
    let Opened { backup, disks } = opened;
    let listener = export::listen(&Place::Unix(folder.path().join("nbd")))?;
    // The name of an export says whose disk it is.
    let disks: Vec<_> =
        disks.into_iter().map(|(name, disk)| (format!("{}/{name}", backup.id), disk)).collect();
    let names: Vec<String> = disks.iter().map(|(name, _)| name.clone()).collect();
    let server = export::serve(listener, disks)?;
    let (keep, temporary) = (boot.overlay.clone(), folder.path().to_owned());
    let made = tokio::task::spawn_blocking(move || {
        let overlays = names.iter().enumerate().map(|(number, name)| match &keep {
            Some(kept) => overlay(&server, name, &kept.join(format!("{}.qcow2", file_name(name))), true),
            None => overlay(&server, name, &temporary.join(format!("{number}.qcow2")), false),
        });
        overlays.collect::<Result<Vec<_>, _>>().map(|overlays| (server, overlays))
    });
    let cut_short = |_| ClientError::Internal("making overlays was cut short");
    let (server, overlays) = made.await.map_err(cut_short)??;
    let fast = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    if !fast {
        context.output.note("holdfast: /dev/kvm cannot be used, so the machine is slow");
    }
    context
        .output
        .note(&format!("holdfast: booting {} ({}); its serial console follows", backup.vm, backup.id));
    let status = machine(context, arguments(boot, fast, firmware.as_ref(), &overlays)).await?;
    drop(server);
    match status {
        Some(status) if !status.success() => Err(qemu_failed(QEMU, &status.to_string())),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Fails unless a program can be started.
pub(super) fn installed(program: &str, package: &str) -> Result<(), ClientError> {
    if is_installed(program) { Ok(()) } else { Err(missing(program, package)) }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> ClientError {
    ClientError::File { what, path: path.to_owned(), source }
}

fn qemu_failed(program: &str, why: &str) -> ClientError {
    let path = PathBuf::from(program);
    ClientError::File {
        what: "running",
        path,
        source: io::Error::other(escape_line(why.trim()).into_owned()),
    }
}

/// Code of the firmware, and a copy of its variables that the machine may change.
fn firmware(folder: &Path) -> Result<(PathBuf, PathBuf), ClientError> {
    let found =
        FIRMWARE.iter().find(|(code, variables)| Path::new(code).exists() && Path::new(variables).exists());
    let (code, variables) = found.ok_or_else(|| missing("OVMF_CODE.fd", "ovmf"))?;
    let copy = folder.join("variables.fd");
    fs::copy(variables, &copy).map_err(|error| failed("copying", Path::new(variables), error))?;
    Ok((PathBuf::from(code), copy))
}

fn file_name(export: &str) -> String {
    let disk = export.split_once('/').map_or(export, |(_, disk)| disk);
    disk.replace('/', "-").trim_start_matches('.').to_owned()
}

/// Makes the file that takes a disk's writes, or takes up one that was kept. Blocks.
fn overlay(server: &Server, name: &str, path: &Path, is_kept: bool) -> Result<PathBuf, ClientError> {
    let uri = server.uri(name).map_err(|error| failed("naming", path, error))?;
    let mut arguments: Vec<&str> = vec!["create", "-q", "-f", "qcow2", "-F", "raw", "-b", &uri];
    if is_kept && path.exists() {
        let told = images(&["info", "--output=json", "-f", "qcow2"], path)?;
        let is_ours = told.contains(&format!("nbd+unix:///{}", uri_path(&uri)));
        if !is_ours {
            return Err(ClientError::Usage(format!(
                "{} holds what was written to another disk than {name}; name another folder with --overlay",
                path.display()
            )));
        }
        arguments = vec!["rebase", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", &uri];
    }
    images(&arguments, path)?;
    Ok(path.to_owned())
}

/// Export and the question mark of an address.
fn uri_path(uri: &str) -> String {
    let rest = uri.split_once(":///").map_or(uri, |(_, rest)| rest);
    let name = rest.split_once('?').map_or(rest, |(name, _)| name);
    format!("{name}?")
}

/// Runs `qemu-img` on a file, and returns what it printed.
fn images(arguments: &[&str], path: &Path) -> Result<String, ClientError> {
    let done = Command::new(IMAGES).args(arguments).arg(path).stdin(Stdio::null()).output();
    let done = done.map_err(|error| qemu_failed(IMAGES, &error.to_string()))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        Err(qemu_failed(IMAGES, &String::from_utf8_lossy(&done.stderr)))
    }
}

/// Arguments of QEMU.
fn arguments(
    boot: &BootArgs,
    fast: bool,
    firmware: Option<&(PathBuf, PathBuf)>,
    overlays: &[PathBuf],
) -> Vec<OsString> {
    let mebibytes = (boot.memory >> 20).max(1);
    let (accelerator, processor) = if fast { ("kvm", "host") } else { ("tcg", "max") };
    let mut all: Vec<OsString> = Vec::new();
    let mut add = |argument: &str, value: &str| all.extend([argument.into(), value.into()]);
    add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny");
    add("-machine", "q35");
    add("-accel", accelerator);
    add("-cpu", processor);
    add("-m", &mebibytes.to_string());
    add("-smp", &boot.cpus.to_string());
    add("-nic", if boot.network { "user,model=virtio-net-pci" } else { "none" });
    add("-display", &boot.display);
    add("-serial", if io::stdin().is_terminal() { "mon:stdio" } else { "stdio" });
    if boot.bus == Bus::Scsi {
        add("-device", "virtio-scsi-pci,id=scsi");
    }
    if let Some((code, variables)) = firmware {
        add("-drive", &format!("if=pflash,format=raw,readonly=on,file={}", escaped(code)));
        add("-drive", &format!("if=pflash,format=raw,file={}", escaped(variables)));
    }
    let cache = if boot.overlay.is_some() { "writeback" } else { "unsafe" };
    for (number, overlay) in overlays.iter().enumerate() {
        let file = escaped(overlay);
        add(
            "-drive",
            &format!("if=none,id=disk{number},format=qcow2,cache={cache},discard=unmap,file={file}"),
        );
        let device = match boot.bus {
            Bus::Virtio => "virtio-blk-pci".to_owned(),
            Bus::Scsi => "scsi-hd,bus=scsi.0".to_owned(),
            Bus::Sata => format!("ide-hd,bus=ide.{number}"),
        };
        add("-device", &format!("{device},drive=disk{number},bootindex={}", number + 1));
    }
    all
}

/// A path as a value of QEMU's options, where a comma is written twice.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Runs the machine until it ends. `None`: it was ended by the user.
async fn machine(context: &Context, arguments: Vec<OsString>) -> Result<Option<ExitStatus>, ClientError> {
    let mut command = Command::new(QEMU);
    command.args(arguments);
    // It runs a guest that may be hostile: tokens and keys are in ours.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"HOLDFAST_"))
    {
        command.env_remove(name);
    }
    if !io::stdin().is_terminal() {
        command.stdin(Stdio::null());
    }
    let (started, starts) = tokio::sync::oneshot::channel();
    let (ended, mut ends) = tokio::sync::oneshot::channel();
    // It ends with the thread that starts it, which waits for it.
    let run = move || match bound_to_thread(&mut command).spawn() {
        Ok(mut child) => {
            let _ = started.send(i32::try_from(child.id()).ok().and_then(Pid::from_raw));
            drop(ended.send(child.wait()));
        }
        Err(error) => drop(ended.send(Err(error))),
    };
    let thread = std::thread::Builder::new().name(QEMU.to_owned()).spawn(run);
    thread.map_err(|_| ClientError::Internal("the thread that waits for QEMU could not be started"))?;
    let pid = starts.await.ok().flatten();
    let outcome = tokio::select! {
        outcome = &mut ends => outcome,
        () = context.cancel.cancelled() => {
            for signal in [Signal::TERM, Signal::KILL] {
                // It may have ended by itself.
                let _ = pid.map(|pid| kill_process(pid, signal));
                if tokio::time::timeout(END_TIMEOUT, &mut ends).await.is_ok() {
                    break;
                }
            }
            return Ok(None);
        }
    };
    let cut_short = |_| ClientError::Internal("the thread that waits for QEMU was cut short");
    outcome.map_err(cut_short)?.map(Some).map_err(|error| qemu_failed(QEMU, &error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_overlay_is_recognised_by_the_export_it_is_based_on() {
        let uri = "nbd+unix:///01JQ/a%20b?socket=/tmp/x/nbd";
        assert_eq!(uri_path(uri), "01JQ/a%20b?");
        assert_eq!(file_name("01JQ/.data/x"), "data-x");
    }
}
