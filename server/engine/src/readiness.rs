//! Readiness to accept backups, with the reason when there is none: determined when it is asked for, never cached.
//!
//! A backup is accepted when a container could be begun, filled and committed. So each of these must hold: no work has
//! stopped (W9); the volume has this repository's mark and takes a blob; there is room for a container above the
//! reserve (W10); the index is sound; the catalog takes a change. Asking costs a few system calls and writes nothing that
//! stays.

use holdfast_catalog::CatalogError;
use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_volume::{BlobName, Volume, VolumeError};

use crate::core::Core;
use crate::health::{Obstacle, Work};
use crate::identity;

/// One reason why backups are not accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    pub obstacle: Obstacle,
    /// Description of the problem and its remedy, for operators: it may name paths.
    pub reason: String,
}

/// A blob that is begun to see whether the volume takes it, and never sealed.
const PROBE: &str = "probe";

/// All reasons; empty: backups are accepted.
pub(crate) fn obstacles(core: &Core) -> Vec<NotReady> {
    let mut found: Vec<NotReady> = Vec::new();
    let mut add = |obstacle, reason: String| found.push(NotReady { obstacle, reason });
    if let Some(reason) = core.health.locked_reason() {
        // (K6) Nothing else can be told.
        add(Obstacle::Locked, reason.to_owned());
        return found;
    }
    for stopped in core.health.stopped() {
        let (work, reason) = (stopped.work.as_str(), stopped.reason);
        add(
            Obstacle::Stopped,
            format!("{work} has stopped: {reason}; check the disk, then restart the server"),
        );
    }
    for (obstacle, reason) in core.health.reported() {
        add(obstacle, reason);
    }
    if let Some((obstacle, reason)) = volume(core) {
        add(obstacle, reason);
    }
    // (P6)
    if let Some(reason) = core.unrecorded.unread_points() {
        add(Obstacle::PointsUnread, reason);
    }
    if let Some(reason) = core.unrecorded.reason() {
        add(Obstacle::Catalog, reason);
        return found;
    }
    // A stopped catalog was told of above; one that is busy takes the change a moment later.
    if core.health.reason(Work::Catalog).is_none()
        && let Err(error) = core.catalog.check_writable()
        && !matches!(error, CatalogError::Busy)
    {
        add(Obstacle::Catalog, format!("the catalog takes no changes: {error}"));
    }
    found
}

/// The first reason why the volume does not take a container.
fn volume(core: &Core) -> Option<(Obstacle, String)> {
    let volume = core.ledger.volume();
    if let Err(error) = identity::is_present(&**volume, core.repository) {
        return Some((
            Obstacle::VolumeAbsent,
            format!("the volume of this repository is not there: {error}"),
        ));
    }
    let room = match core.ledger.room() {
        Ok(room) => room,
        Err(error) => {
            return Some((Obstacle::VolumeAbsent, format!("the volume does not say what is free: {error}")));
        }
    };
    if let Some(room) = room
        && room.for_data_bytes < u64::from(CONTAINER_MAX_BYTES)
    {
        let (free, reserve) = (room.space.free_bytes >> 20, core.ledger.reserve_bytes() >> 20);
        let promised = room.promised_bytes >> 20;
        let reason = format!(
            "the repository has {free} MiB free, {promised} MiB of it promised to backups in progress, and keeps \
             {reserve} MiB in reserve, so no container of 32 MiB fits: delete restore points and run 'holdfast \
             reclaim', or add storage"
        );
        return Some((Obstacle::Full, reason));
    }
    let begun = BlobName::new(PROBE).map(|name| volume.create(&name));
    match begun {
        Some(Err(error)) if !is_passing(&error) => {
            Some((Obstacle::VolumeReadOnly, format!("the volume takes no writes: {error}")))
        }
        _ => None,
    }
}

/// A name that is taken says that the folder can be read; too many open files say nothing of the volume.
const fn is_passing(error: &VolumeError) -> bool {
    matches!(error, VolumeError::Exists { .. }) || error.is_retryable()
}
