//! Restore points.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    AgentsProof, BackupFilter, BackupPlaces, BackupRecord, CountedShare, PageRequest, Verification,
};
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Hold, Keyset, Time};
use holdfast_proto::details::shell_word;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::retention::points::kept_by;
use super::wire::{maybe_time, time};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{At, Params, id, limit, name, time as time_of};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BackupsQuery {
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    vm: Option<String>,
    job: Option<String>,
    /// Started at or after: a time, a day, or a span before now such as 7d
    since: Option<String>,
    /// Started before
    until: Option<String>,
    /// Number of items to return: 1 to 1000 [default: 100]
    page_size: Option<u32>,
    /// `next_page_token` of the previous page
    page_token: Option<String>,
}

/// A restore point
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Backup {
    id: String,
    namespace: String,
    vm: String,
    job: String,
    run: String,
    client_host: String,
    started: String,
    finished: String,
    disks: Vec<BackupDisk>,
    /// Disks of the VM that could not be read: if there are any, the restore point is partial
    missing_disks: Vec<String>,
    /// A disk was smaller than in the restore point before, or gone, and the backup was told to accept that
    accepted_change: bool,
    /// Bytes left after deduplication
    new_bytes: u64,
    /// Bytes it added to data containers
    post_lc: u64,
    /// Bytes it added to recipe containers
    meta_bytes: u64,
    /// Bytes of it that cannot be restored, as far as the server knows; 0: whole
    damaged_bytes: u64,
    /// When the server last read all of it and found it sound; null: not yet. Of one that is end-to-end encrypted: that it has
    /// what it was sent
    last_proven: Option<String>,
    /// Whether agents encrypt it end to end, so that its content is proved only by agents
    end_to_end: bool,
    /// When an agent last read all of it and found it sound; null: not yet
    agent_verified: Option<String>,
    /// Bytes of data that nothing else had when the last reclaim counted them; null: it, or another restore point of its VM, is
    /// newer
    exclusive_bytes: Option<u64>,
    /// Its part of the stored bytes of data: what several of a VM share is the oldest's; null: it is newer
    attributed_bytes: Option<u64>,
    /// When the last reclaim counted them; null: it is newer
    attributed_at: Option<String>,
    /// Where its data lies; null: all of it here, or it is newer than the last reclaim
    places: Option<PointPlaces>,
    /// Its newest verification; null: none yet
    verify: Option<Verify>,
    /// Until when no one can delete it; null: it is not locked
    #[schema(value_type = Option<String>)]
    locked_until: Option<Time>,
    /// Its legal hold; null: none
    hold: Option<Hold>,
    /// The command that restores each disk
    restore_commands: Vec<RestoreCommand>,
}

/// Where the data of a restore point lies, as of the last reclaim: plain bytes without holes and zeros
#[derive(Debug, Serialize, ToSchema)]
struct PointPlaces {
    as_of: String,
    here_bytes: u64,
    /// In the bucket alone, where they can be read
    bucket_bytes: u64,
    /// In the bucket alone, where they must be thawed before they can be read
    archive_bytes: u64,
}

impl From<BackupPlaces> for PointPlaces {
    fn from(found: BackupPlaces) -> Self {
        let BackupPlaces { at_ms, here_bytes, bucket_bytes, archive_bytes, .. } = found;
        Self { as_of: time(at_ms), here_bytes, bucket_bytes, archive_bytes }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct BackupDisk {
    name: String,
    size_bytes: u64,
    /// Without holes and zeros
    data_bytes: u64,
}

/// A verification of a restore point
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Verify {
    at: String,
    /// A token's name
    by: String,
    /// Whether an agent read it, rather than the server
    by_agent: bool,
    ok: bool,
    detail: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct RestoreCommand {
    disk: String,
    command: String,
}

impl From<Verification> for Verify {
    fn from(found: Verification) -> Self {
        let Verification { at_ms, who, by_agent, ok, detail, .. } = found;
        Self { at: time(at_ms), by: who, by_agent, ok, detail }
    }
}

/// Restore points, newest first
#[utoipa::path(get, path = "/backups", tag = "backups", params(BackupsQuery),
    responses((status = 200, description = "A page of restore points", body = Keyset<Backup>)))]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<BackupsQuery>,
) -> Result<Json<Keyset<Backup>>, ServiceError> {
    let size = limit("page_size", query.page_size, PAGE)?;
    app.blocking(move |app| {
        let namespace = query.namespace.unwrap_or_default();
        let filter = BackupFilter {
            namespaces: caller.namespaces(app.catalog(), &namespace, Action::Catalog)?,
            vm: name("VM", query.vm)?,
            job: name("job", query.job)?,
            since_ms: time_of("since", query.since, app.clock.now_ms())?,
            until_ms: time_of("until", query.until, app.clock.now_ms())?,
        };
        let token = query.page_token.unwrap_or_default();
        let page = app.catalog().list_backups(&filter, PageRequest { size, token: &token })?;
        Ok(Json(Keyset { items: describe(app, page.items)?, next_page_token: page.next }))
    })
    .await
}

