//! The parts of the repository: containers, index, file system.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    ATTRIBUTED_GROUPS_MAX, AttributedBy, AttributedDay as Day, AttributedGroup as Group, ContainerState,
    ScrubPhase, day_of,
};
use holdfast_engine::ids::{ContainerClass, NamespaceId};
use holdfast_engine::{CHUNK_EDGES_BYTES, FACTOR_EDGES, StorageStatistics};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::error::ServiceError;
use crate::http::access::Identity;
use crate::http::bounds::PAGE;
use crate::http::query::{Params, limit};
use crate::http::rest::wire::{day_text, time};
use crate::http::{self, HttpState, SHARERS};

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Storage {
    containers: Vec<Containers>,
    /// Known damage; the next backup stores the damaged data again
    damage: Vec<Damage>,
    scrub: Scrub,
    parity: Parity,
    catalog_bytes: u64,
    index: Index,
    space: Space,
    /// Why the repository accepts no backups; null: it accepts them
    read_only_reason: Option<String>,
}

/// Containers of one class and state
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContainerTotals)]
struct Containers {
    class: Class,
    state: Condition,
    count: u64,
    stored_bytes: u64,
    /// Bytes of the chunks (or recipe nodes) in them, uncompressed
    plain_bytes: u64,
    chunks: u64,
}

/// What a container holds
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContainerClass)]
#[serde(rename_all = "snake_case")]
enum Class {
    Data,
    Recipe,
}

/// Whether a container can be used
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ContainerState)]
#[serde(rename_all = "snake_case")]
enum Condition {
    Live,
    Damaged,
    Condemned,
}

#[derive(Debug, Serialize, ToSchema)]
struct Damage {
    container: String,
    /// null: the whole container
    region: Option<u16>,
    reason: String,
    /// When it was first found
    found: String,
}

/// Reading everything again, in the background
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Scrub)]
struct Scrub {
    /// Passes begun so far
    pass: u64,
    phase: Phase,
    /// When the pass under way, or the last one, began; null: none did yet
    began: Option<String>,
    /// When the last whole pass ended
    ended: Option<String>,
    /// Containers or restore points, as far as this pass has come
    done: u64,
    total: u64,
    /// Containers never read again since they were written
    containers_unproven: u64,
    /// When the container was read that was read longest ago; what was never read counts from when it was written
    oldest_container: Option<String>,
    restore_points_unproven: u64,
    oldest_restore_point: Option<String>,
}

/// Parity of groups of containers, where it is switched on
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Parity)]
struct Parity {
    groups: u64,
    /// Containers in these groups
    containers: u64,
    /// Bytes of the parity itself
    stored_bytes: u64,
}

/// What a pass of the scrub is at
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ScrubPhase)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Idle,
    Containers,
    RestorePoints,
}

/// The chunk index
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChunkIndex)]
struct Index {
    entries: u64,
    runs: u64,
    /// The most sorted runs that a lookup may have to consult
    depth: u64,
    filter_bytes: u64,
    fence_bytes: u64,
    memtable_bytes: u64,
    memtable_entries: u64,
    disk_bytes: u64,
    /// Bytes of memory per chunk, the write buffer not included
    ram_bytes_per_chunk: f64,
    covered_containers: u64,
    /// Containers that a start after a crash would replay
    uncovered_containers: u64,
}

/// The file system
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileSystem)]
struct Space {
    /// null: not known
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Kept free for housekeeping
    reserve_bytes: u64,
}

/// Containers, index and free space
#[utoipa::path(get, path = "/storage", tag = "storage", responses((status = 200, description = "The repository's parts", body = Storage)))]
pub(super) async fn storage(State(state): State<HttpState>) -> Result<Json<Storage>, ServiceError> {
    state.blocking(look).await.map(Json)
}

fn look(state: &HttpState) -> Result<Storage, ServiceError> {
    let app = &state.app;
    let stats = app.engine.stats()?;
    let containers = state.storage.containers(app, None)?.into_iter().map(|kind| Containers {
        class: match kind.class {
            ContainerClass::Data => Class::Data,
            ContainerClass::Recipe => Class::Recipe,
        },
        state: match kind.state {
            ContainerState::Live => Condition::Live,
            ContainerState::Damaged => Condition::Damaged,
            ContainerState::Condemned => Condition::Condemned,
        },
        count: kind.count,
        stored_bytes: kind.stored_bytes,
        plain_bytes: kind.plain_bytes,
        chunks: kind.chunk_count,
    });
    let damage = app.catalog().damaged()?.into_iter().map(|damage| Damage {
        container: damage.container.to_string(),
        region: damage.region,
        reason: damage.reason,
        found: time(damage.found_ms),
    });
    Ok(Storage {
        containers: containers.collect(),
        damage: damage.collect(),
        scrub: scrub(app)?,
        parity: parity(app)?,
        catalog_bytes: stats.catalog_bytes,
        index: Index {
            entries: stats.index.entries,
            runs: stats.index.runs,
            depth: stats.index.depth,
            filter_bytes: stats.index.filter_bytes,
            fence_bytes: stats.index.fence_bytes,
            memtable_bytes: stats.index.memtable_bytes,
            memtable_entries: stats.index.memtable_entries,
            disk_bytes: stats.index.disk_bytes,
            ram_bytes_per_chunk: stats.index.ram_bytes_per_entry(),
            covered_containers: stats.index.covered_containers,
            uncovered_containers: stats.index.uncovered_containers,
        },
        space: Space {
            total_bytes: stats.space.map(|space| space.total_bytes),
            free_bytes: stats.space.map(|space| space.free_bytes),
            reserve_bytes: stats.reserve_bytes,
        },
        read_only_reason: app.engine.read_only_reason().map(str::to_owned),
    })
}

