//! `holdfast verify` of one restore point over the network, or at the server.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::api::{Backup, FalseChunk, FalseDigest, TaskKind, VerificationReport, VerifyOptions};

use super::Context;
use super::args::Verify;
use super::display::Display;
use super::reading::{Outcome, Task as Reading, Words, bad_text, disks, finish, read_all};
use super::task::{self, Kind};
use crate::connect::{Connection, Settings};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::repository::{get_backup, record_verification, report_chunks};
use crate::restore::target::NullTarget;
use crate::restore::{self, OnDamage, ReadOptions, Reader, Salvage};

const KIND: Kind = Kind {
    kind: TaskKind::Verify,
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
    let vm = Some(verify.vm.clone()).filter(|vm| !vm.is_empty());
    let namespace = vm.as_ref().map(|_| namespace).filter(|namespace| !namespace.is_empty());
    let options = VerifyOptions { namespace, vm };
    let started = task::start(&connection, KIND, &options).await?;
    task::watch(context, &connection, KIND, started, verify.no_wait).await
}

pub(super) async fn run(context: &Context, verify: &Verify) -> Result<ExitCode, ClientError> {
    if verify.at_server {
        return at_server(context, verify).await;
    }
    check_steering(verify)?;
    let (settings, connection, namespace) = context.connect_within(verify.reading.retry_for).await?;
    let wanted = verify.backup.as_deref().unwrap_or_default();
    let cipher = context.cipher()?;
    let backup = get_backup(&connection, &namespace, wanted, &verify.vm).await?;
    let begun = Instant::now();
    let (reader, outcomes) = point(context, verify, (settings, &connection, cipher), &backup).await?;
    // All that the restore point has is sound, whatever it lacks.
    let words =
        Words { done: "Verified", proof: "every fingerprint matched", lacking: &[], to_stdout: false };
    finish(context.output, &words, &backup, &reader, outcomes, begun)
}

/// Only work at the server is paused and resumed.
///
/// # Errors
/// [`ClientError::Usage`].
pub(super) fn check_steering(verify: &Verify) -> Result<(), ClientError> {
    if task::control(&verify.steering).is_none() {
        return Ok(());
    }
    Err(ClientError::Usage("--pause, --resume and --cancel go with --at-server".to_owned()))
}

/// Reads one restore point, and tells the server what was found.
///
/// # Errors
/// An error that keeps it from being read at all. Errors of its disks are in their outcomes.
pub(super) async fn point(
    context: &Context,
    verify: &Verify,
    (settings, connection, cipher): (Settings, &Connection, Cipher),
    backup: &Backup,
) -> Result<(Reader, Vec<Outcome>), ClientError> {
    let tasks = disks(backup)?.into_iter().map(|disk| {
        // All damage is found, not only the first.
        let salvage = Salvage { on_damage: OnDamage::Skip, map: None };
        Reading { disk, place: None, salvage }
    });
    let tasks: Vec<Reading> = tasks.collect();
    let display = Display::start(context.output, tasks.iter().map(|task| task.disk.size_bytes).sum());
    let options = ReadOptions { from_volume: true, ..verify.reading.options(cipher) };
    let reader = Reader::new(settings, connection.clone(), display.tally(), options)?;
    let outcomes = read_all(context, &reader, tasks, |_| Ok(Arc::new(NullTarget))).await?;
    drop(display);
    if let Some(found) = found(&outcomes) {
        match record_verification(connection, backup, found).await {
            Ok(0) => {}
            Ok(confirmed) => context.output.note(&format!(
                "holdfast: the server confirms that {confirmed} extents have a false digest; the next backup reads them again"
            )),
            Err(error) => context
                .output
                .note(&format!("holdfast: the result could not be recorded on the server: {error}")),
        }
    }
    tell_of_chunks(context, connection, backup, &outcomes).await;
    Ok((reader, outcomes))
}

