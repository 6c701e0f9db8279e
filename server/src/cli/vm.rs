//! `holdfast-server vm`: whose VMs are. Works on the catalog directly, as `token` does.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use holdfast_engine::catalog::{Catalog, DEFAULT_NAMESPACE, NamespaceRecord, PageRequest, VmRecord};
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_proto::ErrorCode;
use serde_json::{Value, json};

use super::DataFolder;
use super::fail::Failure;
use super::out;
use super::token::{open, who};
use crate::auth::owners;

const OWNER_EXAMPLES: &str = "\
Tokens of another owner can then neither back up the VM nor, with the role backup, read it back. The next backup \
reads the whole VM, because it does not rely on what the owner before said of it.

Examples:
  holdfast-server vm owner web-1 cluster-b
  holdfast-server vm owner web-1 cluster-b --namespace berlin";

#[derive(Debug, Subcommand)]
pub(super) enum VmCommand {
    /// List VMs and their owners
    List(ListArgs),
    /// Give a VM to another owner; takes effect at once
    #[command(after_help = OWNER_EXAMPLES)]
    Owner(OwnerArgs),
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
    }
    Ok(ExitCode::SUCCESS)
}

fn find_namespace(catalog: &dyn Catalog, name: &str) -> Result<NamespaceRecord, Failure> {
    catalog
        .namespace_by_name(name)?
        .ok_or_else(|| Failure::new(ErrorCode::NotFound, format!("there is no namespace {name:?}")))
}

fn change(catalog: &dyn Catalog, who: &str, args: &OwnerArgs) -> Result<String, Failure> {
    let namespace = find_namespace(catalog, &args.namespace)?;
    let changed = owners::change(catalog, who, &namespace, &args.vm, &args.owner)?;
    let before = changed.before.map_or_else(|| "no owner".to_owned(), |owner| format!("{owner:?}"));
    Ok(format!(
        "VM {:?} in namespace {:?} belongs to {:?} now, to {before} before",
        args.vm, namespace.name, changed.after
    ))
}

fn list(catalog: &dyn Catalog, namespace: Option<&str>, as_json: bool) -> Result<String, Failure> {
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
