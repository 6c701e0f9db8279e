//! `holdfast lock` and `holdfast hold`.

use std::process::ExitCode;

use holdfast_proto::api::{Backup, ChangedPoints, HoldPoints, LockPoints, Time};
use serde_json::json;

use super::Context;
use super::args::{Hold, Lock};
use super::delete::counted;
use super::output::timestamp;
use crate::cli::ask;
use crate::error::ClientError;
use crate::repository::{get_backup, known_names};

pub(super) async fn lock(context: &Context, lock: &Lock) -> Result<ExitCode, ClientError> {
    let until_ms = match (lock.until, lock.duration) {
        (Some(until_ms), _) => until_ms,
        (None, duration) => {
            let span = i64::try_from(duration.unwrap_or_default().as_millis()).unwrap_or(i64::MAX);
            jiff::Timestamp::now().as_millisecond().saturating_add(span)
        }
    };
    let (_, connection, namespace) = context.connect().await?;
    let ids = if ask::is_asked(context.output, lock.yes) {
        let mut points = Vec::with_capacity(lock.backups.len());
        for name in &lock.backups {
            points.push(get_backup(&connection, &namespace, name, &lock.vm).await?);
        }
        let shown = |point: &Backup| {
            format!("{} ({} of {} UTC)", point.id, point.vm, timestamp(point.started.unix_ms))
        };
        let what = points.iter().map(shown).collect::<Vec<_>>().join(", ");
        let until = timestamp(until_ms);
        ask::confirm(&format!("Lock {what} until {until} UTC? No one can undo that."))?;
        // Those that were shown, whatever came since.
        points.into_iter().map(|point| point.id).collect()
    } else {
        known_names(&connection, &namespace, &lock.backups, &lock.vm).await?
    };
    // One that is too late to be written is too late for the server as well.
    let until = jiff::Timestamp::from_millisecond(until_ms).unwrap_or(jiff::Timestamp::MAX).to_string();
    let wanted = LockPoints { ids, namespace: Some(namespace), vm: lock.vm.clone(), until };
    let api = connection.api();
    let answer = api.post_lines(&["restore-points", "lock"], &wanted).await?;
    let ChangedPoints { changed } = answer.only().await?;
    let done = format!("Locked {{}} until {} UTC", timestamp(until_ms));
    context.output.summary(
        || json!({ "locked": changed, "until": Time::new(until_ms) }),
        || outcome(&done, lock.backups.len(), changed.len(), "locked for as long or longer already"),
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn hold(context: &Context, hold: &Hold) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let ids = known_names(&connection, &namespace, &hold.backups, &hold.vm).await?;
    let (vm, reason) = (hold.vm.clone(), hold.reason.clone());
    let wanted = HoldPoints { ids, namespace: Some(namespace), vm, reason };
    let (path, key, done, rest) = if hold.release {
        ("release", "released", "Released {}", "not held")
    } else {
        ("hold", "held", "Held {}", "held already")
    };
    let answer = connection.api().post_lines(&["restore-points", path], &wanted).await?;
    let ChangedPoints { changed } = answer.only().await?;
    context
        .output
        .summary(|| json!({ key: changed }), || outcome(done, hold.backups.len(), changed.len(), rest))?;
    Ok(ExitCode::SUCCESS)
}

/// Describes how many restore points changed, and why the others did not: `done` has `{}` where their number goes.
fn outcome(done: &str, named: usize, changed: usize, rest: &str) -> String {
    let done = done.replace("{}", &counted(changed as u64));
    match (changed, named.saturating_sub(changed)) {
        (0, 1) => format!("Nothing was changed: it was {rest}."),
        (0, _) => format!("Nothing was changed: all of them were {rest}."),
        (_, 0) => format!("{done}."),
        (_, 1) => format!("{done}; the other one was {rest}."),
        (_, others) => format!("{done}; the other {others} were {rest}."),
    }
}

#[cfg(test)]
mod tests {
    use super::outcome;

    #[test]
    fn others_are_spoken_of_only_where_there_are_any() {
        let said = |named, changed| outcome("Held {}", named, changed, "held already");
        assert_eq!(said(1, 1), "Held 1 restore point.");
        assert_eq!(said(2, 1), "Held 1 restore point; the other one was held already.");
        assert_eq!(said(5, 2), "Held 2 restore points; the other 3 were held already.");
        assert_eq!(said(1, 0), "Nothing was changed: it was held already.");
        assert_eq!(said(3, 0), "Nothing was changed: all of them were held already.");
    }
}
