//! The command line's arguments. Doc comments here are what `--help` shows.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::connect::connections::Connections;
use crate::connect::profile::Layer;
use crate::end_to_end::Cipher;
use crate::restore::ReadOptions;
use crate::source;

pub(super) use super::disk_args::{BootArgs, ExportArgs, FilesArgs};
pub(super) use super::retention_args::{
    Delete, Forget, Hold, Lock, Policy, PolicyCommand, Reclaim, Scrub, SetPolicy, Steering,
};
pub(super) use super::thaw_args::{ThawSpeed, Thawing};

const EXIT_CODES: &str = "\
Exit codes:
    0  done
    1  failed
    2  usage error
    3  partly done: some of the requested disks, but not all
    4  not authorised, or the server's certificate is not the expected one, or a restore point is locked
    5  stored data is damaged
    6  busy: another backup of this VM is running
    7  the versions of agent and server are incompatible
    8  the repository is full or read-only, or a quota is reached
    9  the server cannot be reached
   10  what is to be restored or verified lies in an archive and must be thawed first
  130  interrupted; a backup or restore leaves nothing behind that counts as complete

Settings are taken from flags, then from the environment (HOLDFAST_SERVER, HOLDFAST_TOKEN or \
HOLDFAST_TOKEN_FILE, HOLDFAST_FINGERPRINT or HOLDFAST_CA, HOLDFAST_NAMESPACE, HOLDFAST_NAMESPACE_KEY or HOLDFAST_NAMESPACE_KEY_COMMAND, \
HOLDFAST_NAMESPACE_KEY_PASSPHRASE_FILE or HOLDFAST_NAMESPACE_KEY_PASSPHRASE), then from the profile that \
'holdfast login' or 'holdfast agent join' wrote.";

/// Backs up virtual disks to a Holdfast server and restores them.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
    #[command(flatten)]
    pub(super) global: Global,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(super) struct Global {
    /// Server's address, host:port or `https://host:port` [env: HOLDFAST_SERVER] [default: 127.0.0.1:7440]
    #[arg(long, global = true, value_name = "ADDRESS")]
    server: Option<String>,
    /// Token; other users of this machine can see it, so prefer --token-file [env: HOLDFAST_TOKEN]
    #[arg(long, global = true, conflicts_with = "token_file")]
    token: Option<String>,
    /// File that contains the token [env: HOLDFAST_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// SHA-256 of the server's certificate, with or without colons [env: HOLDFAST_FINGERPRINT]
    #[arg(long, global = true, value_name = "SHA256", conflicts_with = "ca")]
    fingerprint: Option<String>,
    /// PEM file of the CA that signed the server's certificate [env: HOLDFAST_CA]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Profile to use instead of $XDG_CONFIG_HOME/holdfast/profile.toml or, of root, /etc/holdfast/profile.toml if there is one
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) profile: Option<PathBuf>,
    /// Namespace, if the token is valid for several [env: HOLDFAST_NAMESPACE]
    #[arg(long, global = true, value_name = "NAME")]
    namespace: Option<String>,
    /// Key file of a namespace that is end-to-end encrypted [env: HOLDFAST_NAMESPACE_KEY]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "namespace_key_command")]
    namespace_key: Option<PathBuf>,
    /// Shell command that prints what is in such a file, such as 'age -d …' [env: HOLDFAST_NAMESPACE_KEY_COMMAND]
    #[arg(long, global = true, value_name = "COMMAND")]
    namespace_key_command: Option<String>,
    /// File with the passphrase of such a key, if it is wrapped by one; asked for on a terminal
    /// [env: HOLDFAST_NAMESPACE_KEY_PASSPHRASE_FILE or HOLDFAST_NAMESPACE_KEY_PASSPHRASE]
    #[arg(long, global = true, value_name = "FILE")]
    namespace_key_passphrase_file: Option<PathBuf>,
    /// Write JSON lines to stdout: "type":"progress" at most twice a second, one "type":"summary" at the end
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Show no progress and no notices
    #[arg(short, long, global = true)]
    pub(super) quiet: bool,
    #[command(flatten)]
    pub(super) log: super::log::Log,
}

