//! `holdfast-server token`: works on the catalog directly, whether the server is running or not. A user that
//! can open the catalog's file can do anything anyway.

#[cfg(test)]
mod tests;

use std::net::IpAddr;
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
use holdfast_proto::address::ServerAddress;
use holdfast_proto::cert_fingerprint::{CertFingerprint, NotACertFingerprint};
use holdfast_proto::join::JoinCode;
use serde_json::{Value, json};

use super::fail::Failure;
use super::out;
use super::{DataFolder, no_repository};
use crate::auth::join;
use crate::auth::tokens::{self, NewToken, namespace_names, scope};
use crate::repository::{is_repository, open_beside, snapshot};
use crate::tls::FINGERPRINT_FILE;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Create a token and print it, or a join code for an agent; neither can be shown again
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
  holdfast-server token create --join --name hv1 --namespace berlin --owner cluster-a
      prints the line to run on the hypervisor hv1, which gives it a token of its own
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
    /// except tokens, quotas and the audit log), admin (everything) [default with --join: backup]
    #[arg(long, required_unless_present = "join")]
    role: Option<Role>,
    /// Print no token but the line to run on the agent's machine, which is good for 15 minutes and once
    #[arg(long)]
    join: bool,
    /// Address in the join code at which the agent reaches this server (repeatable) [default: the setting 'advertise', or
    /// those where the server listens]
    #[arg(long, value_name = "HOST[:PORT]", value_delimiter = ',', requires = "join")]
    advertise: Vec<ServerAddress>,
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
            if args.join {
                let (code, record) = create_code(&catalog, &*clock, args)?;
                show_code(&catalog, &code, &record, args.json)?;
            } else {
                let (text, record) = create(&catalog, &*clock, args)?;
                show_new(&catalog, &text, &record, args.json)?;
            }
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

impl CreateArgs {
    fn new_token(&self, now_ms: i64) -> Result<NewToken<'_>, Failure> {
        let new = NewToken {
            name: &self.name,
            role: self.role.unwrap_or(Role::Backup),
            namespaces: &self.namespaces,
            owner: self.owner.as_deref(),
            vm_patterns: &self.vms,
            expires_in: self.expires,
        };
        new.check(now_ms).map_err(Failure::usage)?;
        Ok(new)
    }
}

fn create(
    catalog: &Catalog,
    clock: &dyn Clock,
    args: &CreateArgs,
) -> Result<(TokenText, TokenRecord), Failure> {
    Ok(tokens::create(catalog, clock, &who(), &args.new_token(clock.now_ms())?)?)
}

fn create_code(
    catalog: &Catalog,
    clock: &dyn Clock,
    args: &CreateArgs,
) -> Result<(JoinCode, TokenRecord), Failure> {
    let new = args.new_token(clock.now_ms())?;
    join::check(&new).map_err(Failure::usage)?;
    Ok(join::create(catalog, clock, &who(), &new, reached(args)?)?)
}

/// Addresses at which agents reach the server, and its certificate's fingerprint. What this command is not told comes
/// from the settings that the server was started with.
fn reached(args: &CreateArgs) -> Result<(Vec<ServerAddress>, CertFingerprint), Failure> {
    let mut settings = args.folder.resolve()?.settings;
    let started = snapshot::started_settings(&settings)?.unwrap_or_else(|| settings.clone());
    let told = [&args.advertise, &settings.advertise, &started.advertise];
    let told = told.into_iter().find(|told| !told.is_empty()).cloned();
    settings.advertise = told.unwrap_or_default();
    if settings.advertise.is_empty() && started.grpc.port() == 0 {
        return Err(Failure::usage(
            "the agents' port was picked when the server started; pass it with --advertise HOST:PORT",
        ));
    }
    let path = settings.data_dir.join(FINGERPRINT_FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string());
    let fingerprint =
        text.and_then(|text| text.parse().map_err(|error: NotACertFingerprint| error.to_string()));
    let fingerprint = fingerprint.map_err(|error| {
        let path = path.display();
        Failure::new(
            ErrorCode::NotFound,
            format!("{path}: {error}; start the server once, which makes its certificate"),
        )
    })?;
    Ok((settings.advertised(started.grpc), fingerprint))
}

fn show_code(catalog: &Catalog, code: &JoinCode, record: &TokenRecord, as_json: bool) -> Result<(), Failure> {
    let names = namespace_names(catalog, record)?;
    if as_json {
        let mut object = describe(record, &names, record.created_ms);
        if let Value::Object(fields) = &mut object {
            fields.insert("join_code".to_owned(), code.to_string().into());
        }
        out::say(object);
        return Ok(());
    }
    out::say(format_args!("holdfast agent join {code}"));
    let addresses: Vec<String> = code.addresses.iter().map(ToString::to_string).collect();
    out::note(format_args!(
        "Run this line on {:?}, as root or as the user that backs up, until {}; it works once. Role {}, {}, owner {:?}. It \
         leads to {}.",
        record.name,
        record.join_until_ms.map(utc_text).unwrap_or_default(),
        record.role,
        scope(&names),
        record.owner,
        addresses.join(", "),
    ));
    let is_local = |address: &ServerAddress| {
        address.host() == "localhost" || address.host().parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
    };
    if code.addresses.iter().all(is_local) {
        out::note(
            "Only this machine reaches that: the server listens here alone. For other machines start it with --grpc \
             0.0.0.0:7440, or name an address with --advertise.",
        );
    }
    Ok(())
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
        "joining_until": when(token.joining_until_ms()),
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
    } else if token.joining_until_ms().is_some() && token.may_join(now_ms) {
        "joining"
    } else {
        "expired"
    }
}
