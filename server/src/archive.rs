//! Thaws: how much of a restore point lies in the bucket's archive, what bringing it back costs, and doing it.
//!
//! A thaw brings back exactly what a restore would read: both look chunks up in the same way (`Engine::cold_parts`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Engine;
use holdfast_engine::catalog::DiskRecord;
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_proto::limits::{DISKS_PER_BACKUP_MAX, check_name};
use holdfast_proto::{ErrorCode, v1};
use holdfast_retention::FORECAST_DAYS_MAX;
use holdfast_tiers::prices::{AS_OF, CLASSES, ClassPrices, Dollars, GB, INTERNET_GB, REGION, Thaw};
use holdfast_tiers::{Archive, Thawing, days_min, is_archive};
use holdfast_volume::BlobName;
use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Deserialize;

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

/// Refuses a speed that none of `classes` offers. Objects in none of them are not thawed at all.
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
}

/// Walks at once: more of them do not end sooner, and backups need the index, too.
const AT_ONCE: usize = 4;

/// Callers that wait for a thaw to end, at most. Each has a thread of the pool of calls that block (512).
const WAITING_MAX: usize = 64;

/// Between two questions whether to go on waiting.
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

/// One under way.
#[derive(Debug)]
struct Walk<'a>(&'a Walks);

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().walking -= 1;
        self.0.ended.notify_one();
    }
}

// Quote for bringing parts of an archive back.

/// As prices count.
const MONTH_DAYS: u64 = 30;

/// How many, and how large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Self {
        parts
            .into_iter()
            .fold(Self::default(), |sum, part| Self { objects: sum.objects + 1, bytes: sum.bytes + part.len })
    }
}

/// Returns the quote for bringing `parts` back for `days`.
pub(crate) fn quote(archives: &Archives, parts: &[Part], days: u32) -> v1::ThawQuote {
    of(&archives.prices, parts, days)
}

fn of(prices: &Prices, parts: &[Part], days: u32) -> v1::ThawQuote {
    let with = |thawing: Thawing| Sum::of(parts.iter().filter(|part| part.thawing == thawing));
    let (cold, under_way, readable) = (with(Thawing::Cold), with(Thawing::UnderWay), with(Thawing::Readable));
    let mut classes: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.thawing == Thawing::Cold) {
        classes.entry(&part.class).or_default().push(part);
    }
    let classes: BTreeMap<&str, Sum> =
        classes.into_iter().map(|(class, parts)| (class, Sum::of(parts))).collect();
    let offers = Thaw::ALL.into_iter().filter_map(|speed| offer(prices, &classes, cold, speed, days));
    v1::ThawQuote {
        objects: cold.objects,
        bytes: cold.bytes,
        objects_under_way: under_way.objects,
        bytes_under_way: under_way.bytes,
        objects_readable: readable.objects,
        bytes_readable: readable.bytes,
        days,
        offers: if cold.objects == 0 { Vec::new() } else { offers.collect() },
        region: prices.region.clone(),
        as_of: prices.as_of.clone(),
        classes: classes.keys().map(|class| (*class).to_owned()).collect(),
    }
}

/// `None`: not all of it comes back at this speed.
fn offer(
    prices: &Prices,
    classes: &BTreeMap<&str, Sum>,
    all: Sum,
    speed: Thaw,
    days: u32,
) -> Option<v1::ThawOffer> {
    let (mut hours, mut requests, mut retrieved) = (0, Dollars(0), Dollars(0));
    for (class, sum) in classes {
        let price = prices.thaws.get(&((*class).to_owned(), speed))?;
        hours = hours.max(price.hours);
        requests += price.request.times(sum.objects);
        retrieved += price.gb.for_bytes(sum.bytes);
    }
    // (bytes × days / 30) at the price of a GB for a month.
    let copies = Dollars(prices.copy_gb_month.0.saturating_mul(u64::from(days)).div_ceil(MONTH_DAYS));
    let line =
        |what: String, amount: Dollars, is_extra| v1::ThawCost { what, nanodollars: amount.0, is_extra };
    let gb = |bytes: u64| format!("{:.1} GiB", gibibytes(bytes));
    let lines = vec![
        line(format!("{} requests to thaw", all.objects), requests, false),
        line(format!("{} retrieved", gb(all.bytes)), retrieved, false),
        line(format!("copies to read, kept for {days} days"), copies.for_bytes(all.bytes), false),
        line("requests to read".to_owned(), prices.get.times(all.objects), false),
        line(
            format!("{} of traffic, if this server is not in the bucket's region", gb(all.bytes)),
            prices.internet_gb.for_bytes(all.bytes),
            true,
        ),
    ];
    let sum = lines.iter().filter(|line| !line.is_extra).map(|line| line.nanodollars).sum();
    let speed = speed.text().to_ascii_lowercase();
    Some(v1::ThawOffer { speed, hours, nanodollars: sum, lines })
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / GB as f64
}

