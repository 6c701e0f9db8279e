//! `holdfast-server vm`: whose VMs are, what they are called, and removing them. Works on the catalog directly, as `token`
//! does, whether the server is running or not: a running server, or the next start, brings the points on the volume into
//! agreement. Locks are the catalog's (L2), so this is no way round them.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use holdfast_engine::catalog::{
    Catalog, DEFAULT_NAMESPACE, NamedVm, NamespaceRecord, PageRequest, RETENTION_IDS_MAX, VmRecord,
};
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_proto::ErrorCode;
use serde_json::{Value, json};

use super::DataFolder;
use super::fail::Failure;
use super::out;
use super::token::{open, who};
use crate::auth::tokens;

const OWNER_EXAMPLES: &str = "\
Tokens of another owner can then neither back up the VM nor, with the role backup, read it back. The next backup \
reads the whole VM, because it does not rely on what the owner before said of it.

Examples:
  holdfast-server vm owner web-1 cluster-b
  holdfast-server vm owner web-1 cluster-b --namespace berlin";

const REMOVE_EXAMPLES: &str = "\
A removed VM is in no list and no overview and is never stale; its history stays. A backup of its name takes it back. \
Restore points that are locked or held keep it from being removed with them: then nothing is deleted.

Examples:
  holdfast-server vm remove web-1
  holdfast-server vm remove web-1 --delete-restore-points
  holdfast-server vm remove web-1 --namespace berlin";

const RENAME_EXAMPLES: &str = "\
Restore points, history, policies and locks follow. Rename it in the agent's command as well: a backup under the old \
name begins a new VM.

Examples:
  holdfast-server vm rename web-1 www
  holdfast-server vm rename web-1 www --namespace berlin";

#[derive(Debug, Subcommand)]
pub(super) enum VmCommand {
    /// List VMs and their owners
    List(ListArgs),
    /// Give a VM to another owner; takes effect at once
    #[command(after_help = OWNER_EXAMPLES)]
    Owner(OwnerArgs),
    /// Remove a VM that is no longer backed up
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(RemoveArgs),
    /// Give a VM another name
    #[command(after_help = RENAME_EXAMPLES)]
    Rename(RenameArgs),
}

#[derive(Debug, Args)]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the VM
    vm: String,
    /// Delete its restore points first, all of them or none
    #[arg(long)]
    delete_restore_points: bool,
    /// The VM's namespace
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
}

#[derive(Debug, Args)]
pub(super) struct RenameArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the VM
    vm: String,
    /// Its new name
    name: String,
    /// The VM's namespace
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Namespace [default: all namespaces]
    #[arg(long)]
    namespace: Option<String>,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct OwnerArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the VM
    vm: String,
    /// Name of the owner, as tokens have it
    owner: String,
    /// The VM's namespace
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
}

pub(super) fn run(command: &VmCommand) -> Result<ExitCode, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match command {
        VmCommand::List(args) => {
            let catalog = open(&args.folder, &clock)?;
            out::say(list(&catalog, args.namespace.as_deref(), args.json)?);
        }
        VmCommand::Owner(args) => {
            let catalog = open(&args.folder, &clock)?;
            out::note(change(&catalog, &who(), args)?);
        }
        VmCommand::Remove(args) => {
            let catalog = open(&args.folder, &clock)?;
            out::note(remove(&catalog, &who(), args)?);
        }
        VmCommand::Rename(args) => {
            let catalog = open(&args.folder, &clock)?;
            out::note(rename(&catalog, &who(), args)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn find_namespace(catalog: &Catalog, name: &str) -> Result<NamespaceRecord, Failure> {
    catalog
        .namespace_by_name(name)?
        .ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no namespace {name:?}")))
}

fn find_vm(catalog: &Catalog, namespace: &NamespaceRecord, vm: &str) -> Result<NamedVm, Failure> {
    catalog.named_vm(namespace.id, vm)?.ok_or_else(|| {
        let name = &namespace.name;
        Failure::new(ErrorCode::NotFound, format!("there is no VM {vm:?} in namespace {name:?}"))
    })
}

fn remove(catalog: &Catalog, who: &str, args: &RemoveArgs) -> Result<String, Failure> {
    let namespace = find_namespace(catalog, &args.namespace)?;
    let vm = find_vm(catalog, &namespace, &args.vm)?;
    let mut deleted = 0;
    if args.delete_restore_points {
        // One more than one call deletes: then it says so.
        let most = u32::try_from(RETENTION_IDS_MAX).unwrap_or(u32::MAX).saturating_add(1);
        let ids = catalog.backups_of_vm(vm.id, None, most)?;
        deleted = catalog.begin_deletion(&ids, who, &format!("VM {:?} is removed", args.vm))?.len();
    }
    catalog.remove_vm(vm.id, who)?;
    let points = match deleted {
        0 => String::new(),
        count => {
            let (points, are) = if count == 1 { ("point", "is") } else { ("points", "are") };
            format!("; {count} restore {points} of it {are} deleted; reclaim frees the space")
        }
    };
    Ok(format!("VM {:?} in namespace {:?} is removed{points}", args.vm, namespace.name))
}

fn rename(catalog: &Catalog, who: &str, args: &RenameArgs) -> Result<String, Failure> {
    let namespace = find_namespace(catalog, &args.namespace)?;
    let vm = find_vm(catalog, &namespace, &args.vm)?;
    catalog.rename_vm(vm.id, &args.name, who)?;
    Ok(format!("VM {:?} in namespace {:?} is called {:?} now", args.vm, namespace.name, args.name))
}

fn change(catalog: &Catalog, who: &str, args: &OwnerArgs) -> Result<String, Failure> {
    let namespace = find_namespace(catalog, &args.namespace)?;
    let changed = tokens::change_owner(catalog, who, &namespace, &args.vm, &args.owner)?;
    let before = changed.before.map_or_else(|| "no owner".to_owned(), |owner| format!("{owner:?}"));
    Ok(format!(
        "VM {:?} in namespace {:?} belongs to {:?} now, to {before} before",
        args.vm, namespace.name, changed.after
    ))
}

fn list(catalog: &Catalog, namespace: Option<&str>, as_json: bool) -> Result<String, Failure> {
    let only = match namespace {
        Some(name) => Some([find_namespace(catalog, name)?.id]),
        None => None,
    };
    let mut vms: Vec<VmRecord> = Vec::new();
    let mut token = String::new();
    loop {
        let page =
            catalog.list_vms(only.as_ref().map(|only| &only[..]), PageRequest { size: 0, token: &token })?;
        vms.extend(page.items);
        let Some(next) = page.next else { break };
        token = next;
    }
    if as_json {
        let objects: Vec<Value> = vms
            .iter()
            .map(|vm| {
                json!({ "namespace": vm.namespace_name, "vm": vm.name, "owner": vm.owner, "backups": vm.backups })
            })
            .collect();
        return Ok(Value::Array(objects).to_string());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["NAMESPACE", "VM", "OWNER", "RESTORE POINTS"]);
    for vm in &vms {
        let owner = vm.owner.clone().unwrap_or_else(|| "none yet".to_owned());
        table.add_row([vm.namespace_name.clone(), vm.name.clone(), owner, vm.backups.to_string()]);
    }
    Ok(table.trim_fmt())
}
