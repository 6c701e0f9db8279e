//! The name of a certificate: SHA-256 of its DER bytes, as `openssl x509 -fingerprint -sha256` prints it.

use std::fmt;
use std::str::FromStr;

/// SHA-256 of a certificate's DER bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertFingerprint([u8; 32]);

impl CertFingerprint {
    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns its bytes.
    pub const fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The fingerprint of a certificate in DER.
    pub fn of(der: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        let mut bytes = [0; 32];
        bytes.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self(bytes)
    }
}

impl fmt::Display for CertFingerprint {
    /// 64 hexadecimal digits in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CertFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertFingerprint({self})")
    }
}

/// The text is not a SHA-256 in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a certificate fingerprint is 64 hexadecimal digits, with or without colons, not {0:?}")]
pub struct NotACertFingerprint(String);

impl FromStr for CertFingerprint {
    type Err = NotACertFingerprint;

    /// Accepts either case, with or without colons, and a leading `sha256:` or `SHA256 Fingerprint=`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || NotACertFingerprint(text.chars().take(100).collect());
        let lower = text.trim().to_ascii_lowercase();
        let digits = ["sha256 fingerprint=", "sha256:"]
            .iter()
            .find_map(|prefix| lower.strip_prefix(prefix))
            .unwrap_or(&lower)
            .replace(':', "");
        let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(pairs) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            let value = high.zip(low).map(|(high, low)| high * 16 + low).ok_or_else(wrong)?;
            *byte = u8::try_from(value).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_reads_the_same() {
        let pin = CertFingerprint::of(b"abc");
        let hex = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(pin.to_string(), hex);
        let colons =
            hex.as_bytes().chunks(2).map(|p| std::str::from_utf8(p).unwrap()).collect::<Vec<_>>().join(":");
        for text in [
            hex.to_owned(),
            colons.to_uppercase(),
            format!("sha256:{hex}"),
            format!("SHA256 Fingerprint={colons}"),
        ] {
            assert_eq!(text.parse(), Ok(pin), "{text}");
        }
        for bad in ["", "ba78", &hex[1..], &format!("{hex}00"), &hex.replace('b', "g")] {
            assert!(bad.parse::<CertFingerprint>().is_err(), "{bad}");
        }
    }
}
