//! Recipe nodes: the Merkle tree that rebuilds a disk. Pure: bytes ↔ structs.
//!
//! ```text
//! root ── upper page (1,024 children) ── … ── page (512 extents) ── extent node (pieces)
//! ```
//!
//! Every node is named by the fingerprint of its bytes, so what did not change is shared between backups.
//! [`Fingerprint::ZERO`] in place of a child stands for zeros. All numbers are little-endian; see
//! `docs/FORMAT.md` for the byte maps.

use holdfast_proto::Fingerprint;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::{CHUNK_MAX_BYTES, EXTENT_BYTES, EXTENT_PIECES_MAX};

/// Version of all node kinds.
pub const RECIPE_VERSION: u8 = 1;
/// Extents of one page: 2 GiB of disk, 34 KiB of page.
pub const PAGE_EXTENTS: usize = 512;
/// Children of one upper page: 32 KiB of page.
pub const PAGE_CHILDREN: usize = 1024;

const KIND_EXTENT: u8 = 1;
const KIND_PAGE: u8 = 2;
const KIND_UPPER: u8 = 3;
/// Set in a piece's 24-bit length when the piece is a run of zeros. Lengths need 23 bits (4 MiB).
const ZERO_FLAG: u32 = 1 << 23;

/// Error of decoding a recipe node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    #[error("recipe node version {found} is newer than the {RECIPE_VERSION} this build knows")]
    Unsupported { found: u8 },
    #[error("recipe node is of kind {found}, not {expected}")]
    Kind { expected: u8, found: u8 },
    #[error("recipe node is {actual} bytes long, its header asks for {expected}")]
    Length { expected: usize, actual: usize },
    #[error("recipe node counts {count} entries; the limit is {limit}")]
    Count { count: usize, limit: usize },
    #[error("piece {index} of the extent is {bytes} bytes long")]
    PieceLength { index: usize, bytes: u32 },
    #[error("the extent's pieces are {sum} bytes long together, the extent {extent_bytes}")]
    PieceSum { sum: u64, extent_bytes: u32 },
    #[error("a chunk of the extent has the fingerprint reserved for zeros")]
    ReservedFingerprint,
}

/// A piece of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceRef {
    /// [`Fingerprint::ZERO`] for a run of zeros.
    pub fingerprint: Fingerprint,
    /// 1 to 65,536 for a chunk, 1 to 4 MiB for zeros.
    pub bytes: u32,
}

impl PieceRef {
    /// Returns true if it is a run of zeros.
    pub fn is_zero(&self) -> bool {
        self.fingerprint.is_zero()
    }
}

/// Pieces that one extent is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentNode {
    extent_bytes: u32,
    pieces: Vec<PieceRef>,
}

impl ExtentNode {
    /// A node of `extent_bytes` made of `pieces` in order.
    ///
    /// # Errors
    /// When the pieces break a limit or do not sum to the extent's length.
    pub fn new(extent_bytes: u32, pieces: Vec<PieceRef>) -> Result<Self, NodeError> {
        if pieces.len() > EXTENT_PIECES_MAX {
            return Err(NodeError::Count { count: pieces.len(), limit: EXTENT_PIECES_MAX });
        }
        for (index, piece) in pieces.iter().enumerate() {
            let limit = if piece.is_zero() { EXTENT_BYTES } else { CHUNK_MAX_BYTES };
            if piece.bytes == 0 || piece.bytes > limit {
                return Err(NodeError::PieceLength { index, bytes: piece.bytes });
            }
        }
        let sum = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
        if sum != u64::from(extent_bytes) {
            return Err(NodeError::PieceSum { sum, extent_bytes });
        }
        Ok(Self { extent_bytes, pieces })
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[PieceRef] {
        &self.pieces
    }

    /// The extent's length.
    pub const fn extent_bytes(&self) -> u32 {
        self.extent_bytes
    }

    /// Bytes that are not in runs of zeros.
    pub fn data_bytes(&self) -> u32 {
        self.pieces.iter().filter(|piece| !piece.is_zero()).map(|piece| piece.bytes).sum()
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_header(KIND_EXTENT, 0, self.pieces.len(), self.extent_bytes);
        for piece in &self.pieces {
            let flag = if piece.is_zero() { ZERO_FLAG } else { 0 };
            out.u24(piece.bytes | flag);
        }
        for piece in self.pieces.iter().filter(|piece| !piece.is_zero()) {
            out.fingerprint(&piece.fingerprint);
        }
        out.finish()
    }

    /// Decodes an extent node.
    ///
    /// # Errors
    /// Any [`NodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (header, mut body) = Reader::after_header(bytes, KIND_EXTENT)?;
        let count = bounded(header.count, EXTENT_PIECES_MAX)?;
        let lengths: Vec<u32> = body.u24s(count)?;
        let chunks = lengths.iter().filter(|&&length| length & ZERO_FLAG == 0).count();
        let mut fingerprints = body.fingerprints(chunks)?;
        body.end()?;
        let mut pieces = Vec::with_capacity(count);
        for length in lengths {
            let zero = length & ZERO_FLAG != 0;
            let fingerprint =
                if zero { Fingerprint::ZERO } else { fingerprints.next().unwrap_or(Fingerprint::ZERO) };
            if !zero && fingerprint.is_zero() {
                return Err(NodeError::ReservedFingerprint);
            }
            pieces.push(PieceRef { fingerprint, bytes: length & !ZERO_FLAG });
        }
        Self::new(header.extra, pieces)
    }
}

