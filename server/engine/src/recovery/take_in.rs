//! Makes catalog and index know containers that one of them does not.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_catalog::{Catalog, CatalogError, ContainerRecord, ContainerState, NamespaceRecord};
use holdfast_types::ids::{ContainerId, NamespaceId};
use parking_lot::Mutex;

use super::{ContainerFile, Files, OpenSummary, skip};
use crate::container::{ContainerError, OpenContainer};
use crate::error::EngineError;
use crate::jobs::Progress;
use crate::store::ChunkStore;

/// Containers adopted in one transaction.
const ADOPTED_PER_TRANSACTION: usize = 256;

/// Directories read side by side where many have to be: each takes as long as its requests where they lie far away.
const OPENED_AT_ONCE: usize = 32;

/// Containers looked up before their directories are read, where many have to be: up to 16 MiB of directories.
const OPENED_TOGETHER: usize = 128;

/// Containers that could not be taken in.
#[derive(Debug, Default)]
pub(crate) struct LeftOut {
    /// Containers left without a row, since the catalog took no change, and why.
    pub(crate) refused: Option<(Files, CatalogError)>,
    /// (S12) Those that cannot be read now.
    pub(crate) unread: Files,
}

/// As [`take_in`], of many containers, while nothing else looks at the repository.
pub(crate) fn take_in_many(
    catalog: &Catalog,
    store: &ChunkStore,
    files: &Files,
    summary: &mut OpenSummary,
    progress: &dyn Progress,
) -> Result<LeftOut, EngineError> {
    take_in_by(OPENED_TOGETHER, (catalog, store), files, summary, progress)
}

/// Makes catalog and index know these containers: adopts those without a row (their backup ended with the
/// process; what is in them serves later ones), and reads the directories of those the index does not cover
/// (I2), oldest first, because a lookup asks the newest entry first. All that can be read are indexed, also when the
/// catalog takes no changes. Says what was left out.
pub(crate) fn take_in(
    catalog: &Catalog,
    store: &ChunkStore,
    files: &Files,
    summary: &mut OpenSummary,
    progress: &dyn Progress,
) -> Result<LeftOut, EngineError> {
    take_in_by(1, (catalog, store), files, summary, progress)
}

fn take_in_by(
    together: usize,
    (catalog, store): (&Catalog, &ChunkStore),
    files: &Files,
    summary: &mut OpenSummary,
    progress: &dyn Progress,
) -> Result<LeftOut, EngineError> {
    let total = files.len() as u64;
    let mut adopting = Adopting { catalog, batch: Vec::new(), left: LeftOut::default() };
    let mut done = 0;
    let mut left = files.iter();
    loop {
        let some: Vec<_> = left.by_ref().take(together).collect();
        if some.is_empty() {
            break;
        }
        progress.step("containers indexed", done, total);
        done += some.len() as u64;
        let mut wanted = Vec::with_capacity(some.len());
        for (&id, &file) in some {
            wanted.extend(Wanted::find(catalog, store, id, file)?);
        }
        for (wanted, opened) in wanted.iter().zip(open_all(store, &wanted)) {
            take_in_one(store, wanted, opened, &mut adopting, summary)?;
        }
    }
    progress.step("containers indexed", total, total);
    adopting.write(summary)?;
    Ok(adopting.left)
}

/// A container that catalog or index do not know.
struct Wanted {
    id: ContainerId,
    file: ContainerFile,
    record: Option<ContainerRecord>,
    covered: bool,
}

impl Wanted {
    /// `None`: both know it, or it is gone.
    fn find(
        catalog: &Catalog,
        store: &ChunkStore,
        id: ContainerId,
        file: ContainerFile,
    ) -> Result<Option<Self>, EngineError> {
        // (G7) After the look at the row, which goes last: one that was just deleted is not adopted again.
        let record = catalog.container(id)?;
        if store.leftovers.is_gone(id) {
            return Ok(None);
        }
        let covered = store.index.is_covered(id);
        let is_known = record.is_some() && covered;
        Ok((!is_known).then_some(Self { id, file, record, covered }))
    }

