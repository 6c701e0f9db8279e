//! Where a disk changed, against its own past: what the explanation of a large backup rests on.
//!
//! Recipes are Merkle trees, so what did not change is known to be equal without being read: only pages (of
//! 512 extents) that differ are fetched, and of the past only as far as the page changed at all. Extents are
//! compared by the names of their nodes, which are hashes of what the extents are made of.

use std::sync::Arc;

use holdfast_catalog::{BackupRecord, DiskRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, PAGE_EXTENTS};
use crate::recipe::TreeReader;
use crate::store::{Domain, NodeReader};

/// Earlier restore points compared at most.
pub const HISTORY_DEPTH_MAX: usize = 16;

/// Pages fetched for one answer at most: 2,048 × 34 KiB are 70 MB read and never held together. Without a
/// past of much change that is a terabyte and more of changed disk.
const PAGE_READS_MAX: usize = 2048;

/// How a disk's extents compare with its earlier restore points.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtentHistory {
    /// Extents of the disk.
    pub total: u64,
    /// Of these, compared: all of them, unless so much changed that reading it all would take too long.
    pub compared: u64,
    /// Not as in the restore point before.
    pub changed: u64,
    /// Of the changed ones: held data that had stayed the same over all earlier restore points compared.
    pub changed_first_time: u64,
    /// Of the changed ones: were zero, or beyond the disk's end, in the restore point before.
    pub newly_written: u64,
    /// Earlier restore points compared.
    pub compared_backups: u64,
}

type Tree = TreeReader<NodeReader>;

/// See [`Engine::extent_history`](crate::Engine::extent_history).
pub(crate) fn history(
    core: &Arc<Core>,
    namespace: NamespaceId,
    backup: BackupId,
    disk: &str,
    depth: usize,
) -> Result<Option<ExtentHistory>, EngineError> {
    let gone = || EngineError::NotFound { what: "backup", name: backup.to_string() };
    let found = core.catalog.backup(backup)?.filter(|found| found.namespace == namespace).ok_or_else(gone)?;
    let current =
        disk_of(&found, disk).ok_or_else(|| EngineError::NotFound { what: "disk", name: disk.to_owned() })?;
    let depth = u32::try_from(depth.min(HISTORY_DEPTH_MAX))
        .map_err(|_| EngineError::Internal(format!("a history of {depth} restore points")))?;
    let earlier = core.catalog.backups_before(backup, depth)?;
    let domain = core.store.domain(namespace);
    let current = open(core, &domain, current)?;
    let past: Vec<Tree> = earlier
        .iter()
        .filter_map(|earlier| disk_of(earlier, disk))
        .map(|disk| open(core, &domain, disk))
        .collect::<Result<_, _>>()?;
    if past.is_empty() {
        return Ok(None);
    }
    Comparison::new(&current, &past).run().map(Some)
}

fn disk_of<'a>(backup: &'a BackupRecord, name: &str) -> Option<&'a DiskRecord> {
    backup.disks.iter().find(|disk| disk.name == name)
}

fn open(core: &Arc<Core>, domain: &Domain, disk: &DiskRecord) -> Result<Tree, EngineError> {
    let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
    Ok(TreeReader::open(nodes, disk.root, disk.size_bytes)?)
}

struct Comparison<'a> {
    current: &'a Tree,
    /// Newest first.
    past: &'a [Tree],
    reads_left: usize,
    history: ExtentHistory,
}

impl<'a> Comparison<'a> {
    fn new(current: &'a Tree, past: &'a [Tree]) -> Self {
        let history = ExtentHistory {
            total: current.extent_count(),
            compared_backups: past.len() as u64,
            ..ExtentHistory::default()
        };
        Self { current, past, reads_left: PAGE_READS_MAX, history }
    }

    fn run(mut self) -> Result<ExtentHistory, EngineError> {
        let Some(before) = self.past.first() else { return Ok(self.history) };
        let total = self.history.total;
        for page in 0..total.div_ceil(PAGE_EXTENTS as u64) {
            if self.current.page_name(page) != before.page_name(page) {
                if self.reads_left < self.past.len() + 1 {
                    return Ok(self.history);
                }
                self.page(page, before)?;
            }
            self.history.compared = total.min((page + 1) * PAGE_EXTENTS as u64);
        }
        Ok(self.history)
    }

    /// Compares a page that differs from the one before it.
    fn page(&mut self, page: u64, before: &Tree) -> Result<(), EngineError> {
        let now = self.fetch(self.current, page)?;
        let mut newer = self.fetch(before, page)?;
        assert!(now.len() <= PAGE_EXTENTS, "page {page} has {} extents", now.len());
        // Extents that held data and changed, as long as nothing shows that they had changed before.
        let mut first_time = Vec::new();
        for slot in 0..now.len() {
            let (is, was) = (node(&now, slot), node(&newer, slot));
            if is == was {
                continue;
            }
            self.history.changed += 1;
            if was.is_zero() {
                self.history.newly_written += 1;
            } else {
                first_time.push(slot);
            }
        }
        for pair in self.past.windows(2) {
            let [younger, elder] = pair else { continue };
            if first_time.is_empty() {
                break;
            }
            if younger.page_name(page) == elder.page_name(page) {
                continue;
            }
            let older = self.fetch(elder, page)?;
            first_time.retain(|&slot| node(&newer, slot) == node(&older, slot));
            newer = older;
        }
        self.history.changed_first_time += first_time.len() as u64;
        Ok(())
    }

    fn fetch(&mut self, tree: &Tree, page: u64) -> Result<Vec<ExtentEntry>, EngineError> {
        self.reads_left = self.reads_left.saturating_sub(1);
        Ok(tree.page_entries(page)?)
    }
}

/// The node of an extent of a page; zero past the disk's end.
fn node(entries: &[ExtentEntry], slot: usize) -> Fingerprint {
    entries.get(slot).map_or(Fingerprint::ZERO, |entry| entry.node)
}
