//! Comparison with `restic forget`, and properties that hold for any restore points.

use holdfast_proto::schedule::zone;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// 2100-01-01: no restore point here is in the future.
const LATER_MS: i64 = 4_102_444_800_000;

fn at(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn point(id: u64, at_ms: i64) -> RestorePoint<u64> {
    RestorePoint { id, at_ms, commit: id, whole: true, locked_until_ms: None, held: false }
}

fn points(times: &[&str]) -> Vec<RestorePoint<u64>> {
    times.iter().zip(0..).map(|(time, id)| point(id, at(time))).collect()
}

fn utc(points: &[RestorePoint<u64>], rules: &Rules) -> Vec<Decision<u64>> {
    decide(points, rules, &TimeZone::UTC, LATER_MS)
}

fn kept(decisions: &[Decision<u64>]) -> Vec<u64> {
    let mut kept: Vec<u64> = decisions.iter().filter(|d| d.keep()).map(|d| d.id).collect();
    kept.sort_unstable();
    kept
}

/// Letter of a rule in `restic.txt`. Keeping the oldest came with restic 0.16.
fn letter(reason: &Reason) -> Option<char> {
    match reason {
        Reason::Last => Some('l'),
        Reason::Newest(period) => Some(match period {
            Period::Hour => 'h',
            Period::Day => 'd',
            Period::Week => 'w',
            Period::Month => 'm',
            Period::Year => 'y',
        }),
        Reason::Oldest(_) => None,
        Reason::Within { .. } => Some('i'),
        other => panic!("no rule of restic: {other}"),
    }
}

#[test]
fn rules_mean_what_restic_means() {
    let (mut all, mut cases) = (Vec::new(), 0);
    for line in include_str!("restic.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        match fields.next() {
            Some("time") => all.push(point(all.len() as u64, at(fields.next().unwrap()))),
            Some("rules") => {
                let (text, expected) = (fields.next().unwrap(), fields.next().unwrap());
                let mut rules = Rules::default();
                for (name, value) in text.split(' ').map(|rule| rule.split_once('=').unwrap()) {
                    let field = match name {
                        "last" => &mut rules.keep_last,
                        "hourly" => &mut rules.keep_hourly,
                        "daily" => &mut rules.keep_daily,
                        "weekly" => &mut rules.keep_weekly,
                        "monthly" => &mut rules.keep_monthly,
                        "yearly" => &mut rules.keep_yearly,
                        "within" => &mut rules.keep_within_days,
                        other => panic!("{other}"),
                    };
                    *field = value.parse().unwrap();
                }
                let mut decisions = utc(&all, &rules);
                decisions.reverse();
                let found = decisions.iter().filter_map(|d| {
                    let mut letters: Vec<char> = d.reasons.iter().filter_map(letter).collect();
                    letters.sort_unstable();
                    (!letters.is_empty()).then(|| format!("{}:{}", d.id, String::from_iter(letters)))
                });
                assert_eq!(found.collect::<Vec<_>>().join(" "), expected, "{text}");
                cases += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(all.len() >= 70 && cases >= 40, "{} restore points, {cases} cases", all.len());
}

#[test]
fn the_newest_of_each_day_stays() {
    let all = points(&["2026-03-01T02:00:00Z", "2026-03-01T20:00:00Z", "2026-03-02T02:00:00Z"]);
    let decisions = utc(&all, &Rules { keep_daily: 2, ..Rules::default() });
    assert_eq!(decisions.iter().map(|d| d.id).collect::<Vec<_>>(), [2, 1, 0], "newest first");
    assert_eq!(decisions[0].reasons, [Reason::Newest(Period::Day)]);
    assert_eq!(kept(&decisions), [1, 2]);
    let decisions = utc(&all, &Rules { keep_daily: 3, ..Rules::default() });
    assert_eq!(
        decisions[2].reasons,
        [Reason::Oldest(Period::Day)],
        "a rule with counts left keeps the oldest"
    );
}

#[test]
fn history_begins_where_it_began_until_a_rule_is_full() {
    let all = points(&[
        "2026-03-01T02:00:00Z",
        "2026-03-01T20:00:00Z",
        "2026-03-20T02:00:00Z",
        "2026-04-02T02:00:00Z",
    ]);
    let monthly = |keep_monthly| kept(&utc(&all, &Rules { keep_monthly, ..Rules::default() }));
    assert_eq!(monthly(1), [3]);
    assert_eq!(monthly(2), [2, 3], "March and April use it up");
    assert_eq!(monthly(3), [0, 2, 3]);
}

#[test]
fn days_are_those_of_the_time_zone() {
    // 23:30 and 00:30 in Berlin, both the same day in UTC.
    let all = points(&["2026-06-01T21:30:00Z", "2026-06-01T22:30:00Z", "2026-06-01T23:00:00Z"]);
    let rules = Rules { keep_daily: 2, ..Rules::default() };
    let berlin = zone("Europe/Berlin").unwrap();
    assert_eq!(kept(&decide(&all, &rules, &berlin, LATER_MS)), [0, 2]);
    assert_eq!(kept(&decide(&all, &Rules { keep_daily: 1, ..rules }, &TimeZone::UTC, LATER_MS)), [2]);
}

#[test]
fn an_hour_that_comes_twice_is_two_hours() {
    // 02:30 in summer time and 02:30 in winter time, and the hour before.
    let all = points(&["2026-10-24T23:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
    let berlin = zone("Europe/Berlin").unwrap();
    let decisions = decide(&all, &Rules { keep_hourly: 2, ..Rules::default() }, &berlin, LATER_MS);
    assert_eq!(kept(&decisions), [1, 2]);
}

#[test]
fn within_counts_days_of_the_calendar() {
    // The day on which clocks go forward has 23 hours: one day before 12:00 is 12:00.
    let all = points(&["2026-03-28T10:59:00Z", "2026-03-28T11:01:00Z", "2026-03-29T10:00:00Z"]);
    let berlin = zone("Europe/Berlin").unwrap();
    let rules = Rules { keep_within_days: 1, ..Rules::default() };
    assert_eq!(kept(&decide(&all, &rules, &berlin, LATER_MS)), [1, 2]);
    assert_eq!(kept(&decide(&all, &rules, &TimeZone::UTC, LATER_MS)), [0, 1, 2]);
}

#[test]
fn within_counts_from_the_newest_that_is_not_in_the_future() {
    let all = [point(0, 0), point(1, 9 * DAY_MS), point(2, 10 * DAY_MS), point(3, 1000 * DAY_MS)];
    let rules = Rules { keep_within_days: 2, ..Rules::default() };
    assert_eq!(kept(&decide(&all, &rules, &TimeZone::UTC, 11 * DAY_MS)), [1, 2, 3]);
    assert_eq!(kept(&decide(&all, &rules, &TimeZone::UTC, 5000 * DAY_MS)), [3]);
    assert_eq!(kept(&decide(&all, &rules, &TimeZone::UTC, -1)), [0, 1, 2, 3], "all are in the future");
}

/// (L6) The clock was ahead for a while, and is right again.
#[test]
fn what_is_in_the_future_stays_and_uses_nothing_up() {
    let all: Vec<_> =
        [1, 2, 3, 4, 900, 901, 902].into_iter().zip(0..).map(|(day, id)| point(id, day * DAY_MS)).collect();
    let rules = Rules { keep_last: 1, keep_daily: 3, ..Rules::default() };
    let decisions = decide(&all, &rules, &TimeZone::UTC, 10 * DAY_MS);
    assert_eq!(kept(&decisions), [1, 2, 3, 4, 5, 6]);
    assert!(decisions[..3].iter().all(|d| d.reasons == [Reason::Future]));
    assert_eq!(kept(&decide(&all, &rules, &TimeZone::UTC, 1000 * DAY_MS)), [4, 5, 6]);
}

#[test]
fn no_rules_keep_everything() {
    let all = points(&["2026-03-01T02:00:00Z", "2026-03-02T02:00:00Z"]);
    assert!(utc(&all, &Rules::default()).iter().all(|d| d.reasons == [Reason::NoRules]));
    assert!(utc(&[], &Rules { keep_last: 1, ..Rules::default() }).is_empty());
}

#[test]
fn the_latest_stays_whatever_the_clock_did() {
    // The third was made last, with the clock set back.
    let all = [point(0, 100 * DAY_MS), point(1, 101 * DAY_MS), point(2, 5 * DAY_MS)];
    let decisions = utc(&all, &Rules { keep_last: 1, ..Rules::default() });
    assert_eq!(kept(&decisions), [1, 2]);
    assert_eq!(decisions[2].reasons, [Reason::Latest]);
}

#[test]
fn the_latest_whole_one_stays() {
    let mut all = [point(0, 0), point(1, DAY_MS), point(2, 2 * DAY_MS), point(3, 3 * DAY_MS)];
    all[2].whole = false;
    all[3].whole = false;
    let decisions = utc(&all, &Rules { keep_last: 2, ..Rules::default() });
    assert_eq!(kept(&decisions), [1, 2, 3]);
    assert_eq!(decisions[2].reasons, [Reason::LatestWhole]);
}

#[test]
fn locked_and_held_ones_stay_and_count() {
    let mut all = [point(0, 0), point(1, DAY_MS), point(2, 2 * DAY_MS)];
    all[0].locked_until_ms = Some(at("2030-01-01T00:00:00Z"));
    all[1].held = true;
    let decisions = utc(&all, &Rules { keep_last: 1, ..Rules::default() });
    let reasons: Vec<String> =
        decisions.iter().map(|d| d.reasons.iter().map(ToString::to_string).collect()).collect();
    assert_eq!(reasons, ["last", "legal hold", "locked until 2030-01-01 00:00:00Z"]);
}

#[test]
fn times_out_of_any_calendar_delete_nothing_by_accident() {
    let all = [point(0, i64::MIN), point(1, 0), point(2, i64::MAX)];
    let decisions = utc(&all, &Rules { keep_yearly: 3, ..Rules::default() });
    assert_eq!(kept(&decisions), [0, 1, 2]);
    assert_eq!(utc(&all, &Rules { keep_within_days: u32::MAX, ..Rules::default() }).len(), 3);
}

fn any_points() -> impl Strategy<Value = Vec<RestorePoint<u64>>> {
    // Two years around a change of clocks, often several in an hour, some at the same moment.
    let one = (0..17_520i64, 0..4i64, prop::bool::weighted(0.8), prop::bool::weighted(0.05), 0..40u64);
    prop::collection::vec(one, 0..60).prop_map(|all| {
        let point = |(id, (hour, quarter, whole, held, shift)): (u64, _)| RestorePoint {
            id,
            at_ms: at("2025-01-01T00:00:00Z") + hour * HOUR_MS + quarter * HOUR_MS / 4,
            commit: id ^ (shift & 7),
            whole,
            locked_until_ms: (shift == 39).then_some(LATER_MS),
            held,
        };
        (0..).zip(all).map(point).collect()
    })
}

fn any_rules() -> impl Strategy<Value = Rules> {
    prop::array::uniform7(prop_oneof![3 => Just(0u32), 4 => 0..8u32, 1 => 8..90u32]).prop_map(
        |[last, hourly, daily, weekly, monthly, yearly, within]| Rules {
            keep_last: last,
            keep_hourly: hourly,
            keep_daily: daily,
            keep_weekly: weekly,
            keep_monthly: monthly,
            keep_yearly: yearly,
            keep_within_days: within,
        },
    )
}

fn any_zone() -> impl Strategy<Value = TimeZone> {
    prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"])
        .prop_map(|name| zone(name).unwrap())
}

/// The same rules with more of one of them.
fn with_more(rules: &Rules, which: usize, more: u32) -> Rules {
    let mut rules = *rules;
    let field = match which {
        0 => &mut rules.keep_last,
        1 => &mut rules.keep_hourly,
        2 => &mut rules.keep_daily,
        3 => &mut rules.keep_weekly,
        4 => &mut rules.keep_monthly,
        5 => &mut rules.keep_yearly,
        _ => &mut rules.keep_within_days,
    };
    *field += more;
    rules
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn each_is_decided_about_once_and_order_does_not_matter(all in any_points(), rules in any_rules(), zone in any_zone()) {
        let decisions = decide(&all, &rules, &zone, LATER_MS);
        let mut ids: Vec<u64> = decisions.iter().map(|d| d.id).collect();
        ids.sort_unstable();
        prop_assert_eq!(ids, (0..all.len() as u64).collect::<Vec<_>>());
        let mut turned = all.clone();
        turned.reverse();
        prop_assert_eq!(decide(&turned, &rules, &zone, LATER_MS), decisions);
    }

    #[test]
    fn to_decide_again_deletes_nothing_more(all in any_points(), rules in any_rules(), zone in any_zone()) {
        let stay = kept(&decide(&all, &rules, &zone, LATER_MS));
        let left: Vec<_> = all.into_iter().filter(|point| stay.contains(&point.id)).collect();
        prop_assert_eq!(kept(&decide(&left, &rules, &zone, LATER_MS)), stay);
    }

    #[test]
    fn a_greater_number_keeps_at_least_as_much(
        all in any_points(), rules in any_rules(), zone in any_zone(), which in 0..7usize, more in 1..20u32,
    ) {
        prop_assume!(!rules.is_empty());
        let fewer = kept(&decide(&all, &rules, &zone, LATER_MS));
        let greater = kept(&decide(&all, &with_more(&rules, which, more), &zone, LATER_MS));
        prop_assert!(fewer.iter().all(|id| greater.contains(id)), "{:?} and {:?}", fewer, greater);
    }

    #[test]
    fn the_newest_and_what_is_protected_always_stay(all in any_points(), rules in any_rules(), zone in any_zone()) {
        let stay = kept(&decide(&all, &rules, &zone, LATER_MS));
        let latest = all.iter().max_by_key(|point| (point.commit, point.at_ms, point.id));
        let whole = all.iter().filter(|point| point.whole);
        let whole = whole.max_by_key(|point| (point.commit, point.at_ms, point.id));
        for point in latest.into_iter().chain(whole) {
            prop_assert!(stay.contains(&point.id));
        }
        for point in all.iter().filter(|point| point.held || point.locked_until_ms.is_some()) {
            prop_assert!(stay.contains(&point.id));
        }
    }
}
