//! Building and walking a disk's recipe, the Merkle tree of `format::recipe`.
//!
//! Both sides see nodes only through [`NodeSink`] and [`NodeSource`], so the tree knows nothing of containers
//! and can be tested against a map.
//!
//! [`node`] (the two traits) and [`shape`] (arithmetic) are used by [`builder`] and [`reader`], which do not
//! know each other.

mod builder;
mod intervals;
mod node;
mod reader;
mod shape;

pub(crate) use builder::{BuildError, TreeBuilder};
pub(crate) use node::{NodeSink, NodeSource};
pub(crate) use reader::{TreeReader, WalkError};

#[cfg(test)]
mod tests;
