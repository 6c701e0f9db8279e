//! The hour, day, week, month or year that a moment falls in.

use jiff::Zoned;

/// A unit of the calendar of which the newest restore point is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    /// All periods, from the shortest to the longest.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// Name in rules such as `keep-daily`.
    pub const fn adverb(self) -> &'static str {
        match self {
            Self::Hour => "hourly",
            Self::Day => "daily",
            Self::Week => "weekly",
            Self::Month => "monthly",
            Self::Year => "yearly",
        }
    }

    /// A value that is equal for two moments exactly when they are in the same period.
    pub(crate) fn key(self, at: &Zoned) -> [i64; 3] {
        let (year, month, day) = (i64::from(at.year()), i64::from(at.month()), i64::from(at.day()));
        match self {
            // An hour that comes twice, when clocks are put back, is two hours: they have different offsets.
            Self::Hour => {
                [year * 10_000 + month * 100 + day, i64::from(at.hour()), i64::from(at.offset().seconds())]
            }
            Self::Day => [year, month, day],
            Self::Week => {
                let week = at.date().iso_week_date();
                [i64::from(week.year()), i64::from(week.week()), 0]
            }
            Self::Month => [year, month, 0],
            Self::Year => [year, 0, 0],
        }
    }
}
