//! Proves the parity of one group: its header, its table, and all that it is for.

use holdfast_types::ids::ContainerId;

use super::containers::Proof;
use crate::core::Core;
use crate::error::EngineError;
use crate::parity;

/// (V6) Reads all of a group's parity and takes note in the catalog of whether it is what it should be; why, when it is not.
/// `go_on` is told of bytes as they are read.
///
/// # Errors
/// It cannot be judged: it cannot be read at the moment, or a newer version wrote it.
pub(super) fn prove(
    core: &Core,
    (number, was_damaged): (ContainerId, bool),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(Proof, String), EngineError> {
    let proved = parity::prove(&*core.volume, core.repository, number, go_on);
    let (proof, reason) = match proved {
        Ok(true) => (Proof::Sound, String::new()),
        Ok(false) => return Ok((Proof::Stopped, String::new())),
        Err(EngineError::Damaged(reason)) => (Proof::Damaged, reason),
        Err(error) => return Err(error),
    };
    // (V2) It may have been given up while it was read.
    if !core.catalog.has_parity_group(number)? {
        return Ok((Proof::Gone, reason));
    }
    let is_damaged = proof == Proof::Damaged;
    // Where so much is missing that it is taken for absent, nothing is kept of it.
    if is_damaged != was_damaged && core.store.absence().is_none() {
        core.catalog.mark_parity_group(number, is_damaged)?;
    }
    if is_damaged {
        tracing::warn!(%number, reason, "the parity of a group is damaged or missing; it is made anew while parity is on");
    }
    Ok((proof, reason))
}