impl Global {
    /// The flags as a layer of settings.
    pub(super) fn layer(&self) -> Layer {
        Layer {
            server: self.server.clone(),
            token: self.token.clone(),
            token_file: self.token_file.clone(),
            fingerprint: self.fingerprint.clone(),
            ca: self.ca.clone(),
            namespace: self.namespace.clone(),
            namespace_key: self.namespace_key.clone(),
            namespace_key_command: self.namespace_key_command.clone(),
            namespace_key_passphrase_file: self.namespace_key_passphrase_file.clone(),
            namespace_key_passphrase: None,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    Login(Login),
    Agent(Agent),
    Backup(Backup),
    List(List),
    Restore(Restore),
    Export(ExportArgs),
    Boot(BootArgs),
    Files(FilesArgs),
    Verify(Verify),
    Report(Report),
    Delete(Delete),
    Forget(Forget),
    Reclaim(Reclaim),
    Scrub(Scrub),
    Lock(Lock),
    Hold(Hold),
    Policy(Policy),
    Estimate(Estimate),
    NamespaceKey(NamespaceKey),
    Completions(Completions),
}

impl Command {
    /// Returns true for the agent as a service, which logs and is not watched by a person.
    pub(super) const fn is_service(&self) -> bool {
        let Self::Agent(agent) = self else { return false };
        match &agent.command {
            None => agent.run.once.is_none(),
            Some(AgentCommand::Run(run)) => run.once.is_none(),
            Some(_) => false,
        }
    }
}

/// Checks the server, its certificate and the token, and saves them in the profile.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast login --server backup.example:7440 --token-file token
      shows the certificate's fingerprint, asks whether to trust it, and remembers it
  holdfast login --server backup.example --fingerprint 3f:9a:… --token-file token
  holdfast login --server backup.example --ca company-ca.pem --token-file token")]
pub(super) struct Login {
    /// Trust the certificate the server presents now, without asking
    #[arg(long)]
    pub(super) accept_new: bool,
}

/// Makes this machine an agent of a server, and backs up its VMs by the clock.
///
/// Without a command it runs as a service, as 'holdfast agent run' does.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  holdfast agent join hfj_agv2xk5l…        makes this machine an agent, and writes a file that explains every key
  holdfast agent list                      agents of the server, and which of them are late
  holdfast agent check                     what the file means: VMs, disks, times, and whether the server is there
  holdfast agent run --once                backs up every VM now
  holdfast agent run --once web db         these
  holdfast agent run                       backs up by the clock, as holdfast-agent.service does"
)]
pub(super) struct Agent {
    #[command(subcommand)]
    pub(super) command: Option<AgentCommand>,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum AgentCommand {
    Join(JoinArgs),
    Run(RunArgs),
    Check(CheckArgs),
    List(ListAgents),
}

/// Backs up VMs by the clock, as agent.toml says, until it is stopped.
///
/// SIGHUP, or a change of the file, has it read the file again; what runs goes on. SIGTERM ends it: backups in progress are
/// recorded as failed, and made up for by the next start. Whatever happens is in the log.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast agent run
  holdfast agent run --file ./agent.toml --state ./state
  holdfast agent run --once web            VM web, now; exit code 3 if some VMs failed, 1 if all did")]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) file: AgentFile,
    /// Folder with what is remembered over a restart [default: $STATE_DIRECTORY, or /var/lib/holdfast-agent]
    #[arg(long, value_name = "DIR")]
    pub(super) state: Option<PathBuf>,
    /// Back up once, now, and end: every VM, or those named; none at all is an error
    #[arg(long, value_name = "VM", num_args = 0..)]
    pub(super) once: Option<Vec<String>>,
}

