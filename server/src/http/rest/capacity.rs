//! Capacity: how much space there is, how fast it is used, and when it will be full.

use axum::Json;
use axum::extract::State;
use holdfast_proto::details::bytes;
use serde::Serialize;
use utoipa::ToSchema;

use super::wire::{day_of, day_text};
use crate::error::ServiceError;
use crate::http::HttpState;
use crate::http::bounds::HISTORY_DAYS_MAX;
use crate::insight::forecast::{self, CONFIDENCE_PCT, Forecast, Growth};

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Capacity {
    /// Size of the file system; null: not known
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
    /// Kept free for housekeeping
    reserve_bytes: u64,
    /// Available to backups: free_bytes − reserve_bytes
    usable_bytes: Option<u64>,
    /// Bytes of all containers
    repository_bytes: u64,
    catalog_bytes: u64,
    index_bytes: u64,
    /// Bytes of today's containers by the end of each day, without gaps
    history: Vec<StoredDay>,
    /// null: not enough days yet
    growth: Option<GrowthRate>,
    forecast: Outlook,
}

#[derive(Debug, Serialize, ToSchema)]
struct StoredDay {
    day: String,
    stored_bytes: u64,
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
    let today = day_of(app.clock.now_ms())?;
    let added = state.storage.days(app)?;
    let stored = stored_by_day(&added, today);
    let growth = forecast::growth(&stored);
    let usable_bytes = stats.space.map(|space| space.free_bytes.saturating_sub(stats.reserve_bytes));
    let first = added.first().map_or(today, |(day, _)| *day);
    let skipped = stored.len().saturating_sub(HISTORY_DAYS_MAX);
    let history = (first..).zip(&stored).skip(skipped);
    let history = history.map(|(day, bytes)| Ok(StoredDay { day: day_text(day)?, stored_bytes: *bytes }));
    Ok(Capacity {
        total_bytes: stats.space.map(|space| space.total_bytes),
        free_bytes: stats.space.map(|space| space.free_bytes),
        reserve_bytes: stats.reserve_bytes,
        usable_bytes,
        repository_bytes: stored.last().copied().unwrap_or(0),
        catalog_bytes: stats.catalog_bytes,
        index_bytes: stats.index.disk_bytes,
        history: history.collect::<Result<_, ServiceError>>()?,
        growth: growth.map(|growth| GrowthRate {
            days_observed: growth.days_observed,
            bytes_per_day: growth.bytes_per_day,
            low: growth.low,
            high: growth.high,
        }),
        forecast: outlook(growth.as_ref(), usable_bytes, today)?,
    })
}

/// Bytes at the end of each day from the first one with a container to today.
fn stored_by_day(added: &[(i32, u64)], today: i32) -> Vec<u64> {
    let Some((first, _)) = added.first() else { return Vec::new() };
    let mut added = added.iter().copied().peekable();
    let mut total = 0_u64;
    (*first..=today.max(*first))
        .map(|day| {
            while let Some((_, bytes)) = added.next_if(|(on, _)| *on <= day) {
                total = total.saturating_add(bytes);
            }
            total
        })
        .collect()
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

    #[test]
    fn days_without_containers_keep_what_was() {
        assert_eq!(stored_by_day(&[(10, 5), (12, 3)], 14), [5, 5, 8, 8, 8]);
        assert!(stored_by_day(&[], 14).is_empty());
        assert_eq!(stored_by_day(&[(20, 5)], 14), [5], "a clock that was set back");
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
