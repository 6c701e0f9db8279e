//! Arguments of the commands that read disks here and there: `export`, `boot` and `files`. Doc comments here are what `--help` shows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use holdfast_nbd::Place;

use super::thaw_args::Thawing;

/// A restore point whose disks are read while it stays where it is.
#[derive(Debug, Args)]
pub(super) struct Readable {
    /// ID of a backup, an unambiguous prefix of one, or 'latest'
    #[arg(value_name = "BACKUP|latest")]
    pub(super) backup: String,
    /// Name of the VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backup", "latest"))]
    pub(super) vm: String,
    /// The only disk to open, if the VM has several
    #[arg(long, value_name = "NAME")]
    pub(super) disk: Option<String>,
    /// Memory for data that may be read again, such as 1GiB
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = super::units::bytes)]
    pub(super) cache: u64,
    /// Number of decoding threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = super::units::threads)]
    pub(super) threads: Option<usize>,
    /// How long to keep trying to connect, at first and after the connection is lost; reads wait meanwhile, and fail then
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::units::duration)]
    pub(super) retry_for: Duration,
    #[command(flatten)]
    pub(super) thawing: Thawing,
}

/// Serves the disks of a restore point over NBD, read-only, without restoring them.
///
/// Any NBD client can read them: qemu-img, nbdcopy, guestfish, or the kernel by nbd-client. Data is fetched when it is read, is
/// verified, and stays in memory for a while. Ctrl-C or SIGTERM ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast export latest --vm web --listen unix:/run/web.sock
  holdfast export latest --vm db --disk data --listen :10809
  holdfast export 01JQ --listen unix:/run/web.sock --cache 2GiB

Each disk is an export of its name; the only disk, or the one of --disk, is also the one without a name. A Unix socket can be \
used by its owner alone. A TCP port has no encryption and asks no one who they are: without a host it is one of this machine only.")]
pub(super) struct ExportArgs {
    #[command(flatten)]
    pub(super) readable: Readable,
    /// Where clients connect: a Unix socket, or a TCP port
    #[arg(long, value_name = "unix:PATH|HOST:PORT|:PORT")]
    pub(super) listen: Place,
}

/// Boots a restore point in QEMU, without restoring it first and without changing it.
///
/// What the machine writes goes into a temporary file, and is gone when it ends. Its serial console is that of the terminal, where
/// Ctrl-A X ends it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast boot latest --vm web
  holdfast boot latest --vm web --uefi --memory 4GiB --cpus 4 --display gtk
  holdfast boot latest --vm web --display vnc=127.0.0.1:1
  holdfast boot 01JQ --overlay changes/       the same command goes on with what the machine wrote

The machine has no network unless --network is given, so that it does not meet the one that it is a copy of. It needs the package \
qemu-system-x86, with --uefi also ovmf, and is slow without KVM.")]
pub(super) struct BootArgs {
    #[command(flatten)]
    pub(super) readable: Readable,
    /// Boot by UEFI instead of a BIOS
    #[arg(long)]
    pub(super) uefi: bool,
    /// Memory of the machine
    #[arg(long, value_name = "BYTES", default_value = "2GiB", value_parser = super::units::bytes)]
    pub(super) memory: u64,
    /// Number of its processors
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=255))]
    pub(super) cpus: u8,
    /// What its disks are attached to; a guest needs a driver for it
    #[arg(long, value_enum, value_name = "BUS", default_value = "virtio")]
    pub(super) bus: Bus,
    /// Give it a network card, behind NAT of this machine
    #[arg(long)]
    pub(super) network: bool,
    /// Display as QEMU has it: none, gtk, vnc=ADDRESS:N
    #[arg(long, value_name = "DISPLAY", default_value = "none")]
    pub(super) display: String,
    /// Existing folder to keep what the machine writes in, one qcow2 file a disk
    #[arg(long, value_name = "FOLDER")]
    pub(super) overlay: Option<PathBuf>,
}

/// How a machine's disks are attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Bus {
    Virtio,
    Scsi,
    Sata,
}

/// Lists files, and copies them out of the disks of a restore point, without restoring them.
///
/// Disks are opened together by libguestfs (package libguestfs-tools), in a virtual machine of its own: nothing in them is mounted
/// or run on this one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast files ls latest --vm web /etc
  holdfast files tar latest --vm web /etc etc.tar
  holdfast files tar latest --vm db vg0/data:/mysql - | tar -x -C restored

A path is as the guest has it, or names its file system: sda1:/etc/hosts, vg0/root:/etc/hosts. Disks are sda, sdb and so on, in the \
order of the restore point.")]
pub(super) struct FilesArgs {
    #[command(subcommand)]
    pub(super) command: FilesCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum FilesCommand {
    /// Lists a folder; without a path, the file systems
    Ls {
        #[command(flatten)]
        readable: Readable,
        /// Folder
        path: Option<OsString>,
    },
    /// Writes a folder into an archive, with modes, owners, times and extended attributes
    Tar {
        #[command(flatten)]
        readable: Readable,
        /// Folder
        path: OsString,
        /// Archive to write, or - for stdout
        dest: PathBuf,
    },
}