/// One extent as its page knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentEntry {
    /// The extent node's fingerprint; [`Fingerprint::ZERO`] when the whole extent is zero.
    pub node: Fingerprint,
    /// BLAKE3 of the whole extent as the agent hashed it; [`Fingerprint::ZERO`] when it is zero. A claim
    /// unless the server had all of the extent at hand: it tells the VM's agents what they may skip, no more.
    pub digest: Fingerprint,
    /// Bytes not in runs of zeros.
    pub data_bytes: u32,
}

impl ExtentEntry {
    /// An extent that is all zero.
    pub const ZERO: Self = Self { node: Fingerprint::ZERO, digest: Fingerprint::ZERO, data_bytes: 0 };
}

const ENTRY_BYTES: usize = 68;

/// A page: up to [`PAGE_EXTENTS`] consecutive extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub entries: Vec<ExtentEntry>,
}

impl Page {
    /// Its bytes. At most [`PAGE_EXTENTS`] entries.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_header(KIND_PAGE, 0, self.entries.len(), 0);
        for entry in &self.entries {
            out.fingerprint(&entry.node);
            out.fingerprint(&entry.digest);
            out.u32(entry.data_bytes);
        }
        out.finish()
    }

    /// Decodes a page.
    ///
    /// # Errors
    /// Any [`NodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (header, mut body) = Reader::after_header(bytes, KIND_PAGE)?;
        let count = bounded(header.count, PAGE_EXTENTS)?;
        body.expect_bytes(count * ENTRY_BYTES)?;
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push(ExtentEntry {
                node: body.fingerprint()?,
                digest: body.fingerprint()?,
                data_bytes: body.u32()?,
            });
        }
        Ok(Self { entries })
    }
}

/// An upper page: up to [`PAGE_CHILDREN`] consecutive pages of the level below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpperPage {
    /// 2 when the children are pages, 3 when they are upper pages of level 2, and so on.
    pub level: u8,
    pub children: Vec<Fingerprint>,
}

impl UpperPage {
    /// Its bytes. At most [`PAGE_CHILDREN`] children.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_header(KIND_UPPER, self.level, self.children.len(), 0);
        for child in &self.children {
            out.fingerprint(child);
        }
        out.finish()
    }

    /// Decodes an upper page.
    ///
    /// # Errors
    /// Any [`NodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, NodeError> {
        let (header, mut body) = Reader::after_header(bytes, KIND_UPPER)?;
        let count = bounded(header.count, PAGE_CHILDREN)?;
        let children = body.fingerprints(count)?.collect();
        body.end()?;
        Ok(Self { level: header.level, children })
    }
}

