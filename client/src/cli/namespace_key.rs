//! `holdfast namespace-key`: needs no server.

use std::process::ExitCode;

use holdfast_keys::SecretBytes;
use holdfast_proto::KeyId;
use serde_json::json;

use super::Context;
use super::args::{NamespaceKey, NamespaceKeyCommand, NewPassphrase};
use super::ask::ask_new_passphrase;
use crate::connect::layers::read_passphrase;
use crate::end_to_end::{create_key_file, create_wrapped_key_file};
use crate::error::ClientError;

pub(super) fn run(context: &Context, asked: &NamespaceKey) -> Result<ExitCode, ClientError> {
    match &asked.command {
        NamespaceKeyCommand::New { out, passphrase, new } => {
            let id = if *passphrase || new.new_passphrase_file.is_some() {
                create_wrapped_key_file(out, None, &new_passphrase(new)?)?.id()
            } else {
                create_key_file(out)?.id()
            };
            let path = out.display();
            let text = format!(
                "Made key {id} in {path}. Copy it to every agent of the namespace, and keep a copy elsewhere: what is \
                 backed up with it can be read with it only.\nAt the server: holdfast-server namespace create NAME \
                 --end-to-end {id}"
            );
            context.output.summary(|| json!({ "key_id": id.to_string(), "file": out }), || text)?;
        }
        NamespaceKeyCommand::Wrap { out, new } => {
            let layers = context.layers()?;
            let source = layers.namespace_key()?.ok_or_else(no_key)?;
            let ask = || Context::key_passphrase(&layers);
            let id = create_wrapped_key_file(out, Some((&source, &ask)), &new_passphrase(new)?)?.id();
            let text = format!(
                "Wrapped key {id} in {}, which opens with the passphrase only: name it with --namespace-key. What it was \
                 made of is as it was; remove it where it should not lie in the open.",
                out.display()
            );
            context.output.summary(|| json!({ "key_id": id.to_string(), "file": out }), || text)?;
        }
        NamespaceKeyCommand::Id => {
            let id = context.cipher()?.key_id().ok_or_else(no_key)?;
            context.output.summary(|| json!({ "key_id": id.to_string() }), || KeyId::to_string(&id))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn new_passphrase(new: &NewPassphrase) -> Result<SecretBytes, ClientError> {
    new.new_passphrase_file.as_deref().map_or_else(ask_new_passphrase, read_passphrase)
}

fn no_key() -> ClientError {
    ClientError::Usage(
        "name the key's file with --namespace-key, or a command with --namespace-key-command".to_owned(),
    )
}