/// Above any table.
const FILE_MAX_BYTES: u64 = 64 << 10;

/// Price of making an object of a class readable at one speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpeedPrices {
    pub(crate) request: Dollars,
    pub(crate) gb: Dollars,
    /// Within which it is done, as a rule.
    pub(crate) hours: u32,
}

/// Prices of bringing objects back from an archive: as Amazon publishes it for one region, or as a file of the
/// administrator's says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prices {
    pub(crate) region: String,
    pub(crate) as_of: String,
    /// A GB of copies that can be read, for a month.
    pub(crate) copy_gb_month: Dollars,
    pub(crate) get: Dollars,
    /// A GB that leaves Amazon's network.
    pub(crate) internet_gb: Dollars,
    /// By class and speed.
    pub(crate) thaws: BTreeMap<(String, Thaw), SpeedPrices>,
    /// By class, in days: for how long what is put there is paid for at least, where that is not as Amazon has it.
    minimum_days: BTreeMap<String, u32>,
}

/// A price in a file, such as `"0.0025"`: text, so that it means what it says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Price(Dollars);

impl TryFrom<String> for Price {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        parse(&text).map(Self).ok_or_else(|| {
            format!(
                "{text:?} is no price: write dollars as text, such as \"0.0025\", with nine decimals at most"
            )
        })
    }
}

/// Dollars with at most nine decimals; `None`: it is something else.
fn parse(text: &str) -> Option<Dollars> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(part) || part.len() > 9 {
        return None;
    }
    let nanos: u64 = format!("{part:0<9}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    Some(Dollars(whole.checked_mul(1_000_000_000)?.checked_add(nanos)?))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpeedTable {
    per_1000: Price,
    gb: Price,
    hours: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    region: String,
    as_of: String,
    copy_gb_month: Price,
    get_per_1000: Price,
    internet_gb: Price,
    /// By class, then by speed.
    thaw: BTreeMap<String, BTreeMap<String, SpeedTable>>,
    /// By class.
    #[serde(default)]
    minimum_days: BTreeMap<String, u32>,
}

impl Prices {
    /// As published for one region.
    pub(crate) fn built_in() -> Self {
        let standard = ClassPrices::standard();
        let mut thaws = BTreeMap::new();
        for class in CLASSES {
            for price in class.thaws {
                let prices = SpeedPrices { request: price.request, gb: price.gb, hours: price.hours };
                thaws.insert((class.class.to_owned(), price.thaw), prices);
            }
        }
        Self {
            region: REGION.to_owned(),
            as_of: AS_OF.to_owned(),
            copy_gb_month: standard.gb_month,
            get: standard.get,
            internet_gb: INTERNET_GB,
            thaws,
            minimum_days: BTreeMap::new(),
        }
    }

    /// For how long what is put in a class is paid for at least, in days.
    pub(crate) fn minimum_days(&self, class: &str) -> u32 {
        self.minimum_days.get(class).copied().or_else(|| days_min(class)).unwrap_or(0)
    }