/// Says what the agent would do, and what is wrong: VMs, disks, times, hooks, the server, the token.
///
/// Opens every disk and backs up nothing. The exit code is 1 if anything is wrong.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  holdfast agent check\n  holdfast agent check --file ./agent.toml --json"
)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    pub(super) file: AgentFile,
}

/// Lists the agents that back up by the clock, as they last reported to the server, and says which are late.
///
/// Times are in UTC. One is late when its next run has passed by more than two hours and it has not been heard of for as long.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdfast agent list\n  holdfast agent list --json")]
pub(super) struct ListAgents {}

#[derive(Debug, Args)]
pub(super) struct AgentFile {
    /// The agent's file [default: agent.toml beside the profile; of root, in /etc/holdfast]
    #[arg(long, value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
}

/// Finds the server of a join code, recognises it by its certificate, and gets this machine a token of its own.
///
/// Afterwards 'holdfast backup' needs no setting. Run as root, it writes /etc/holdfast/profile.toml, which root uses from then
/// on; otherwise the user's profile. Whatever else a profile says stays. When the answer is lost, the same command works again
/// on this machine, within the code's 15 minutes.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  holdfast agent join hfj_agv2xk5l…
      as 'holdfast-server token create --join --name hv1' or the web UI (Access, Add hypervisor) prints it")]
pub(super) struct JoinArgs {
    /// The join code; also in several parts, where a line was broken
    #[arg(required = true, value_name = "CODE")]
    pub(super) code: Vec<String>,
}

/// Backs up a VM's disks as one restore point.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast backup --vm web /var/lib/vms/web.raw
  holdfast backup --vm db --job nightly root=/dev/vg0/db-root data=/dev/vg0/db-data
  holdfast backup --vm web --limit-upload 50MB --json /var/lib/vms/web.raw
  holdfast backup --vm web --connections 1 /var/lib/vms/web.raw    never several connections
  holdfast backup --vm web /var/lib/libvirt/images/web.qcow2
  holdfast backup --vm web --format qcow2 /dev/vg0/web             an image on a volume
  holdfast backup --vm web root=nbd://hv2.example:10809/web-root

Disks are raw files (holes in sparse files are not read), block devices, images (qcow2, VMDK, VDI, VHD and VHDX, read by \
qemu-nbd of the package qemu-utils), or exports of an NBD server: nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH, and \
with TLS nbds://HOST/EXPORT?tls-certificates=FOLDER. If a disk is in use, back up \
a snapshot of it: a raw file that is written to while it is read causes a warning, an image fails the backup. The next backup reads the disk \
again, but chunks and sends only what has changed, and a share of the rest that is due each day, as a check (see \
--reread for all of it). If some of several disks cannot be read, the others are backed up \
and the exit code is 3.")]
pub(super) struct Backup {
    /// Name of the VM
    #[arg(long)]
    pub(super) vm: String,
    /// Name of the job, for reports
    #[arg(long, default_value = crate::backup::DEFAULT_JOB)]
    pub(super) job: String,
    /// Disks; unless given, a disk's name is its file name without the extension
    #[arg(required = true, value_name = "[NAME=]PATH|NAME=ADDRESS")]
    pub(super) disks: Vec<OsString>,
    /// zstd compression level, from 1 (fast) to 19 (small)
    #[arg(long, default_value_t = holdfast_proto::region::DEFAULT_LEVEL, value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(super) level: i32,
    /// Upload at most this much per second, such as 50MB or 10MiB
    #[arg(long, value_name = "BYTES", value_parser = super::units::bytes)]
    pub(super) limit_upload: Option<u64>,
    /// Connections that carry a disk's data: a number from 1 to 32, of which a server allows at most 16, or auto: one
    /// on a short line, and on a long one as many as make it faster
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub(super) connections: Connections,
    /// Number of compression threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = super::units::threads)]
    pub(super) threads: Option<usize>,
    /// How long to keep trying to connect, at first and after the connection is lost, and while the server refuses
    /// because of a limit; waiting for its turn does not count
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::units::duration)]
    pub(super) retry_for: Duration,
    /// Read everything again and describe it anew, whatever earlier backups say is unchanged; sends only what the
    /// server lacks
    #[arg(long)]
    pub(super) reread: bool,
    /// End a running backup of this VM first; for when its agent has died
    #[arg(long)]
    pub(super) take_over: bool,
    /// Go on though a disk is smaller than in the latest restore point, or is not among these any more
    #[arg(long)]
    pub(super) accept_change: bool,
    /// Join this run, so that reports show several VMs as one run
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub(super) run: String,
    #[command(flatten)]
    pub(super) opening: Opening,
}

