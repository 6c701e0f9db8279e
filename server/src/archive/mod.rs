//! What lies in the archive of the bucket: what of a restore point does, what bringing it back costs, and doing it.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | [`Archives`]: the parts of a restore point that lie there |
//! | `prices.rs` | what Amazon asks for, or what a file says |
//! | `quote.rs` | objects, bytes, hours and amounts, before anything is asked for |
//! | `walks.rs` | how many recipes are walked at once |
//!
//! What is thawed is what a restore would read: both look chunks up in the same way (`Engine::cold_parts`).

mod prices;
mod quote;
mod walks;

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::DiskRecord;
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::{DISKS_PER_BACKUP_MAX, check_name};
use holdfast_tiers::prices::Thaw;
use holdfast_tiers::{Archive, Thawing, is_archive};
use holdfast_volume::BlobName;

pub(crate) use prices::Prices;
pub(crate) use quote::quote;
use walks::Walks;

use crate::config::{DAYS_MAX, Settings};
use crate::error::ServiceError;
use crate::repository::{Tiers, record_error};

/// An object that lies in the archive and that a restore would read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: BlobName,
    pub(crate) len: u64,
    pub(crate) class: String,
    pub(crate) thawing: Thawing,
}

/// What lies in none of `classes` is not thawed at all.
fn check_speed(prices: &Prices, classes: &[String], wanted: &str) -> Result<(), ServiceError> {
    let offered =
        |speed: Thaw| classes.iter().any(|class| prices.thaws.contains_key(&(class.clone(), speed)));
    // What is no speed is refused with the rest of the options.
    if classes.is_empty() || Thaw::named(wanted).is_none_or(offered) {
        return Ok(());
    }
    let speeds = Thaw::ALL.into_iter().filter(|speed| offered(*speed));
    let speeds: Vec<String> = speeds.map(|speed| speed.text().to_ascii_lowercase()).collect();
    Err(ServiceError::invalid(format!(
        "nothing that lies in the archive ({}) is thawed as {wanted}: {}",
        classes.join(", "),
        speeds.join(" or ")
    )))
}

/// Of the disks `has` of a restore point those that are meant, each once and in its order: `wanted`, or all. A walk is made
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

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Archives {
    engine: Arc<Engine>,
    tiers: Option<Arc<Tiers>>,
    pub(crate) prices: Prices,
    /// Unless someone asks for others.
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
        check_speed(&self.prices, &classes, wanted)
    }

    /// What of these disks of a restore point lies in the archive, each object once, by name. `go_on` is asked every now and
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
    fn a_speed_must_be_one_of_a_class_that_something_lies_in() {
        let prices = Prices::built_in();
        let check = |classes: &[&str], speed| {
            let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
            check_speed(&prices, &classes, speed)
        };
        assert!(check(&["DEEP_ARCHIVE"], "Bulk").is_ok() && check(&[], "expedited").is_ok());
        assert!(check(&["DEEP_ARCHIVE", "GLACIER"], "expedited").is_ok(), "of what lies in GLACIER");
        let refused = check(&["DEEP_ARCHIVE"], "expedited").unwrap_err();
        assert_eq!(refused.code, ErrorCode::Invalid);
        assert!(
            refused.message.ends_with("(DEEP_ARCHIVE) is thawed as expedited: bulk or standard"),
            "{refused:?}"
        );
        assert!(check(&["DEEP_ARCHIVE"], "at once").is_ok(), "refused as no speed elsewhere");
    }
}
