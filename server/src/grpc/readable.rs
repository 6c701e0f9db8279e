//! Rights and records that all calls share which read a restore point back.

use std::collections::BTreeSet;

use bytes::Bytes;
use holdfast_engine::catalog::{AuditEntry, BackupRecord};
use holdfast_proto::limits::{PASSED_OVER_MAX, check_name};
use holdfast_proto::region::sealed::Commitment;
use holdfast_proto::v1;

use crate::activity::streams::Subject;
use crate::app::App;
use crate::auth::{Caller, peer_text};
use crate::error::ServiceError;
use crate::grpc::call::parse_id;
use crate::reading::may_read;

/// (R3) Which regions a client does not want chunks out of.
pub(super) fn passed_over(regions: &[Bytes]) -> Result<BTreeSet<Commitment>, ServiceError> {
    let count = regions.len();
    if count > PASSED_OVER_MAX {
        return Err(ServiceError::invalid(format!(
            "{count} regions are to be passed over; the limit is {PASSED_OVER_MAX}"
        )));
    }
    let regions = regions.iter().map(|region| Commitment::try_from(&**region));
    regions.collect::<Result<_, _>>().map_err(|_| {
        ServiceError::invalid("a region that is to be passed over is not named by 32 bytes".to_owned())
    })
}

pub(super) fn subject(backup: &BackupRecord, disk: &str) -> Subject {
    let (namespace_name, vm) = (backup.namespace_name.clone(), backup.vm.clone());
    Subject::Backup { backup: backup.id, namespace_name, vm, disk: disk.to_owned() }
}

/// Plain bytes of the regions in a message.
pub(super) fn disk_bytes(message: &v1::ReadDiskResponse) -> u64 {
    use v1::read_disk_response::Kind;
    match &message.kind {
        Some(Kind::Regions(batch)) => batch.regions.iter().map(|region| u64::from(region.plain_bytes)).sum(),
        Some(Kind::Header(_) | Kind::Window(_) | Kind::WindowEnd(_) | Kind::Damaged(_) | Kind::Queued(_))
        | None => 0,
    }
}

/// The backup, when the caller may read it; noted in the audit log. Blocks.
pub(super) fn readable_backup(
    app: &App,
    caller: &Caller,
    id: &str,
    disk: &str,
) -> Result<BackupRecord, ServiceError> {
    check_name("disk", disk).map_err(ServiceError::invalid)?;
    let backup = may_read(app, caller, parse_id("backup", id)?)?;
    note(app, caller, &backup, disk);
    Ok(backup)
}

/// A catalog that cannot be written to must not prevent a restore. The thousand calls of one restore are one entry.
fn note(app: &App, caller: &Caller, backup: &BackupRecord, disk: &str) {
    let from = peer_text(caller.peer);
    let entry = AuditEntry {
        who: caller.token.name.clone(),
        action: "backup.read".to_owned(),
        object: backup.id.to_string(),
        detail: format!(
            "disk {disk:?} of VM {:?} in namespace {:?}, from {from}",
            backup.vm, backup.namespace_name
        ),
    };
    if app.auth.audit_log().note(entry, format!("{} {disk}", backup.id)) {
        tracing::info!(backup = %backup.id, vm = backup.vm, disk, token = caller.token.name, from, "reading a disk back");
    }
}
