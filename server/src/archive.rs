//! Thaws: how much of a restore point lies in the bucket's archive, and what bringing it back costs. The task that does it:
//! `tasks/thaw.rs`.
//!
//! A thaw brings back exactly what a restore would read: both look chunks up in the same way (`Engine::cold_parts`).

mod prices;
mod quote;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Engine;
use holdfast_engine::catalog::DiskRecord;
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_proto::limits::{DISKS_PER_BACKUP_MAX, check_name};
use holdfast_proto::{ErrorCode, api};
use holdfast_tiers::{Archive, Thawing, is_archive};
use holdfast_volume::BlobName;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::config::{DAYS_MAX, Settings};
use crate::error::ServiceError;
use crate::repository::{Tiers, record_error};

use prices::Prices;

/// An object that lies in the archive and that a restore would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: BlobName,
    pub(crate) len: u64,
    pub(crate) class: String,
    pub(crate) thawing: Thawing,
}

/// Selects disks of a restore point, each once and in its order: those `wanted` among `has`, or all. A walk is made
/// over the recipe of each.
///
/// # Errors
/// `Invalid`: more names than a restore point has disks; `NotFound`: it has no such disk.
pub(crate) fn disks<'a>(has: &'a [DiskRecord], wanted: &[String]) -> Result<Vec<&'a str>, ServiceError> {
    if wanted.len() > DISKS_PER_BACKUP_MAX {
        return Err(ServiceError::invalid(format!(
            "{} disks are named; a restore point has at most {DISKS_PER_BACKUP_MAX}",
            wanted.len()
        )));
    }
    if let Some(name) = wanted.iter().find(|name| !has.iter().any(|disk| disk.name == **name)) {
        check_name("disk", name).map_err(ServiceError::invalid)?;
        return Err(ServiceError::new(
            ErrorCode::NotFound,
            format!("the restore point has no disk {name:?}"),
        ));
    }
    let names = has.iter().map(|disk| disk.name.as_str());
    Ok(names.filter(|has| wanted.is_empty() || wanted.iter().any(|name| name == has)).collect())
}

/// Looks up the parts of restore points that lie in the archive.
#[derive(Debug)]
pub(crate) struct Archives {
    engine: Arc<Engine>,
    tiers: Option<Arc<Tiers>>,
    pub(crate) prices: Prices,
    /// Default days of a thaw.
    days: u32,
    walks: Walks,
}

impl Archives {
    /// # Errors
    /// `Invalid`: the file of prices.
    pub(crate) fn new(
        engine: &Arc<Engine>,
        tiers: Option<&Arc<Tiers>>,
        settings: &Settings,
    ) -> Result<Self, ServiceError> {
        let prices = settings.s3_prices.as_deref().map_or_else(|| Ok(Prices::built_in()), Prices::read)?;
        let (days, walks) = (settings.s3_thaw_days, Walks::default());
        Ok(Self { engine: Arc::clone(engine), tiers: tiers.cloned(), prices, days, walks })
    }

    /// The days for which something is thawed; 0: as the settings say.
    ///
    /// # Errors
    /// `Invalid`.
    pub(crate) fn days(&self, wanted: u32) -> Result<u32, ServiceError> {
        match wanted {
            0 => Ok(self.days),
            1..=DAYS_MAX => Ok(wanted),
            _ => {
                Err(ServiceError::invalid(format!("what is thawed can be read for at most {DAYS_MAX} days")))
            }
        }
    }

    /// The archive.
    ///
    /// # Errors
    /// `Invalid`: there is none.
    pub(crate) fn archive(&self) -> Result<&Archive, ServiceError> {
        self.tiers.as_ref().filter(|tiers| tiers.bucket.is_some()).map(|tiers| &tiers.archive).ok_or_else(
            || ServiceError::invalid("the settings name no bucket, so nothing can be thawed: set s3"),
        )
    }

    /// Refuses a speed that nothing in the archive is thawed at: the bucket would refuse each object, one by one.
    ///
    /// # Errors
    /// `Invalid`, with the speeds that there are; the record's.
    pub(crate) fn check_speed(&self, wanted: &str) -> Result<(), ServiceError> {
        let Some(tiers) = &self.tiers else { return Ok(()) };
        let mut classes = tiers.archive.classes().map_err(record_error)?;
        classes.retain(|class| is_archive(class));
        self.prices.check_speed(&classes, wanted)
    }

