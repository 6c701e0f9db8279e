//! The name of a namespace's key that agents hold: public, and computed from the key.

use std::fmt;
use std::str::FromStr;

/// Bytes of a key id.
pub const KEY_ID_BYTES: usize = 8;

const PREFIX: &str = "nk-";

/// Names a namespace's key in the catalog, in messages and on the wire: `nk-` and 16 hexadecimal digits. 64 bits tell keys
/// apart that people mix up; no security rests on them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId([u8; KEY_ID_BYTES]);

impl KeyId {
    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; KEY_ID_BYTES]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    pub const fn to_bytes(self) -> [u8; KEY_ID_BYTES] {
        self.0
    }

    /// From a field of a message, where the empty text stands for none.
    ///
    /// # Errors
    /// [`NotAKeyId`].
    pub fn from_field(text: &str) -> Result<Option<Self>, NotAKeyId> {
        if text.is_empty() { Ok(None) } else { text.parse().map(Some) }
    }

    /// Formats an id as a field of a message.
    pub fn field(id: Option<Self>) -> String {
        id.map(|id| id.to_string()).unwrap_or_default()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// The text is no key id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no id of a namespace's key; it looks like nk-0123456789abcdef, and 'holdfast namespace-key id' shows it"
)]
pub struct NotAKeyId(String);

impl FromStr for KeyId {
    type Err = NotAKeyId;

    fn from_str(text: &str) -> Result<Self, NotAKeyId> {
        let wrong = || NotAKeyId(crate::limits::plain_text(text, crate::limits::ID_SHOWN_BYTES));
        let digits = text.strip_prefix(PREFIX).ok_or_else(wrong)?;
        let is_hex = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != 2 * KEY_ID_BYTES || !is_hex {
            return Err(wrong());
        }
        let number = u64::from_str_radix(digits, 16).map_err(|_| wrong())?;
        Ok(Self(number.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_nothing_else_passes() {
        let id = KeyId::from_bytes([0, 1, 2, 3, 0xFC, 0xFD, 0xFE, 0xFF]);
        assert_eq!(id.to_string(), "nk-00010203fcfdfeff");
        assert_eq!(id.to_string().parse(), Ok(id));
        for wrong in [
            "",
            "nk-",
            "00010203fcfdfeff",
            "nk-00010203FCFDFEFF",
            "nk-+0010203fcfdfeff",
            "nk-00010203fcfdfef",
        ] {
            assert!(wrong.parse::<KeyId>().is_err(), "{wrong}");
        }
        assert_eq!(KeyId::from_field(""), Ok(None));
        assert_eq!(KeyId::from_field(&KeyId::field(Some(id))), Ok(Some(id)));
    }
}