/// Reports chunks that an agent sealed under a false fingerprint, which only this side can see.
async fn tell_of_chunks(context: &Context, connection: &Connection, backup: &Backup, outcomes: &[Outcome]) {
    let read = outcomes.iter().filter_map(|outcome| Some((&outcome.disk, outcome.result.as_ref().ok()?)));
    let chunk = |disk: &String, found: &restore::FalseChunk| {
        let restore::FalseChunk { extent, fingerprint, commitment } = *found;
        FalseChunk { disk: disk.clone(), extent, fingerprint, commitment }
    };
    let chunks = read.flat_map(|(disk, read)| read.false_chunks.iter().map(move |found| chunk(disk, found)));
    let chunks: Vec<FalseChunk> = chunks.collect();
    if chunks.is_empty() {
        return;
    }
    match report_chunks(connection, backup, &chunks).await {
        Ok(_) => context.output.note(
            "holdfast: an agent with the key sent something false, or one without it did, or its memory is bad. The next backup of \
             a disk that has it sends it again; find out which agent that was",
        ),
        Err(error) => context.output.note(&format!(
            "holdfast: an agent with the key sent something false, and the server could not be told, so that it will not be \
             sent again: {error}"
        )),
    }
}

/// The result of a verification: everything sound, or damage. `None` when disks could not be read for another
/// reason, which says nothing about them.
fn found(outcomes: &[Outcome]) -> Option<VerificationReport> {
    let read = || outcomes.iter().filter_map(|outcome| Some((&outcome.disk, outcome.result.as_ref().ok()?)));
    let bytes = read().map(|(_, summary)| summary.data_bytes).sum();
    let failures = || outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err());
    let mut damage: Vec<String> =
        failures().filter(|error| error.is_damage()).map(ToString::to_string).collect();
    damage.extend(outcomes.iter().filter_map(bad_text));
    if damage.is_empty() && failures().next().is_some() {
        return None;
    }
    let alone = failures().filter_map(|error| match error {
        ClientError::FalseDigests { disk, extents, .. } => Some((disk, extents)),
        _ => None,
    });
    // (R6) Beside ranges that cannot be read, too.
    let lies = alone.chain(read().map(|(disk, summary)| (disk, &summary.false_digests)));
    let digest = |disk: &String, extent: u64| FalseDigest { disk: disk.clone(), extent };
    let false_digests =
        lies.flat_map(|(disk, extents)| extents.iter().map(move |extent| digest(disk, *extent))).collect();
    Some(VerificationReport { ok: damage.is_empty(), detail: damage.join("; "), bytes, false_digests })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::{BadRange, ReadSummary};

    fn outcome(disk: &str, result: Result<ReadSummary, ClientError>) -> Outcome {
        Outcome { disk: disk.to_owned(), place: None, map: None, result }
    }

    /// (R6) The next backup reads them again, whatever else is wrong with the disk.
    #[test]
    fn false_digests_are_told_beside_bad_ranges() {
        let bad = BadRange { offset: 0, len: 4096, reason: "checksum".into(), container: "".into() };
        let read = |bad: Vec<BadRange>, false_digests: Vec<u64>| ReadSummary {
            size_bytes: 9 << 20,
            data_bytes: 9 << 20,
            seconds: 1.0,
            bad,
            false_chunks: Vec::new(),
            false_digests,
        };
        let extents = vec![5];
        let alone = ClientError::FalseDigests { disk: "b".to_owned(), count: 1, extents };
        let outcomes = [
            outcome("a", Ok(read(vec![bad], vec![1, 2]))),
            outcome("b", Err(alone)),
            outcome("c", Ok(read(Vec::new(), Vec::new()))),
        ];
        let found = found(&outcomes).unwrap();
        assert!(!found.ok && found.detail.contains("cannot be read"), "{}", found.detail);
        let mut lies = found.false_digests;
        lies.sort_unstable();
        let digest = |disk: &str, extent| FalseDigest { disk: disk.to_owned(), extent };
        assert_eq!(lies, [digest("a", 1), digest("a", 2), digest("b", 5)]);
    }
}
