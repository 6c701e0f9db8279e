//! What of a limit is kept for others: so that a tenant who takes all it can get leaves something to those who come
//! later.
//!
//! Three quarters of a limit are given out first come, first served. Of the last quarter a tenant gets one more only
//! while it holds fewer than are free: one that holds none always gets the last, and each that comes gets at most half of
//! what is left. A limit under four is too small to divide.

/// One in so many is kept.
const KEPT: usize = 4;

/// Whether a tenant that holds `own` of a `limit`, of which `in_use` are taken, may have one more.
pub(super) const fn admits(limit: usize, in_use: usize, own: usize) -> bool {
    let free = limit.saturating_sub(in_use);
    free > 0 && (free > limit / KEPT || own < free)
}

/// Why not, in words.
pub(super) fn refusal(limit: usize, in_use: usize, own: usize, what: &str, whose: &str) -> String {
    let kept = limit / KEPT;
    if in_use >= limit {
        return format!("this server allows {limit} {what} at once; try again when one of them is done");
    }
    format!(
        "{whose} has {own} of the {limit} {what} that this server allows at once, and the last {kept} are kept for others; \
         try again when one of yours is done"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many each of these tenants gets, when one after the other takes all it can get.
    fn taken(limit: usize, tenants: usize) -> Vec<usize> {
        let mut in_use = 0;
        let take_all = |_| {
            let mut own = 0;
            while admits(limit, in_use, own) {
                (in_use, own) = (in_use + 1, own + 1);
            }
            own
        };
        (0..tenants).map(take_all).collect()
    }

    #[test]
    fn later_tenants_find_something() {
        assert_eq!(taken(16, 5), [12, 2, 1, 1, 0]);
        assert_eq!(taken(64, 6), [48, 8, 4, 2, 1, 1]);
        assert_eq!(taken(4, 3), [3, 1, 0]);
        assert_eq!(taken(3, 2), [3, 0]);
        assert_eq!(taken(1, 2), [1, 0]);
        assert_eq!(taken(0, 1), [0]);
    }

    #[test]
    fn the_reason_is_the_right_one() {
        assert!(refusal(16, 16, 3, "disks", "a").contains("allows 16 disks at once"));
        let kept = refusal(16, 12, 12, "disks", "token \"a\"");
        assert!(kept.contains("token \"a\" has 12 of the 16 disks") && kept.contains("last 4"), "{kept}");
    }
}
