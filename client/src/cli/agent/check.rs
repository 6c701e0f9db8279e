//! `holdfast agent check`.

use std::process::ExitCode;

use holdfast_proto::details::bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::Context;
use super::super::args::CheckArgs;
use crate::error::ClientError;
use crate::service::check::{CheckedVm, check};
use crate::service::settings::{AgentSettings, Entry};

pub(super) async fn run(context: &Context, args: &CheckArgs) -> Result<ExitCode, ClientError> {
    let file = super::file(context, &args.file);
    let settings = AgentSettings::load(&file)?;
    let at_once = settings.at_once;
    let looking = tokio::task::spawn_blocking(move || check(&settings, Timestamp::now().as_millisecond()));
    let (vms, mut problems) = tokio::select! {
        biased;
        () = context.cancel.cancelled() => return Err(ClientError::Interrupted),
        looked = looking => looked.map_err(|_| ClientError::Internal("opening disks panicked"))?,
    };
    for vm in &vms {
        problems.extend(vm.problems.iter().map(|problem| format!("{}: {problem}", vm.name)));
    }
    let server = match server(context, &vms).await {
        Ok((server, of_server)) => {
            problems.extend(of_server);
            Some(server)
        }
        Err(error) if error.is_interrupted() => return Err(error),
        Err(error) => {
            problems.push(error.to_string());
            None
        }
    };
    context.output.summary(
        || {
            json!({
                "ok": problems.is_empty(),
                "file": file,
                "at_once": at_once,
                "vms": vms.iter().map(in_json).collect::<Vec<_>>(),
                "server": server,
                "problems": problems,
            })
        },
        || {
            let head = format!("{}: {} VMs, {at_once} at once", file.display(), vms.len());
            let server = server.iter().map(|server| format!("\nServer: {server}"));
            let found = match problems.as_slice() {
                [] => "\nNo problems.".to_owned(),
                problems => format!("\nProblems:\n  {}", problems.join("\n  ")),
            };
            [head].into_iter().chain(vms.iter().map(in_text)).chain(server).chain([found]).collect()
        },
    )?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The server, and what keeps the token from backing up these VMs.
async fn server(context: &Context, vms: &[CheckedVm]) -> Result<(String, Vec<String>), ClientError> {
    let (settings, connection, _) = context.connect().await?;
    let hello = connection.hello();
    let mut problems: Vec<_> = context.cipher().err().iter().map(ToString::to_string).collect();
    if hello.role == "restore" {
        problems.push(format!("token {:?} has the role restore, which backs up nothing", hello.token_name));
    }
    for vm in vms {
        let namespace = vm.entry.rules.namespace.as_deref();
        if let Some(namespace) = namespace.filter(|name| !hello.namespaces.iter().any(|valid| valid == name))
            && !hello.namespaces.is_empty()
        {
            problems.push(format!(
                "{}: token {:?} is not valid for namespace {namespace}",
                vm.name, hello.token_name
            ));
        }
    }
    let text = format!(
        "{} (Holdfast {}), token {:?}, role {}",
        settings.server, hello.server_version, hello.token_name, hello.role
    );
    Ok((text, problems))
}

/// Times in the entry's zone.
fn times(vm: &CheckedVm) -> Vec<String> {
    let zone = vm.entry.schedule.zone();
    let shown = |at_ms: &i64| {
        let at = Timestamp::from_millisecond(*at_ms).unwrap_or_default().to_zoned(zone.clone());
        at.strftime("%Y-%m-%d %H:%M %:z").to_string()
    };
    vm.next_ms.iter().map(shown).collect()
}

fn hooks(entry: &Entry) -> [(&'static str, Option<&str>); 2] {
    [("before", entry.rules.before.as_deref()), ("after", entry.rules.after.as_deref())]
}

fn in_text(vm: &CheckedVm) -> String {
    let mut text = format!("\n{} (job {})", vm.name, vm.entry.rules.job);
    for disk in &vm.disks {
        text += &format!(
            "\n  disk {}: {}, {}, {}",
            disk.name,
            disk.location,
            disk.format.word(),
            bytes(disk.size_bytes)
        );
    }
    for (name, command) in hooks(&vm.entry) {
        text += &command.map(|command| format!("\n  {name}: {command}")).unwrap_or_default();
    }
    for problem in &vm.problems {
        text += &format!("\n  problem: {problem}");
    }
    text + &format!("\n  next: {}", times(vm).join(", "))
}

fn in_json(vm: &CheckedVm) -> Value {
    let [(_, before), (_, after)] = hooks(&vm.entry);
    let disks = vm.disks.iter().map(|disk| {
        json!({
            "disk": disk.name,
            "location": disk.location,
            "format": disk.format.word(),
            "size_bytes": disk.size_bytes,
        })
    });
    json!({
        "vm": vm.name,
        "job": vm.entry.rules.job,
        "disks": disks.collect::<Vec<_>>(),
        "before": before,
        "after": after,
        "next": times(vm),
        "problems": vm.problems,
    })
}
