//! `holdfast-server namespace`: works on the catalog directly, like `token`, whether the server is running or not.

mod create;
#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use holdfast_engine::catalog::{Catalog, NamespaceQuota, Quota};
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_proto::ErrorCode;
use holdfast_proto::size::ByteSize;
use serde_json::{Value, json};

use super::fail::Failure;
use super::{DataFolder, no_repository, out, token};
use crate::insight::agents_sentence;
use crate::process;
use crate::repository::destroy::{Destroyed, InBucket, destroy_namespace};
use crate::repository::is_repository;

#[derive(Debug, Subcommand)]
pub(super) enum NamespaceCommand {
    /// Create a namespace
    #[command(after_help = create::EXAMPLES)]
    Create(create::CreateArgs),
    /// List namespaces, what they take and what they may take
    List(ListArgs),
    /// Show or change what a namespace may take
    #[command(after_help = QUOTA_EXAMPLES)]
    Quota(QuotaArgs),
    /// Destroy a namespace of an encrypted repository with its keys; the server must not be running
    ///
    /// Deletes all its restore points and VMs, frees their containers, destroys its data keys and changes the repository key.
    /// Copies of its containers that lie elsewhere cannot be read with the keys of today. What old copies of the keys
    /// can still open is in docs/SECURITY.md. Refused while one of its restore points is locked or held.
    #[command(after_help = DESTROY_EXAMPLES)]
    Destroy(DestroyArgs),
}

const DESTROY_EXAMPLES: &str = "\
Only what the settings name opens the repository afterwards: export a new recovery kit, and burn the old one.

Examples:
  holdfast-server namespace destroy berlin --confirm berlin";

const QUOTA_EXAMPLES: &str = "\
Limits that are not named stay as they are; without any, the present ones are shown. A running server follows at the \
next start of a backup, and before it refuses anything. What is stored already stays, however low a limit is.

Examples:
  holdfast-server namespace quota berlin
  holdfast-server namespace quota berlin --stored 2TB --restore-points 500
  holdfast-server namespace quota berlin --sessions-per-day none
  holdfast-server namespace quota berlin --none";

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct DestroyArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the namespace
    #[arg(value_name = "NAME")]
    name: String,
    /// The name once more: there is no way back
    #[arg(long, value_name = "NAME")]
    confirm: String,
}

#[derive(Debug, Args)]
pub(super) struct QuotaArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the namespace
    #[arg(value_name = "NAME")]
    name: String,
    /// Bytes its containers may take, such as 2TB, or none
    #[arg(long, value_name = "SIZE|none")]
    stored: Option<Limit<ByteSize>>,
    /// Data it may protect: of the newest restore point of each VM, without holes and zeros; or none
    #[arg(long, value_name = "SIZE|none")]
    protected: Option<Limit<ByteSize>>,
    /// Restore points it may have, or none
    #[arg(long, value_name = "COUNT|none")]
    restore_points: Option<Limit<u64>>,
    /// Backups it may start on one day (UTC), however they end; or none
    #[arg(long, value_name = "COUNT|none")]
    sessions_per_day: Option<Limit<u64>>,
    /// Remove every limit that no other option sets
    #[arg(long)]
    none: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A limit as it is written: a value, or the word that removes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit<T>(Option<T>);

