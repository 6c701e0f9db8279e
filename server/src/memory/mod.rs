//! How much memory the server may use, and what it uses it for.
//!
//! `limit` finds out what there is: the setting `memory`, the limits of the control groups this process is in, the
//! machine's memory; the smallest counts. `budget` divides it. Everything that grows with what clients do takes its
//! bound from there, so that the sum stays below the limit; what does not fit is refused or waits.

mod budget;
mod limit;

pub use budget::{Budget, MEMORY_MIN_BYTES, NotEnoughMemory};
pub use limit::{LimitSource, MemoryLimit};