/// Length of the node that `bytes` begin with, by its header and lengths; `None` when they begin with none.
pub fn node_bytes(bytes: &[u8]) -> Option<usize> {
    let kind = *bytes.first()?;
    let (header, mut body) = Reader::after_header(bytes, kind).ok()?;
    let rest = match kind {
        KIND_EXTENT => {
            let count = bounded(header.count, EXTENT_PIECES_MAX).ok()?;
            let lengths = body.u24s(count).ok()?;
            let chunks = lengths.iter().filter(|&&length| length & ZERO_FLAG == 0).count();
            3 * count + FINGERPRINT_BYTES * chunks
        }
        KIND_PAGE => bounded(header.count, PAGE_EXTENTS).ok()? * ENTRY_BYTES,
        KIND_UPPER => bounded(header.count, PAGE_CHILDREN).ok()? * FINGERPRINT_BYTES,
        _ => return None,
    };
    let length = HEADER_BYTES + rest;
    (length <= bytes.len()).then_some(length)
}

fn bounded(count: usize, limit: usize) -> Result<usize, NodeError> {
    if count > limit { Err(NodeError::Count { count, limit }) } else { Ok(count) }
}

const HEADER_BYTES: usize = 12;

/// Header of every node: kind u8, version u8, level u8, reserved u8, count u32, extra u32.
struct Header {
    level: u8,
    count: usize,
    extra: u32,
}

struct Writer(Vec<u8>);

impl Writer {
    fn with_header(kind: u8, level: u8, count: usize, extra: u32) -> Self {
        let mut out = Vec::with_capacity(HEADER_BYTES + count * (2 * FINGERPRINT_BYTES + 4));
        out.extend([kind, RECIPE_VERSION, level, 0]);
        out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(extra.to_le_bytes());
        Self(out)
    }

    fn u24(&mut self, number: u32) {
        let [a, b, c, _] = number.to_le_bytes();
        self.0.extend([a, b, c]);
    }

    fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    fn fingerprint(&mut self, fingerprint: &Fingerprint) {
        self.0.extend(fingerprint.as_bytes());
    }

    fn finish(self) -> Vec<u8> {
        self.0
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// Checks version and kind.
    fn after_header(bytes: &'a [u8], kind: u8) -> Result<(Header, Self), NodeError> {
        let mut reader = Self { rest: bytes, total: bytes.len() };
        let [found, version, level, _] = reader.array()?;
        if version > RECIPE_VERSION {
            return Err(NodeError::Unsupported { found: version });
        }
        if found != kind {
            return Err(NodeError::Kind { expected: kind, found });
        }
        let count = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
        let extra = reader.u32()?;
        Ok((Header { level, count, extra }, reader))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], NodeError> {
        let length = NodeError::Length { expected: self.total - self.rest.len() + bytes, actual: self.total };
        let (head, rest) = self.rest.split_at_checked(bytes).ok_or(length)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], NodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn u32(&mut self) -> Result<u32, NodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u24s(&mut self, count: usize) -> Result<Vec<u32>, NodeError> {
        let (numbers, _) = self.take(3 * count)?.as_chunks::<3>();
        Ok(numbers.iter().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0])).collect())
    }

    fn fingerprint(&mut self) -> Result<Fingerprint, NodeError> {
        Ok(Fingerprint::from_bytes(self.array()?))
    }

    fn fingerprints(
        &mut self,
        count: usize,
    ) -> Result<impl Iterator<Item = Fingerprint> + use<'a>, NodeError> {
        let (whole, _) = self.take(FINGERPRINT_BYTES * count)?.as_chunks::<FINGERPRINT_BYTES>();
        Ok(whole.iter().map(|bytes| Fingerprint::from_bytes(*bytes)))
    }

    /// Fails unless exactly `bytes` are left.
    const fn expect_bytes(&self, bytes: usize) -> Result<(), NodeError> {
        if self.rest.len() == bytes {
            return Ok(());
        }
        Err(NodeError::Length { expected: self.total - self.rest.len() + bytes, actual: self.total })
    }

    /// Fails unless everything was read.
    const fn end(&self) -> Result<(), NodeError> {
        self.expect_bytes(0)
    }
}

#[cfg(test)]
mod tests;