/// How files and devices are taken.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Opening {
    /// Format of the disks; unless given, a file is opened as an image where its name and its first bytes agree
    #[arg(long, value_name = "FORMAT")]
    format: Option<source::Format>,
    /// Let images need files outside their folders: what they are based on, and where their data are
    #[arg(long)]
    allow_backing: bool,
}

impl From<Opening> for source::Opening {
    fn from(Opening { format, allow_backing }: Opening) -> Self {
        Self { format, allow_backing }
    }
}

/// Lists restore points, newest first, with their locks and, once counted, the bytes that only they take up.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast list
  holdfast list --vm web --json

Columns that appear once the server has counted, at the end of each reclaim: 'only it' is what nothing else needs, and \
so what deleting this restore point alone would free; 'share' is its part of all that is stored. The column disks says \
DAMAGED with the bytes that cannot be restored, or partial with the disks that are missing.")]
pub(super) struct List {
    /// Only restore points of this VM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) vm: String,
    /// Only restore points of this job
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) job: String,
}

/// Writes disks of a restore point to files of any format, a block device, an NBD server or stdout.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast restore latest --vm web --to web.raw
  holdfast restore web@2026-11-20 --to web.qcow2       the newest of that day (UTC), as qcow2
  holdfast restore web@2026-11-20T22:00:00+01:00 --to web.vmdk     the newest not after that second
  holdfast restore db@latest --to restored/            all disks, as restored/NAME.raw
  holdfast restore db@latest --to restored/ --format vhdx          all disks, as restored/NAME.vhdx
  holdfast restore 01JQ --disk data --to /dev/vg0/db-data --force
  holdfast restore latest --vm web --to nbd://hv2.example/web --force
  holdfast restore latest --vm web --to web.raw --mode 0640
  holdfast restore latest --vm web --to - | zstd -o web.raw.zst
  holdfast restore latest --vm web --to web.raw --connections 16    over a line that loses packets
  holdfast restore 01JQ --to old.raw --thaw bulk --yes             from an archive, when it is thawed
  holdfast restore latest --vm web --to web.raw --keep-going       what can be read of a damaged restore point

A restore point is named by its ID, the beginning of it, 'latest' with --vm, or VM@WHEN: VM@latest, VM@2026-11-20 (the \
newest of that day, in UTC), VM@2026-11-20T22:00:00Z (the newest not after that second; a time needs its zone), or VM@7d \
(the newest that is 7 days old). It counts when a backup started.

A file is written as PATH.holdfast-partial and renamed when it is complete; all data is verified before \
it is written. Only its owner may read a restored file, unless --mode says otherwise. Files called .qcow2, .vmdk, .vdi, .vhd \
or .vhdx are written in that format, by qemu-nbd of the package qemu-utils.