    /// Returns the parts of these disks that lie in the archive, each object once, by name. `go_on` is asked every now and
    /// then; `None`: it said no.
    ///
    /// # Errors
    /// `Limit`: too many wait to be told; the engine's and the record's.
    pub(crate) fn parts(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disks: &[&str],
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Part>>, ServiceError> {
        let Some(tiers) = &self.tiers else { return Ok(Some(Vec::new())) };
        // Where nothing is cold no one waits for a walk over the recipe.
        if !tiers.archive.has_any().map_err(record_error)? {
            return Ok(Some(Vec::new()));
        }
        let Some(_walk) = self.walks.begin(go_on)? else { return Ok(None) };
        let mut places = BTreeMap::new();
        for disk in disks {
            let Some(found) = self.engine.cold_parts(namespace, backup, disk, go_on)? else {
                return Ok(None);
            };
            places.extend(found.into_iter().map(|place| (place.name, place.len)));
        }
        let mut parts = Vec::with_capacity(places.len());
        for (name, len) in places {
            if let Some((class, thawing)) = tiers.archive.known(&name).map_err(record_error)? {
                parts.push(Part { name, len, class, thawing });
            }
        }
        Ok(Some(parts))
    }

    /// Returns the quote for bringing `parts` back for `days`.
    pub(crate) fn quote(&self, parts: &[Part], days: u32) -> api::Thaw {
        quote::of(&self.prices, parts, days)
    }
}

/// Walks at once: more of them do not end sooner, and backups need the index, too.
const AT_ONCE: usize = 4;

/// Callers that wait for a thaw to end, at most. Each has a thread of the pool of calls that block (512).
const WAITING_MAX: usize = 64;

/// Interval between questions whether to go on waiting.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Counts {
    walking: usize,
    waiting: usize,
}

/// Limits the recipes walked at once: each walk reads pages and asks the index for every chunk of a disk, and anyone who may
/// restore may start one.
#[derive(Debug, Default)]
struct Walks {
    counts: Mutex<Counts>,
    ended: Condvar,
}

impl Walks {
    /// Waits for its turn, which ends when what is returned is dropped; `None`: `go_on` said no.
    ///
    /// # Errors
    /// `Limit`: too many wait.
    fn begin(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Walk<'_>>, ServiceError> {
        let mut counts = self.counts.lock();
        if counts.walking >= AT_ONCE {
            if counts.waiting >= WAITING_MAX {
                return Err(ServiceError::at_capacity(format!(
                    "{WAITING_MAX} restores wait to be told what lies in the archive: try again in a minute"
                )));
            }
            counts.waiting += 1;
            let mut goes_on = true;
            while goes_on && counts.walking >= AT_ONCE {
                self.ended.wait_for(&mut counts, LOOK);
                // It may take its time: a task waits for its share in it.
                goes_on = MutexGuard::unlocked(&mut counts, &mut *go_on);
            }
            counts.waiting -= 1;
            if !goes_on {
                return Ok(None);
            }
        }
        counts.walking += 1;
        Ok(Some(Walk(self)))
    }
}

/// A walk in progress.
#[derive(Debug)]
struct Walk<'a>(&'a Walks);

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().walking -= 1;
        self.0.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::Fingerprint;

    use super::*;

    #[test]
    fn each_disk_is_walked_once_and_only_those_that_there_are() {
        let disk = |name: &str| DiskRecord {
            name: name.to_owned(),
            size_bytes: 1,
            data_bytes: 1,
            extent_count: 1,
            root: Fingerprint::from_bytes([0; 32]),
        };
        let has = ["vda", "vdb", "vdc"].map(disk);
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        assert_eq!(disks(&has, &[]).unwrap(), ["vda", "vdb", "vdc"]);
        let repeated = names(&["vdb", "vda"].repeat(DISKS_PER_BACKUP_MAX / 2));
        assert_eq!(disks(&has, &repeated).unwrap(), ["vda", "vdb"]);
        let code = |wanted: &[String]| disks(&has, wanted).unwrap_err().code;
        assert_eq!(code(&names(&["vda"; DISKS_PER_BACKUP_MAX + 1])), ErrorCode::Invalid);
        assert_eq!(code(&names(&["vda", "vdd"])), ErrorCode::NotFound);
        assert_eq!(code(&names(&["a\n"])), ErrorCode::Invalid);
    }

    #[test]
    fn walks_wait_for_others_and_not_all_of_them() {
        let walks = Walks::default();
        let mut under_way: Vec<Walk<'_>> =
            (0..AT_ONCE).map(|_| walks.begin(&mut || false).unwrap().unwrap()).collect();
        assert!(walks.begin(&mut || false).unwrap().is_none(), "it was told not to wait");
        walks.counts.lock().waiting = WAITING_MAX;
        assert_eq!(walks.begin(&mut || true).unwrap_err().code, ErrorCode::Limit);
        walks.counts.lock().waiting = 0;
        // One ends while another waits.
        let walk = walks.begin(&mut || {
            under_way.pop();
            true
        });
        assert!(walk.unwrap().is_some());
        assert_eq!((under_way.len(), walks.counts.lock().waiting), (AT_ONCE - 1, 0));
        drop(under_way);
        assert_eq!(walks.counts.lock().walking, 0);
    }
}
