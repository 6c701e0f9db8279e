//! `holdfast namespace-key`: needs no server.

use std::process::ExitCode;

use holdfast_proto::KeyId;
use serde_json::json;

use super::Context;
use super::args::{NamespaceKey, NamespaceKeyCommand};
use crate::end_to_end::create_key_file;
use crate::error::ClientError;

pub(super) fn run(context: &Context, asked: &NamespaceKey) -> Result<ExitCode, ClientError> {
    match &asked.command {
        NamespaceKeyCommand::New { out } => {
            let id = create_key_file(out)?.id();
            let path = out.display();
            let text = format!(
                "Made key {id} in {path}. Copy it to every agent of the namespace, and keep a copy elsewhere: what is \
                 backed up with it can be read with it only.\nAt the server: holdfast-server namespace create NAME \
                 --end-to-end {id}"
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

fn no_key() -> ClientError {
    ClientError::Usage(
        "name the key's file with --namespace-key, or a command with --namespace-key-command".to_owned(),
    )
}
