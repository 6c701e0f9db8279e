//! Where a tree's nodes go to and come from.

use bytes::Bytes;
use holdfast_proto::Fingerprint;

/// Where finished nodes go.
pub(crate) trait NodeSink {
    /// What storing can fail with.
    type Error;

    /// Takes a node and names it.
    fn put(&mut self, node: Vec<u8>) -> Result<Fingerprint, Self::Error>;
}

/// Where nodes come from.
pub(crate) trait NodeSource {
    /// What fetching can fail with.
    type Error;

    /// The node of that name; its bytes hash to it.
    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, Self::Error>;
}
