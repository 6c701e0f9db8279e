//! Points in time.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::when::timestamp;

/// A point in time, in JSON as RFC 3339 in UTC with milliseconds; 0 is an empty text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time {
    pub unix_ms: i64,
}

impl Time {
    /// So many milliseconds after the beginning of 1970.
    pub const fn new(unix_ms: i64) -> Self {
        Self { unix_ms }
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&timestamp(self.unix_ms))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.parse::<jiff::Timestamp>().map(|at| Self::new(at.as_millisecond())).map_err(D::Error::custom)
    }
}

/// Milliseconds after the beginning of 1970, in JSON as a [`Time`].
pub(super) mod unix_ms {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Time};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(in crate::api) fn serialize<S: Serializer>(unix_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
        Time::new(*unix_ms).serialize(serializer)
    }

    pub(in crate::api) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
        Time::deserialize(deserializer).map(|time| time.unix_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_text_to_the_millisecond() {
        for (unix_ms, text) in
            [(0, ""), (1_700_000_000_123, "2023-11-14T22:13:20.123Z"), (-1, "1969-12-31T23:59:59.999Z")]
        {
            let json = serde_json::to_value(Time::new(unix_ms)).unwrap();
            assert_eq!(json, text);
            assert_eq!(serde_json::from_value::<Time>(json).unwrap(), Time::new(unix_ms));
        }
        assert!(serde_json::from_value::<Time>("yesterday".into()).is_err());
    }
}
