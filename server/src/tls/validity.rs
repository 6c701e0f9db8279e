//! When a certificate ends: the one field of it that the server itself must know (RFC 5280, section 4.1).

use jiff::civil::DateTime;
use jiff::tz::TimeZone;

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// `notAfter` of a certificate in DER, in milliseconds since the Unix epoch.
pub(super) fn not_after_ms(certificate: &[u8]) -> Option<i64> {
    let (_, outer, _) = element(certificate)?;
    let (_, mut fields, _) = element(outer)?;
    let (tag, _, after_version) = element(fields)?;
    if tag == VERSION {
        fields = after_version;
    }
    // Serial number, signature algorithm, issuer.
    for _ in 0..3 {
        fields = element(fields)?.2;
    }
    let (tag, validity, _) = element(fields)?;
    if tag != SEQUENCE {
        return None;
    }
    let (_, _, rest) = element(validity)?;
    let (tag, text, _) = element(rest)?;
    time_ms(tag, std::str::from_utf8(text).ok()?)
}

/// Tag and contents of the first element, and what follows it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        // A length of up to four bytes: certificates are kilobytes.
        0x81..=0x84 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time_ms(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let digits = match (tag, digits.len()) {
        // Years 50 to 99 are of the twentieth century.
        (UTC_TIME, 12) if digits >= "50" => format!("19{digits}"),
        (UTC_TIME, 12) => format!("20{digits}"),
        (GENERALIZED_TIME, 14) => digits.to_owned(),
        _ => return None,
    };
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<i8>().ok();
    let year: i16 = digits.get(..4)?.parse().ok()?;
    let (month, day) = (part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(8, 10)?, part(10, 12)?, part(12, 14)?);
    let time = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    fn ending(year: i32) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(1999, 1, 1);
        params.not_after = date_time_ymd(year, 6, 15);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    fn ms(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    #[test]
    fn both_ways_to_write_a_time() {
        assert_eq!(not_after_ms(&ending(2031)), Some(ms("2031-06-15T00:00:00Z")));
        assert_eq!(not_after_ms(&ending(2120)), Some(ms("2120-06-15T00:00:00Z")));
        assert_eq!(not_after_ms(&ending(2001)), Some(ms("2001-06-15T00:00:00Z")));
        assert_eq!(time_ms(UTC_TIME, "991231235959Z"), Some(ms("1999-12-31T23:59:59Z")));
    }

    #[test]
    fn what_is_cut_or_spoilt_says_nothing_and_does_no_harm() {
        let whole = ending(2031);
        for length in 0..60 {
            assert_eq!(not_after_ms(&whole[..length]), None, "{length} bytes");
        }
        for place in 0..whole.len() {
            let mut spoilt = whole.clone();
            spoilt[place] ^= 0xff;
            let _any = not_after_ms(&spoilt);
        }
    }
}
