//! Chunks on their way: a table of claims for each namespace.
//!
//! A stream that is told to send a chunk *claims* it. Others that ask for the chunk are told that it is pending, do not
//! send it, and name it with a promise. A claim lives from the question until the chunk is indexed: first the chunk is
//! *asked*, then it has *arrived*, which means verified (W1) and written to a container that is not sealed yet.
//!
//! (C1) The table says only whether to wait. That a chunk is there, nothing but a look-up in the index says, with a hold
//! on what is found: so an entry that is wrong costs a wait or a second copy, never data.
//!
//! (C3) An arrived claim lives exactly as long as the value that writes and seals its container ([`Arrivals`]): it is
//! gone after the container is indexed, after its seal failed or panicked, and after it was discarded. An asked claim
//! ends with its stream, however that ends.
//!
//! [`table`] decides, [`stream`] is one stream's part of it, [`arrivals`] is one container's.

mod arrivals;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use holdfast_types::ids::NamespaceId;
use parking_lot::Mutex;

use table::ClaimTable;

pub(crate) use arrivals::Arrivals;
pub(crate) use stream::StreamClaims;
pub(crate) use table::{Asked, Output};

/// The tables of all namespaces; one that no stream uses is dropped.
#[derive(Debug, Default)]
pub(crate) struct ClaimTables(Mutex<HashMap<NamespaceId, Weak<ClaimTable>>>);

impl ClaimTables {
    /// (A6) Enters a stream into the table of its namespace; `output` seals what the stream writes.
    pub(crate) fn enter(&self, namespace: NamespaceId, output: Weak<dyn Output>) -> Arc<StreamClaims> {
        let mut tables = self.0.lock();
        tables.retain(|_, table| table.strong_count() > 0);
        let known = tables.get(&namespace).and_then(Weak::upgrade);
        let table = known.unwrap_or_else(|| {
            let table = Arc::new(ClaimTable::default());
            tables.insert(namespace, Arc::downgrade(&table));
            table
        });
        drop(tables);
        Arc::new(StreamClaims::new(table, output))
    }

    /// Claims of all namespaces.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().filter_map(Weak::upgrade).map(|table| table.count().0).sum()
    }

    /// Those that have arrived.
    #[cfg(test)]
    pub(crate) fn arrived(&self) -> usize {
        self.0.lock().values().filter_map(Weak::upgrade).map(|table| table.count().1).sum()
    }
}
