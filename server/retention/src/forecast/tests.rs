use super::*;

const NOW_MS: i64 = 1_763_700_000_000;

/// Restore points at intervals of `gap_ms`, the newest of them (number 0) `age_ms` ago.
fn points(count: u32, gap_ms: i64, age_ms: i64) -> Vec<RestorePoint<u32>> {
    (0..count)
        .map(|number| RestorePoint {
            id: number,
            at_ms: NOW_MS - age_ms - i64::from(number) * gap_ms,
            commit: u64::from(count - number),
            whole: true,
            locked_until_ms: None,
            held: false,
        })
        .collect()
}

fn leaving_in(points: &[RestorePoint<u32>], rules: Rules, days: u32) -> Vec<u32> {
    let mut ids = leaving(points, &rules, &TimeZone::UTC, NOW_MS, days);
    ids.sort_unstable();
    ids
}

#[test]
fn daily_ones_leave_in_their_turn_and_monthly_ones_stay() {
    let rules = Rules { keep_daily: 14, keep_monthly: 12, ..Rules::default() };
    let daily = points(40, DAY_MS, HOUR_MS);
    // 2025-11-21: of the days kept now, all leave within a month but the newest of their months. The last of October, 21
    // days ago, is one; none of November is, as there will be later ones.
    let leave = leaving_in(&daily, rules, 30);
    assert!((0..14).all(|number| leave.contains(&number)), "{leave:?}");
    assert!(!leave.contains(&21), "{leave:?}");
    // In two days only two of them are beyond the fourteenth.
    let soon = leaving_in(&daily[..14], rules, 2);
    assert!(soon.contains(&13) || soon.contains(&12), "{soon:?}");
    assert!(!soon.contains(&0) && soon.len() <= 2, "{soon:?}");
}

#[test]
fn what_no_rule_ends_stays() {
    let daily = points(40, DAY_MS, HOUR_MS);
    assert!(leaving_in(&daily, Rules::default(), 180).is_empty());
    // Backups have stopped: everything kept now stays.
    let last = Rules { keep_last: 5, ..Rules::default() };
    assert!(leaving_in(&points(5, DAY_MS, 10 * DAY_MS), last, 180).is_empty());
    assert_eq!(leaving_in(&points(5, DAY_MS, HOUR_MS), last, 180), [0, 1, 2, 3, 4]);
    let within = Rules { keep_within_days: 400, ..Rules::default() };
    assert!(leaving_in(&daily, within, 180).is_empty());
}

#[test]
fn locks_and_holds_count_until_they_end() {
    let last = Rules { keep_last: 1, ..Rules::default() };
    let mut daily = points(4, DAY_MS, HOUR_MS);
    daily[1].held = true;
    daily[2].locked_until_ms = Some(NOW_MS + 100 * DAY_MS);
    assert_eq!(leaving_in(&daily, last, 90), [0, 3]);
    assert_eq!(leaving_in(&daily, last, 180), [0, 2, 3]);
}

/// At any frequency of backups, and any clock.
#[test]
fn it_is_bounded() {
    let last = Rules { keep_last: 1, ..Rules::default() };
    for gap_ms in [0, 1, HOUR_MS, 400 * DAY_MS] {
        let times = times_to_come(&points(9, gap_ms, 0), NOW_MS, NOW_MS + 366 * DAY_MS);
        assert!(times.take(24 * 366 + 1).count() <= 24 * 366, "{gap_ms}");
    }
    // Backups go on after a recent one only: not after one of long ago, or one in the future.
    for (at_ms, leave) in [
        (NOW_MS, &[0][..]),
        (NOW_MS - 4 * DAY_MS, &[]),
        (i64::MIN, &[]),
        (-1, &[]),
        (NOW_MS + DAY_MS, &[]),
        (i64::MAX / 2, &[]),
    ] {
        let one = [RestorePoint { at_ms, ..points(1, DAY_MS, 0)[0] }];
        assert_eq!(leaving_in(&one, last, u32::MAX), leave, "{at_ms}");
    }
    // It looks no farther than a year ahead.
    let until_ms = NOW_MS + 400 * DAY_MS;
    let locked = [RestorePoint { locked_until_ms: Some(until_ms), ..points(1, DAY_MS, 0)[0] }];
    assert!(leaving_in(&locked, last, 500).is_empty());
    assert!(leaving_in(&[], last, 90).is_empty());
}
