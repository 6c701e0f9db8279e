//! Reading restore points back, whichever protocol asks: who may, and what has to be thawed before.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | [`may_read`]: who may read a restore point |
//! | `refusals.rs` | the record of whom a VM was refused to |
//! | `thaw.rs` | what of a restore point lies in the archive, what bringing it back costs, and doing it |

pub(crate) mod refusals;
pub(crate) mod thaw;

use holdfast_engine::catalog::BackupRecord;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;

use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;

/// The backup, when the caller may read it. Blocks.
///
/// # Errors
/// `Denied` and `NotFound`; the catalog's.
pub(crate) fn may_read(app: &App, caller: &Caller, id: BackupId) -> Result<BackupRecord, ServiceError> {
    caller.check_role(Action::ReadBack)?;
    let absent = || ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}"));
    let backup = app.catalog().backup(id)?.ok_or_else(absent)?;
    // To the caller one of another namespace does not exist; to who reads the audit log it does.
    let may = if caller.may(Action::ReadBack, backup.namespace) {
        caller.check_contents(app.catalog(), &backup)
    } else {
        Err(absent())
    };
    may.inspect_err(|_| {
        if let Ok(Some(namespace)) = app.catalog().namespace(backup.namespace) {
            refusals::note_refusal(app, caller, "backup.read-refused", &namespace, &backup.vm);
        }
    })?;
    Ok(backup)
}
