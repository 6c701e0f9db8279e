//! Validates a restore stream before any of it is believed: windows must follow each other without gaps,
//! their layouts must fill their extents exactly, and every chunk must arrive exactly once before its window
//! ends. The bytes themselves are checked in `extents`, and in `job`.

mod assembler;
mod plan;

pub use crate::error::WindowError;
pub(crate) use assembler::{Assembler, CheckedRegion};
pub(crate) use plan::{Placed, WindowPlan};

#[cfg(test)]
pub(crate) mod tests;
