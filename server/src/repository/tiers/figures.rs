//! Figures of a bucket, for reports. What takes reading the whole record, or listing the data folder, is kept for a while.

use std::time::{Duration, Instant};

use holdfast_tiers::prices::{ClassPrices, DEFAULT_CLASS};
use holdfast_tiers::{ClassTotals, KindPlaces, KindTotals, Record, RecordError, RetentionTotals};
use parking_lot::Mutex;

use super::Tiers;
use super::cost::{MonthCost, cost};
use super::usage::{Asked, Usage};
use crate::config::Settings;
use crate::error::ServiceError;
use holdfast_proto::ErrorCode;

/// Key in the record for the usage.
const USAGE: &str = "usage";

/// Least time for which findings are kept.
const KEEP: Duration = Duration::from_secs(5);

/// Findings are kept longer when they took long, so that looking takes at most one part in this many of the time.
const SHARE: u32 = 20;

/// Settings that figures depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Storage class of what is put.
    pub(crate) class: String,
    /// Set if the bucket is Amazon's, whose prices these are.
    pub(crate) is_amazon: bool,
    /// Days after which containers are moved, and the share of the volume up to which.
    pub(crate) moving: Option<(u32, u8)>,
}

impl Plan {
    pub(crate) fn of(settings: &Settings) -> Self {
        let endpoint = settings.s3_endpoint.as_deref();
        Self {
            class: settings.s3_class.clone().unwrap_or_else(|| DEFAULT_CLASS.to_owned()),
            is_amazon: endpoint.is_none_or(|endpoint| endpoint.contains("amazonaws.com")),
            moving: settings
                .s3_move_after_days
                .or(settings.s3_primary.then_some(0))
                .map(|days| (days, settings.s3_move_until_free)),
        }
    }

    /// The prices of what is put; `None`: they are not known.
    pub(crate) fn prices(&self) -> Option<&'static ClassPrices> {
        ClassPrices::of(&self.class)
    }
}

/// A cached value, with when it was found and how long that took.
#[derive(Debug)]
struct Found<T> {
    at: Instant,
    took: Duration,
    at_ms: i64,
    value: T,
}

/// Content of the bucket, objects to be removed included.
#[derive(Debug, Clone)]
pub(crate) struct Totals {
    pub(crate) kinds: Vec<KindTotals>,
    pub(crate) classes: Vec<ClassTotals>,
}

/// Cached figures of a bucket.
#[derive(Debug)]
pub(super) struct Figures {
    totals: Mutex<Option<Found<Totals>>>,
    places: Mutex<Option<Found<Vec<KindPlaces>>>>,
    retention: Mutex<Option<Found<RetentionTotals>>>,
    usage: Mutex<Counting>,
}

/// Usage of the bucket, and the requests of this process that are counted in it.
#[derive(Debug)]
struct Counting {
    usage: Usage,
    counted: Asked,
    /// Requests as written down last.
    written: Asked,
}

fn recent<T: Clone, E>(
    slot: &Mutex<Option<Found<T>>>,
    now_ms: i64,
    find: impl FnOnce() -> Result<T, E>,
) -> Result<(T, i64), E> {
    let mut slot = slot.lock();
    if let Some(found) = &*slot
        && found.at.elapsed() < KEEP.max(found.took.saturating_mul(SHARE))
    {
        return Ok((found.value.clone(), found.at_ms));
    }
    let begun = Instant::now();
    let value = find()?;
    *slot = Some(Found { at: Instant::now(), took: begun.elapsed(), at_ms: now_ms, value: value.clone() });
    Ok((value, now_ms))
}

impl Figures {
    /// Goes on with what the record says of the processes before.
    pub(super) fn of(record: &Record) -> Result<Self, RecordError> {
        let usage = read_usage(record)?.unwrap_or_default();
        let counting = Counting { usage, counted: Asked::default(), written: Asked::default() };
        Ok(Self {
            totals: Mutex::default(),
            places: Mutex::default(),
            retention: Mutex::default(),
            usage: Mutex::new(counting),
        })
    }

    /// Retention as `find` finds it.
    pub(super) fn retention(
        &self,
        now_ms: i64,
        find: impl FnOnce() -> Result<RetentionTotals, RecordError>,
    ) -> Result<RetentionTotals, RecordError> {
        Ok(recent(&self.retention, now_ms, find)?.0)
    }
}

/// Content of the bucket.
///
/// # Errors
/// The record's.
pub(crate) fn totals(record: &Record, plan: &Plan) -> Result<Totals, RecordError> {
    Ok(Totals { kinds: record.totals()?, classes: record.class_totals(&plan.class)? })
}

/// Usage, as the last process wrote it down.
///
/// # Errors
/// The record's.
pub(crate) fn read_usage(record: &Record) -> Result<Option<Usage>, RecordError> {
    Ok(record.said(USAGE)?.and_then(|text| serde_json::from_str(&text).ok()))
}

impl Tiers {
    /// Content of the bucket. Blocks.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn totals(&self, now_ms: i64) -> Result<Totals, RecordError> {
        Ok(recent(&self.figures.totals, now_ms, || totals(self.copies.record(), &self.plan))?.0)
    }

    /// Requests to the bucket since the process began.
    fn asked(&self) -> Asked {
        Asked { requests: self.requests(), archive: self.archive.asked() }
    }

    /// Places of the blobs of each kind, and when they were found. Blocks.
    ///
    /// # Errors
    /// When the data folder cannot be listed.
    pub(crate) fn places(&self, now_ms: i64) -> Result<(Vec<KindPlaces>, i64), ServiceError> {
        let found = recent(&self.figures.places, now_ms, || self.copies.places());
        found.map_err(|error| ServiceError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Returns true if containers may lie in the bucket alone: some were moved there, or the data folder was made of
    /// it. Blocks.
    ///
    /// # Errors
    /// When the data folder cannot be listed.
    pub(crate) fn has_data_alone(&self) -> Result<bool, ServiceError> {
        let found = self.copies.has_moved_containers();
        found.map_err(|error| ServiceError::new(ErrorCode::Internal, error.to_string()))
    }

    /// Usage of this month, up to now. Blocks.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn usage(&self, now_ms: i64) -> Result<Usage, RecordError> {
        let totals = self.totals(now_ms)?;
        let mut counting = self.figures.usage.lock();
        let asked = self.asked();
        let more = asked.since(&counting.counted);
        counting.counted = asked;
        counting.usage.count(now_ms, more, &totals.classes);
        Ok(counting.usage.clone())
    }

    /// Cost of this month; `None`: the prices of a class are not known.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn month_cost(&self, now_ms: i64) -> Result<Option<MonthCost>, RecordError> {
        let usage = self.usage(now_ms)?;
        Ok(cost(&usage.month, now_ms, &self.plan.class))
    }

    /// Usage to be written down, if requests were made since it was last.
    pub(super) fn unwritten(&self, now_ms: i64) -> Result<Option<(&'static str, String)>, RecordError> {
        if self.figures.usage.lock().written == self.asked() {
            return Ok(None);
        }
        let usage = self.usage(now_ms)?;
        let mut counting = self.figures.usage.lock();
        counting.written = counting.counted.clone();
        Ok(serde_json::to_string(&usage).ok().map(|text| (USAGE, text)))
    }
}
