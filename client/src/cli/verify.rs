//! `holdfast verify`: over the network, or at the server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::v1;

use super::Context;
use super::args::Verify;
use super::display::Display;
use super::reading::{Outcome, Task as Reading, bad_text, disks, finish, read_all};
use super::task::{self, Kind};
use crate::error::ClientError;
use crate::repository::{Found, get_backup, record_verification};
use crate::restore::target::NullTarget;
use crate::restore::{OnDamage, ReadOptions, Reader, Salvage};

const KIND: Kind = Kind {
    word: "verify",
    noun: "the verification",
    title: "Verification",
    command: "holdfast verify --at-server",
    damage: &["damaged"],
    outcome: task::verdict,
};

/// The newest restore points, read where they are.
async fn at_server(context: &Context, verify: &Verify) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect_within(verify.reading.retry_for).await?;
    if let Some(control) = task::control(&verify.steering) {
        return task::steer(context, &connection, KIND, control).await;
    }
    // A VM is of one namespace; every VM is of any.
    let namespace = if verify.vm.is_empty() { String::new() } else { namespace };
    let request = v1::StartVerificationRequest { namespace, vm: verify.vm.clone() };
    let started = connection.manage().start_verification(request).await?.into_inner();
    task::watch(context, &connection, KIND, started, verify.no_wait).await
}

pub(super) async fn run(context: &Context, verify: &Verify) -> Result<ExitCode, ClientError> {
    let Some(wanted) = &verify.backup else { return at_server(context, verify).await };
    if task::control(&verify.steering).is_some() {
        return Err(ClientError::Usage("--pause, --resume and --cancel go with --at-server".to_owned()));
    }
    let (settings, connection, namespace) = context.connect_within(verify.reading.retry_for).await?;
    let backup = get_backup(&connection, &namespace, wanted, &verify.vm).await?;
    let tasks = disks(&backup)?.into_iter().map(|disk| {
        // All damage is found, not only the first.
        let salvage = Salvage { on_damage: OnDamage::Skip, map: None };
        Reading { disk, place: None, salvage }
    });
    let tasks: Vec<Reading> = tasks.collect();
    let display = Display::start(context.output, tasks.iter().map(|task| task.disk.size_bytes).sum());
    let options = ReadOptions { from_volume: true, ..verify.reading.options(context.cipher()?) };
    let reader = Reader::new(settings, connection.clone(), display.tally(), options)?;
    let begun = Instant::now();
    let outcomes = read_all(context, &reader, tasks, |_| Ok(Arc::new(NullTarget))).await?;
    drop(display);
    if let Some(found) = found(&outcomes) {
        match record_verification(&connection, &backup, &found).await {
            Ok(0) => {}
            Ok(confirmed) => context.output.note(&format!(
                "holdfast: the server confirms that {confirmed} extents have a false digest; the next backup reads them again"
            )),
            Err(error) => context
                .output
                .note(&format!("holdfast: the result could not be recorded on the server: {error}")),
        }
    }
    finish(context.output, "Verified", &backup, &reader, outcomes, begun, false)
}

/// The result of a verification: everything sound, or damage. `None` when disks could not be read for another
/// reason, which says nothing about them.
fn found(outcomes: &[Outcome]) -> Option<Found> {
    let read = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    let bytes = read.map(|summary| summary.data_bytes).sum();
    let failures = || outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err());
    let mut damage: Vec<String> =
        failures().filter(|error| error.is_damage()).map(ToString::to_string).collect();
    damage.extend(outcomes.iter().filter_map(bad_text));
    if damage.is_empty() && failures().next().is_some() {
        return None;
    }
    let false_digests = failures().flat_map(|error| match error {
        ClientError::FalseDigests { disk, extents, .. } => {
            extents.iter().map(|extent| (disk.clone(), *extent)).collect()
        }
        _ => Vec::new(),
    });
    let false_digests = false_digests.collect();
    Some(Found { ok: damage.is_empty(), detail: damage.join("; "), bytes, false_digests })
}
