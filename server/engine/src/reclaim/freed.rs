//! What deleting restore points would free, to the byte.

use std::collections::HashSet;

use holdfast_types::ids::BackupId;

use super::control::Control;
use super::live::{Candidates, WINDOW_BYTES, is_live_data};
use super::mark::{Taken, only_in};
use super::roots::{Root, Roots};
use crate::core::Core;
use crate::error::EngineError;

/// What only some restore points refer to. Each chunk counts with its part of what its container takes, such that the
/// chunks of a container add up to the length of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    /// Chunks of disks.
    pub data_bytes: u64,
    /// Recipe nodes.
    pub recipe_bytes: u64,
    /// Whether everything was followed. Otherwise something of other restore points cannot be read, which may need
    /// some of this, too.
    pub is_exact: bool,
}

impl Freed {
    /// All of it.
    pub const fn total_bytes(&self) -> u64 {
        self.data_bytes + self.recipe_bytes
    }
}

/// See [`Engine::freed_by_deleting`](crate::Engine::freed_by_deleting).
pub(crate) fn freed_by_deleting(
    core: &Core,
    backups: &[BackupId],
    control: &Control,
) -> Result<Freed, EngineError> {
    freed_in_windows(core, backups, control, WINDOW_BYTES)
}

pub(super) fn freed_in_windows(
    core: &Core,
    backups: &[BackupId],
    control: &Control,
    window_bytes: u64,
) -> Result<Freed, EngineError> {
    let mut namespaces = HashSet::new();
    for id in backups {
        let not_found = || EngineError::NotFound { what: "backup", name: id.to_string() };
        namespaces.insert(core.catalog.backup(*id)?.ok_or_else(not_found)?.namespace);
    }
    let chosen: HashSet<BackupId> = backups.iter().copied().collect();
    // Namespaces share nothing.
    let (roots, _) = Roots::load(core)?.split(|root: &Root| namespaces.contains(&root.namespace));
    let (theirs, others) = roots.split(|root| chosen.contains(&root.backup));
    let mut freed = Freed { data_bytes: 0, recipe_bytes: 0, is_exact: true };
    let mut after = None;
    loop {
        let window = Candidates::window(&*core.catalog, after, window_bytes, |row| {
            is_live_data(row) && namespaces.contains(&row.namespace)
        })?;
        let (candidates, last) = match (window, after) {
            (Some((candidates, last)), _) => (candidates, Some(last)),
            // Recipes alone.
            (None, None) => (Candidates::default(), None),
            (None, Some(_)) => return Ok(freed),
        };
        let (Taken { data_bytes, recipe_bytes }, marked) =
            only_in(core, &theirs, &others, &candidates, control)?;
        freed.data_bytes += data_bytes;
        // The same in every window.
        freed.recipe_bytes = recipe_bytes;
        freed.is_exact &= marked.incomplete.is_empty();
        if last.is_none() {
            return Ok(freed);
        }
        after = last;
    }
}
