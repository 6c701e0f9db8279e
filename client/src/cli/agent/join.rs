//! `holdfast agent join`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use holdfast_proto::join::JoinCode;

use super::super::args::JoinArgs;
use super::super::{Context, login};
use crate::connect::join::{AgentKey, find_server, redeem};
use crate::connect::profile::{self, Layer};
use crate::connect::{Connection, Settings, Token, Trust};
use crate::error::ClientError;
use crate::service::settings::write_example;

/// The unit that the package has.
const UNIT: &str = "holdfast-agent.service";

/// There while systemd runs this machine.
const SYSTEMD: &str = "/run/systemd/system";

pub(super) async fn run(context: &Context, args: &JoinArgs) -> Result<ExitCode, ClientError> {
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
    // An agent that only restores has nothing to do by the clock.
    if connection.hello().role != "restore" {
        begin(context, &path)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the agent's file, if there is none, and starts the service where there is one; else says what to start.
fn begin(context: &Context, profile: &Path) -> Result<(), ClientError> {
    let file = profile.with_file_name(super::FILE);
    let verb = if write_example(&file)? { "Written: " } else { "Kept: " };
    let output = context.output;
    let is_of_machine = profile == Path::new(profile::OF_MACHINE);
    if is_of_machine && Path::new(SYSTEMD).exists() && start_unit() {
        output.note(&format!(
            "{verb}{}. {UNIT} runs and reads it whenever it changes; 'holdfast agent check' says what it means.",
            file.display()
        ));
    } else {
        let named = if is_of_machine { String::new() } else { format!(" --file {}", file.display()) };
        output.note(&format!(
            "{verb}{}. To back up by the clock, name VMs in it and keep 'holdfast agent run{named}' running: no service was \
             started.",
            file.display()
        ));
    }
    Ok(())
}

/// Enables and starts the unit; one that runs uses the new profile from its next attempt on.
fn start_unit() -> bool {
    let systemctl = |verb: &str| {
        let mut command = Command::new("systemctl");
        command
            .args([verb, "--quiet", UNIT])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    systemctl("enable") && systemctl("start")
}

/// The profile to write: of root, the machine's.
fn profile_path(context: &Context) -> Result<PathBuf, ClientError> {
    match &context.named_profile {
        Some(path) => Ok(path.clone()),
        None if rustix::process::geteuid().is_root() => Ok(PathBuf::from(profile::OF_MACHINE)),
        None => context.profile.clone().ok_or_else(login::no_profile),
    }
}
