//! The steps of a start, whatever happened before. They are those of ORDERING, "Starting":
//!
//! - `(S1)`, `(S2)`: the lock and the catalog are the caller's.
//! - `(S3)` Unfinished blobs are discarded: no agent was told they exist.
//! - `(S4)` The mark of a clean stop is read and removed ([`crate::clean_stop`]).
//! - `(S5)` The index is opened; one that cannot be read is discarded (I4).
//! - `(S6)` Restore points that the volume knows and the catalog does not are entered ([`crate::points`]). Containers the
//!   index does not cover are adopted and replayed; with the mark there are none to look for.
//! - `(S8)` What the catalog has no room for is entered later ([`crate::unrecorded`]).
//! - `(S7)` Calls are accepted; everything else is looked at in the background, by the audit.
//!
//! Every step can be interrupted and repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_catalog::{Catalog, CatalogError, ContainerRecord, ContainerState, NamespaceRecord};
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RepositoryId};
use holdfast_volume::{BlobName, Volume, VolumeError, list_all};
use parking_lot::Mutex;

use crate::clean_stop::CleanStop;
use crate::container::{ContainerError, ContainerListing, ContainerName, OpenContainer, list_containers};
use crate::error::EngineError;
use crate::index::{Index, IndexOptions};
use crate::jobs::Progress;
use crate::store::ChunkStore;

/// Results of opening a repository.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenSummary {
    /// True if the last stop was clean, so that no container had to be looked for.
    pub clean: bool,
    /// Temporary files of an earlier process.
    pub discarded_unfinished: u64,
    /// Containers without a row in the catalog, given one.
    pub adopted_containers: u64,
    /// Containers whose directories were replayed into the index.
    pub replayed_containers: u64,
    /// Containers missing, of the wrong length or unreadable.
    pub damaged_containers: u64,
    /// Containers sealed with a data key that is not among the keys: skipped.
    pub containers_without_key: u64,
    /// Containers that cannot be read now for another reason, such as an archive: skipped.
    pub unreadable_containers: u64,
    /// True if the index was discarded and rebuilt.
    pub index_rebuilt: bool,
    /// Containers without a row that the catalog did not take yet.
    pub waiting_containers: u64,
    /// Restore points that the volume knew and the catalog did not, entered.
    pub entered_points: u64,
    /// Such restore points that the catalog did not take yet.
    pub waiting_points: u64,
    /// Restore points of an older catalog that were deleted since, dropped.
    pub dropped_points: u64,
    /// Points that could not be read or entered.
    pub unreadable_points: u64,
    /// Restore points without a point; theirs are written in the background.
    pub missing_points: u64,
}

/// A container file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ContainerFile {
    pub(crate) class: ContainerClass,
    pub(crate) bytes: u64,
}

/// Container files by number.
pub(crate) type Files = BTreeMap<ContainerId, ContainerFile>;

fn file((name, bytes): (ContainerName, u64)) -> (ContainerId, ContainerFile) {
    (name.id, ContainerFile { class: name.class, bytes })
}

/// All container files.
pub(crate) fn list_files(volume: &dyn Volume) -> Result<Files, EngineError> {
    let listing = list_containers(volume)?;
    for name in listing.strays {
        tracing::warn!(%name, "ignored an unexpected file among the containers");
    }
    Ok(listing.containers.into_iter().map(file).collect())
}

/// Containers of one folder.
pub(crate) const GROUP_CONTAINERS: u64 = 1 << 12;

/// Entries of one folder of containers; empty above the last possible one.
pub(crate) fn list_group(volume: &dyn Volume, group: u64) -> Result<ContainerListing, EngineError> {
    let mut listing = ContainerListing::default();
    let first = group.checked_mul(GROUP_CONTAINERS).and_then(ContainerId::new);
    let blob = first.map(|id| ContainerName { id, class: ContainerClass::Data }.blob());
    let folder = blob.as_ref().and_then(|blob| blob.as_str().rsplit_once('/'));
    let Some(folder) = folder.and_then(|(folder, _)| BlobName::new(folder)) else { return Ok(listing) };
    for entry in list_all(volume, &folder) {
        let entry = entry?;
        match ContainerName::parse(&entry.name) {
            Some(name) => listing.containers.push((name, entry.len)),
            None => listing.strays.push(entry.name),
        }
    }
    Ok(listing)
}

