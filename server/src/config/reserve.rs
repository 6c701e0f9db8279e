//! The setting `reserve`: bytes of the volume to keep free.

use std::str::FromStr;

use holdfast_proto::size::{ByteSize, NotASize};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Bytes of the volume to keep free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// The smaller of 1 GiB and 2 % of the volume.
    Auto,
    /// This many.
    Bytes(ByteSize),
}

impl FromStr for Reserve {
    type Err = NotASize;
    fn from_str(text: &str) -> Result<Self, NotASize> {
        if text == "auto" { Ok(Self::Auto) } else { text.parse().map(Self::Bytes) }
    }
}

impl Serialize for Reserve {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Bytes(size) => size.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Reserve {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(bytes) => Ok(Self::Bytes(ByteSize(bytes))),
            Either::Text(text) => text.parse().map_err(de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_is_a_size_or_left_to_the_engine() {
        assert_eq!("auto".parse(), Ok(Reserve::Auto));
        assert_eq!("5MiB".parse(), Ok(Reserve::Bytes(ByteSize(5 << 20))));
        assert!("automatic".parse::<Reserve>().is_err());
    }
}
