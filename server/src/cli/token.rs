//! `holdfast-server token`: works on the catalog directly, whether the server is running or not. A user that
//! can open the catalog's file can do anything anyway.

#[cfg(test)]
mod tests;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use holdfast_engine::catalog::Catalog;
use holdfast_engine::catalog::token::{Role, TokenRecord, TokenText};
use holdfast_engine::clock::{Clock, SystemClock, utc_text};
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use serde_json::{Value, json};

use super::fail::Failure;
use super::out;
use super::{DataFolder, no_repository};
use crate::auth::tokens::{self, NewToken, namespace_names, scope};
use crate::repository::{is_repository, open_beside};

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token and print it; it cannot be shown again
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArgs),
    /// List tokens
    #[command(after_help = "Example:\n  holdfast-server token list --data-dir /srv/holdfast")]
    List(ListArgs),
    /// Revoke a token for good; takes effect at once
    #[command(after_help = "Example:\n  holdfast-server token revoke hv1")]
    Revoke(RevokeArgs),
    /// Let a token be used again that 'holdfast-server recover' disabled
    ///
    /// A recovered server cannot know whether a token was revoked after its last catalog snapshot, so all of them
    /// wait for an admin. Revoked tokens stay revoked. A token that was created after that snapshot is not known any
    /// more: create it again.
    #[command(
        after_help = "Examples:\n  holdfast-server token enable hv1\n  holdfast-server token enable --all"
    )]
    Enable(EnableArgs),
}

const CREATE_EXAMPLES: &str = "\
Examples:
  holdfast-server token create --name hv1 --role backup --namespace berlin --owner cluster-a
  holdfast-server token create --name hv2 --role backup --namespace berlin --vm 'web-*' --vm 'db-?' --expires 90d
  holdfast-server token create --name prometheus --role operator";

#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the token, such as the host that will use it
    #[arg(long)]
    name: String,
    /// What it may do: backup (write and read back, never delete), restore (read), operator (everything
    /// except tokens, quotas and the audit log), admin (everything)
    #[arg(long)]
    role: Role,
    /// Namespace it is valid for, created if it does not exist (repeatable) [default: all namespaces]
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    namespaces: Vec<String>,
    /// Owner of the VMs it backs up; give the hosts of a cluster the same, so that a migrated VM goes on
    /// [default: the token's name]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// VM name it is for, with * and ? as wildcards, such as 'web-*' (repeatable) [default: all VMs]
    #[arg(long = "vm", value_name = "PATTERN")]
    vms: Vec<String>,
    /// How long it is valid, such as 90d or 12h [default: no expiry]
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    expires: Option<Duration>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RevokeArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Id or name of the token
    #[arg(value_name = "ID|NAME")]
    token: String,
}

#[derive(Debug, Args)]
pub(super) struct EnableArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Id or name of the token
    #[arg(value_name = "ID|NAME", required_unless_present = "all")]
    token: Option<String>,
    /// Enable every token that is disabled
    #[arg(long, conflicts_with = "token")]
    all: bool,
}