With --keep-going, damaged ranges of a disk become zeros, and a map of them is written (in the format of GNU \
ddrescue's mapfile) beside the restored file: its name with .bad-ranges added. The exit code is 5 if there are any.")]
pub(super) struct Restore {
    /// ID of a backup, an unambiguous prefix of one, 'latest', or VM@WHEN
    #[arg(value_name = "BACKUP")]
    pub(super) backup: String,
    /// Name of the VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backup", "latest"))]
    pub(super) vm: String,
    /// Disk to restore, if the VM has several
    #[arg(long, value_name = "NAME")]
    pub(super) disk: Option<String>,
    /// File, block device or NBD address to write, - for stdout, or a folder for all disks: one that exists, or FOLDER/
    #[arg(long, value_name = "PATH|ADDRESS|-")]
    pub(super) to: PathBuf,
    /// Format of the files [default: what the file's name says; in a folder raw]
    #[arg(long, value_name = "FORMAT")]
    pub(super) format: Option<source::Format>,
    /// Overwrite an existing file, a block device or an export
    #[arg(long)]
    pub(super) force: bool,
    /// Permissions of restored files, in octal; a block device keeps its own
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = super::units::mode)]
    pub(super) mode: u32,
    /// Go on when stored data is damaged: restore everything else, and write a map of what is missing
    #[arg(long)]
    pub(super) keep_going: bool,
    /// What to do with ranges that cannot be read: write zeros, or skip them, so that a block device, an export or (with --force)
    /// an existing raw file keeps what it holds there; stdout always gets zeros
    #[arg(long, value_enum, value_name = "HOW", default_value = "zero", requires = "keep_going")]
    pub(super) bad_ranges: BadRanges,
    /// Where to write the map of ranges that cannot be read [default: the restored file's name with .bad-ranges added;
    /// for a block device, an export or stdout the disk's name, in the current folder]
    #[arg(long, value_name = "FILE", requires = "keep_going")]
    pub(super) bad_map: Option<PathBuf>,
    #[command(flatten)]
    pub(super) thawing: Thawing,
    /// Do not wait until the restored file has reached the disk; it is written through the page cache then
    #[arg(long)]
    pub(super) no_sync: bool,
    #[command(flatten)]
    pub(super) reading: Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum BadRanges {
    Zero,
    Skip,
}

/// Reads a restore point back and checks every fingerprint, without writing anything.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast verify latest --vm web
  holdfast verify 01JQ --json
  holdfast verify --all                    the newest restore point of every VM, over the network
  holdfast verify --all --not-verified-for 7d
  holdfast verify --at-server              the newest restore point of every VM, without sending any of it
  holdfast verify --at-server --vm web
  holdfast verify --at-server --pause

Exits with 5 when something is damaged. With --all, what cannot be read does not keep the rest from being read, and one \
line says how it went; VMs of other owners are left out.

With --at-server, Ctrl-C stops watching only: the work goes on until --cancel. \
It needs a token with the role operator or admin, for all namespaces. By default the server does the same every \
Saturday.")]
pub(super) struct Verify {
    /// ID of a backup, an unambiguous prefix of one, 'latest', or VM@WHEN (see 'holdfast restore --help')
    #[arg(
        value_name = "BACKUP",
        required_unless_present_any = ["at_server", "all"],
        conflicts_with_all = ["at_server", "all"]
    )]
    pub(super) backup: Option<String>,
    /// Name of the VM; required with 'latest'
    #[arg(long, default_value = "", hide_default_value = true, required_if_eq("backup", "latest"))]
    pub(super) vm: String,
    /// Read the newest restore point of every VM of the namespace, or of --vm
    #[arg(long, conflicts_with = "at_server")]
    pub(super) all: bool,
    /// Read every restore point, not only the newest of each VM
    #[arg(long, requires = "all")]
    pub(super) every_point: bool,
    /// Leave out VMs (with --every-point: restore points) that were verified like this, by anyone, and found sound since
    /// then
    #[arg(long, value_name = "DURATION", value_parser = super::units::duration, requires = "all")]
    pub(super) not_verified_for: Option<Duration>,
    /// Have the server read the newest restore points, of every VM or of --vm
    #[arg(long)]
    pub(super) at_server: bool,
    /// Start it at the server, and do not wait for the end
    #[arg(long, requires = "at_server")]
    pub(super) no_wait: bool,
    #[command(flatten)]
    pub(super) steering: Steering,
    #[command(flatten)]
    pub(super) reading: Reading,
}

