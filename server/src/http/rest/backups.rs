//! Restore points.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    AgentsProof, BackupFilter, BackupPlaces, BackupRecord, CountedShare, PageRequest, Verification,
};
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;
use holdfast_proto::api::{Backup, BackupDisk, Keyset, PointPlaces, RestoreCommand, Time, Verify};
use holdfast_proto::details::shell_word;
use serde::Deserialize;
use utoipa::IntoParams;

use super::retention::points::kept_by;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{At, Params, id, limit, name, time};
use crate::retention::choice;

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

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct PointQuery {
    /// Where beginnings of ids do, and `latest` with a VM; empty: the token's. Left out: a whole id, wherever it is
    namespace: Option<String>,
    /// It must be of this VM, in `namespace`
    vm: Option<String>,
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
            since_ms: time("since", query.since, app.clock.now_ms())?,
            until_ms: time("until", query.until, app.clock.now_ms())?,
        };
        let token = query.page_token.unwrap_or_default();
        let page = app.catalog().list_backups(&filter, PageRequest { size, token: &token })?;
        Ok(Json(Keyset { items: describe(app, page.items)?, next_page_token: page.next }))
    })
    .await
}

/// One restore point
#[utoipa::path(get, path = "/backups/{id}", tag = "backups",
    params(("id" = String, Path, description = "The restore point's id; with a namespace its beginning, or latest"), PointQuery),
    responses((status = 200, description = "The restore point", body = Backup)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    At(text): At<String>,
    Params(PointQuery { namespace, vm }): Params<PointQuery>,
) -> Result<Json<Backup>, ServiceError> {
    app.blocking(move |app| {
        let vm = vm.unwrap_or_default();
        let found = match namespace {
            Some(namespace) => {
                let namespace = caller.namespace(app.catalog(), &namespace, Action::Catalog)?;
                choice::one(app.catalog(), &namespace, &vm, &text)?
            }
            None if vm.is_empty() => {
                let id: BackupId = id("backup", &text)?;
                let found = app.catalog().backup(id)?;
                found.filter(|backup| caller.may(Action::Catalog, backup.namespace)).ok_or_else(|| {
                    ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}"))
                })?
            }
            None => return Err(ServiceError::invalid("vm: say its namespace, too")),
        };
        let described = describe(app, vec![found])?.pop();
        described.map(Json).ok_or_else(|| ServiceError::defect("no description of a backup"))
    })
    .await
}

/// Describes backups with their verifications and costs.
fn describe(app: &App, backups: Vec<BackupRecord>) -> Result<Vec<Backup>, ServiceError> {
    let ids: Vec<BackupId> = backups.iter().map(|backup| backup.id).collect();
    let mut verified: HashMap<BackupId, Verify> =
        app.catalog().verifications(&ids)?.into_iter().map(|found| (found.backup, verify(found))).collect();
    let costs = app.catalog().backup_costs(&ids)?;
    if costs.len() != backups.len() {
        let (found, wanted) = (costs.len(), backups.len());
        return Err(ServiceError::defect(format!("{found} costs of {wanted} backups")));
    }
    let lost: HashMap<BackupId, u64> = app.catalog().lost_bytes(&ids)?.into_iter().collect();
    let proofs = app.catalog().proofs(&ids)?;
    let agents: HashMap<BackupId, AgentsProof> =
        app.catalog().agents_proofs(&ids)?.into_iter().map(|found| (found.backup, found)).collect();
    let shares: HashMap<BackupId, CountedShare> =
        app.catalog().backup_shares(&ids)?.into_iter().map(|share| (share.backup, share)).collect();
    let mut places: HashMap<BackupId, PointPlaces> = app
        .catalog()
        .backup_places(&ids)?
        .into_iter()
        .map(|found| (found.backup, places_of(&found)))
        .collect();
    let lock_time_ms = app.catalog().lock_time()?;
    let with_lock = backups.into_iter().map(|backup| (kept_by(&backup.lock, lock_time_ms), backup));
    let with_cost = with_lock.zip(costs).zip(proofs);
    Ok(with_cost
        .map(|((((locked_until, hold), backup), cost), proven_ms)| Backup {
            damaged_bytes: lost.get(&backup.id).copied().unwrap_or(0),
            last_proven: proven_ms.map(Time::new),
            end_to_end: agents.get(&backup.id).is_some_and(|found| found.end_to_end),
            agent_verified: agents.get(&backup.id).and_then(|found| found.point_ms).map(Time::new),
            vm_agent_verified: agents.get(&backup.id).and_then(|found| found.vm_ms).map(Time::new),
            exclusive_bytes: shares.get(&backup.id).and_then(|share| share.exclusive_bytes),
            attributed_bytes: shares.get(&backup.id).map(|share| share.attributed_bytes),
            attributed_at: shares.get(&backup.id).map(|share| Time::new(share.at_ms)),
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
            started: Time::new(backup.started_ms),
            finished: Time::new(backup.finished_ms),
            missing_disks: backup.missing_disks,
            accepted_change: backup.accepted_change,
            disks: backup
                .disks
                .into_iter()
                .map(|disk| BackupDisk {
                    name: disk.name,
                    size_bytes: disk.size_bytes,
                    data_bytes: disk.data_bytes,
                    root: disk.root.to_string(),
                })
                .collect(),
        })
        .collect())
}

pub(super) fn verify(found: Verification) -> Verify {
    let Verification { at_ms, who, by_agent, ok, detail, .. } = found;
    Verify { at: Time::new(at_ms), by: who, by_agent, ok, detail }
}

fn places_of(found: &BackupPlaces) -> PointPlaces {
    let BackupPlaces { at_ms, here_bytes, bucket_bytes, archive_bytes, .. } = *found;
    PointPlaces { as_of: Time::new(at_ms), here_bytes, bucket_bytes, archive_bytes }
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