pub(super) fn run(command: &TokenCommand) -> Result<ExitCode, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    match command {
        TokenCommand::Create(args) => {
            let catalog = open(&args.folder, &clock)?;
            let (text, record) = create(&catalog, &*clock, args)?;
            show_new(&catalog, &text, &record, args.json)?;
        }
        TokenCommand::List(args) => {
            let catalog = open(&args.folder, &clock)?;
            out::say(list(&catalog, clock.now_ms(), args.json)?);
        }
        TokenCommand::Revoke(args) => {
            let catalog = open(&args.folder, &clock)?;
            let record = revoke(&catalog, clock.now_ms(), &args.token)?;
            out::note(format_args!("revoked token {:?} ({})", record.name, record.id));
        }
        TokenCommand::Enable(args) => {
            let catalog = open(&args.folder, &clock)?;
            for record in enable(&catalog, args.token.as_deref())? {
                out::note(format_args!("enabled token {:?} ({})", record.name, record.id));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn open(folder: &DataFolder, clock: &Arc<dyn Clock>) -> Result<Catalog, Failure> {
    let folder = folder.resolve()?.settings.data_dir;
    if !is_repository(&folder) {
        return Err(no_repository(&folder));
    }
    Ok(open_beside(&folder, clock)?)
}

fn create(
    catalog: &Catalog,
    clock: &dyn Clock,
    args: &CreateArgs,
) -> Result<(TokenText, TokenRecord), Failure> {
    let new = NewToken {
        name: &args.name,
        role: args.role,
        namespaces: &args.namespaces,
        owner: args.owner.as_deref(),
        vm_patterns: &args.vms,
        expires_in: args.expires,
    };
    new.check(clock.now_ms()).map_err(Failure::usage)?;
    Ok(tokens::create(catalog, clock, &who(), &new)?)
}

/// The name in the audit log.
pub(super) fn who() -> String {
    format!("local user {}", rustix::process::getuid().as_raw())
}

fn show_new(catalog: &Catalog, text: &TokenText, record: &TokenRecord, as_json: bool) -> Result<(), Failure> {
    let names = namespace_names(catalog, record)?;
    if as_json {
        let mut object = describe(record, &names, record.created_ms);
        if let Value::Object(fields) = &mut object {
            fields.insert("token".to_owned(), text.as_str().into());
        }
        out::say(object);
        return Ok(());
    }
    out::say(text.as_str());
    out::note(format_args!(
        "created token {:?}: role {}, {}, owner {:?}, {}, {}. It is not shown again.",
        record.name,
        record.role,
        scope(&names),
        record.owner,
        tokens::vms(&record.vm_patterns),
        record
            .expires_ms
            .map_or_else(|| "never expires".to_owned(), |end_ms| format!("expires {}", utc_text(end_ms))),
    ));
    Ok(())
}

/// The tokens that were enabled: the one `wanted`, or all that are disabled.
fn enable(catalog: &Catalog, wanted: Option<&str>) -> Result<Vec<TokenRecord>, Failure> {
    let listed = catalog.list_tokens()?;
    let chosen: Vec<TokenRecord> = match wanted {
        Some(wanted) => vec![find(&listed, wanted)?.clone()],
        None => listed
            .into_iter()
            .filter(|token| token.disabled_ms.is_some() && token.revoked_ms.is_none())
            .collect(),
    };
    for token in &chosen {
        tokens::enable(catalog, &who(), token)?;
    }
    Ok(chosen)
}

/// The token of that id or name.
fn find<'a>(listed: &'a [TokenRecord], wanted: &str) -> Result<&'a TokenRecord, Failure> {
    let id: Option<TokenId> = wanted.parse().ok();
    let found = listed
        .iter()
        .find(|token| Some(token.id) == id)
        // Names are unique among tokens that are not revoked, so an expired one is found by it, too.
        .or_else(|| listed.iter().find(|token| token.name == wanted && token.revoked_ms.is_none()));
    found.ok_or_else(|| {
        let ended = listed.iter().any(|token| token.name == wanted);
        let message = if ended {
            format!("token {wanted:?} has already been revoked")
        } else {
            format!("there is no token {wanted:?}; 'holdfast-server token list' lists the tokens")
        };
        Failure::new(ErrorCode::NotFound, message)
    })
}

fn revoke(catalog: &Catalog, now_ms: i64, wanted: &str) -> Result<TokenRecord, Failure> {
    let listed = catalog.list_tokens()?;
    let found = find(&listed, wanted)?;
    let last = tokens::is_last_admin(catalog, now_ms, found)?;
    tokens::revoke(catalog, &who(), found)?;
    if last {
        out::note(
            "this was the last admin token; 'holdfast-server token create --role admin' creates another",
        );
    }
    Ok(found.clone())
}

fn list(catalog: &Catalog, now_ms: i64, as_json: bool) -> Result<String, Failure> {
    let mut rows = Vec::new();
    for token in catalog.list_tokens()? {
        let names = namespace_names(catalog, &token)?;
        rows.push((token, names));
    }
    if as_json {
        let objects: Vec<Value> = rows.iter().map(|(token, names)| describe(token, names, now_ms)).collect();
        return Ok(Value::Array(objects).to_string());
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["ID", "NAME", "ROLE", "NAMESPACES", "OWNER", "VMS", "STATE", "EXPIRES", "LAST USED"]);
    for (token, names) in &rows {
        let when = |at_ms: Option<i64>| at_ms.map_or_else(|| "never".to_owned(), utc_text);
        table.add_row([
            token.id.to_string(),
            token.name.clone(),
            token.role.to_string(),
            all_or(names),
            token.owner.clone(),
            all_or(&token.vm_patterns),
            state(token, now_ms).to_owned(),
            when(token.expires_ms),
            when(token.last_used_ms),
        ]);
    }
    Ok(table.trim_fmt())
}

fn all_or(names: &[String]) -> String {
    if names.is_empty() { "all".to_owned() } else { names.join(", ") }
}

fn describe(token: &TokenRecord, namespaces: &[String], now_ms: i64) -> Value {
    let when = |at_ms: Option<i64>| at_ms.map(utc_text);
    json!({
        "id": token.id.to_string(),
        "name": token.name,
        "role": token.role.as_str(),
        "namespaces": namespaces,
        "owner": token.owner,
        "vms": token.vm_patterns,
        "state": state(token, now_ms),
        "created": utc_text(token.created_ms),
        "expires": when(token.expires_ms),
        "revoked": when(token.revoked_ms),
        "disabled": when(token.disabled_ms),
        "last_used": when(token.last_used_ms),
    })
}

fn state(token: &TokenRecord, now_ms: i64) -> &'static str {
    if token.revoked_ms.is_some() {
        "revoked"
    } else if token.disabled_ms.is_some() {
        "disabled"
    } else if token.is_usable(now_ms) {
        "valid"
    } else {
        "expired"
    }
}
