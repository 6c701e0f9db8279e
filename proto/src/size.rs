//! Byte counts as people write them: `64MiB`, `2GB`, `1073741824`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A number of bytes; reads and writes units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ByteSize(pub u64);

/// Longest suffix first, so that `MiB` is not read as `B`.
const UNITS: [(&str, u64); 10] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
    ("", 1),
];

/// The text is not a byte count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a size; write a whole number and a unit, such as 64MiB, 2GiB or 500MB")]
pub struct NotASize(String);

impl FromStr for ByteSize {
    type Err = NotASize;

    fn from_str(text: &str) -> Result<Self, NotASize> {
        let refused = || NotASize(text.to_owned());
        let trimmed = text.trim();
        let digits_end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at_checked(digits_end).ok_or_else(refused)?;
        let count: u64 = digits.parse().map_err(|_| refused())?;
        let unit = unit.trim_start();
        let (_, factor) =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(refused)?;
        count.checked_mul(*factor).map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for ByteSize {
    /// The largest binary unit that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)]
            .into_iter()
            .find(|(_, shift)| self.0 != 0 && self.0.trailing_zeros() >= *shift);
        match exact {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    /// From a text with a unit or a bare number of bytes.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64MiB\"")
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
                u64::try_from(bytes).map(ByteSize).map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_write() {
        for (text, bytes) in
            [("0", 0), ("17", 17), ("64MiB", 64 << 20), ("2 GB", 2_000_000_000), ("1gib", 1 << 30), ("9B", 9)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "MiB", "-1", "1.5GiB", "1PiB", "99999999999TiB", "1 2"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
        for bytes in [0, 1, 1024, 1025, 3 << 30, 1_000_000] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
    }
}
