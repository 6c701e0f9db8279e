//! What a refusal says: the quota, what is used, the limit, and what to do.

use crate::error::EngineError;

pub(super) fn refusal(namespace: &str, quota: &str, used: &str, limit: &str, advice: &str) -> EngineError {
    EngineError::Quota(format!(
        "namespace {namespace:?} has reached its quota of {quota}: {used}, the limit is {limit}; {advice}"
    ))
}

/// A number of bytes with its size in words: `1.5 TB (1500000000000 bytes)`.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match UNITS.iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => {
            let tenths = u128::from(count) * 10 / u128::from(*unit);
            format!("{}.{} {name} ({count} bytes)", tenths / 10, tenths % 10)
        }
        None => format!("{count} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        for (count, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_999, "1.9 kB (1999 bytes)"),
            (2_000_000_000_000, "2.0 TB (2000000000000 bytes)"),
            (u64::MAX, "18446744.0 TB (18446744073709551615 bytes)"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
