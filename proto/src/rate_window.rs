//! Windows of the week with a rate of their own: what a server may send to a bucket, and what an agent may send to a server.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::Range;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::schedule::zone;
use crate::size::{ByteSize, NotASize};

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
        [time, zone, rate] => (time, self::zone(zone).map_err(|error| error.to_string())?, rate),
        _ => return Err("a time such as 08:00-18:00 and a rate are needed".to_owned()),
    };
    let (from, to) = time.split_once('-').ok_or_else(|| format!("{time} has no end"))?;
    let (from, to) = (minute(from)?, minute(to)?);
    if from == to {
        return Err(format!("{time} has no length; the whole day is 00:00-24:00"));
    }
    let minutes = from..if to < from { to + DAY_MINUTES } else { to };
    let rate = rate.parse().map_err(|error: NotASize| error.to_string())?;
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

/// Rates at all times: the first window that holds counts, and `otherwise` at all other times. 0 is any rate.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RateWindows {
    /// In the order in which they are asked.
    pub windows: Vec<RateWindow>,
    /// Bytes a second.
    pub otherwise: ByteSize,
}

impl RateWindows {
    /// Returns true if the rate is limited at some time.
    pub fn is_limited(&self) -> bool {
        self.otherwise.0 > 0 || self.windows.iter().any(|window| window.rate.0 > 0)
    }

    /// Bytes a second that may be sent at `at_ms` (Unix milliseconds); `None`: any number.
    pub fn bytes_per_sec(&self, at_ms: i64) -> Option<NonZeroU64> {
        let at = Timestamp::from_millisecond(at_ms).unwrap_or_default();
        let window = self.windows.iter().find(|window| window.holds(at));
        NonZeroU64::new(window.map_or(self.otherwise, |window| window.rate).0)
    }
}

#[cfg(test)]
mod tests;