#[derive(Debug, Args)]
pub(super) struct Reading {
    /// Number of decoding threads [default: one per core, plus one]
    #[arg(long, value_name = "N", value_parser = super::units::threads)]
    pub(super) threads: Option<usize>,
    /// How long to keep trying to connect, at first and after the connection is lost, and while the server refuses
    /// because of a limit; waiting for its turn does not count
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = super::units::duration)]
    pub(super) retry_for: Duration,
    /// Connections that carry a disk's data: a number from 1 to 32, or auto: one on a short line, and on a long one as
    /// many as make it faster; stdout always gets one
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    pub(super) connections: Connections,
}

impl Reading {
    pub(super) const fn options(&self, cipher: Cipher) -> ReadOptions {
        ReadOptions {
            threads: self.threads,
            retry_for: self.retry_for,
            connections: self.connections,
            from_volume: false,
            cipher,
        }
    }
}

/// Makes and names keys of namespaces that are end-to-end encrypted.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast namespace-key new --out /etc/holdfast/vault.key
  holdfast namespace-key new --passphrase --out vault.key        asks for a passphrase that wraps it
  holdfast namespace-key wrap --namespace-key vault.key --out wrapped.key
  holdfast namespace-key id --namespace-key /etc/holdfast/vault.key

All agents of such a namespace need the same key; copy the file to each of them by a way you trust. The server never \
sees it. Without it nothing of the namespace can be read: not by the server, not by anyone who has its disks, and not by \
you if you lose it. Keep a copy elsewhere.")]
pub(super) struct NamespaceKey {
    #[command(subcommand)]
    pub(super) command: NamespaceKeyCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum NamespaceKeyCommand {
    /// Make a new key, in a file that only you can read
    New {
        /// File to make; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Wrap it by a passphrase, which opens it from then on
        #[arg(long)]
        passphrase: bool,
        #[command(flatten)]
        new: NewPassphrase,
    },
    /// Wrap the key that --namespace-key or --namespace-key-command names by a passphrase, or by another one, in a file of
    /// its own
    Wrap {
        /// File to make; it must not exist
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        #[command(flatten)]
        new: NewPassphrase,
    },
    /// Show the id of the key that --namespace-key or --namespace-key-command names
    Id,
}

#[derive(Debug, Args)]
pub(super) struct NewPassphrase {
    /// File with the passphrase to wrap with [default: it is read from standard input, one line; twice on a terminal]
    #[arg(long, value_name = "FILE")]
    pub(super) new_passphrase_file: Option<PathBuf>,
}

/// Shows what runs cost: compression details by run and disk, and totals.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast report --since 7d
  holdfast report --worst 10 --since 1d      what is out of line, and what takes up the most space
  holdfast report --totals job --since 2026-01-01
  holdfast report --totals day --job nightly --format csv    days, and the sums of weeks
  holdfast report --existing                  runs whose restore points are still there
  holdfast report --format tsv > details.tsv

Columns: bytes = unchanged + dup + new is the data without holes and zeros; post_lc is the space it takes up in \
containers after compression; global = bytes / new, local = new / post_lc, total = bytes / post_lc.")]
pub(super) struct Report {
    /// Only this job
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) job: String,
    /// Only this VM
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(super) vm: String,
    /// Only this run
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    pub(super) run: String,
    /// Only runs since then: 7d, 12h, 2026-01-31 or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = super::units::point_in_time)]
    pub(super) since: Option<i64>,
    /// Only runs until then, in the same forms
    #[arg(long, value_name = "TIME", value_parser = super::units::point_in_time)]
    pub(super) until: Option<i64>,
    /// Only runs whose restore point is still there
    #[arg(long)]
    pub(super) existing: bool,
    /// Format of the report; TSV and CSV have the rows, or the totals where --totals is given
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub(super) format: Format,
    /// Tell what is out of line with the history of its VM, the worst first; then sort by bytes stored, largest first. At most N
    /// of each. TSV and CSV, and JSON by --format, have the rows alone
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "18446744073709551615")]
    pub(super) worst: Option<u64>,
    /// Show totals for each of these; a table has totals of the repository by default
    #[arg(long, value_enum, value_name = "GROUP")]
    pub(super) totals: Option<Group>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    Table,
    Tsv,
    Csv,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Group {
    Run,
    Vm,
    Job,
    Namespace,
    Repository,
    /// Days, with the sums of weeks
    Day,
}

