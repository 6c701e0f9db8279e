//! Walks over everything of a kind, in bounded memory: 100 TB are three million containers.

use std::collections::VecDeque;

use holdfast_types::ids::BackupId;

use super::{Catalog, ContainerRecord, Result, RootRecord};

/// Items fetched at a time: some 200 KiB.
const BATCH: u32 = 1000;

/// Walks. What is added or removed meanwhile may or may not be seen; nothing is seen
/// twice. A walk ends after the first error.
impl Catalog {
    /// Every container, by number.
    pub fn all_containers(&self) -> impl Iterator<Item = Result<ContainerRecord>> {
        walk(|last: Option<&ContainerRecord>| self.containers(last.map(|c| c.id), BATCH))
    }

    /// Every backup, by id.
    pub fn all_backup_ids(&self) -> impl Iterator<Item = Result<BackupId>> {
        walk(|last: Option<&BackupId>| self.backup_ids(last.copied(), BATCH))
    }

    /// The recipe root of every disk of every backup.
    pub fn all_roots(&self) -> impl Iterator<Item = Result<RootRecord>> {
        walk(|last: Option<&RootRecord>| self.roots(last.map(|r| (r.backup, r.position)), BATCH))
    }
}

fn walk<T: Clone>(mut fetch: impl FnMut(Option<&T>) -> Result<Vec<T>>) -> impl Iterator<Item = Result<T>> {
    let mut batch = VecDeque::new();
    let mut last = None;
    let mut ended = false;
    std::iter::from_fn(move || {
        if batch.is_empty() && !ended {
            match fetch(last.as_ref()) {
                Ok(items) => {
                    ended = items.is_empty();
                    last = items.last().cloned();
                    batch = items.into();
                }
                Err(error) => {
                    ended = true;
                    return Some(Err(error));
                }
            }
        }
        batch.pop_front().map(Ok)
    })
}
