//! `holdfast lock` and `holdfast hold`.

use std::process::ExitCode;

use holdfast_proto::v1;
use serde_json::json;

use super::Context;
use super::args::{Hold, Lock};
use super::confirm;
use super::delete::{counted, time};
use super::output::timestamp;
use crate::error::ClientError;

pub(super) async fn lock(context: &Context, lock: &Lock) -> Result<ExitCode, ClientError> {
    let until_ms = match (lock.until, lock.duration) {
        (Some(until_ms), _) => until_ms,
        (None, duration) => {
            let span = i64::try_from(duration.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
            jiff::Timestamp::now().as_millisecond().saturating_add(span)
        }
    };
    let (_, connection, namespace) = context.connect().await?;
    if confirm::is_asked(context.output, lock.yes) {
        let (what, until) = (lock.backups.join(", "), timestamp(until_ms));
        confirm::ask(&format!("Lock {what} until {until} UTC? No one can undo that."))?;
    }
    let selection = v1::Selection { namespace, backups: lock.backups.clone(), vm: lock.vm.clone() };
    let request = v1::LockRequest { selection: Some(selection), until_ms };
    let changed = connection.manage().lock(request).await?.into_inner().changed;
    context.output.summary(
        || json!({ "locked": changed, "until": time(until_ms) }),
        || {
            let locked = counted(changed.len() as u64);
            format!(
                "Locked {locked} until {} UTC; others were locked for as long already.",
                timestamp(until_ms)
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn hold(context: &Context, hold: &Hold) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let selection = Some(v1::Selection { namespace, backups: hold.backups.clone(), vm: hold.vm.clone() });
    let reason = hold.reason.clone();
    let mut client = connection.manage();
    let changed = if hold.release {
        client.release_hold(v1::ReleaseHoldRequest { selection, reason }).await?.into_inner().changed
    } else {
        client.hold(v1::HoldRequest { selection, reason }).await?.into_inner().changed
    };
    let (key, word, rest) = if hold.release {
        ("released", "Released", "others were not held")
    } else {
        ("held", "Held", "others were held already")
    };
    context.output.summary(
        || json!({ key: changed }),
        || format!("{word} {}; {rest}.", counted(changed.len() as u64)),
    )?;
    Ok(ExitCode::SUCCESS)
}
