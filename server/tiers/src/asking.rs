//! What the bucket is being asked to thaw at this moment: two restores that need the same object ask for it once.

use std::collections::HashSet;

use holdfast_volume::BlobName;
use parking_lot::{Condvar, Mutex};

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Asking {
    names: Mutex<HashSet<BlobName>>,
    ended: Condvar,
}

impl Asking {
    /// Waits until no one else asks for `name`; others wait until what is returned is dropped.
    pub(crate) fn begin(&self, name: &BlobName) -> Asks<'_> {
        let mut names = self.names.lock();
        while !names.insert(name.clone()) {
            self.ended.wait(&mut names);
        }
        Asks { asking: self, name: name.clone() }
    }
}

/// One that is asked for.
#[derive(Debug)]
pub(crate) struct Asks<'a> {
    asking: &'a Asking,
    name: BlobName,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        self.asking.names.lock().remove(&self.name);
        self.asking.ended.notify_all();
    }
}
