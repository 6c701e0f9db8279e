//! Usage of a bucket in a month, and its cost.

use holdfast_s3::RequestKind;
use serde::Serialize;
use utoipa::ToSchema;

use crate::http::rest::wire::time;
use crate::repository::{Cost, Month, MonthCost, Requests, changing, cost, thawing};

/// Requests, failed ones included
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierRequests)]
pub(super) struct RequestTotals {
    since: String,
    put: u64,
    get: u64,
    head: u64,
    list: u64,
    delete: u64,
    /// Asking for copies of what lies in the archive
    restore: u64,
    /// Those that were refused or not answered
    failed: u64,
    /// Bytes of blobs
    sent_bytes: u64,
    received_bytes: u64,
}

/// A month's requests and costs
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierMonth)]
pub(super) struct MonthState {
    /// Such as 2026-11, in UTC
    month: String,
    requests: RequestTotals,
    /// So far, or of the whole month if it is over; null: the prices of the class are not known
    cost: Option<Costs>,
    /// By the end of the month, if what lies there stays and requests go on as they were; null: requests were not counted
    /// for a day yet, or it is over
    forecast: Option<Costs>,
    /// What was asked to be thawed
    thaws: Vec<Thawed>,
    /// What was given another storage class
    class_changes: Vec<ClassChange>,
}

/// In US dollars
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierCost)]
struct Costs {
    storage: f64,
    requests: f64,
    /// Reading from classes that ask for it by the byte
    reading: f64,
    /// Asking the archive for copies that can be read, and keeping these for as long as was asked; it is no part of a forecast
    /// but for what was asked for
    thawing: f64,
    sum: f64,
}

/// What was asked to be thawed of a storage class
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierThawed)]
struct Thawed {
    class: String,
    /// bulk, standard or expedited
    speed: String,
    objects: u64,
    bytes: u64,
    /// Of asking, of what was retrieved, and of copies for as long as they were asked for; null: not known
    cost: Option<f64>,
}

/// Objects that were given a storage class
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierClassChange)]
struct ClassChange {
    class: String,
    objects: u64,
    /// null: not known
    cost: Option<f64>,
}

/// The month that is under way.
pub(super) fn this(month: &Month, cost: Option<&MonthCost>) -> MonthState {
    describe(month, cost.map(|month| &month.so_far), cost.and_then(|month| month.by_end.as_ref()))
}

/// A month that is over; what is put is of the class `usual`.
pub(super) fn over(month: &Month, usual: &str) -> MonthState {
    // Its last moment, which is still of it.
    let end_ms = month.until_ms.saturating_sub(1);
    let cost = cost(month, end_ms, usual);
    describe(month, cost.as_ref().map(|cost| &cost.so_far), None)
}

fn describe(month: &Month, so_far: Option<&Cost>, by_end: Option<&Cost>) -> MonthState {
    MonthState {
        month: month.name.clone(),
        requests: totals(&month.requests, month.since_ms),
        cost: so_far.map(Costs::from),
        forecast: by_end.map(Costs::from),
        thaws: month
            .all_thaws()
            .map(|(class, speed, thawed)| Thawed {
                class: class.to_owned(),
                speed: speed.to_ascii_lowercase(),
                objects: thawed.objects,
                bytes: thawed.bytes,
                cost: thawing(class, speed, thawed).map(|cost| cost.as_f64()),
            })
            .collect(),
        class_changes: month
            .changes
            .iter()
            .map(|(class, objects)| ClassChange {
                class: class.clone(),
                objects: *objects,
                cost: changing(class, *objects).map(|cost| cost.as_f64()),
            })
            .collect(),
    }
}

pub(super) fn totals(requests: &Requests, since_ms: i64) -> RequestTotals {
    RequestTotals {
        since: time(since_ms),
        put: requests.made(RequestKind::Put),
        get: requests.made(RequestKind::Get),
        head: requests.made(RequestKind::Head),
        list: requests.made(RequestKind::List),
        delete: requests.made(RequestKind::Delete),
        restore: requests.made(RequestKind::Restore),
        failed: requests.failed,
        sent_bytes: requests.sent_bytes,
        received_bytes: requests.received_bytes,
    }
}

impl From<&Cost> for Costs {
    fn from(cost: &Cost) -> Self {
        Self {
            storage: cost.storage.as_f64(),
            requests: cost.requests.as_f64(),
            reading: cost.reading.as_f64(),
            thawing: cost.thawing.as_f64(),
            sum: cost.sum().as_f64(),
        }
    }
}