/// (S5) Opens the index; one that cannot be read is discarded as a whole (I4), to be rebuilt by (S6).
pub(crate) fn open_index(
    volume: &Arc<dyn Volume>,
    repository: RepositoryId,
    options: &IndexOptions,
    summary: &mut OpenSummary,
) -> Result<Index, EngineError> {
    let open = || Index::open(Arc::clone(volume), repository, options.clone());
    let opened = match open() {
        // Once may pass; a sector that stays bad must not keep the server from starting.
        Err(error) if error.is_read_failure() => open(),
        opened => opened,
    };
    match opened {
        Err(error) if error.needs_rebuild() || error.is_read_failure() => {
            tracing::warn!(%error, "the index cannot be read; it is rebuilt from the containers");
            Index::discard(&**volume)?;
            summary.index_rebuilt = true;
            Ok(open()?)
        }
        opened => Ok(opened?),
    }
}

/// Files looked for one by one at a start; when there may be more that neither index nor catalog knows, the volume is
/// listed. Two attempts to open each take about as long as listing a folder.
const PROBES_MAX: u64 = 4096;

/// Numbers the index does not cover that the catalog is asked about one by one, some 10 µs each. Every start leaves up
/// to 64 numbers unused, so that is 4,096 starts.
const UNCOVERED_MAX: u64 = 1 << 18;

/// Containers known at a start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known {
    /// The mark of a clean stop, if there was one.
    pub(crate) mark: Option<CleanStop>,
    /// The lowest number never handed out; `None` when the catalog had no room to tell.
    pub(crate) next: Option<u64>,
}

impl Known {
    /// The mark, if it speaks of this catalog and this index.
    pub(crate) fn trusted(&self, index: &Index) -> Option<CleanStop> {
        self.mark.filter(|mark| {
            self.next == Some(mark.next_container) && mark.manifest == index.manifest_sequence()
        })
    }
}

/// (S6) without a mark: the files of containers the index does not cover. They are looked for by number, or by
/// listing when that is less work, one of them lies far away, or the catalog may be `older` than the volume.
pub(crate) fn uncovered_files(
    volume: &dyn Volume,
    store: &ChunkStore,
    catalog: &Catalog,
    known: &Known,
    older: bool,
) -> Result<Files, EngineError> {
    let covered = store.index.covered_numbers();
    let next = known.next;
    // Restore points, or the index, know numbers the catalog never handed out: the catalog was put back from an
    // older copy, and may lack rows of containers the index covers.
    let older = older || next.is_none_or(|next| covered.max().is_some_and(|max| max >= next));
    if let Some(next) = next.filter(|_| !older)
        && let Some(mut files) = by_number(volume, store, catalog, next)?
    {
        // A catalog put back from an older copy knows less than the volume: what lies above its numbers.
        for group in next / GROUP_CONTAINERS.. {
            let found = list_group(volume, group)?.containers;
            if found.is_empty() {
                break;
            }
            files.extend(found.into_iter().filter(|(name, _)| name.id.get() >= next).map(file));
        }
        return Ok(files);
    }
    let mut files = list_files(volume)?;
    files.retain(|id, _| older || !store.index.is_covered(*id));
    Ok(files)
}

/// The files of uncovered containers below `next`, each looked for by its number; `None`: too many to do so, or one
/// lies far away.
fn by_number(
    volume: &dyn Volume,
    store: &ChunkStore,
    catalog: &Catalog,
    next: u64,
) -> Result<Option<Files>, EngineError> {
    let covered = store.index.covered_numbers();
    if next - covered.len() > UNCOVERED_MAX {
        return Ok(None);
    }
    let settled = catalog.settled_containers()?;
    let (mut files, mut probes) = (Files::new(), 0);
    for id in (0..next).filter(|number| !covered.contains(*number)).filter_map(ContainerId::new) {
        match catalog.container(id)? {
            Some(record) if record.state == ContainerState::Live => {
                // Opened next, and damaged when that fails or its length is another.
                files.insert(id, ContainerFile { class: record.class, bytes: record.stored_bytes });
                continue;
            }
            // Never sealed: whatever was has its row.
            None if id.get() < settled => continue,
            _ => {}
        }
        probes += 1;
        if probes > PROBES_MAX {
            return Ok(None);
        }
        match probe(volume, id)? {
            Probe::Nothing => {}
            Probe::At(file) => {
                files.insert(id, file);
            }
            Probe::Far => return Ok(None),
        }
    }
    Ok(Some(files))
}

