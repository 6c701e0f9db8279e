//! What the numbers mean, in words: which runs are unusual and why, when the repository will be full, what is lost, what only
//! agents can prove. Pure
//! functions of rows, without I/O.

pub(crate) mod agents;
pub(crate) mod explain;
pub(crate) mod flags;
pub(crate) mod forecast;
pub(crate) mod lost;
mod usual;

pub(crate) use usual::{LOOK_BACK, Usual};

/// "2.6×", "130×".
fn factor(factor: f64) -> String {
    if factor < 100.0 { format!("{factor:.1}×") } else { format!("{factor:.0}×") }
}

/// "12 ×", "4.5 ×".
fn times(times: f64) -> String {
    if times < 10.0 { format!("{times:.1} ×") } else { format!("{times:.0} ×") }
}

/// A share of something in whole percent, never rounded to 0 or 100 when it is not.
fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * ratio(part, whole);
    if part == whole {
        "100 %".to_owned()
    } else if share > 99.0 {
        "over 99 %".to_owned()
    } else if share < 1.0 && part > 0 {
        "under 1 %".to_owned()
    } else {
        format!("{share:.0} %")
    }
}

/// 0 when there is no divisor.
fn ratio(a: u64, b: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let ratio = if b == 0 { 0.0 } else { a as f64 / b as f64 };
    ratio
}

#[cfg(test)]
pub(crate) mod tests {
    use holdfast_proto::v1::{DetailRow, RowStatus};

    use super::*;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A done row of a disk of 10 GiB with that much new, stored at half.
    pub(crate) fn done(new_mib: u64) -> DetailRow {
        let (bytes, new_bytes) = (10_240 * MIB, new_mib * MIB);
        DetailRow {
            status: RowStatus::Done.into(),
            virtual_bytes: 2 * bytes,
            bytes,
            read_bytes: new_bytes,
            new_bytes,
            unchanged_bytes: bytes - new_bytes,
            post_lc: new_bytes / 2,
            ..DetailRow::default()
        }
    }

    #[test]
    fn shares_are_never_rounded_to_nothing_or_all() {
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 1000), "under 1 %");
        assert_eq!(percent(999, 1000), "over 99 %");
        assert_eq!(percent(10, 10), "100 %");
        assert_eq!(percent(1, 3), "33 %");
    }
}
