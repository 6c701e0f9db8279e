//! Reading and writing a node's fields in order.

use holdfast_proto::Fingerprint;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;

use super::{NodeError, RECIPE_VERSION};

pub(super) const HEADER_BYTES: usize = 12;

/// Header of every node: kind u8, version u8, level u8, reserved u8, count u32, extra u32.
pub(super) struct Header {
    pub(super) level: u8,
    pub(super) count: usize,
    pub(super) extra: u32,
}

pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_header(kind: u8, level: u8, count: usize, extra: u32) -> Self {
        let mut out = Vec::with_capacity(HEADER_BYTES + count * (2 * FINGERPRINT_BYTES + 4));
        out.extend([kind, RECIPE_VERSION, level, 0]);
        out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
        out.extend(extra.to_le_bytes());
        Self(out)
    }

    pub(super) fn u24(&mut self, number: u32) {
        let [a, b, c, _] = number.to_le_bytes();
        self.0.extend([a, b, c]);
    }

    pub(super) fn u32(&mut self, number: u32) {
        self.0.extend(number.to_le_bytes());
    }

    pub(super) fn fingerprint(&mut self, fingerprint: &Fingerprint) {
        self.0.extend(fingerprint.as_bytes());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

pub(super) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// Checks version and kind.
    pub(super) fn after_header(bytes: &'a [u8], kind: u8) -> Result<(Header, Self), NodeError> {
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

    pub(super) fn u32(&mut self) -> Result<u32, NodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u24s(&mut self, count: usize) -> Result<Vec<u32>, NodeError> {
        let (numbers, _) = self.take(3 * count)?.as_chunks::<3>();
        Ok(numbers.iter().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0])).collect())
    }

    pub(super) fn fingerprint(&mut self) -> Result<Fingerprint, NodeError> {
        Ok(Fingerprint::from_bytes(self.array()?))
    }

    pub(super) fn fingerprints(
        &mut self,
        count: usize,
    ) -> Result<impl Iterator<Item = Fingerprint> + use<'a>, NodeError> {
        let (whole, _) = self.take(FINGERPRINT_BYTES * count)?.as_chunks::<FINGERPRINT_BYTES>();
        Ok(whole.iter().map(|bytes| Fingerprint::from_bytes(*bytes)))
    }

    /// Fails unless exactly `bytes` are left.
    pub(super) const fn expect_bytes(&self, bytes: usize) -> Result<(), NodeError> {
        if self.rest.len() == bytes {
            return Ok(());
        }
        Err(NodeError::Length { expected: self.total - self.rest.len() + bytes, actual: self.total })
    }

    /// Fails unless everything was read.
    pub(super) const fn end(&self) -> Result<(), NodeError> {
        self.expect_bytes(0)
    }
}
