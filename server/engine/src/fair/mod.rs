//! Whose work comes next, when several tenants wait for the same threads: round robin by namespace, within a namespace
//! by token, within a token in order of arrival. So a tenant with one piece of work waits for at most one of every
//! other namespace (and of every other token of its own), however many they have queued.
//!
//! Work is never held back while a thread is free: a tenant that is alone has all of them.

mod pool;
mod queue;

pub(crate) use pool::FairPool;
pub use queue::{FairQueue, Tenant};