/// Results of looking for a container's file by its number.
enum Probe {
    Nothing,
    At(ContainerFile),
    /// Each look asks a place far away, or cannot tell how long the file is. A listing does.
    Far,
}

/// Looks for the file of a container, whichever its class.
fn probe(volume: &dyn Volume, id: ContainerId) -> Result<Probe, EngineError> {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        match volume.open(&ContainerName { id, class }.blob()) {
            Ok(blob) if !blob.is_at_hand() => return Ok(Probe::Far),
            Ok(blob) => return Ok(Probe::At(ContainerFile { class, bytes: blob.len() })),
            Err(VolumeError::NotFound { .. }) => {}
            // (S12) One that cannot be read is met again when it is opened: it is damage then, or skipped.
            Err(VolumeError::Io { .. } | VolumeError::NotReadableNow { .. }) => return Ok(Probe::Far),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Probe::Nothing)
}

/// Opens a container that a listing or the lack of a file makes suspect: only what opening it meets is damage.
pub(crate) fn note_if_damaged(
    store: &ChunkStore,
    record: &ContainerRecord,
    summary: &mut OpenSummary,
) -> Result<(), EngineError> {
    match store.open_afresh(record) {
        Ok(_) => {}
        // (G7) Deleted since its row was read.
        Err(_) if store.leftovers.is_gone(record.id) => {}
        Err(error) if error.is_damage() => {
            summary.damaged_containers += 1;
            store.note_failure(record.id, None, &error);
        }
        Err(error) if error.is_unreadable_now() => skip(record.id, &error, summary),
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// (K7, S12) Skips a container that no key opens, or that is in an archive, so that all others are read. It is not
/// damaged, and not counted as checked: it is met again once it can be read.
fn skip(id: ContainerId, error: &ContainerError, summary: &mut OpenSummary) {
    if error.lacks_key() {
        tracing::error!(container = %id, %error, "skipped a container: its key is missing");
        summary.containers_without_key += 1;
    } else {
        tracing::error!(container = %id, %error, "skipped a container: it cannot be read now");
        summary.unreadable_containers += 1;
    }
}

/// Damaged containers looked at again by a start; the audit looks at the others.
const LOOKED_AT_AGAIN_MAX: usize = 1024;

/// (R4) Looks again at damage that earlier runs found. Returns true if that was all of it.
pub(crate) fn look_again(store: &ChunkStore) -> Result<bool, EngineError> {
    let damaged = store.damaged_containers();
    let mut all = damaged.len() <= LOOKED_AT_AGAIN_MAX;
    for id in damaged.iter().take(LOOKED_AT_AGAIN_MAX) {
        match store.look_again(*id) {
            Ok(()) => {}
            Err(EngineError::ReadOnly(reason)) => {
                tracing::warn!(container = %id, reason, "cannot note that damaged data is sound again");
                all = false;
            }
            Err(EngineError::Catalog(error)) if error.refuses_changes() => {
                tracing::warn!(container = %id, %error, "cannot note that damaged data is sound again");
                all = false;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

/// Returns true if a listing says of a container what the catalog does.
pub(crate) fn agrees(record: &ContainerRecord, file: Option<ContainerFile>) -> bool {
    file.is_some_and(|file| file.class == record.class && file.bytes == record.stored_bytes)
}

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
    /// (S12) Files that cannot be read now.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_a_folder() {
        let folder = |number: u64| {
            let id = ContainerId::new(number).unwrap();
            let blob = ContainerName { id, class: ContainerClass::Data }.blob();
            blob.as_str().rsplit_once('/').unwrap().0.to_owned()
        };
        let next = GROUP_CONTAINERS * 5;
        assert_eq!(folder(next), folder(next + GROUP_CONTAINERS - 1));
        assert_ne!(folder(next - 1), folder(next));
    }
}