    /// As a file says.
    ///
    /// # Errors
    /// `Invalid`, saying what is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, ServiceError> {
        let failed = |why: &dyn std::fmt::Display| {
            ServiceError::invalid(format!("s3_prices {}: {why}", path.display()))
        };
        let found = std::fs::metadata(path).map_err(|error| failed(&error))?;
        if found.len() > FILE_MAX_BYTES {
            return Err(failed(&format_args!("it has more than {FILE_MAX_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        Self::parse(&text).map_err(|why| failed(&why))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let table: Table = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut thaws = BTreeMap::new();
        for (class, speeds) in table.thaw {
            for (speed, prices) in speeds {
                let known = Thaw::named(&speed);
                let known = known.ok_or_else(|| {
                    format!("{class} cannot be thawed as {speed:?}: bulk, standard or expedited")
                })?;
                let SpeedTable { per_1000, gb, hours } = prices;
                let request = Dollars(per_1000.0.0.div_ceil(1000));
                thaws.insert((class.clone(), known), SpeedPrices { request, gb: gb.0, hours });
            }
        }
        if let Some((class, days)) = table.minimum_days.iter().find(|(_, days)| **days > FORECAST_DAYS_MAX) {
            return Err(format!("minimum_days of {class} is {days}; it is 0 to {FORECAST_DAYS_MAX}"));
        }
        Ok(Self {
            region: table.region,
            as_of: table.as_of,
            copy_gb_month: table.copy_gb_month.0,
            get: Dollars(table.get_per_1000.0.0.div_ceil(1000)),
            internet_gb: table.internet_gb.0,
            thaws,
            minimum_days: table.minimum_days,
        })
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

    fn part(number: u32, class: &str, thawing: Thawing) -> Part {
        let name = BlobName::new(format!("containers/0000000/{number:010}.data")).unwrap();
        Part { name, len: GB, class: class.to_owned(), thawing }
    }

    #[test]
    fn only_what_is_cold_is_paid_for() {
        let parts = [
            part(1, "DEEP_ARCHIVE", Thawing::Cold),
            part(2, "DEEP_ARCHIVE", Thawing::Cold),
            part(3, "DEEP_ARCHIVE", Thawing::UnderWay),
            part(4, "DEEP_ARCHIVE", Thawing::Readable),
        ];
        let quote = of(&Prices::built_in(), &parts, 30);
        assert_eq!((quote.objects, quote.bytes), (2, 2 * GB));
        assert_eq!((quote.objects_under_way, quote.objects_readable), (1, 1));
        let offers: Vec<_> =
            quote.offers.iter().map(|offer| (offer.speed.as_str(), offer.hours, offer.nanodollars)).collect();
        // By hand: 2 × $0.025/1000 + 2 × $0.0025 + 2 × $0.023 + 2 × $0.0004/1000, and so on.
        let bulk = 50_000 + 5_000_000 + 46_000_000 + 800;
        let standard = 200_000 + 40_000_000 + 46_000_000 + 800;
        assert_eq!(offers, [("bulk", 48, bulk), ("standard", 12, standard)]);
        let extra: Vec<_> = quote.offers[0].lines.iter().filter(|line| line.is_extra).collect();
        assert_eq!(extra.len(), 1, "what may not apply is told apart");
        assert_eq!(extra[0].nanodollars, 180_000_000);
    }

    #[test]
    fn a_speed_is_offered_only_for_all_of_it() {
        let mixed = [part(1, "DEEP_ARCHIVE", Thawing::Cold), part(2, "GLACIER", Thawing::Cold)];
        let speeds = |parts: &[Part]| -> Vec<String> {
            of(&Prices::built_in(), parts, 1).offers.into_iter().map(|offer| offer.speed).collect()
        };
        assert_eq!(speeds(&mixed), ["bulk", "standard"]);
        assert_eq!(speeds(&mixed[1..]), ["bulk", "standard", "expedited"]);
        assert!(speeds(&[]).is_empty());
    }

    const FILE: &str = r#"
region = "eu-central-1"
as_of = "2026-11"
copy_gb_month = "0.0245"
get_per_1000 = "0.00043"
internet_gb = "0.09"

[thaw.GLACIER]
bulk = { per_1000 = "0", gb = "0", hours = 12 }

[minimum_days]
GLACIER = 30
STANDARD_IA = 0

[thaw.DEEP_ARCHIVE]
bulk = { per_1000 = "0.03", gb = "0.003", hours = 48 }
standard = { per_1000 = "0.12", gb = "0.024", hours = 12 }
"#;

    #[test]
    fn a_file_says_what_counts() {
        let prices = Prices::parse(FILE).unwrap();
        assert_eq!((prices.region.as_str(), prices.thaws.len()), ("eu-central-1", 3));
        let deep = prices.thaws[&("DEEP_ARCHIVE".to_owned(), Thaw::Bulk)];
        assert_eq!(deep, SpeedPrices { request: Dollars(30_000), gb: Dollars(3_000_000), hours: 48 });
        for (from, to) in [
            ("0.0245", "a"),
            ("bulk", "slow"),
            ("region", "place"),
            ("\"0.003\"", "0.003"),
            ("= 30", "= 367"),
        ] {
            assert!(Prices::parse(&FILE.replacen(from, to, 1)).is_err(), "{from} {to}");
        }
        let days =
            ["GLACIER", "STANDARD_IA", "DEEP_ARCHIVE", "UNHEARD_OF"].map(|class| prices.minimum_days(class));
        assert_eq!(days, [30, 0, 180, 0]);
        let built_in = Prices::built_in();
        assert_eq!(built_in.minimum_days("GLACIER"), 90);
        assert_eq!(built_in.thaws.len(), 5);
        assert!(!built_in.thaws.contains_key(&("DEEP_ARCHIVE".to_owned(), Thaw::Expedited)));
    }

    #[test]
    fn prices_are_exact() {
        assert_eq!(parse("0.0025"), Some(Dollars(2_500_000)));
        assert_eq!(parse("12"), Some(Dollars(12_000_000_000)));
        for bad in ["", ".5", "-1", "1.0000000001", "1,5", "1e3", "99999999999999"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
