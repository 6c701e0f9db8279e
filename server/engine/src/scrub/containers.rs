//! Proves one container: every region's checksum, frame and fingerprints.

use holdfast_catalog::{ContainerRecord, ContainerState};

use crate::container::{ContainerError, OpenContainer, scan_container_while};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::lost;

/// What became of a container that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// Every chunk of it is what its fingerprint says.
    Sound,
    /// Noted (R4).
    Damaged,
    /// It was deleted meanwhile.
    Gone,
    /// It lies far away alone: what reading it costs is not spent for this.
    Far,
    /// It was not read to its end: told to stop.
    Stopped,
}

/// Reads all of a container and takes note of what is wrong with it. `go_on` is told of bytes as they are read.
///
/// # Errors
/// It cannot be judged: it cannot be read at the moment, or a newer version wrote it.
pub(super) fn prove(
    core: &Core,
    record: &ContainerRecord,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Proof, EngineError> {
    if is_gone(core, record)? {
        return Ok(Proof::Gone);
    }
    core.store.look_again(record.id)?;
    let opened = OpenContainer::open(&*core.volume, core.repository, record.id, record.class)
        .and_then(|open| open.check_length(record.stored_bytes).map(|()| open));
    let open = match opened {
        Ok(open) if !open.is_at_hand() => return Ok(Proof::Far),
        Ok(open) => open,
        Err(error) => return judge(core, record, vec![error]),
    };
    let scanned = scan_container_while(&*core.volume, core.repository, record.id, record.class, go_on);
    let Some(report) = scanned else { return Ok(Proof::Stopped) };
    judge(core, record, lost(&open, report.findings))
}

fn judge(core: &Core, record: &ContainerRecord, findings: Vec<ContainerError>) -> Result<Proof, EngineError> {
    if findings.is_empty() {
        return Ok(Proof::Sound);
    }
    // (V2) It may have been deleted while it was read; what is about to be is gone before its file is.
    if is_gone(core, record)? {
        return Ok(Proof::Gone);
    }
    let mut unclear = None;
    for error in findings {
        if error.is_damage() {
            core.store.note_failure(record.id, None, &error);
        } else {
            unclear = Some(error);
        }
    }
    unclear.map_or(Ok(Proof::Damaged), |error| Err(error.into()))
}

fn is_gone(core: &Core, record: &ContainerRecord) -> Result<bool, EngineError> {
    if core.store.leftovers.is_gone(record.id) {
        return Ok(true);
    }
    let now = core.catalog.container(record.id)?;
    Ok(now.is_none_or(|now| now.state == ContainerState::Condemned))
}