/// Estimates what disks would deduplicate and compress to, without a server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  holdfast estimate /var/lib/vms/*.raw
  holdfast estimate --levels 1,3,9,15 web.raw db.raw
  holdfast estimate --sample 10% /dev/vg0/db-data

Every disk is read once. Deduplication is counted exactly for every chunk size. Compression is measured on \
every new region for the chunk size Holdfast uses at level 2, and on a sample of regions otherwise (marked ~). \
--sample examines a share of all chunks, chosen by content: this saves memory and CPU time, but no reading. \
Its results come with a 95 % confidence interval.")]
pub(super) struct Estimate {
    /// Disks, as for 'holdfast backup'
    #[arg(required = true, value_name = "[NAME=]PATH|NAME=ADDRESS")]
    pub(super) disks: Vec<OsString>,
    #[command(flatten)]
    pub(super) opening: Opening,
    /// zstd levels to compare
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,9", value_parser = clap::value_parser!(i32).range(1..=19))]
    pub(super) levels: Vec<i32>,
    /// Share of the chunks to examine, such as 10%
    #[arg(long, value_name = "SHARE", value_parser = super::units::share)]
    pub(super) sample: Option<f64>,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "N", value_parser = super::units::threads)]
    pub(super) threads: Option<usize>,
}

/// Prints a shell completion script.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  holdfast completions bash > /etc/bash_completion.d/holdfast")]
pub(super) struct Completions {
    pub(super) shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn examples_in_the_help_parse() {
        for help in Cli::command().get_subcommands().map(|c| c.get_after_help().unwrap().to_string()) {
            let lines = help.lines().filter_map(|line| line.strip_prefix("  holdfast "));
            for line in lines.map(|line| line.split("    ").next().unwrap().split(['|', '>']).next().unwrap())
            {
                let words = std::iter::once("holdfast").chain(line.split_whitespace());
                Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            }
        }
    }

    /// Every variable that is read is in the help, and in the documents.
    #[test]
    fn variables_are_told() {
        let asked =
            std::cell::RefCell::new(vec!["HOLDFAST_LOG_FORMAT".to_owned(), "HOLDFAST_LOG_LEVEL".to_owned()]);
        crate::connect::profile::Layer::from_env(|name| {
            asked.borrow_mut().push(name.to_owned());
            None
        });
        let help = Cli::command().render_long_help().to_string();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operations");
        let pages = std::fs::read_dir(path).unwrap().map(|page| page.unwrap().path());
        let documents: String = pages.map(|page| std::fs::read_to_string(page).unwrap()).collect();
        for name in asked.into_inner() {
            let ends = |text: &str| !text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            for (text, place) in [(&help, "the help"), (&documents, "docs/operations")] {
                let is_told = text.match_indices(&name).any(|(at, _)| ends(&text[at + name.len()..]));
                assert!(is_told, "{name} is not in {place}");
            }
        }
    }

    #[test]
    fn latest_needs_a_vm() {
        let parse = |line: &str| Cli::try_parse_from(line.split_whitespace());
        assert!(parse("holdfast restore latest --to x").is_err());
        assert!(parse("holdfast verify latest").is_err());
        assert!(parse("holdfast verify 01J").is_ok());
        assert!(parse("holdfast backup --vm web").is_err());
    }
}
