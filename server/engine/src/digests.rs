//! Extent digests: the hash of an extent, by reading it.

use std::sync::Arc;

use holdfast_catalog::{AuditEntry, FalseDigest};
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::FALSE_DIGESTS_MAX;
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId};

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::ExtentNode;
use crate::recipe::TreeReader;
use crate::store::{ChunkStore, Domain, NodeReader, ReadChunk, ReadFrom};

/// Hashed at a time where an extent is zero.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// An extent being hashed, piece after piece.
#[derive(Debug, Default)]
pub(crate) struct ExtentHasher(blake3::Hasher);

impl ExtentHasher {
    pub(crate) fn data(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn zeros(&mut self, mut bytes: usize) {
        while bytes > 0 {
            let step = bytes.min(ZEROS.len());
            self.0.update(ZEROS.get(..step).unwrap_or(&ZEROS));
            bytes -= step;
        }
    }

    pub(crate) fn finish(&self) -> Fingerprint {
        Fingerprint::from_bytes(*self.0.finalize().as_bytes())
    }
}

/// Result of reading an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadExtent {
    /// Digest computed from the extent's bytes.
    Digest(Fingerprint),
    /// Complete, but sealed by agents, who alone can compute its digest (N1).
    Sealed,
    /// A chunk lies far away, and nothing there was to be read.
    Far,
    /// A chunk is missing or damaged.
    Lacks,
}

impl ReadExtent {
    /// Returns true if the data read shows that `recorded` is false.
    pub(crate) fn disproves(self, recorded: &Fingerprint) -> bool {
        matches!(self, Self::Digest(actual) if is_claim(recorded) && actual != *recorded)
    }
}

/// Determines how data that is only in the bucket is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FarData {
    Read,
    Leave,
}

/// Reads all of an extent.
pub(crate) fn digest_of(
    store: &ChunkStore,
    domain: &Domain,
    node: &ExtentNode,
    recent: &mut RecentDirectories,
    far: FarData,
) -> Result<ReadExtent, EngineError> {
    const DATA: ContainerClass = ContainerClass::Data;
    let mut hasher = ExtentHasher::default();
    let mut sealed = false;
    for piece in node.pieces() {
        if piece.is_zero() {
            hasher.zeros(piece.bytes as usize);
            continue;
        }
        let chunk = match far {
            FarData::Read => store.read_stored(domain, DATA, &piece.fingerprint, recent)?,
            FarData::Leave => match store.read_at_hand(domain, DATA, &piece.fingerprint, recent)? {
                ReadFrom::Chunk(chunk) => Some(chunk),
                ReadFrom::Lacks => None,
                ReadFrom::Elsewhere => return Ok(ReadExtent::Far),
            },
        };
        match chunk.filter(|chunk| chunk.len() == piece.bytes as usize) {
            Some(ReadChunk::Plain(chunk)) => hasher.data(&chunk),
            Some(ReadChunk::Sealed { .. }) => sealed = true,
            None => return Ok(ReadExtent::Lacks),
        }
    }
    Ok(if sealed { ReadExtent::Sealed } else { ReadExtent::Digest(hasher.finish()) })
}

/// Returns true if a digest was recorded, so that it can be false.
pub(crate) fn is_claim(digest: &Fingerprint) -> bool {
    *digest != Fingerprint::UNKNOWN
}

/// Reads the extents that a client says have a false digest, and keeps what proves false. Stops at the first that
/// does not: so a report that is not true costs one extent, and one that is costs what was lied about. Returns how
/// many are false.
pub(crate) fn confirm(
    core: &Arc<Core>,
    namespace: NamespaceId,
    backup: BackupId,
    reported: &[(String, u64)],
    who: &str,
) -> Result<u32, EngineError> {
    if reported.len() > FALSE_DIGESTS_MAX {
        let count = reported.len();
        return Err(EngineError::Invalid(format!(
            "the report names {count} extents; the limit is {FALSE_DIGESTS_MAX}"
        )));
    }
    let record = core.catalog.backup(backup)?.filter(|record| record.namespace == namespace);
    let record = record.ok_or_else(|| EngineError::NotFound { what: "backup", name: backup.to_string() })?;
    let domain = core.store.domain(namespace);
    let mut recent = RecentDirectories::default();
    let mut found = Vec::new();
    let mut open: Option<(&str, TreeReader<NodeReader>)> = None;
    for (disk, index) in reported {
        if open.as_ref().is_none_or(|(name, _)| name != disk) {
            let Some(known) = record.disks.iter().find(|known| known.name == *disk) else {
                return Err(EngineError::NotFound { what: "disk", name: disk.clone() });
            };
            let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
            open = Some((&known.name, TreeReader::open(nodes, known.root, known.size_bytes)?));
        }
        let Some((_, tree)) = &open else { break };
        let entry = tree.entry(*index)?;
        let Some(node) = tree.extent_of(*index, &entry)? else { break };
        let read = digest_of(&core.store, &domain, &node, &mut recent, FarData::Read)?;
        // (N3) Only agents can compute digests of data that they sealed. Believing them costs no more than reading the
        // extent again.
        let believed = read == ReadExtent::Sealed && is_claim(&entry.digest);
        if !believed && !read.disproves(&entry.digest) {
            break;
        }
        let found_ms = core.clock.now_ms();
        found.push(FalseDigest { namespace, node: entry.node, digest: entry.digest, found_ms });
    }
    keep(core, &found, &format!("backup {backup} of VM {:?}", record.vm), who)?;
    Ok(u32::try_from(found.len()).unwrap_or(u32::MAX))
}

/// Keeps digests found false: they are offered to no agent again (R6). `object` is where they were found.
pub(crate) fn keep(core: &Core, found: &[FalseDigest], object: &str, who: &str) -> Result<(), EngineError> {
    if found.is_empty() {
        return Ok(());
    }
    core.catalog.add_false_digests(found)?;
    core.digests.found_false(found.len() as u64);
    let count = found.len();
    tracing::error!(
        object,
        count,
        "recorded extent digests are false; the next backup reads these extents anew"
    );
    core.catalog.audit(&AuditEntry {
        who: who.to_owned(),
        action: "digest.false".to_owned(),
        object: object.to_owned(),
        detail: format!("{count} extents do not hash to the digests that their backup recorded"),
    })?;
    Ok(())
}
