//! Memory that is allocated once and used again.

mod buffers;
mod objects;

pub(crate) use buffers::{Buffer, BufferPool, NFS, PAGE_BYTES, Pages, file_system, refuses_direct};
pub(crate) use objects::ObjectPool;

/// Memory of regions' plain bytes, used again.
pub(crate) type RegionBufferPool = std::sync::Arc<ObjectPool<Vec<u8>>>;
