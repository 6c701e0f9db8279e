//! `holdfast login`.

use std::path::Path;
use std::process::ExitCode;

use holdfast_proto::v1::HelloResponse;
use serde_json::json;

use super::Context;
use super::args::Login;
use super::ask::{ask, ask_hidden, is_terminal};
use crate::connect::profile::Layer;
use crate::connect::{Connection, Settings, Token, Trust, inspect_certificate};
use crate::end_to_end::KeySource;
use crate::error::ClientError;

pub(super) async fn run(context: &Context, login: &Login) -> Result<ExitCode, ClientError> {
    let path = context.profile.clone().ok_or_else(no_profile)?;
    let server = context.given.server()?;
    let trust = match context.given.trust()? {
        Some(trust) => trust,
        None => Trust::Pinned(confirmed_certificate(context, login, &server).await?),
    };
    let token = match context.given.token()? {
        Some(token) => token,
        None => ask_for_token()?,
    };
    let settings = Settings { request: context.request.clone(), ..Settings::new(server, trust, token) };
    let connection = Connection::open(&settings).await?;
    let layer = profile_of(context, &settings)?;
    layer.save(&path)?;
    summarise(context, "Logged in to", &settings, connection.hello(), &path)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn no_profile() -> ClientError {
    ClientError::Usage(
        "neither XDG_CONFIG_HOME nor HOME is set; name a profile file with --profile".to_owned(),
    )
}

/// Says which server this is an agent of from now on, and as whom.
pub(super) fn summarise(
    context: &Context,
    done: &str,
    settings: &Settings,
    hello: &HelloResponse,
    path: &Path,
) -> Result<(), ClientError> {
    let scope = if hello.namespaces.is_empty() {
        "all namespaces".to_owned()
    } else if let [only] = hello.namespaces.as_slice() {
        format!("namespace {only}")
    } else {
        format!("namespaces {}", hello.namespaces.join(", "))
    };
    let server = settings.server.to_string();
    context.output.summary(
        || {
            json!({
                "server": server,
                "server_version": hello.server_version,
                "repository": hello.repository_id,
                "token": hello.token_name,
                "role": hello.role,
                "namespaces": hello.namespaces,
                "profile": path,
            })
        },
        || {
            format!(
                "{done} {server} (Holdfast {}) with token {:?}, role {}, {scope}.\nProfile written to {}.",
                hello.server_version,
                hello.token_name,
                hello.role,
                path.display()
            )
        },
    )
}

/// Builds the profile to save. A token file is saved by its path, so that a new token in it is found.
fn profile_of(context: &Context, settings: &Settings) -> Result<Layer, ClientError> {
    let given = |pick: fn(&Layer) -> bool| context.given.0.iter().find(|layer| pick(layer));
    let from = given(|layer| layer.token.is_some() || layer.token_file.is_some());
    let token_file = from.and_then(|layer| layer.token_file.clone());
    let absolute = |path: std::path::PathBuf| {
        std::path::absolute(&path).map_err(|source| ClientError::File { what: "resolving", path, source })
    };
    let (fingerprint, ca) = match &settings.trust {
        Trust::Pinned(pin) => (Some(pin.to_string()), None),
        Trust::Ca(path) => (None, Some(absolute(path.clone())?)),
        Trust::Inspect => (None, None),
    };
    let (key_file, key_command) = match context.given.namespace_key()? {
        Some(KeySource::File(path)) => (Some(path), None),
        Some(KeySource::Command(command)) => (None, Some(command)),
        None => (None, None),
    };
    let phrase_file = context.given.0.iter().find_map(|layer| layer.namespace_key_passphrase_file.clone());
    Ok(Layer {
        server: Some(settings.server.to_string()),
        token: token_file.is_none().then(|| settings.token.reveal().to_owned()),
        token_file: token_file.map(absolute).transpose()?,
        fingerprint,
        ca,
        namespace: context.given.0.iter().find_map(|layer| layer.namespace.clone()),
        namespace_key: key_file.map(absolute).transpose()?,
        namespace_key_command: key_command,
        namespace_key_passphrase_file: phrase_file.map(absolute).transpose()?,
        namespace_key_passphrase: None,
    })
}

async fn confirmed_certificate(
    context: &Context,
    login: &Login,
    server: &crate::connect::ServerAddress,
) -> Result<crate::connect::CertFingerprint, ClientError> {
    let shown = inspect_certificate(server).await?;
    if login.accept_new {
        context.output.note(&format!("Trusting the certificate {server} presents now, SHA-256 {shown}"));
        return Ok(shown);
    }
    if !is_terminal() {
        return Err(ClientError::Usage(format!(
            "{server} presents a certificate with SHA-256\n  {shown}\nand standard input is not a terminal, so \
             you cannot be asked whether to trust it; if it is the right one, repeat with --fingerprint {shown}"
        )));
    }
    let question = format!(
        "{server} presents a certificate with SHA-256\n  {shown}\nIs this what the server printed when it \
         started (it is also in tls/fingerprint in its data folder)? [y/N] "
    );
    let answer = ask(&question)?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(shown)
    } else {
        Err(ClientError::Usage(
            "certificate not trusted; the token was not sent, and the profile is unchanged".to_owned(),
        ))
    }
}

fn ask_for_token() -> Result<Token, ClientError> {
    if !is_terminal() {
        return Err(ClientError::Usage("no token: give --token-file or set HOLDFAST_TOKEN".to_owned()));
    }
    Token::new(&ask_hidden("Token: ")?)
}
