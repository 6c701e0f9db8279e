//! Capacity: how much space there is, how fast it is used, and when it will be full.

use axum::Json;
use axum::extract::State;
use holdfast_engine::catalog::SpaceDay;
use holdfast_proto::details::bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::wire::day_text;
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::bounds::HISTORY_DAYS_MAX;
use crate::insight::forecast::{self, CONFIDENCE_PCT, Forecast, Growth};
use crate::repository::space_now;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Capacity {
    /// Size of the file system; null: not known
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Kept free for housekeeping
    reserve_bytes: u64,
    /// Available to backups: free_bytes − reserve_bytes
    usable_bytes: Option<u64>,
    /// Bytes of containers and parity in the data folder
    repository_bytes: u64,
    used: Used,
    catalog_bytes: u64,
    index_bytes: u64,
    /// Space used by the end of each day since the first on record, without gaps
    history: Vec<StoredDay>,
    /// null: not enough days yet
    growth: Option<GrowthRate>,
    forecast: Outlook,
}

/// Used bytes by kind and place
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsedBytes)]
struct Used {
    /// Containers of data in the data folder
    data_bytes: u64,
    /// Containers of recipes in the data folder
    recipe_bytes: u64,
    parity_bytes: u64,
    /// Containers in the data folder that are to go
    condemned_bytes: u64,
    /// Containers in the bucket
    bucket_bytes: u64,
    /// In an archive of the bucket, also what is to go
    archive_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
struct StoredDay {
    day: String,
    /// In the data folder
    stored_bytes: u64,
    /// Containers in the bucket, archives included
    bucket_bytes: u64,
    /// In an archive of the bucket, also what is to go
    archive_bytes: u64,
}

/// Least squares over the last 90 days at most
#[derive(Debug, Serialize, ToSchema)]
struct GrowthRate {
    days_observed: usize,
    bytes_per_day: f64,
    /// Lower end of the 90 % interval
    low: f64,
    /// Upper end of the 90 % interval
    high: f64,
}

/// When it will be full
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Forecast)]
struct Outlook {
    state: Prospect,
    /// null: not within ten years
    full_on: Option<String>,
    earliest: Option<String>,
    latest: Option<String>,
    confidence_pct: u32,
    /// The same in a sentence
    text: String,
}

/// What is known about the growth
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ForecastState)]
#[serde(rename_all = "snake_case")]
enum Prospect {
    Growing,
    NotGrowing,
    TooEarly,
}

/// Capacity and its forecast
#[utoipa::path(get, path = "/capacity", tag = "storage", responses((status = 200, description = "The capacity", body = Capacity)))]
pub(super) async fn capacity(State(state): State<HttpState>) -> Result<Json<Capacity>, ServiceError> {
    state.blocking(look).await.map(Json)
}

fn look(state: &HttpState) -> Result<Capacity, ServiceError> {
    let app = &state.app;
    let stats = app.engine.stats()?;
    let containers = state.storage.containers(app, None)?;
    let now = space_now(app.catalog(), &containers, app.tiers.as_deref(), app.clock.now_ms())?;
    let first = now.day.saturating_sub(i32::try_from(HISTORY_DAYS_MAX).unwrap_or(i32::MAX) - 1);
    let history = without_gaps(&app.catalog().space_days(first, now.day)?, now);
    let stored: Vec<u64> = history.iter().map(SpaceDay::here_bytes).collect();
    let growth = forecast::growth(&stored);
    let usable_bytes = stats.space.map(|space| space.free_bytes.saturating_sub(stats.reserve_bytes));
    Ok(Capacity {
        total_bytes: stats.space.map(|space| space.total_bytes),
        free_bytes: stats.space.map(|space| space.free_bytes),
        reserve_bytes: stats.reserve_bytes,
        usable_bytes,
        repository_bytes: now.here_bytes(),
        used: Used {
            data_bytes: now.data_bytes,
            recipe_bytes: now.recipe_bytes,
            parity_bytes: now.parity_bytes,
            condemned_bytes: now.condemned_bytes,
            bucket_bytes: now.bucket_bytes,
            archive_bytes: now.archive_bytes,
        },
        catalog_bytes: stats.catalog_bytes,
        index_bytes: stats.index.disk_bytes,
        history: history.iter().map(stored_day).collect::<Result<_, ServiceError>>()?,
        growth: growth.map(|growth| GrowthRate {
            days_observed: growth.days_observed,
            bytes_per_day: growth.bytes_per_day,
            low: growth.low,
            high: growth.high,
        }),
        forecast: outlook(growth.as_ref(), usable_bytes, now.day)?,
    })
}

fn stored_day(space: &SpaceDay) -> Result<StoredDay, ServiceError> {
    Ok(StoredDay {
        day: day_text(space.day)?,
        stored_bytes: space.here_bytes(),
        bucket_bytes: space.bucket_bytes,
        archive_bytes: space.archive_bytes,
    })
}

