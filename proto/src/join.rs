//! Join codes: all that a new agent needs to find its server, to recognise it and to get a token of its own, in one word.
//!
//! `docs/FORMAT.md` has the byte map. The last four bytes are a checksum over all others in every version, so that a code
//! that was mistyped is told from one that a newer server made.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::address::ServerAddress;
use crate::cert_fingerprint::CertFingerprint;

/// Prefix of the text; secret scanners find leaked codes by it.
pub const JOIN_CODE_PREFIX: &str = "hfj_";

/// Addresses in a code: more than a server has ways to it.
pub const ADDRESSES_MAX: usize = 16;

/// A host name's bytes (RFC 1035).
const NAME_MAX_BYTES: usize = 253;

const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 4;

const IPV4: u8 = 4;
const IPV6: u8 = 6;
const NAME: u8 = 1;

/// RFC 4648, in lower case: without digits that look like letters.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The longest code in bytes: the fixed part, all addresses as the longest names, and the checksum.
const CODE_MAX_BYTES: usize = 66 + ADDRESSES_MAX * (NAME_MAX_BYTES + 4) + CHECKSUM_BYTES;

/// A join code. `Display` writes the text that [`FromStr`] reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinCode {
    /// Addresses of the server, to be tried in this order; at least one, at most [`ADDRESSES_MAX`].
    pub addresses: Vec<ServerAddress>,
    /// Fingerprint of the server's certificate.
    pub fingerprint: CertFingerprint,
    pub secret: JoinSecret,
}

/// The one-time secret of a code, and the id of the token that it is for. `Debug` hides both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JoinSecret {
    /// The token's ULID.
    pub token: [u8; 16],
    /// 128 random bits, for minutes, with wrong ones slowed down.
    pub secret: [u8; 16],
}

impl fmt::Debug for JoinSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinSecret(…)")
    }
}

/// The text is no join code. Says nothing of the text: it may be a secret with a typo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAJoinCode {
    #[error(
        "this is no join code; one begins with {JOIN_CODE_PREFIX}, and 'holdfast-server token create --join' prints it"
    )]
    Other,
    #[error(
        "the join code is not complete or has a typing error (its checksum is wrong); copy the whole line again"
    )]
    Mistyped,
    #[error("the join code was made by a newer server (version {0} of the code); update this agent")]
    Unsupported(u8),
    #[error("the join code names no usable address of the server; have another one made")]
    Unusable,
}

impl fmt::Display for JoinCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = vec![VERSION];
        bytes.extend(self.fingerprint.to_bytes());
        bytes.extend(self.secret.token);
        bytes.extend(self.secret.secret);
        let addresses = || self.addresses.iter().take(ADDRESSES_MAX);
        bytes.extend(u8::try_from(addresses().count()));
        addresses().for_each(|address| put_address(&mut bytes, address));
        bytes.extend(checksum(&bytes));
        f.write_str(JOIN_CODE_PREFIX)?;
        f.write_str(&base32(&bytes))
    }
}

impl FromStr for JoinCode {
    type Err = NotAJoinCode;

    /// Accepts either case, and white space anywhere: a line that a terminal broke.
    fn from_str(text: &str) -> Result<Self, NotAJoinCode> {
        let text = text.split_whitespace().collect::<String>().to_ascii_lowercase();
        let digits = text.strip_prefix(JOIN_CODE_PREFIX).ok_or(NotAJoinCode::Other)?;
        if digits.len() > CODE_MAX_BYTES.div_ceil(5) * 8 {
            return Err(NotAJoinCode::Mistyped);
        }
        let bytes = from_base32(digits).ok_or(NotAJoinCode::Mistyped)?;
        let (body, sum) = bytes.split_last_chunk().ok_or(NotAJoinCode::Mistyped)?;
        if checksum(body) != *sum {
            return Err(NotAJoinCode::Mistyped);
        }
        let mut rest = body;
        match take::<1>(&mut rest).ok_or(NotAJoinCode::Unusable)? {
            [VERSION] => {}
            [newer] => return Err(NotAJoinCode::Unsupported(newer)),
        }
        let code = take_code(&mut rest).filter(|_| rest.is_empty());
        code.filter(|code| !code.addresses.is_empty()).ok_or(NotAJoinCode::Unusable)
    }
}

fn take_code(rest: &mut &[u8]) -> Option<JoinCode> {
    let fingerprint = CertFingerprint::from_bytes(take(rest)?);
    let secret = JoinSecret { token: take(rest)?, secret: take(rest)? };
    let [count] = take(rest)?;
    let count = usize::from(count);
    if count > ADDRESSES_MAX {
        return None;
    }
    let addresses = (0..count).map(|_| take_address(rest)).collect::<Option<_>>()?;
    Some(JoinCode { addresses, fingerprint, secret })
}

fn put_address(bytes: &mut Vec<u8>, address: &ServerAddress) {
    match address.host().parse() {
        Ok(IpAddr::V4(ip)) => {
            bytes.push(IPV4);
            bytes.extend(ip.octets());
        }
        Ok(IpAddr::V6(ip)) => {
            bytes.push(IPV6);
            bytes.extend(ip.octets());
        }
        Err(_) => {
            // A longer one is no host name, and leads nowhere cut as well as whole.
            let name = address.host().as_bytes();
            let name = name.get(..NAME_MAX_BYTES).unwrap_or(name);
            bytes.push(NAME);
            bytes.extend(u8::try_from(name.len()));
            bytes.extend(name);
        }
    }
    bytes.extend(address.port().to_le_bytes());
}

