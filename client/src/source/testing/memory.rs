//! A disk in memory.

use std::io;
use std::ops::Range;

use holdfast_proto::chunker::is_zero;

use super::image::BLOCK_BYTES;
use crate::source::{Content, Segment, Source, SourceError};

/// A disk in memory. Its segments are what the test says; it never changes.
#[derive(Debug)]
pub(crate) struct MemorySource {
    name: String,
    bytes: Vec<u8>,
    size_bytes: u64,
    segments: Vec<Segment>,
    changes_since: Option<String>,
    unreadable: Option<u64>,
}

impl MemorySource {
    /// A disk that cannot tell where its holes are.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        let end = bytes.len() as u64;
        let segments =
            if end == 0 { Vec::new() } else { vec![Segment { start: 0, end, content: Content::Data }] };
        let name = "d".to_owned();
        Self { name, bytes, size_bytes: end, segments, changes_since: None, unreadable: None }
    }

    /// A disk whose blocks of zeros are holes, each a segment of its own.
    pub(crate) fn sparse(bytes: Vec<u8>) -> Self {
        let mut segments = Vec::new();
        for block in bytes.chunks(BLOCK_BYTES) {
            let start = segments.last().map_or(0, |last: &Segment| last.end);
            let content = if is_zero(block) { Content::Hole } else { Content::Data };
            segments.push(Segment { start, end: start + block.len() as u64, content });
        }
        Self { segments, ..Self::new(bytes) }
    }

    /// Creates a disk that is nothing but a hole; takes no memory.
    pub(crate) fn hole(size_bytes: u64) -> Self {
        let segments = vec![Segment { start: 0, end: size_bytes, content: Content::Hole }];
        Self { size_bytes, segments, ..Self::new(Vec::new()) }
    }

    /// With another name than `d`.
    pub(crate) fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// With these segments instead, true or not.
    pub(crate) fn with_segments(mut self, segments: Vec<Segment>) -> Self {
        self.segments = segments;
        self
    }

    /// Tracks changes since `backup`: what lies in `unchanged` is as it was.
    pub(crate) fn tracking(mut self, backup: &str, unchanged: &[Range<u64>]) -> Self {
        self.changes_since = Some(backup.to_owned());
        for range in unchanged {
            let before = std::mem::take(&mut self.segments);
            let cut = |start, end, content| (end > start).then_some(Segment { start, end, content });
            for s in &before {
                self.segments.extend(cut(s.start, s.end.min(range.start), s.content));
                self.segments.extend(cut(s.start.max(range.start), s.end.min(range.end), Content::Unchanged));
                self.segments.extend(cut(s.start.max(range.end), s.end, s.content));
            }
        }
        self
    }

    /// Reading fails at `offset`.
    pub(crate) fn unreadable_at(mut self, offset: u64) -> Self {
        self.unreadable = Some(offset);
        self
    }
}

impl Source for MemorySource {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &str {
        "memory"
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn segments(&self, range: Range<u64>) -> Result<Vec<Segment>, SourceError> {
        let within = self.segments.iter().filter(|s| s.end > range.start && s.start < range.end);
        Ok(within.map(|s| Segment { start: s.start.max(range.start), ..*s }).collect())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let end = offset + buffer.len() as u64;
        if let Some(at) = self.unreadable.filter(|at| (offset..end).contains(at)) {
            return Err(SourceError::read(self, at, io::Error::other("bad medium")));
        }
        if end > self.size_bytes {
            return Err(SourceError::resized(self, self.size_bytes, offset));
        }
        let start = usize::try_from(offset).unwrap();
        match self.bytes.get(start..start + buffer.len()) {
            Some(bytes) => buffer.copy_from_slice(bytes),
            None => buffer.fill(0),
        }
        Ok(())
    }

    fn can_change(&self) -> bool {
        false
    }

    fn check_unchanged(&self, _: u64) -> Result<(), SourceError> {
        Ok(())
    }

    fn changes_since(&self) -> Option<&str> {
        self.changes_since.as_deref()
    }
}