fn parity(app: &App) -> Result<Parity, ServiceError> {
    let totals = app.catalog().parity_totals()?;
    Ok(Parity { groups: totals.groups, containers: totals.containers, stored_bytes: totals.stored_bytes })
}

fn scrub(app: &App) -> Result<Scrub, ServiceError> {
    let status = app.engine.scrub_status()?;
    let proofs = app.catalog().proof_summary()?;
    Ok(Scrub {
        pass: status.pass,
        phase: match status.phase {
            ScrubPhase::Idle => Phase::Idle,
            ScrubPhase::Containers => Phase::Containers,
            ScrubPhase::RestorePoints => Phase::RestorePoints,
        },
        began: (status.pass > 0).then(|| time(status.began_ms)),
        ended: status.ended_ms.map(time),
        done: status.done,
        total: status.total,
        containers_unproven: proofs.containers_unproven,
        oldest_container: proofs.oldest_container_ms.map(time),
        restore_points_unproven: proofs.backups_unproven,
        oldest_restore_point: proofs.oldest_backup_ms.map(time),
    })
}

/// A sample of data containers
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = StorageStatistics)]
pub(super) struct Statistics {
    /// Live data containers
    containers: u64,
    /// How many of them were sampled, evenly spaced
    sampled_containers: u64,
    regions: u64,
    chunks: u64,
    /// Regions stored uncompressed, because compression would have saved too little
    raw_regions: u64,
    region_factor: RegionFactors,
    chunk_bytes: ChunkSizes,
}

/// Regions by compression factor; bucket i begins at edge i, and the last one is open
#[derive(Debug, Serialize, ToSchema)]
struct RegionFactors {
    edges: Vec<f64>,
    regions: Vec<u64>,
    plain_bytes: Vec<u64>,
    stored_bytes: Vec<u64>,
}

/// Chunks by size; bucket i begins at edge i, and the last one is open
#[derive(Debug, Serialize, ToSchema)]
struct ChunkSizes {
    edges: Vec<u32>,
    chunks: Vec<u64>,
    bytes: Vec<u64>,
}

impl From<StorageStatistics> for Statistics {
    fn from(found: StorageStatistics) -> Self {
        let (factors, sizes) = (&found.region_factor, &found.chunk_bytes);
        Self {
            containers: found.containers,
            sampled_containers: found.sampled_containers,
            regions: found.regions,
            chunks: found.chunks,
            raw_regions: found.raw_regions,
            region_factor: RegionFactors {
                edges: FACTOR_EDGES.to_vec(),
                regions: factors.iter().map(|bucket| bucket.regions).collect(),
                plain_bytes: factors.iter().map(|bucket| bucket.plain_bytes).collect(),
                stored_bytes: factors.iter().map(|bucket| bucket.stored_bytes).collect(),
            },
            chunk_bytes: ChunkSizes {
                edges: CHUNK_EDGES_BYTES.to_vec(),
                chunks: sizes.iter().map(|bucket| bucket.chunks).collect(),
                bytes: sizes.iter().map(|bucket| bucket.bytes).collect(),
            },
        }
    }
}

