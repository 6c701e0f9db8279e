//! The parts of the repository: containers, index, file system.

use axum::Json;
use axum::extract::State;
use holdfast_engine::StorageStatistics;
use holdfast_engine::catalog::{ContainerState, ScrubPhase};
use holdfast_engine::ids::ContainerClass;
use holdfast_engine::{CHUNK_EDGES_BYTES, FACTOR_EDGES};
use serde::Serialize;
use utoipa::ToSchema;

use super::wire::time;
use crate::app::App;
use crate::error::ServiceError;
use crate::http::state::HttpState;

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