impl<T: FromStr> FromStr for Limit<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, T::Err> {
        if text.eq_ignore_ascii_case("none") { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

impl QuotaArgs {
    /// The quota to set; `None`: no option asks for a change.
    fn wanted(&self, present: &Quota) -> Option<Quota> {
        let present = if self.none { Quota::default() } else { *present };
        let size = |wanted: Option<Limit<ByteSize>>, present| {
            wanted.map_or(present, |Limit(size)| size.map(|ByteSize(bytes)| bytes))
        };
        let count = |wanted: Option<Limit<u64>>, present| wanted.map_or(present, |Limit(count)| count);
        let named = [self.stored.is_some(), self.protected.is_some(), self.restore_points.is_some()];
        let any = self.none || self.sessions_per_day.is_some() || named.contains(&true);
        any.then(|| Quota {
            stored_bytes: size(self.stored, present.stored_bytes),
            protected_bytes: size(self.protected, present.protected_bytes),
            restore_points: count(self.restore_points, present.restore_points),
            sessions_per_day: count(self.sessions_per_day, present.sessions_per_day),
        })
    }
}

pub(super) fn run(command: &NamespaceCommand) -> Result<ExitCode, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match command {
        NamespaceCommand::Create(args) => {
            let catalog = token::open(&args.folder, &clock)?;
            out::say(create::describe(&create::create(&catalog, args)?, args.json));
        }
        NamespaceCommand::List(args) => {
            let catalog = token::open(&args.folder, &clock)?;
            out::say(show(&catalog.quotas(None)?, args.json));
            if !args.json {
                let agents = catalog.agents_proof_summaries()?;
                agents.iter().for_each(|found| out::note(format_args!("{}", agents_sentence(found))));
            }
        }
        NamespaceCommand::Quota(args) => {
            let catalog = token::open(&args.folder, &clock)?;
            let found = quota(&catalog, args)?;
            if args.json {
                out::say(describe(&found));
            } else {
                out::say(show(&[found], false));
            }
        }
        NamespaceCommand::Destroy(args) => destroy(args, &clock)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn destroy(args: &DestroyArgs, clock: &Arc<dyn Clock>) -> Result<(), Failure> {
    let DestroyArgs { folder, name, confirm } = args;
    if confirm != name {
        let text = format!("--confirm says {confirm:?}, not {name:?}: nothing was changed");
        return Err(Failure::new(ErrorCode::Invalid, text));
    }
    let settings = folder.resolve()?.settings;
    process::start_logging(&settings);
    if !is_repository(&settings.data_dir) {
        return Err(no_repository(&settings.data_dir));
    }
    let destroyed = destroy_namespace(&settings, clock, name, &token::who())?;
    let Destroyed { vms, restore_points, freed_bytes, left_bytes, keys, repository_key, slots, bucket } =
        destroyed;
    out::note(format_args!(
        "namespace {name:?} is destroyed: {restore_points} restore points of {vms} VMs, {} freed, {keys} data keys. The \
         repository key is {repository_key} now",
        size(freed_bytes)
    ));
    if left_bytes > 0 {
        out::note(format_args!(
            "{} of it could not be freed yet, and no one can read it: run 'holdfast reclaim'",
            size(left_bytes)
        ));
    }
    for slot in &slots {
        out::note(format_args!(
            "slot {} ({}, {}) opens the repository no more",
            slot.id, slot.kind, slot.label
        ));
    }
    out::note("export a new recovery kit, and burn the old one: holdfast-server key export-kit");
    match bucket {
        None => Ok(()),
        Some(InBucket { location, left: None }) => {
            out::note(format_args!(
                "the copies in {location} went, too; what its rules keep of deleted objects (old versions) stays until these \
                 end, with the keys of then"
            ));
            Ok(())
        }
        Some(InBucket { location, left: Some((left, why)) }) => Err(Failure::new(
            ErrorCode::Unavailable,
            format!(
                "here the namespace is destroyed, but {left} objects are still to go from {location}, perhaps with the old keys: \
                 {why}. The server removes them as soon as it can: start it, and see 'holdfast-server tier status'"
            ),
        )),
    }
}

/// Changes what is to be changed; the namespace as it is then.
fn quota(catalog: &Catalog, args: &QuotaArgs) -> Result<NamespaceQuota, Failure> {
    let find = || -> Result<NamespaceQuota, Failure> {
        let found = catalog.quotas(None)?.into_iter().find(|found| found.namespace.name == args.name);
        found.ok_or_else(|| {
            let name = &args.name;
            let text = format!(
                "there is no namespace {name:?}; 'holdfast-server namespace list' lists them, and 'holdfast-server \
                 token create --namespace' creates one"
            );
            Failure::new(ErrorCode::NotFound, text)
        })
    };
    let present = find()?;
    if let Some(wanted) = args.wanted(&present.quota) {
        catalog.set_quota(present.namespace.id, &wanted, &token::who())?;
        return find();
    }
    Ok(present)
}

fn show(namespaces: &[NamespaceQuota], as_json: bool) -> String {
    if as_json {
        return Value::Array(namespaces.iter().map(describe).collect()).to_string();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "NAMESPACE",
        "STORED",
        "PROTECTED",
        "RESTORE POINTS",
        "BACKUPS TODAY",
        "END-TO-END",
        "",
    ]);
    for found in namespaces {
        let NamespaceQuota { namespace, quota, usage } = found;
        let of = |used: u64, limit: Option<u64>, text: &dyn Fn(u64) -> String| match limit {
            Some(limit) => format!("{} of {}", text(used), text(limit)),
            None => text(used),
        };
        let count = |count: u64| count.to_string();
        let near = found.near();
        table.add_row([
            namespace.name.clone(),
            of(usage.stored_bytes, quota.stored_bytes, &size),
            of(usage.protected_bytes, quota.protected_bytes, &size),
            of(usage.restore_points, quota.restore_points, &count),
            of(usage.sessions_today, quota.sessions_per_day, &count),
            namespace.key_id.map_or_else(String::new, |key_id| format!("key {key_id}")),
            if near.is_empty() {
                String::new()
            } else {
                format!("at or near the limit of {}", near.join(", "))
            },
        ]);
    }
    table.trim_fmt()
}

/// For a person: decimal units, one digit behind the point.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

fn describe(found: &NamespaceQuota) -> Value {
    let NamespaceQuota { namespace, quota, usage } = found;
    json!({
        "name": namespace.name,
        "key_id": namespace.key_id.map(|key_id| key_id.to_string()),
        "usage": {
            "stored_bytes": usage.stored_bytes,
            "protected_bytes": usage.protected_bytes,
            "restore_points": usage.restore_points,
            "sessions_today": usage.sessions_today,
        },
        "quota": {
            "stored_bytes": quota.stored_bytes,
            "protected_bytes": quota.protected_bytes,
            "restore_points": quota.restore_points,
            "sessions_per_day": quota.sessions_per_day,
        },
        "near": found.near(),
    })
}