/// One restore point
#[utoipa::path(get, path = "/backups/{id}", tag = "backups", params(("id" = String, Path, description = "The restore point's id")),
    responses((status = 200, description = "The restore point", body = Backup)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
) -> Result<Json<Backup>, ServiceError> {
    app.blocking(move |app| {
        let id: BackupId = id("backup", &text)?;
        let found = app.catalog().backup(id)?;
        let found = found.filter(|backup| caller.may(Action::Catalog, backup.namespace));
        let mut described = describe(app, found.into_iter().collect())?;
        described
            .pop()
            .map(Json)
            .ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}")))
    })
    .await
}

/// With their verifications and costs.
fn describe(app: &App, backups: Vec<BackupRecord>) -> Result<Vec<Backup>, ServiceError> {
    let ids: Vec<BackupId> = backups.iter().map(|backup| backup.id).collect();
    let mut verified: std::collections::HashMap<BackupId, Verify> =
        app.catalog().verifications(&ids)?.into_iter().map(|found| (found.backup, found.into())).collect();
    let costs = app.catalog().backup_costs(&ids)?;
    if costs.len() != backups.len() {
        let (found, wanted) = (costs.len(), backups.len());
        return Err(ServiceError::defect(format!("{found} costs of {wanted} backups")));
    }
    let lost: std::collections::HashMap<BackupId, u64> =
        app.catalog().lost_bytes(&ids)?.into_iter().collect();
    let proofs = app.catalog().proofs(&ids)?;
    let agents: std::collections::HashMap<BackupId, AgentsProof> =
        app.catalog().agents_proofs(&ids)?.into_iter().map(|found| (found.backup, found)).collect();
    let shares: std::collections::HashMap<BackupId, CountedShare> =
        app.catalog().backup_shares(&ids)?.into_iter().map(|share| (share.backup, share)).collect();
    let mut places: std::collections::HashMap<BackupId, PointPlaces> =
        app.catalog().backup_places(&ids)?.into_iter().map(|found| (found.backup, found.into())).collect();
    let lock_time_ms = app.catalog().lock_time()?;
    let with_lock = backups.into_iter().map(|backup| (kept_by(&backup.lock, lock_time_ms), backup));
    let with_cost = with_lock.zip(costs).zip(proofs);
    Ok(with_cost
        .map(|((((locked_until, hold), backup), cost), proven_ms)| Backup {
            damaged_bytes: lost.get(&backup.id).copied().unwrap_or(0),
            last_proven: maybe_time(proven_ms),
            end_to_end: agents.get(&backup.id).is_some_and(|found| found.end_to_end),
            agent_verified: maybe_time(agents.get(&backup.id).and_then(|found| found.point_ms)),
            exclusive_bytes: shares.get(&backup.id).and_then(|share| share.exclusive_bytes),
            attributed_bytes: shares.get(&backup.id).map(|share| share.attributed_bytes),
            attributed_at: maybe_time(shares.get(&backup.id).map(|share| share.at_ms)),
            places: places.remove(&backup.id),
            locked_until,
            hold,
            verify: verified.remove(&backup.id),
            new_bytes: cost.new_bytes,
            post_lc: cost.post_lc,
            meta_bytes: cost.meta_bytes,
            restore_commands: commands(&backup),
            id: backup.id.to_string(),
            namespace: backup.namespace_name,
            vm: backup.vm,
            job: backup.job,
            run: backup.run.to_string(),
            client_host: backup.client_host,
            started: time(backup.started_ms),
            finished: time(backup.finished_ms),
            missing_disks: backup.missing_disks,
            accepted_change: backup.accepted_change,
            disks: backup
                .disks
                .into_iter()
                .map(|disk| BackupDisk {
                    name: disk.name,
                    size_bytes: disk.size_bytes,
                    data_bytes: disk.data_bytes,
                })
                .collect(),
        })
        .collect())
}

/// Complete except for the folder to write to, and safe to paste whatever the names are.
fn commands(backup: &BackupRecord) -> Vec<RestoreCommand> {
    let namespace = &backup.namespace_name;
    backup
        .disks
        .iter()
        .map(|disk| RestoreCommand {
            disk: disk.name.clone(),
            command: format!(
                "holdfast restore {} --namespace {} --vm {} --disk {} --to {}",
                backup.id,
                shell_word(namespace),
                shell_word(&backup.vm),
                shell_word(&disk.name),
                shell_word(&format!("{}-{}.raw", file_part(&backup.vm), file_part(&disk.name)))
            ),
        })
        .collect()
}

/// `name` as a file name in the current folder.
fn file_part(name: &str) -> String {
    let part: String = name.chars().map(|c| if c == '/' { '-' } else { c }).collect();
    part.trim_start_matches(['.', '-']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_become_files_of_the_current_folder() {
        assert_eq!(file_part("../etc/passwd"), "etc-passwd");
    }
}
