//! What happens on start, whatever happened before.
//!
//! 1. Unfinished blobs are discarded: nobody was told they exist.
//! 2. Containers the catalog does not know (their run ended with the process) are adopted: what is in them
//!    serves later backups, and reclaim finds out what nobody refers to.
//! 3. Containers the catalog knows but the volume lacks, or has with another length, are marked damaged.
//! 4. Containers the index does not cover are replayed into it from their directories. An index that cannot
//!    be read is discarded and rebuilt the same way.
//!
//! Every step can be interrupted and repeated.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{Catalog, CatalogWalk, ContainerRecord, ContainerState};
use holdfast_types::ids::{ContainerClass, ContainerId, Location, RepositoryId};
use holdfast_volume::Volume;

use crate::container::{ContainerName, OpenContainer, list_containers};
use crate::error::EngineError;
use crate::index::{Index, IndexOptions};
use crate::progress::Progress;
use crate::store::ChunkStore;

/// Containers adopted in one transaction.
const ADOPTED_PER_TRANSACTION: usize = 256;

/// What opening a repository found and did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenSummary {
    /// Whether the repository did not exist before.
    pub created: bool,
    /// Sealed containers.
    pub containers: u64,
    /// Temporary files of an earlier process.
    pub discarded_unfinished: u64,
    /// Containers adopted from runs nobody recorded.
    pub adopted_containers: u64,
    /// Containers whose directories were replayed into the index.
    pub replayed_containers: u64,
    /// Containers missing, of the wrong length or unreadable.
    pub damaged_containers: u64,
    /// Whether the index was discarded and rebuilt.
    pub index_rebuilt: bool,
}

/// A container file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerFile {
    pub(crate) class: ContainerClass,
    pub(crate) bytes: u64,
}

/// All container files by number; names that are none are left alone.
pub(crate) fn list_files(volume: &dyn Volume) -> Result<HashMap<ContainerId, ContainerFile>, EngineError> {
    let listing = list_containers(volume)?;
    for name in listing.strays {
        tracing::warn!(%name, "a file among the containers is none; left alone");
    }
    let file = |(name, bytes): (ContainerName, u64)| (name.id, ContainerFile { class: name.class, bytes });
    Ok(listing.containers.into_iter().map(file).collect())
}

/// Opens the index; one that cannot be read is discarded, to be rebuilt by [`replay`].
pub(crate) fn open_index(
    volume: &Arc<dyn Volume>,
    repository: RepositoryId,
    options: &IndexOptions,
    summary: &mut OpenSummary,
) -> Result<Index, EngineError> {
    match Index::open(Arc::clone(volume), repository, options.clone()) {
        Err(error) if error.needs_rebuild() => {
            tracing::warn!(%error, "the index cannot be read; it is rebuilt from the containers");
            Index::discard(&**volume)?;
            summary.index_rebuilt = true;
            Ok(Index::open(Arc::clone(volume), repository, options.clone())?)
        }
        opened => Ok(opened?),
    }
}

/// Steps 2 and 3: makes catalog and volume agree on which containers there are.
pub(crate) fn reconcile(
    catalog: &dyn Catalog,
    store: &ChunkStore,
    files: &HashMap<ContainerId, ContainerFile>,
    summary: &mut OpenSummary,
) -> Result<(), EngineError> {
    summary.containers = files.len() as u64;
    let mut unknown = files.clone();
    for record in catalog.all_containers() {
        let record = record?;
        let file = unknown.remove(&record.id);
        if record.state != ContainerState::Live {
            summary.damaged_containers += u64::from(record.state == ContainerState::Damaged);
            continue;
        }
        if let Some(reason) = disagreement(&record, file) {
            summary.damaged_containers += 1;
            store.note_damage(record.id, None, &reason);
        }
    }
    let mut adopted = Vec::new();
    for (id, file) in unknown {
        match store.containers.get(id, file.class) {
            Ok(open) => adopted.push(adopted_record(&open, file)),
            Err(error) if error.is_damage() => {
                summary.damaged_containers += 1;
                store.note_damage(id, None, &error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    summary.adopted_containers = adopted.len() as u64;
    for records in adopted.chunks(ADOPTED_PER_TRANSACTION) {
        catalog.add_containers(records)?;
    }
    Ok(())
}

fn disagreement(record: &ContainerRecord, file: Option<ContainerFile>) -> Option<String> {
    match file {
        None => Some("its file is missing".into()),
        Some(file) if file.bytes != record.stored_bytes => {
            let (is, was) = (file.bytes, record.stored_bytes);
            Some(format!("its file is {is} bytes long; it was sealed with {was}"))
        }
        Some(_) => None,
    }
}

fn adopted_record(open: &OpenContainer, file: ContainerFile) -> ContainerRecord {
    ContainerRecord {
        id: open.id(),
        class: file.class,
        namespace: open.namespace(),
        stored_bytes: file.bytes,
        plain_bytes: open.directory().plain_bytes(),
        chunk_count: open.directory().chunk_count() as u64,
        created_ms: open.created_ms(),
        run: None,
        state: ContainerState::Live,
    }
}

/// Step 4: inserts every container the index does not cover.
pub(crate) fn replay(
    store: &ChunkStore,
    files: &HashMap<ContainerId, ContainerFile>,
    summary: &mut OpenSummary,
    progress: &dyn Progress,
) -> Result<(), EngineError> {
    for id in store.index.covered() {
        if !files.contains_key(&id) {
            store.index.forget_container(id);
        }
    }
    let mut missing: Vec<(ContainerId, ContainerFile)> =
        files.iter().filter(|(id, _)| !store.index.is_covered(**id)).map(|(id, file)| (*id, *file)).collect();
    // Older first: a lookup asks the newest entry first.
    missing.sort_unstable_by_key(|(id, _)| *id);
    let total = missing.len() as u64;
    for (done, (id, file)) in (0..).zip(missing) {
        progress.step("containers indexed", done, total);
        match store.containers.get(id, file.class) {
            Ok(open) => {
                insert(store, &open, file.class)?;
                summary.replayed_containers += 1;
            }
            Err(error) if error.is_damage() => {
                summary.damaged_containers += 1;
                store.note_damage(id, None, &error.to_string());
            }
            Err(error) => return Err(error.into()),
        }
    }
    progress.step("containers indexed", total, total);
    Ok(())
}

fn insert(store: &ChunkStore, open: &OpenContainer, class: ContainerClass) -> Result<(), EngineError> {
    let domain = store.domain(open.namespace());
    let key = domain.key(class);
    let container = open.id();
    let entries = open
        .directory()
        .iter()
        .map(|(fingerprint, region, slot)| (key.of(&fingerprint), Location { container, region, slot }));
    Ok(store.index.insert_container(container, entries)?)
}
