//! Reads a whole restore point back where it is stored: every chunk against its fingerprint, every extent against its
//! digest. Of one that is end-to-end encrypted only that every chunk is there, in a region that is what was sent (N1).
//!
//! Containers are read from where they lie (R9); regions that another restore has just decoded may come from memory. What is found
//! damaged is noted like any damage (R4), a false digest like any other (R6). A crash leaves nothing: the caller keeps what
//! was found.

use std::sync::Arc;

use holdfast_catalog::{DiskRecord, FalseDigest};
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::digests::{FarData, ReadExtent, digest_of, keep};
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, ExtentNode};
use crate::in_use::{InUse, Recipe};
use crate::recipe::TreeReader;
use crate::store::{Domain, NodeReader};

/// Places of damage that a report names: more are counted.
pub const PLACES_MAX: usize = 16;

/// Result of reading a restore point back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Data read, holes and zeros not counted.
    pub bytes: u64,
    /// Extents that cannot be read back whole.
    pub damaged_extents: u64,
    /// Extents that do not hash to the digests that the backup recorded. Their chunks are sound.
    pub false_digests: u64,
    /// The first `PLACES_MAX` of both: disk, extent, and what is wrong.
    pub places: Vec<String>,
}

impl VerifyReport {
    /// Returns true if all of it is as it was backed up.
    pub const fn is_sound(&self) -> bool {
        self.damaged_extents == 0 && self.false_digests == 0
    }

    fn place(&mut self, text: String) {
        if self.places.len() < PLACES_MAX {
            self.places.push(text);
        }
    }
}

/// Source and position of one disk.
struct Disk<'a> {
    core: &'a Core,
    domain: Domain,
    record: &'a DiskRecord,
    tree: TreeReader<NodeReader>,
}

/// Result of verifying one extent.
enum Extent {
    /// Bytes of data in it.
    Sound(u64),
    Damaged(String),
    False(FalseDigest),
}

/// Reads the restore point. `charge` is told of bytes read, an extent at a time, and says whether to go on; `None`: it did
/// not.
pub(crate) fn verify(
    core: &Arc<Core>,
    namespace: NamespaceId,
    backup: BackupId,
    who: &str,
    charge: &mut dyn FnMut(u64) -> bool,
) -> Result<Option<VerifyReport>, EngineError> {
    // (G2) It is read to its end, also when it is deleted meanwhile: what was freed would look like damage.
    let step = core.in_use.take_up();
    let record = core.catalog.backup(backup)?.filter(|record| record.namespace == namespace);
    let record = record.ok_or_else(|| EngineError::NotFound { what: "backup", name: backup.to_string() })?;
    let _in_use: Vec<InUse> = record.disks.iter().map(|disk| step.enter(Recipe::of(&record, disk))).collect();
    drop(step);
    let mut report = VerifyReport::default();
    let mut found = Vec::new();
    for disk in &record.disks {
        let domain = core.store.domain(namespace);
        let nodes = NodeReader::proving(Arc::clone(&core.store), domain.clone());
        match TreeReader::open(nodes, disk.root, disk.size_bytes) {
            Ok(tree) => {
                let disk = Disk { core, domain, record: disk, tree };
                if !disk.read(&mut report, &mut found, namespace, charge)? {
                    return Ok(None);
                }
            }
            Err(error) => {
                let reason = damage(error.into())?;
                report.damaged_extents += disk.extent_count;
                report.place(format!("disk {:?}, all of it: {reason}", disk.name));
            }
        }
    }
    report.false_digests = found.len() as u64;
    if report.damaged_extents > 0 {
        core.note_lacking(backup);
    }
    keep(core, &found, &format!("backup {backup} of VM {:?}", record.vm), who)?;
    Ok(Some(report))
}

impl Disk<'_> {
    /// Returns true if the disk was read to its end.
    fn read(
        &self,
        report: &mut VerifyReport,
        found: &mut Vec<FalseDigest>,
        namespace: NamespaceId,
        charge: &mut dyn FnMut(u64) -> bool,
    ) -> Result<bool, EngineError> {
        let mut recent = RecentDirectories::proving();
        let mut index = self.tree.zero_until(0);
        while index < self.tree.extent_count() {
            let bytes = match self.extent(index, namespace, &mut recent)? {
                Extent::Sound(bytes) => bytes,
                Extent::Damaged(reason) => {
                    report.damaged_extents += 1;
                    report.place(format!("disk {:?}, extent {index}: {reason}", self.record.name));
                    0
                }
                Extent::False(lie) => {
                    let text = "does not hash to the digest that the backup recorded";
                    report.place(format!("disk {:?}, extent {index}: {text}", self.record.name));
                    found.push(lie);
                    0
                }
            };
            report.bytes += bytes;
            if !charge(bytes) {
                return Ok(false);
            }
            index = self.tree.zero_until(index + 1);
        }
        Ok(true)
    }

    fn extent(
        &self,
        index: u64,
        namespace: NamespaceId,
        recent: &mut RecentDirectories,
    ) -> Result<Extent, EngineError> {
        let (entry, node) = match self.described(index) {
            Ok((entry, Some(node))) => (entry, node),
            Ok((_, None)) => return Ok(Extent::Sound(0)),
            Err(error) => return damage(error).map(Extent::Damaged),
        };
        let read = match digest_of(&self.core.store, &self.domain, &node, recent, FarData::Read) {
            Ok(ReadExtent::Lacks) => {
                return Ok(Extent::Damaged("a chunk is missing or damaged".to_owned()));
            }
            Ok(read) => read,
            Err(error) => return damage(error).map(Extent::Damaged),
        };
        if read.disproves(&entry.digest) {
            let found_ms = self.core.clock.now_ms();
            return Ok(Extent::False(FalseDigest {
                namespace,
                node: entry.node,
                digest: entry.digest,
                found_ms,
            }));
        }
        let data = node.pieces().iter().filter(|piece| !piece.is_zero());
        Ok(Extent::Sound(data.map(|piece| u64::from(piece.bytes)).sum()))
    }

    fn described(&self, index: u64) -> Result<(ExtentEntry, Option<ExtentNode>), EngineError> {
        let entry = self.tree.entry(index)?;
        let node = self.tree.extent_of(index, &entry)?;
        Ok((entry, node))
    }
}

/// Returns the description of damage to the data being read; any other error ends the verification.
fn damage(error: EngineError) -> Result<String, EngineError> {
    match error {
        EngineError::Damaged(what) => Ok(what),
        // A volume that is away or a newer format says nothing about what was backed up (A9).
        other => Err(other),
    }
}