    fn open(&self, store: &ChunkStore) -> Opened {
        match &self.record {
            Some(record) => store.open_afresh(record),
            None => store.containers.get(self.id, self.file.class),
        }
    }
}

type Opened = Result<Arc<OpenContainer>, ContainerError>;

/// Opens all of them, side by side, in their order.
fn open_all(store: &ChunkStore, wanted: &[Wanted]) -> Vec<Opened> {
    if let [one] = wanted {
        return vec![one.open(store)];
    }
    let (left, opened) =
        (Mutex::new(wanted.iter().enumerate()), Mutex::new(Vec::with_capacity(wanted.len())));
    std::thread::scope(|scope| {
        for _ in 0..OPENED_AT_ONCE.min(wanted.len()) {
            scope.spawn(|| {
                loop {
                    let Some((place, wanted)) = left.lock().next() else { return };
                    let result = wanted.open(store);
                    opened.lock().push((place, result));
                }
            });
        }
    });
    let mut opened = opened.into_inner();
    opened.sort_by_key(|(place, _)| *place);
    opened.into_iter().map(|(_, result)| result).collect()
}

fn take_in_one(
    store: &ChunkStore,
    wanted: &Wanted,
    opened: Opened,
    adopting: &mut Adopting<'_>,
    summary: &mut OpenSummary,
) -> Result<(), EngineError> {
    let Wanted { id, file, record, covered } = wanted;
    match opened {
        Ok(open) => {
            if record.is_none() {
                adopting.add(adopted_record(&open, *file), summary)?;
            }
            if !covered {
                store.index_container(&open)?;
                summary.replayed_containers += 1;
            }
        }
        Err(_) if store.leftovers.is_gone(*id) => {}
        Err(error) if error.is_damage() => {
            summary.damaged_containers += 1;
            store.note_failure(*id, None, &error);
        }
        Err(error) if error.is_unreadable_now() => {
            skip(*id, &error, summary);
            adopting.left.unread.insert(*id, *file);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Containers that get their rows.
struct Adopting<'a> {
    catalog: &'a Catalog,
    batch: Vec<ContainerRecord>,
    left: LeftOut,
}

impl Adopting<'_> {
    fn add(&mut self, record: ContainerRecord, summary: &mut OpenSummary) -> Result<(), EngineError> {
        self.batch.push(record);
        if self.batch.len() >= ADOPTED_PER_TRANSACTION { self.write(summary) } else { Ok(()) }
    }

    fn write(&mut self, summary: &mut OpenSummary) -> Result<(), EngineError> {
        if self.left.refused.is_none() {
            match adopt(self.catalog, &self.batch) {
                Ok(()) => summary.adopted_containers += self.batch.len() as u64,
                Err(error) if error.refuses_changes() => self.left.refused = Some((Files::new(), error)),
                Err(error) => return Err(error.into()),
            }
        }
        let batch = std::mem::take(&mut self.batch);
        if let Some((left, _)) = &mut self.left.refused {
            left.extend(batch.iter().map(|record| {
                (record.id, ContainerFile { class: record.class, bytes: record.stored_bytes })
            }));
        }
        Ok(())
    }
}

fn adopt(catalog: &Catalog, adopted: &[ContainerRecord]) -> Result<(), CatalogError> {
    let namespaces: BTreeSet<NamespaceId> = adopted.iter().map(|container| container.namespace).collect();
    for id in namespaces {
        ensure_namespace(catalog, id)?;
    }
    catalog.add_containers(adopted)
}

/// A catalog put back from an older copy may lack the namespace of a container. Restore points bring their namespaces with
/// them; those whose points cannot be read yet (P6) bring its name later.
fn ensure_namespace(catalog: &Catalog, id: NamespaceId) -> Result<(), CatalogError> {
    if catalog.namespace(id)?.is_some() {
        return Ok(());
    }
    let made = catalog.restore_namespace(&NamespaceRecord::unnamed(id))?;
    tracing::warn!(namespace = made.name, "made a namespace for containers whose own is not known");
    Ok(())
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
