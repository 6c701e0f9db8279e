//! Reads any byte range of a disk, decoded and checked.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{EXTENT_BYTES, READ_RANGE_MAX_BYTES, extent_len};
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId};
use v1::read_range_response::Kind;

use super::open::{OnDamage, OpenDisk};
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentNode, PieceRef};

/// Data bytes of one answer at most.
const ANSWER_BYTES_MAX: usize = 512 << 10;

/// The answers that make up the range, in order. Ends after the range, or after the first error.
#[derive(Debug)]
pub struct RangeReader {
    disk: OpenDisk,
    offset: u64,
    end: u64,
    recent: RecentDirectories,
    ready: VecDeque<v1::ReadRangeResponse>,
    failed: bool,
}

impl RangeReader {
    pub(crate) fn open(
        core: &Arc<Core>,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        offset: u64,
        length: u64,
    ) -> Result<Self, EngineError> {
        if length > READ_RANGE_MAX_BYTES {
            return Err(EngineError::Invalid(format!(
                "a range of {length} bytes was asked for; the limit is {READ_RANGE_MAX_BYTES}"
            )));
        }
        let disk = OpenDisk::open(core, namespace, backup, disk, OnDamage::End)?;
        if disk.key_id.is_some() {
            return Err(EngineError::Sealed);
        }
        // (R3) The length was bounded above, before anything is allocated for it.
        let end = offset.saturating_add(length).min(disk.size_bytes);
        Ok(Self {
            disk,
            offset,
            end,
            recent: RecentDirectories::default(),
            ready: VecDeque::new(),
            failed: false,
        })
    }

    /// Reads the part of the range in the extent at `offset`.
    fn read_extent(&mut self) -> Result<(), EngineError> {
        let index = self.offset / u64::from(EXTENT_BYTES);
        let start = index * u64::from(EXTENT_BYTES);
        let extent_bytes = extent_len(self.disk.size_bytes, index);
        let end = self.end.min(start + u64::from(extent_bytes));
        let node = self.disk.tree.extent(index)?;
        let zeros = [PieceRef { fingerprint: Fingerprint::ZERO, bytes: extent_bytes }];
        let pieces = node.as_ref().map_or(zeros.as_slice(), ExtentNode::pieces);
        let mut answers = Answers::default();
        let mut piece_start = start;
        for piece in pieces {
            let piece_end = piece_start + u64::from(piece.bytes);
            let (from, to) = (self.offset.max(piece_start), end.min(piece_end));
            if from < to && piece.is_zero() {
                answers.zeros(from, to - from);
            } else if from < to {
                let chunk = chunk(&self.disk, index, piece, &mut self.recent)?;
                answers.data(from, &within(&chunk, from - piece_start, to - piece_start));
            }
            piece_start = piece_end;
        }
        answers.flush();
        assert_eq!(piece_start, start + u64::from(extent_bytes), "pieces of extent {index}");
        self.offset = end;
        self.ready = answers.list;
        Ok(())
    }
}

fn chunk(
    disk: &OpenDisk,
    extent: u64,
    piece: &PieceRef,
    recent: &mut RecentDirectories,
) -> Result<Bytes, EngineError> {
    let domain = disk.tree.source().domain();
    let fingerprint = &piece.fingerprint;
    let chunk = disk.core.store.read_chunk(domain, ContainerClass::Data, fingerprint, recent)?;
    chunk.filter(|chunk| chunk.len() == piece.bytes as usize).ok_or_else(|| {
        EngineError::Damaged(format!("extent {extent}: chunk {fingerprint} is missing or damaged"))
    })
}

/// Bytes `from..to` of a chunk.
#[expect(clippy::cast_possible_truncation, reason = "offsets within a chunk of at most 64 KiB")]
fn within(chunk: &Bytes, from: u64, to: u64) -> Bytes {
    chunk.slice(from as usize..to as usize)
}

/// Answers being put together: neighbouring data is joined.
#[derive(Default)]
struct Answers {
    list: VecDeque<v1::ReadRangeResponse>,
    data: BytesMut,
    data_offset: u64,
}

impl Answers {
    fn zeros(&mut self, offset: u64, bytes: u64) {
        self.flush();
        self.list.push_back(v1::ReadRangeResponse { offset, kind: Some(Kind::ZeroBytes(bytes)) });
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) {
        if self.data.len() + bytes.len() > ANSWER_BYTES_MAX {
            self.flush();
        }
        if self.data.is_empty() {
            self.data_offset = offset;
        }
        self.data.extend_from_slice(bytes);
    }

    fn flush(&mut self) {
        if self.data.is_empty() {
            return;
        }
        let data = self.data.split().freeze();
        self.list.push_back(v1::ReadRangeResponse { offset: self.data_offset, kind: Some(Kind::Data(data)) });
    }
}

impl Iterator for RangeReader {
    type Item = Result<v1::ReadRangeResponse, EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() {
            if self.failed || self.offset >= self.end {
                return None;
            }
            if let Err(error) = self.read_extent() {
                self.failed = true;
                return Some(Err(self.disk.name_damage(error)));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