fn take_address(rest: &mut &[u8]) -> Option<ServerAddress> {
    let host = match take(rest)? {
        [IPV4] => Ipv4Addr::from(take::<4>(rest)?).to_string(),
        [IPV6] => Ipv6Addr::from(take::<16>(rest)?).to_string(),
        [NAME] => {
            let [length] = take(rest)?;
            let (name, after) = rest.split_at_checked(usize::from(length))?;
            *rest = after;
            let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._".contains(byte);
            String::from_utf8(name.to_vec()).ok().filter(|_| name.iter().all(is_name))?
        }
        _ => return None,
    };
    ServerAddress::new(&host, u16::from_le_bytes(take(rest)?)).ok()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*taken)
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_BYTES] {
    let [a, b, c, d, ..] = *blake3::hash(bytes).as_bytes();
    [a, b, c, d]
}

fn base32(bytes: &[u8]) -> String {
    let digit = |value: u64| ALPHABET.get((value & 31) as usize).map_or('a', |digit| char::from(*digit));
    let five = |chunk: &[u8]| {
        let whole = (0..5).fold(0, |sum, at| sum << 8 | u64::from(chunk.get(at).copied().unwrap_or(0)));
        let digits = (chunk.len() * 8).div_ceil(5);
        (0..digits).map(|at| digit(whole >> (35 - 5 * at))).collect::<String>()
    };
    bytes.chunks(5).map(five).collect()
}

/// `None` for anything that [`base32`] does not write.
fn from_base32(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 8 * 5 + 5);
    for chunk in text.as_bytes().chunks(8) {
        let mut whole = 0;
        for at in 0..8 {
            let digit = chunk.get(at).map_or(Some(0), |byte| ALPHABET.iter().position(|digit| digit == byte));
            whole = whole << 5 | digit? as u64;
        }
        let [_, _, _, five @ ..] = whole.to_be_bytes();
        bytes.extend(five.iter().take(chunk.len() * 5 / 8));
    }
    (base32(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The example of `docs/FORMAT.md`.
    fn example() -> JoinCode {
        JoinCode {
            addresses: ["192.0.2.7:7440", "[2001:db8::7]:7440", "backup.example:7441"]
                .map(|text| text.parse().unwrap())
                .into(),
            fingerprint: CertFingerprint::from_bytes([0xab; 32]),
            secret: JoinSecret { token: [1; 16], secret: [2; 16] },
        }
    }

    #[test]
    fn the_format_is_as_documented() {
        let text = example().to_string();
        assert_eq!(text.parse(), Ok(example()));
        let documented = include_str!("../../docs/FORMAT.md");
        assert!(documented.contains(&text), "{text} is not in docs/FORMAT.md");
    }

    #[test]
    fn lines_may_be_broken_and_capital() {
        let text = example().to_string();
        let (begin, end) = text.split_at(70);
        assert_eq!(format!(" {begin}\n  {}", end.to_uppercase()).parse(), Ok(example()));
    }

    #[test]
    fn a_newer_code_is_not_called_mistyped() {
        let mut bytes = vec![2, 77];
        bytes.extend(checksum(&bytes));
        let text = format!("{JOIN_CODE_PREFIX}{}", base32(&bytes));
        assert_eq!(text.parse::<JoinCode>(), Err(NotAJoinCode::Unsupported(2)));
        assert_eq!("hf_01J".parse::<JoinCode>(), Err(NotAJoinCode::Other));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        let with = |addresses: &[u8]| {
            let mut bytes = vec![VERSION];
            bytes.extend([7; 64]);
            bytes.extend(addresses);
            bytes.extend(checksum(&bytes));
            format!("{JOIN_CODE_PREFIX}{}", base32(&bytes)).parse::<JoinCode>()
        };
        assert!(with(&[1, IPV4, 10, 0, 0, 1, 16, 29]).is_ok());
        for wrong in [
            &[0][..],
            &[1],
            &[1, IPV4, 10, 0, 0, 1, 16],
            &[1, IPV4, 10, 0, 0, 1, 16, 29, 0],
            &[1, IPV4, 10, 0, 0, 1, 0, 0],
            &[1, NAME, 9, b'a', 16, 29],
            &[1, NAME, 1, b'\n', 16, 29],
            &[1, NAME, 0, 16, 29],
            &[1, 9, 16, 29],
            &[17],
        ] {
            assert_eq!(with(wrong), Err(NotAJoinCode::Unusable), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn one_wrong_character_is_noticed(at in 0usize..1000, digit in 0usize..32) {
            let text = example().to_string();
            let at = JOIN_CODE_PREFIX.len() + at % (text.len() - JOIN_CODE_PREFIX.len());
            let mut bytes = text.clone().into_bytes();
            bytes[at] = ALPHABET[digit];
            let changed = String::from_utf8(bytes).unwrap();
            prop_assume!(changed != text);
            prop_assert_eq!(changed.parse::<JoinCode>(), Err(NotAJoinCode::Mistyped));
            prop_assert_eq!(text[..at].parse::<JoinCode>(), Err(NotAJoinCode::Mistyped));
        }

        #[test]
        fn no_text_makes_it_panic(text in "hfj_[a-z2-7]{0,400}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = text.parse::<JoinCode>();
            prop_assert_eq!(from_base32(&base32(&bytes)), Some(bytes.clone()));
            let mut rest = bytes.as_slice();
            let _ = take_code(&mut rest);
        }
    }
}
