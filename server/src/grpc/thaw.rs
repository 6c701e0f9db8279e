//! Calls about what of a restore point lies in the archive.

use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::v1;

use super::call::parse_id;
use super::manage::task_message;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::reading::thaw::{self, Wanted};

/// For which a walk over recipes may go on, whether or not anyone waits for it still: one over 10 TB takes minutes.
const AT_MOST: Duration = Duration::from_secs(30 * 60);

/// What it takes. Blocks for as long as a walk over the recipes takes, if anything is cold.
pub(super) fn quote(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::QuoteThawRequest,
) -> Result<v1::ThawQuote, ServiceError> {
    let v1::QuoteThawRequest { backup_id, disks, days } = message;
    thaw::quote(app, caller, &Wanted { backup: parse_id("backup", &backup_id)?, disks, days }, AT_MOST)
}

/// Starts to bring it back, or finds the task that does. Blocks.
pub(super) fn start(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::StartThawRequest,
) -> Result<v1::Task, ServiceError> {
    let v1::StartThawRequest { backup_id, disks, speed, days } = message;
    let wanted = Wanted { backup: parse_id("backup", &backup_id)?, disks, days };
    let (task, log) = thaw::start(app, caller, wanted, speed)?;
    Ok(task_message(task, log))
}

/// How far it is. Blocks.
#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn get(
    app: &Arc<App>,
    caller: &Caller,
    message: v1::GetThawRequest,
) -> Result<v1::Task, ServiceError> {
    let (task, log) = thaw::get(app, caller, parse_id("task", &message.task_id)?)?;
    Ok(task_message(task, log))
}
