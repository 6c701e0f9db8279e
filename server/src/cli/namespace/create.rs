//! `holdfast-server namespace create`.

use clap::Args;
use holdfast_engine::catalog::{AuditEntry, Catalog, NamespaceRecord};
use holdfast_proto::{ErrorCode, KeyId};
use serde_json::{Value, json};

use super::super::fail::Failure;
use super::super::{DataFolder, token};

/// Shown below the help.
pub(super) const EXAMPLES: &str = "\
Agents encrypt everything they back up to an end-to-end encrypted namespace, with a key that the server never sees: it \
can neither read nor prove what it keeps, and without the key no one can. A namespace stays what it was created as.

Examples:
  holdfast namespace-key new --out vault.key          (at an agent; shows the key's id)
  holdfast-server namespace create vault --end-to-end nk-0123456789abcdef
  holdfast-server namespace create lab";

#[derive(Debug, Args)]
pub(in super::super) struct CreateArgs {
    #[command(flatten)]
    pub(super) folder: DataFolder,
    /// Name of the namespace
    #[arg(value_name = "NAME")]
    name: String,
    /// Agents encrypt its content with the key of this id, as 'holdfast namespace-key new' shows it
    #[arg(long, value_name = "KEYID")]
    end_to_end: Option<KeyId>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// Makes the namespace and says so in the audit log.
pub(super) fn create(catalog: &Catalog, args: &CreateArgs) -> Result<NamespaceRecord, Failure> {
    let name = &args.name;
    if catalog.namespace_by_name(name)?.is_some() {
        let text =
            format!("there is a namespace {name:?} already; 'holdfast-server namespace list' lists them");
        return Err(Failure::new(ErrorCode::Invalid, text));
    }
    let made = match args.end_to_end {
        Some(key_id) => catalog.create_sealed_namespace(name, key_id)?,
        None => catalog.ensure_namespace(name)?,
    };
    let detail = match made.key_id {
        Some(key_id) => format!("end-to-end encrypted with key {key_id}"),
        None => String::new(),
    };
    let (who, action) = (token::who(), "namespace.create".to_owned());
    catalog.audit(&AuditEntry { who, action, object: made.name.clone(), detail })?;
    Ok(made)
}

/// For a person.
pub(super) fn describe(made: &NamespaceRecord, as_json: bool) -> String {
    let name = &made.name;
    if as_json {
        return object(made).to_string();
    }
    match made.key_id {
        Some(key_id) => format!(
            "Created namespace {name:?}, end-to-end encrypted with key {key_id}. Only agents that have this key can back \
             up to it, and only they can read and prove what it has."
        ),
        None => format!("Created namespace {name:?}."),
    }
}

fn object(made: &NamespaceRecord) -> Value {
    json!({ "name": made.name, "key_id": made.key_id.map(|key_id| key_id.to_string()) })
}
