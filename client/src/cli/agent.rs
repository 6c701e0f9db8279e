//! `holdfast agent`: what makes a machine an agent of a server.

use std::path::PathBuf;
use std::process::ExitCode;

use holdfast_proto::join::JoinCode;

use super::args::{AgentCommand, JoinArgs};
use super::{Context, login};
use crate::connect::join::{AgentKey, find_server, redeem};
use crate::connect::profile::{self, Layer};
use crate::connect::{Connection, Settings, Token, Trust};
use crate::error::ClientError;

pub(super) async fn run(context: &Context, command: &AgentCommand) -> Result<ExitCode, ClientError> {
    match command {
        AgentCommand::Join(args) => join(context, args).await,
    }
}

async fn join(context: &Context, args: &JoinArgs) -> Result<ExitCode, ClientError> {
    let code: JoinCode =
        args.code.join(" ").parse().map_err(|error| ClientError::Usage(format!("{error}")))?;
    let path = profile_path(context)?;
    // Read first: a profile that cannot be read must not cost the code.
    let before = match context.profile.as_deref() {
        Some(used) => Layer::load(used)?,
        None => Layer::default(),
    };
    let asked = async {
        let server = find_server(&code).await?;
        let key = AgentKey::beside(&path)?;
        let joined = redeem(&server, &code, &key).await?;
        Ok::<_, ClientError>((server, key, joined))
    };
    let (server, key, joined) = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ClientError::Interrupted),
        asked = asked => asked?,
    };
    let token = Token::new(&joined.token)?;
    let is_ours = |name: &String| joined.namespaces.is_empty() || joined.namespaces.contains(name);
    let layer = Layer {
        server: Some(server.to_string()),
        token: Some(token.reveal().to_owned()),
        token_file: None,
        fingerprint: Some(code.fingerprint.to_string()),
        ca: None,
        namespace: before.namespace.clone().filter(is_ours),
        ..before
    };
    layer.save(&path)?;
    key.forget()?;
    let trust = Trust::Pinned(code.fingerprint);
    let settings = Settings { request: context.request.clone(), ..Settings::new(server, trust, token) };
    let connection = Connection::open(&settings).await?;
    login::summarise(context, "Joined", &settings, connection.hello(), &path)?;
    if context
        .given
        .0
        .iter()
        .any(|layer| layer.server.is_some() || layer.token.is_some() || layer.token_file.is_some())
    {
        context.output.note("HOLDFAST_SERVER or HOLDFAST_TOKEN is set here, which comes before the profile.");
    }
    Ok(ExitCode::SUCCESS)
}

/// The profile to write: of root, the machine's.
fn profile_path(context: &Context) -> Result<PathBuf, ClientError> {
    match &context.named_profile {
        Some(path) => Ok(path.clone()),
        None if rustix::process::geteuid().is_root() => Ok(PathBuf::from(profile::OF_MACHINE)),
        None => context.profile.clone().ok_or_else(login::no_profile),
    }
}
