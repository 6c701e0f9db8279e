//! Who may read a restore point back.

use holdfast_engine::catalog::BackupRecord;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;

use super::call::parse_id;
use super::refusals;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;

/// The backup, when the caller may read it. Blocks.
pub(super) fn may_read(app: &App, caller: &Caller, id: &str) -> Result<BackupRecord, ServiceError> {
    caller.check_role(Action::ReadBack)?;
    let id: BackupId = parse_id("backup", id)?;
    let backup = app
        .catalog()
        .backup(id)?
        .filter(|backup| caller.may(Action::ReadBack, backup.namespace))
        .ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}")))?;
    caller.check_contents(app.catalog(), &backup).inspect_err(|_| {
        if let Ok(Some(namespace)) = app.catalog().namespace(backup.namespace) {
            refusals::note_refusal(app, caller, "backup.read-refused", &namespace, &backup.vm);
        }
    })?;
    Ok(backup)
}
