//! The setting `parity`.

use std::fmt;
use std::str::FromStr;

use holdfast_engine::ParityScheme;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Groups of containers and how many of each may be lost; `off`: no parity is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Parity(pub Option<ParityScheme>);

/// Error for a text that is no valid parity; holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither off nor containers and spares such as 10+1 (1 to 32 containers, 1 to 4 spares)")]
pub struct NotParity(String);

impl FromStr for Parity {
    type Err = NotParity;
    fn from_str(text: &str) -> Result<Self, NotParity> {
        if text == "off" {
            return Ok(Self(None));
        }
        let scheme = text
            .split_once('+')
            .and_then(|(members, spares)| ParityScheme::new(members.parse().ok()?, spares.parse().ok()?));
        scheme.map(|scheme| Self(Some(scheme))).ok_or_else(|| NotParity(text.to_owned()))
    }
}

impl fmt::Display for Parity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("off"),
            Some(ParityScheme { members, spares }) => write!(f, "{members}+{spares}"),
        }
    }
}

impl Serialize for Parity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Parity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parity_reads_and_writes() {
        for text in ["off", "10+1", "4+2", "32+4", "1+1"] {
            assert_eq!(text.parse::<Parity>().unwrap().to_string(), text);
        }
        for bad in ["", "on", "10", "0+1", "10+0", "33+1", "10+5", "10+1+1", "-1+1"] {
            assert!(bad.parse::<Parity>().is_err(), "{bad:?}");
        }
    }
}
