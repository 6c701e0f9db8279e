//! Test support for sources and their users: a disk in memory, images, and the suite every source must pass.

pub(crate) mod image;
mod memory;
pub(crate) mod suite;

pub(crate) use memory::MemorySource;