/// The space of every day up to now. On one without a look the repository took what it did on the day before.
fn without_gaps(looks: &[SpaceDay], now: SpaceDay) -> Vec<SpaceDay> {
    let mut days: Vec<SpaceDay> = Vec::new();
    for look in looks.iter().filter(|look| look.day < now.day).chain([&now]) {
        if let Some(last) = days.last().copied() {
            days.extend((last.day + 1..look.day).map(|day| SpaceDay { day, ..last }));
        }
        days.push(*look);
    }
    days
}

fn outlook(growth: Option<&Growth>, usable_bytes: Option<u64>, today: i32) -> Result<Outlook, ServiceError> {
    let found = match usable_bytes {
        Some(room) => forecast::forecast(growth, room),
        None => Forecast::TooEarly,
    };
    let nothing = |state, text: &str| {
        Ok(Outlook {
            state,
            full_on: None,
            earliest: None,
            latest: None,
            confidence_pct: CONFIDENCE_PCT,
            text: text.to_owned(),
        })
    };
    let (full_in, earliest, latest) = match (found, usable_bytes) {
        (_, None) => {
            return nothing(Prospect::TooEarly, "The file system does not report its free space.");
        }
        (Forecast::TooEarly, _) => {
            return nothing(Prospect::TooEarly, "Too early to tell: a forecast needs three days of history.");
        }
        (Forecast::NotGrowing, _) => return nothing(Prospect::NotGrowing, "The repository is not growing."),
        (Forecast::Growing { full_in, earliest, latest }, _) => (full_in, earliest, latest),
    };
    let day = |days: f64| {
        #[expect(clippy::cast_possible_truncation, reason = "at most ten years; `as` saturates")]
        let days = days.floor() as i32;
        day_text(today.saturating_add(days))
    };
    let day = |days: Option<f64>| days.map(day).transpose();
    let (full_on, earliest, latest) = (day(full_in)?, day(earliest)?, day(latest)?);
    let rate = growth.map_or_else(String::new, |growth| per_day(growth.bytes_per_day));
    let text = match (&full_on, &earliest, &latest) {
        (Some(full), Some(early), Some(late)) if early == late => format!("Full on {full}, at {rate}."),
        (Some(full), Some(early), Some(late)) => {
            format!("Full around {full}, between {early} and {late}, at {rate}.")
        }
        (Some(full), Some(early), None) => {
            format!("Full around {full}, at {rate}; not before {early}, and perhaps not within ten years.")
        }
        (None, Some(early), _) => {
            format!("Probably not full within ten years, at {rate}, but perhaps as early as {early}.")
        }
        _ => format!("Not full within ten years, at {rate}."),
    };
    Ok(Outlook { state: Prospect::Growing, full_on, earliest, latest, confidence_pct: CONFIDENCE_PCT, text })
}

fn per_day(rate: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; `as` saturates")]
    let rate = rate as u64;
    format!("{} a day", bytes(rate))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn day(day: i32, data_bytes: u64) -> SpaceDay {
        SpaceDay { day, data_bytes, ..SpaceDay::default() }
    }

    #[test]
    fn days_without_a_look_keep_what_was() {
        let found = without_gaps(&[day(10, 5), day(12, 3)], day(14, 9));
        assert_eq!(found, [day(10, 5), day(11, 5), day(12, 3), day(13, 3), day(14, 9)]);
        assert_eq!(without_gaps(&[day(13, 5), day(14, 7)], day(14, 9)), [day(13, 5), day(14, 9)]);
        assert_eq!(without_gaps(&[], day(14, 9)), [day(14, 9)]);
        assert_eq!(without_gaps(&[day(20, 5)], day(14, 9)), [day(14, 9)], "a clock that was set back");
    }

    /// Each day frees as much as it adds: 90 daily restore points are kept.
    #[test]
    fn what_retention_keeps_flat_is_not_growing() {
        let days: Vec<u64> = (0..90).map(|day| 900 * GIB + (day % 2) * GIB / 8).collect();
        let growth = forecast::growth(&days);
        let said = outlook(growth.as_ref(), Some(1000 * GIB), 20_000).unwrap();
        assert!(said.full_on.is_none(), "{said:?}");
    }

    #[test]
    fn dates_and_sentences_agree() {
        let steady: Vec<u64> = (1..=10).map(|day| day * GIB).collect();
        let growth = forecast::growth(&steady);
        let said = outlook(growth.as_ref(), Some(100 * GIB + GIB / 2), 20_000).unwrap();
        assert_eq!((said.state, said.full_on.as_deref()), (Prospect::Growing, Some("2025-01-12")));
        assert_eq!(said.text, "Full on 2025-01-12, at 1.00 GiB a day.");
        let jumpy = forecast::growth(&[0, GIB, GIB / 2, 2 * GIB]);
        let said = outlook(jumpy.as_ref(), Some(100 * GIB), 20_000).unwrap();
        assert!(said.latest.is_none() && said.text.contains("perhaps not within ten years"), "{said:?}");
        assert_eq!(outlook(None, Some(GIB), 1).unwrap().state, Prospect::TooEarly);
        assert_eq!(outlook(growth.as_ref(), None, 1).unwrap().state, Prospect::TooEarly);
        assert_eq!(
            outlook(forecast::growth(&[7; 5]).as_ref(), Some(GIB), 1).unwrap().state,
            Prospect::NotGrowing
        );
    }
}
