//! Questions about what is in a repository, and reporting the result of a verification.

use std::collections::BTreeSet;

use holdfast_proto::ErrorCode;
use holdfast_proto::api::{
    Backup, ConfirmedDigests, DetailBatch, DetailRow, FalseChunk, FalseChunks, Keyset, RegionsSentAgain,
    VerificationReport,
};
use holdfast_proto::limits::{FALSE_CHUNKS_MAX, FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES};
use holdfast_proto::when::timestamp;
use serde::Serialize;

use crate::connect::Connection;
use crate::error::ClientError;
use crate::point_name::{PointName, When};

/// Backups of one answer: the server's limit.
const PAGE: &str = "1000";

/// Pages of one question at most: a server whose pages never end must not fill memory.
const PAGES_MAX: usize = 10_000;

/// Lists the restore points of a namespace, newest first; `vm` and `job` empty for all.
///
/// # Errors
/// Any error of a call.
pub async fn list_backups(
    connection: &Connection,
    namespace: &str,
    vm: &str,
    job: &str,
) -> Result<Vec<Backup>, ClientError> {
    let (api, mut backups, mut token) = (connection.api(), Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let parameters =
            [("namespace", namespace), ("vm", vm), ("job", job), ("page_size", PAGE), ("page_token", &token)];
        let page: Keyset<Backup> = api.get(&["backups"], &parameters).await?;
        backups.extend(page.items);
        match page.next_page_token {
            Some(next) => token = next,
            None => return Ok(backups),
        }
    }
    Err(ClientError::Protocol("a list of backups that does not end".to_owned()))
}

/// One backup, by id, by an unambiguous prefix of it, `latest` of a VM, or `VM@WHEN`.
///
/// # Errors
/// [`ClientError::Refused`] when none or several match; [`ClientError::Usage`] for what names none.
pub async fn get_backup(
    connection: &Connection,
    namespace: &str,
    backup: &str,
    vm: &str,
) -> Result<Backup, ClientError> {
    let now_ms = jiff::Timestamp::now().as_millisecond();
    let (vm, when) = match PointName::parse(backup, now_ms).map_err(ClientError::Usage)? {
        PointName::Known(id) => return known(connection, namespace, id, vm).await,
        PointName::OfVm { vm: named, when } if vm.is_empty() || vm == named => (named, when),
        PointName::OfVm { vm: named, .. } => {
            let why = format!("{backup:?} names VM {named:?}, and --vm names {vm:?}; leave one out");
            return Err(ClientError::Usage(why));
        }
    };
    // Also says which namespace is meant where none is named, and that there is no such VM.
    let latest = known(connection, namespace, LATEST, vm).await?;
    let Some((since_ms, until_ms)) = when.bounds() else { return Ok(latest) };
    let (since, until, namespace) = (bound(since_ms), bound(until_ms), latest.namespace.as_str());
    let mut parameters = vec![("namespace", namespace), ("vm", vm), ("page_size", "1")];
    parameters.extend(since.as_deref().map(|since| ("since", since)));
    parameters.extend(until.as_deref().map(|until| ("until", until)));
    let page: Keyset<Backup> = connection.api().get(&["backups"], &parameters).await?;
    // What is named may be deleted: it is what was asked for, whatever the server made of the question.
    let is_named = |found: &Backup| found.vm == vm && (since_ms..until_ms).contains(&found.started.unix_ms);
    match page.items.into_iter().find(is_named) {
        Some(found) => Ok(found),
        None => Err(none_then(&list_backups(connection, namespace, vm, "").await?, vm, when)),
    }
}

/// A bound of a question, never empty: the server takes that for none. All restore points are after 1970. `None`: too late to
/// be written, and all are before it.
fn bound(ms: i64) -> Option<String> {
    Some(timestamp(ms.max(1))).filter(|text| !text.is_empty())
}

/// Word for the newest backup of a VM.
const LATEST: &str = "latest";

/// The backup that the server knows by this name.
async fn known(
    connection: &Connection,
    namespace: &str,
    name: &str,
    vm: &str,
) -> Result<Backup, ClientError> {
    connection.api().get(&["backups", name], &[("namespace", namespace), ("vm", vm)]).await
}

/// Returns names that the server knows: those that are `VM@WHEN` become ids, the others stay.
///
/// # Errors
/// The errors of [`get_backup`].
pub async fn known_names(
    connection: &Connection,
    namespace: &str,
    names: &[String],
    vm: &str,
) -> Result<Vec<String>, ClientError> {
    let mut known = Vec::with_capacity(names.len());
    for name in names {
        let is_known = !name.contains('@');
        known.push(if is_known {
            name.clone()
        } else {
            get_backup(connection, namespace, name, vm).await?.id
        });
    }
    Ok(known)
}