/// How well data compresses and how large chunks are
///
/// From the directories of at most 64 evenly spaced data containers, read at most once a minute.
#[utoipa::path(get, path = "/storage/statistics", tag = "storage", responses((status = 200, description = "The sample", body = Statistics)))]
pub(super) async fn statistics(State(state): State<HttpState>) -> Result<Json<Statistics>, ServiceError> {
    state.blocking(|state| state.storage.statistics(&state.app)).await.map(|found| Json(found.into()))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttributionQuery {
    /// What to add up by [default: vm]
    #[param(value_type = Option<http::AttributedBy>)]
    by: Option<String>,
    /// One namespace [default: all in the token's scope]
    namespace: Option<String>,
    /// The largest so many: 1 to 1000 [default: 100]
    limit: Option<u32>,
}

/// What fills the repository
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Attribution {
    /// When it was counted; null: not yet, then everything is 0
    at: Option<String>,
    /// Bytes of data containers that restore points need, which are all attributed; in the token's scope
    live_bytes: u64,
    /// Whether every recipe could be followed; else bytes are missing here
    is_complete: bool,
    /// As they were then, the largest first
    items: Vec<AttributedGroup>,
}

/// The part of a namespace, a VM or a job
#[derive(Debug, Serialize, ToSchema)]
struct AttributedGroup {
    namespace: String,
    /// Of the VM or the job; the namespace's own
    name: String,
    restore_points: u64,
    /// Bytes that nothing else has: freed when all of it is deleted
    exclusive_bytes: u64,
    /// Its part of everything: what several VMs share is divided among them by lot, about evenly
    attributed_bytes: u64,
}

/// What fills the repository
///
/// Exact, as the last round of reclaim counted it.
#[utoipa::path(get, path = "/attribution", tag = "details", params(AttributionQuery),
    responses((status = 200, description = "Whose the stored bytes are", body = Attribution)))]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<AttributionQuery>,
) -> Result<Json<Attribution>, ServiceError> {
    let most = limit("limit", query.limit, PAGE)?.min(ATTRIBUTED_GROUPS_MAX);
    let by = parse_by(query.by.as_deref().unwrap_or("vm"))?;
    app.blocking(move |app| {
        let namespace = query.namespace.unwrap_or_default();
        let namespaces = caller.namespaces(app.catalog(), &namespace, Action::Report)?;
        let scope = namespaces.as_deref();
        let Some(state) = app.catalog().attribution()? else {
            return Ok(Json(Attribution { at: None, live_bytes: 0, is_complete: true, items: Vec::new() }));
        };
        let live_bytes = match scope {
            None => state.live_bytes,
            Some(_) => live_in(app, scope)?,
        };
        let items = app.catalog().attributed(by, scope, most)?.into_iter().map(item).collect();
        Ok(Json(Attribution {
            at: Some(time(state.at_ms)),
            live_bytes,
            is_complete: state.is_complete,
            items,
        }))
    })
    .await
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct AttributedQuery {
    /// Kind of the group [default: vm]
    #[param(value_type = Option<http::AttributedBy>)]
    by: Option<String>,
    /// The namespace that it is in, or that it is
    namespace: String,
    /// Name of the VM or the job; none for a namespace
    name: Option<String>,
}

/// The part of one group, day by day
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct AttributedHistory {
    /// Each day with a round of reclaim in the last two months, before that one a week, for a year
    days: Vec<AttributedDay>,
}

/// The part of it on a day
#[derive(Debug, Serialize, ToSchema)]
struct AttributedDay {
    day: String,
    restore_points: u64,
    /// Bytes that nothing else had
    exclusive_bytes: u64,
    /// Its part of everything
    attributed_bytes: u64,
}

/// The part of a namespace, a VM or a job over time
///
/// As rounds of reclaim counted it, also of restore points that were deleted since.
#[utoipa::path(get, path = "/attribution/history", tag = "details", params(AttributedQuery),
    responses((status = 200, description = "Its part of the stored bytes, day by day", body = AttributedHistory)))]
pub(super) async fn history(
    State(app): State<Arc<App>>,
    Identity { caller, .. }: Identity,
    Params(query): Params<AttributedQuery>,
) -> Result<Json<AttributedHistory>, ServiceError> {
    let by = parse_by(query.by.as_deref().unwrap_or("vm"))?;
    app.blocking(move |app| {
        caller.namespaces(app.catalog(), &query.namespace, Action::Report)?;
        let namespace = app.catalog().namespace_by_name(&query.namespace)?;
        let name = query.name.unwrap_or_default();
        let found = match namespace {
            Some(namespace) => {
                app.catalog().attributed_days(by, namespace.id, &name, day_of(app.clock.now_ms()))?
            }
            None => Vec::new(),
        };
        let day = |day: &Day| {
            Ok(AttributedDay {
                day: day_text(day.day)?,
                restore_points: day.backups,
                exclusive_bytes: day.exclusive_bytes,
                attributed_bytes: day.attributed_bytes,
            })
        };
        Ok(Json(AttributedHistory { days: found.iter().map(day).collect::<Result<_, ServiceError>>()? }))
    })
    .await
}

fn parse_by(word: &str) -> Result<AttributedBy, ServiceError> {
    let known = SHARERS.iter().find(|(known, _)| *known == word);
    known.map(|(_, by)| *by).ok_or_else(|| ServiceError::invalid("by: must be namespace, vm or job"))
}

/// Returns the bytes attributed in these namespaces, which share nothing with others.
fn live_in(app: &App, scope: Option<&[NamespaceId]>) -> Result<u64, ServiceError> {
    let found = app.catalog().attributed(AttributedBy::Namespace, scope, ATTRIBUTED_GROUPS_MAX)?;
    Ok(found.iter().fold(0, |sum, group| sum.saturating_add(group.attributed_bytes)))
}

fn item(group: Group) -> AttributedGroup {
    AttributedGroup {
        namespace: group.namespace_name,
        name: group.name,
        restore_points: group.backups,
        exclusive_bytes: group.exclusive_bytes,
        attributed_bytes: group.attributed_bytes,
    }
}
