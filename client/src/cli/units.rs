//! Quantities as people write them.

use std::time::Duration;

/// `50MB`, `10MiB`, `1.5G`, `4096`; also with `/s`.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of bytes; write 50MB, 10MiB or 4096");
    let plain = text.trim().strip_suffix("/s").unwrap_or(text.trim());
    let digits_end = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (number, unit) = plain.split_at(digits_end);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        _ => return Err(wrong()),
    };
    #[expect(clippy::cast_precision_loss, reason = "factors are at most 2^30")]
    let value = number * factor as f64;
    if !(1.0..1e18).contains(&value) {
        return Err(format!("{text:?} is out of range; give at least 1 byte and less than 10^18"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 10^18")]
    let value = value as u64;
    Ok(value)
}

/// `5m`, `30s`, `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write 30s, 5m or 1h"))
}

/// 1 to 256 threads.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|count| (1..=256).contains(count))
        .ok_or_else(|| "give a number from 1 to 256".to_owned())
}

/// `0640` or `640`: permission bits in octal. Set-user-ID and the like have no place on a disk image.
pub(super) fn mode(text: &str) -> Result<u32, String> {
    let digits = text.len() <= 4 && text.bytes().all(|byte| byte.is_ascii_digit());
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| digits && *mode <= 0o777);
    mode.ok_or_else(|| {
        format!("{text:?} is not a file mode; write three or four octal digits up to 0777, such as 0640")
    })
}

/// `10%` or `0.1`, as a share.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let wrong = || format!("{text:?} is not a share; write 10% or 0.1");
    let (number, divisor) = text.trim().strip_suffix('%').map_or((text.trim(), 1.0), |n| (n, 100.0));
    let share = number.trim().parse::<f64>().map_err(|_| wrong())? / divisor;
    if (0.001..=1.0).contains(&share) { Ok(share) } else { Err("give a share from 0.1% to 100%".to_owned()) }
}

/// A time ago (`7d`), a day (`2026-01-31`, in UTC) or an instant (RFC 3339), as Unix milliseconds.
pub(super) fn point_in_time(text: &str) -> Result<i64, String> {
    holdfast_proto::when::point_in_time(text, jiff::Timestamp::now().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_people_write_them() {
        for (text, value) in [
            ("50MB", 50_000_000),
            ("10MiB", 10 << 20),
            ("1.5k", 1500),
            ("4096", 4096),
            ("2 GB/s", 2_000_000_000),
        ] {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
        for bad in ["", "MB", "5 parsecs", "-1", "0", "1e99", "1.2.3M"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(share("10%"), Ok(0.1));
        assert_eq!(share("0.25"), Ok(0.25));
        assert!(share("0").is_err() && share("200%").is_err() && share("x").is_err());
        assert_eq!((mode("0640"), mode("600")), (Ok(0o640), Ok(0o600)));
        for bad in ["", "rw", "0888", "4755", "+640", "00640"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
        assert!(threads("0").is_err() && threads("4") == Ok(4));
    }
}
