//! The setting `s3_rate_windows`: what may be sent at which time of the week.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_volume::{RateSchedule, Rates};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use super::{ByteSize, Settings};

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

const DAY_MINUTES: u16 = 24 * 60;

/// Times on some days of the week, and the bytes a second that may be sent then: `mon-fri 08:00-18:00 Europe/Berlin
/// 5MiB`. Without days it holds on all of them, without a zone it is UTC, and 0 is any rate. A window that ends before
/// it begins ends on the next day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RateWindow {
    /// The text as it was written.
    text: String,
    /// Set for each day on which it holds, from Monday.
    days: [bool; 7],
    /// Minutes of a day; those from 1440 on are of the next.
    minutes: Range<u16>,
    zone: TimeZone,
    rate: ByteSize,
}

/// The text is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a time and a rate ({what}); write such as 'mon-fri 08:00-18:00 5MiB', '22:00-06:00 Europe/Berlin 0'"
)]
pub struct NotAWindow {
    text: String,
    what: String,
}

impl FromStr for RateWindow {
    type Err = NotAWindow;

    fn from_str(text: &str) -> Result<Self, NotAWindow> {
        parse(text).map_err(|what| NotAWindow { text: text.to_owned(), what })
    }
}

impl TryFrom<String> for RateWindow {
    type Error = NotAWindow;

    fn try_from(text: String) -> Result<Self, NotAWindow> {
        text.parse()
    }
}

impl From<RateWindow> for String {
    fn from(window: RateWindow) -> Self {
        window.text
    }
}

impl fmt::Display for RateWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn parse(text: &str) -> Result<RateWindow, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let has_days =
        words.first().is_some_and(|word| word.starts_with(|letter: char| letter.is_ascii_alphabetic()));
    let (days, rest) = match words.split_first() {
        Some((first, rest)) if has_days => (days(first)?, rest),
        _ => ([true; 7], words.as_slice()),
    };
    let (time, zone, rate) = match rest {
        [time, rate] => (time, TimeZone::UTC, rate),
        [time, zone, rate] => {
            (time, holdfast_retention::zone(zone).map_err(|error| error.to_string())?, rate)
        }
        _ => return Err("a time such as 08:00-18:00 and a rate are needed".to_owned()),
    };
    let (from, to) = time.split_once('-').ok_or_else(|| format!("{time} has no end"))?;
    let (from, to) = (minute(from)?, minute(to)?);
    if from == to {
        return Err(format!("{time} has no length; the whole day is 00:00-24:00"));
    }
    let minutes = from..if to < from { to + DAY_MINUTES } else { to };
    let rate = rate.parse().map_err(|error: super::NotASize| error.to_string())?;
    Ok(RateWindow { text: words.join(" "), days, minutes, zone, rate })
}

/// `mon`, or `mon-fri`, which may pass the end of the week.
fn days(text: &str) -> Result<[bool; 7], String> {
    let number = |name: &str| {
        DAYS.iter()
            .position(|known| known.eq_ignore_ascii_case(name))
            .ok_or_else(|| format!("{name} is no day: mon, tue, wed, thu, fri, sat or sun"))
    };
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    Ok(std::array::from_fn(|day| {
        if first <= last { (first..=last).contains(&day) } else { day >= first || day <= last }
    }))
}

/// `08:30`, up to `24:00`.
fn minute(text: &str) -> Result<u16, String> {
    let refused = || format!("{text} is no time of a day, such as 08:30");
    let (hour, minute) = text.split_once(':').ok_or_else(refused)?;
    let part = |digits: &str, most: u16| {
        let two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u16>().ok().filter(|number| two && *number <= most)
    };
    let of_day = part(hour, 24).zip(part(minute, 59)).map(|(hour, minute)| hour * 60 + minute);
    of_day.filter(|of_day| *of_day <= DAY_MINUTES).ok_or_else(refused)
}

impl RateWindow {
    fn holds(&self, at: Timestamp) -> bool {
        let local = at.to_zoned(self.zone.clone());
        let minute = u16::from(local.hour().unsigned_abs()) * 60 + u16::from(local.minute().unsigned_abs());
        let today = usize::from(local.weekday().to_monday_zero_offset().unsigned_abs());
        let on = |day: usize| self.days.get(day % 7).is_some_and(|on| *on);
        // A window that began yesterday may last until now.
        (on(today) && self.minutes.contains(&minute))
            || (on(today + 6) && self.minutes.contains(&(minute + DAY_MINUTES)))
    }
}

/// Rate limit for sending to the bucket: the first window that holds counts, and `s3_rate` at all other times.
#[derive(Debug)]
pub(crate) struct SendRates {
    windows: Vec<RateWindow>,
    otherwise: ByteSize,
    clock: Arc<dyn Clock>,
}

impl SendRates {
    /// `None`: nothing is limited at any time.
    pub(crate) fn of(settings: &Settings, clock: &Arc<dyn Clock>) -> Option<Self> {
        let (windows, otherwise) = (settings.s3_rate_windows.clone(), settings.s3_rate);
        let is_limited = otherwise.0 > 0 || windows.iter().any(|window| window.rate.0 > 0);
        is_limited.then(|| Self { windows, otherwise, clock: Arc::clone(clock) })
    }
}

impl RateSchedule for SendRates {
    fn rates(&self) -> Rates {
        let at = Timestamp::from_millisecond(self.clock.now_ms()).unwrap_or_default();
        let window = self.windows.iter().find(|window| window.holds(at));
        let rate = window.map_or(self.otherwise, |window| window.rate);
        Rates { bytes_per_sec: NonZeroU64::new(rate.0), requests_per_sec: None }
    }
}

#[cfg(test)]
mod tests;
