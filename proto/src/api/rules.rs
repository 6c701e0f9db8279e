//! Rules of retention: how many restore points are kept.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The most that one rule can ask for: an hourly backup for eleven years.
pub const KEEP_MAX: u32 = 100_000;

/// The longest time to keep everything for: a century.
pub const KEEP_WITHIN_DAYS_MAX: u32 = 36_525;

/// How many restore points to keep of each kind
///
/// A restore point stays when at least one rule keeps it; 0 switches a rule off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Rules {
    /// The newest ones, whenever they were made
    pub keep_last: u32,
    /// The newest one of each of the newest hours that have one
    pub keep_hourly: u32,
    /// Likewise of days
    pub keep_daily: u32,
    /// Likewise of weeks, which begin on Monday (ISO 8601)
    pub keep_weekly: u32,
    /// Likewise of months
    pub keep_monthly: u32,
    /// Likewise of years
    pub keep_yearly: u32,
    /// All that were made within so many days before the newest one
    pub keep_within_days: u32,
}

/// Rules that cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// Nothing says what to keep.
    #[error(
        "no rule says what to keep; give at least one of keep-last, keep-hourly, keep-daily, keep-weekly, keep-monthly, keep-yearly and keep-within"
    )]
    Empty,
    /// A number that is out of range.
    #[error("{rule} is {value}; the limit is {max}")]
    TooMany { rule: &'static str, value: u32, max: u32 },
}

impl Rules {
    /// Returns true if no rule is on. Such rules keep everything.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Each rule's name and number, in the order they are shown.
    pub const fn named(&self) -> [(&'static str, u32); 7] {
        [
            ("keep-last", self.keep_last),
            ("keep-hourly", self.keep_hourly),
            ("keep-daily", self.keep_daily),
            ("keep-weekly", self.keep_weekly),
            ("keep-monthly", self.keep_monthly),
            ("keep-yearly", self.keep_yearly),
            ("keep-within", self.keep_within_days),
        ]
    }

    /// Checks that something may be deleted by these rules.
    ///
    /// # Errors
    /// Says which number is out of range, or that there is none.
    pub fn validate(&self) -> Result<(), RulesError> {
        if self.is_empty() {
            return Err(RulesError::Empty);
        }
        for (rule, value) in self.named() {
            let max = if rule == "keep-within" { KEEP_WITHIN_DAYS_MAX } else { KEEP_MAX };
            if value > max {
                return Err(RulesError::TooMany { rule, value, max });
            }
        }
        Ok(())
    }
}

/// As they are written on a command line: `keep-daily 7, keep-within 14d`.
impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("keep everything");
        }
        let mut separator = "";
        for (rule, value) in self.named().into_iter().filter(|(_, value)| *value > 0) {
            let unit = if rule == "keep-within" { "d" } else { "" };
            write!(f, "{separator}{rule} {value}{unit}")?;
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_shown_as_they_are_written() {
        let rules = Rules { keep_daily: 7, keep_within_days: 14, ..Rules::default() };
        assert_eq!(rules.to_string(), "keep-daily 7, keep-within 14d");
        assert_eq!(Rules::default().to_string(), "keep everything");
    }

    #[test]
    fn rules_that_cannot_be_meant_are_refused() {
        assert_eq!(Rules::default().validate(), Err(RulesError::Empty));
        let rules = Rules { keep_weekly: KEEP_MAX + 1, ..Rules::default() };
        let refused = rules.validate().unwrap_err().to_string();
        assert_eq!(refused, "keep-weekly is 100001; the limit is 100000");
        let rules = Rules { keep_within_days: KEEP_WITHIN_DAYS_MAX + 1, ..Rules::default() };
        assert!(rules.validate().is_err());
        assert_eq!(Rules { keep_last: KEEP_MAX, ..Rules::default() }.validate(), Ok(()));
    }
}
