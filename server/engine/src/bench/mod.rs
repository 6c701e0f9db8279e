//! For the benchmarks of the index and of marking alone; nothing else uses it, and it may change at any time.

pub mod marking;

pub use crate::index::{Index, IndexKey, NamespaceKey};
