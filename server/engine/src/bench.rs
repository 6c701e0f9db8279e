//! For the benchmark of the index alone; nothing else uses it, and it may change at any time.

pub use crate::index::{Index, IndexKey, NamespaceKey};
