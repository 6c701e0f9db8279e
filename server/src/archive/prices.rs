//! Prices of an archive: as they are built in, or as a file of the administrator's says.

use std::collections::BTreeMap;
use std::path::Path;

use holdfast_retention::FORECAST_DAYS_MAX;
use holdfast_tiers::days_min;
use holdfast_tiers::prices::{AS_OF, CLASSES, ClassPrices, Dollars, INTERNET_GB, REGION, Thaw, ThawPrice};
use serde::Deserialize;

use crate::error::ServiceError;

/// Largest price file: above any table.
const FILE_MAX_BYTES: u64 = 64 << 10;

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
    /// Prices by class and speed.
    pub(crate) thaws: BTreeMap<(String, Thaw), ThawPrice>,
    /// Minimum days paid for, by class, where they differ from Amazon's.
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
                thaws.insert((class.class.to_owned(), price.thaw), *price);
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

    /// Minimum days for which an object in a class is paid for.
    pub(crate) fn minimum_days(&self, class: &str) -> u32 {
        self.minimum_days.get(class).copied().or_else(|| days_min(class)).unwrap_or(0)
    }

    /// Refuses a speed that none of `classes` offers. Objects in none of them are not thawed at all.
    ///
    /// # Errors
    /// `Invalid`, with the speeds that there are.
    pub(super) fn check_speed(&self, classes: &[String], wanted: &str) -> Result<(), ServiceError> {
        let offered =
            |speed: Thaw| classes.iter().any(|class| self.thaws.contains_key(&(class.clone(), speed)));
        // An unknown speed is refused with the rest of the options.
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
                let thaw = known.ok_or_else(|| {
                    format!("{class} cannot be thawed as {speed:?}: bulk, standard or expedited")
                })?;
                let SpeedTable { per_1000, gb, hours } = prices;
                let request = Dollars(per_1000.0.0.div_ceil(1000));
                thaws.insert((class.clone(), thaw), ThawPrice { thaw, request, gb: gb.0, hours });
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
    use holdfast_proto::ErrorCode;

    use super::*;

    #[test]
    fn a_speed_must_be_one_of_a_class_that_something_lies_in() {
        let prices = Prices::built_in();
        let check = |classes: &[&str], speed| {
            let classes: Vec<String> = classes.iter().map(|class| (*class).to_owned()).collect();
            prices.check_speed(&classes, speed)
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
        let (request, gb) = (Dollars(30_000), Dollars(3_000_000));
        assert_eq!(deep, ThawPrice { thaw: Thaw::Bulk, request, gb, hours: 48 });
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