/// No restore point of `vm` is of that time: the error names the nearest of `all`, which are in order, newest first.
fn none_then(all: &[Backup], vm: &str, when: When) -> ClientError {
    let (what, start_ms) = match when {
        When::Latest => ("at all".to_owned(), 0),
        When::Day { start_ms, .. } => {
            (format!("of {}", timestamp(start_ms.saturating_add(1)).get(..10).unwrap_or_default()), start_ms)
        }
        When::At { ms, .. } => (format!("of {} or before", timestamp(ms)), ms),
    };
    let before = all.iter().find(|backup| backup.started.unix_ms < start_ms);
    let after = all.iter().rfind(|backup| backup.started.unix_ms >= start_ms);
    let nearest = before.into_iter().chain(after);
    let nearest: Vec<String> =
        nearest.map(|backup| format!("{} of {}", backup.id, timestamp(backup.started.unix_ms))).collect();
    let nearest = match nearest.as_slice() {
        [] => "it has none in this namespace".to_owned(),
        [one] => format!("the nearest is {one}"),
        several => format!("the nearest are {}", several.join(" and ")),
    };
    let message = format!("VM {vm:?} has no restore point {what}; {nearest}");
    ClientError::Refused { code: ErrorCode::NotFound, passes: false, message }
}

/// The answer to a report.
#[derive(Debug, Default)]
pub struct Reported {
    /// Oldest first.
    pub rows: Vec<DetailRow>,
    /// Restore points of these rows that have less than the one before, as their backups were told to accept.
    pub accepted_changes: BTreeSet<String>,
}

/// Returns all compression details that match the parameters of `GET /details`.
///
/// # Errors
/// Any error of a call.
pub async fn report(connection: &Connection, parameters: &impl Serialize) -> Result<Reported, ClientError> {
    let mut lines = connection.api().get_lines(&["details"], parameters).await?;
    let mut reported = Reported::default();
    while let Some(DetailBatch { rows, accepted_changes }) = lines.next().await? {
        reported.rows.extend(rows);
        reported.accepted_changes.extend(accepted_changes);
    }
    Ok(reported)
}

/// Tells the server the result of a verification, as much of it as a report may have; returns how many of the false digests
/// it confirmed.
///
/// # Errors
/// Any error of a call.
pub async fn record_verification(
    connection: &Connection,
    backup: &Backup,
    mut found: VerificationReport,
) -> Result<u32, ClientError> {
    found.detail.truncate(found.detail.floor_char_boundary(VERIFICATION_DETAIL_MAX_BYTES));
    found.false_digests.truncate(FALSE_DIGESTS_MAX);
    let lines = connection.api().post_lines(&["backups", &backup.id, "verifications"], &found).await?;
    let ConfirmedDigests { confirmed } = lines.only().await?;
    Ok(confirmed)
}

/// Tells the server of chunks that are not what their fingerprints say, so that it has them sent again. Returns how many
/// regions count as damaged by that and did not before.
///
/// # Errors
/// Any error of a call; what was told before it counts.
pub async fn report_chunks(
    connection: &Connection,
    backup: &Backup,
    found: &[FalseChunk],
) -> Result<u64, ClientError> {
    let mut told = 0;
    for part in found.chunks(FALSE_CHUNKS_MAX) {
        let part = FalseChunks { chunks: part.to_vec() };
        let path = ["backups", &backup.id, "false-chunks"];
        let RegionsSentAgain { regions } = connection.api().post(&path, &part).await?;
        told += u64::from(regions);
    }
    Ok(told)
}

#[cfg(test)]
mod tests {
    use holdfast_proto::api::Time;

    use super::*;

    #[test]
    fn no_bound_is_empty() {
        for ms in [i64::MIN, -86_400_000, 0, 1] {
            assert_eq!(bound(ms).as_deref(), Some("1970-01-01T00:00:00.001Z"));
        }
        assert_eq!(bound(i64::MAX), None);
    }

    #[test]
    fn where_there_is_none_the_nearest_are_named() {
        let backup = |id: &str, started_ms| Backup {
            id: id.into(),
            started: Time::new(started_ms),
            ..Backup::default()
        };
        let day = 86_400_000;
        let all = [backup("C", 9 * day + 5), backup("B", 4 * day), backup("A", day)];
        let said = |all: &[Backup], when| none_then(all, "web", when).to_string();
        let of_day = |n| When::Day { start_ms: n * day, end_ms: (n + 1) * day };
        let text = said(&all, of_day(6));
        assert!(text.contains("of 1970-01-07; the nearest are B of 1970-01-05T"), "{text}");
        assert!(text.contains(" and C of 1970-01-10T"), "{text}");
        let text = said(&all, When::At { ms: 5, until_ms: 6 });
        assert!(text.ends_with("the nearest is A of 1970-01-02T00:00:00.000Z"), "{text}");
        assert!(said(&[], of_day(6)).ends_with("it has none in this namespace"));
    }
}
