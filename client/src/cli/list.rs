//! `holdfast list`.

use std::process::ExitCode;

use holdfast_proto::api::{Backup, BackupDisk, PointPlaces};
use holdfast_proto::details::bytes;
use serde_json::{Value, json};

use super::Context;
use super::args::List;
use super::delete::{protection, protection_json};
use super::output::{draw_cells, timestamp};
use crate::error::ClientError;
use crate::repository::list_backups;

pub(super) async fn run(context: &Context, list: &List) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let backups = list_backups(&connection, &namespace, &list.vm, &list.job).await?;
    context.output.summary(
        || json!({ "backups": backups.iter().map(backup_json).collect::<Vec<_>>() }),
        || {
            if backups.is_empty() {
                let within =
                    if namespace.is_empty() { String::new() } else { format!(" in namespace {namespace}") };
                return format!("No restore points{within}.");
            }
            table(&backups)
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn table(backups: &[Backup]) -> String {
    let mut rows: Vec<Vec<String>> = backups
        .iter()
        .map(|backup| {
            let sum = |of: fn(&BackupDisk) -> u64| backup.disks.iter().map(of).sum::<u64>();
            let names: Vec<&str> = backup.disks.iter().map(|disk| disk.name.as_str()).collect();
            vec![
                backup.id.clone(),
                backup.vm.clone(),
                backup.job.clone(),
                timestamp(backup.started.unix_ms),
                disk_names(&names, backup),
                bytes(sum(|disk| disk.size_bytes)),
                bytes(sum(|disk| disk.data_bytes)),
                backup.exclusive_bytes.map(bytes).unwrap_or_default(),
                backup.attributed_bytes.map(bytes).unwrap_or_default(),
                tier(backup.places.as_ref()),
                protection(backup.locked_until, backup.hold.as_ref()),
                verified(backup),
            ]
        })
        .collect();
    let mut header = vec![
        "backup",
        "vm",
        "job",
        "started (UTC)",
        "disks",
        "size",
        "data",
        "only it",
        "share",
        "tier",
        "locked",
        "proved",
    ];
    // Columns without any value take no room.
    for column in (7..header.len()).rev() {
        if rows.iter().all(|row| row.get(column).is_none_or(String::is_empty)) {
            header.remove(column);
            for row in &mut rows {
                row.remove(column);
            }
        }
    }
    draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str))) + &as_of(backups)
}

/// Says when the shares were counted.
fn as_of(backups: &[Backup]) -> String {
    let Some(at) = backups.iter().find_map(|backup| backup.attributed_at) else { return String::new() };
    format!(
        "\n\n\"only it\" and \"share\" as of {} (UTC), \"only it\" where no restore point of the VM came since; \
         'holdfast delete BACKUP --dry-run' counts anew.",
        timestamp(at.unix_ms)
    )
}

/// Describes the proof of a backup that is end-to-end encrypted: the server cannot tell.
fn verified(backup: &Backup) -> String {
    match (backup.end_to_end, backup.agent_verified) {
        (false, _) => String::new(),
        (true, None) => "only by agents: not yet".to_owned(),
        (true, Some(at)) => format!("only by agents: {}", timestamp(at.unix_ms)),
    }
}

/// Returns the tiers its data lies in, most of it first.
fn tier(places: Option<&PointPlaces>) -> String {
    let Some(places) = places else { return String::new() };
    let mut parts = [
        (places.here_bytes, "here"),
        (places.bucket_bytes, "in the bucket"),
        (places.archive_bytes, "in the archive"),
    ];
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    match parts {
        [(_, place), (0, _), _] => place.to_owned(),
        parts => {
            let parts = parts.iter().filter(|(part, _)| *part > 0);
            parts.map(|(part, place)| format!("{} {place}", bytes(*part))).collect::<Vec<_>>().join(", ")
        }
    }
}

/// The disks of a restore point; one that lacks some says so here, where it is seen without looking for it.
fn disk_names(names: &[&str], backup: &Backup) -> String {
    let Backup { missing_disks, accepted_change, damaged_bytes, .. } = backup;
    let mut text = names.join(", ");
    if !missing_disks.is_empty() {
        text = format!("{text} (partial: without {})", missing_disks.join(", "));
    }
    if *accepted_change {
        text.push_str(" (less than before, as accepted)");
    }
    if *damaged_bytes > 0 {
        text = format!("{text} (DAMAGED: {} cannot be restored)", bytes(*damaged_bytes));
    }
    text
}

fn backup_json(backup: &Backup) -> Value {
    json!({
        "backup": backup.id,
        "namespace": backup.namespace,
        "vm": backup.vm,
        "job": backup.job,
        "run": backup.run,
        "started": backup.started,
        "finished": backup.finished,
        "disks": backup.disks,
        "missing_disks": backup.missing_disks,
        "accepted_change": backup.accepted_change,
        "damaged_bytes": backup.damaged_bytes,
        "last_proven": backup.last_proven,
        "end_to_end": backup.end_to_end,
        "agent_verified": backup.agent_verified,
        "vm_agent_verified": backup.vm_agent_verified,
        "exclusive_bytes": backup.exclusive_bytes,
        "attributed_bytes": backup.attributed_bytes,
        "attributed_as_of": backup.attributed_at,
        "places": backup.places,
        "protection": protection_json(backup.locked_until, backup.hold.as_ref()),
    })
}

#[cfg(test)]
mod tests {
    use holdfast_proto::api::Time;

    use super::*;

    #[test]
    fn shares_are_told_with_their_date() {
        let new = Backup { id: "01J".into(), ..Backup::default() };
        assert!(!table(std::slice::from_ref(&new)).contains("as of"));
        let counted = Backup {
            attributed_bytes: Some(5),
            attributed_at: Some(Time::new(1_700_000_000_000)),
            ..new.clone()
        };
        let text = table(&[new, counted.clone()]);
        assert!(text.contains("as of 2023-11-14 22:13:20"), "{text}");
        let header = text.lines().next().unwrap();
        assert!(header.contains("share") && !header.contains("only it"), "{text}");
        assert_eq!(backup_json(&counted)["attributed_as_of"], "2023-11-14T22:13:20.000Z");
        assert!(backup_json(&counted)["exclusive_bytes"].is_null());
    }

    #[test]
    fn a_tier_is_told_with_bytes_only_where_there_are_several() {
        let places = |here_bytes, bucket_bytes, archive_bytes| PointPlaces {
            as_of: Time::new(1),
            here_bytes,
            bucket_bytes,
            archive_bytes,
        };
        assert_eq!(tier(None), "");
        assert_eq!(tier(Some(&places(5, 0, 0))), "here");
        assert_eq!(tier(Some(&places(0, 0, 5))), "in the archive");
        assert_eq!(tier(Some(&places(0, 0, 0))), "here", "zeros need no place");
        let mixed = tier(Some(&places(1 << 30, 0, 3 << 30)));
        assert_eq!(mixed, format!("{} in the archive, {} here", bytes(3 << 30), bytes(1 << 30)));
    }
}
