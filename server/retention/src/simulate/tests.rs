//! Restore points that policies keep over the years.

use super::*;
use crate::period::Period;

fn from(text: &str) -> i64 {
    text.parse::<Timestamp>().unwrap().as_millisecond()
}

fn nightly() -> Schedule {
    Schedule::parse("30 2 * * *", "Europe/Berlin").unwrap()
}

#[test]
fn two_years_of_a_usual_policy() {
    let rules = Rules { keep_daily: 7, keep_weekly: 4, keep_monthly: 12, ..Rules::default() };
    let days = simulate(&rules, &nightly(), from("2026-01-01T12:00:00Z"), 730).unwrap();
    assert_eq!(days.len(), 730);
    assert_eq!(days[0].date.to_string(), "2026-01-01", "the day of the beginning, from its start");
    assert_eq!(days[0].points.len(), 1);
    assert_eq!(days[6].points.len(), 7, "nothing is deleted in the first week");
    let last = days.last().unwrap();
    assert_eq!(last.date.to_string(), "2027-12-31");
    // A Friday: seven days, among them the newest of two weeks and of December; two Sundays; eleven ends of months.
    assert_eq!(last.points.len(), 7 + 2 + 11);
    assert!(last.points[0].reasons.contains(&Reason::Newest(Period::Day)));
    let most = days.iter().map(|day| day.points.len()).max().unwrap();
    assert!(most <= 7 + 4 + 12, "{most}");
    assert!(last.points.windows(2).all(|pair| pair[0].at_ms > pair[1].at_ms), "newest first");
}

#[test]
fn days_without_a_backup_show_what_there_is() {
    let weekly = Schedule::parse("0 3 * * SUN", "UTC").unwrap();
    let rules = Rules { keep_last: 2, ..Rules::default() };
    let days = simulate(&rules, &weekly, from("2026-01-01T00:00:00Z"), 25).unwrap();
    let counts: Vec<usize> = days.iter().map(|day| day.points.len()).collect();
    assert_eq!(counts[..4], [0, 0, 0, 1], "4 January is a Sunday");
    assert_eq!(counts[10..], [2; 15]);
}

#[test]
fn deciding_each_day_keeps_what_deciding_once_would() {
    let rules = Rules { keep_daily: 5, keep_weekly: 3, keep_monthly: 4, keep_yearly: 2, ..Rules::default() };
    let schedule = Schedule::parse("15 */6 * * *", "America/New_York").unwrap();
    let start = from("2025-06-01T12:00:00Z");
    let days = simulate(&rules, &schedule, start, 500).unwrap();
    let end_ms = start_ms(&schedule, days.last().unwrap().date.tomorrow().unwrap()).unwrap();
    let begin = start_ms(&schedule, days[0].date).unwrap() - 1;
    let runs = schedule.times_after_ms(begin).take_while(|at_ms| *at_ms < end_ms);
    let all: Vec<_> = runs.zip(1..).map(|(at_ms, number)| made_at(at_ms, number)).collect();
    assert!(all.len() > 1_990);
    let at_once = decide(&all, &rules, schedule.zone(), end_ms);
    let at_once: Vec<i64> = at_once.iter().filter(|d| d.keep()).map(|d| d.at_ms).collect();
    let daily: Vec<i64> = days.last().unwrap().points.iter().map(|point| point.at_ms).collect();
    assert_eq!(daily, at_once);
}

#[test]
fn simulations_are_bounded() {
    let rules = Rules { keep_last: 3, ..Rules::default() };
    let start = from("2026-01-01T00:00:00Z");
    let minutely = Schedule::parse("* * * * *", "UTC").unwrap();
    assert_eq!(simulate(&rules, &nightly(), start, 0), Err(SimulateError::Days { days: 0 }));
    assert!(matches!(simulate(&rules, &nightly(), start, 4_000), Err(SimulateError::Days { .. })));
    assert!(matches!(simulate(&rules, &minutely, start, 3_660), Err(SimulateError::Runs { .. })));
    let all = Rules { keep_last: 100_000, ..Rules::default() };
    assert!(matches!(simulate(&all, &minutely, start, 60), Err(SimulateError::Entries { .. })));
    assert_eq!(simulate(&rules, &nightly(), i64::MAX, 3), Err(SimulateError::From));
    assert_eq!(simulate(&rules, &nightly(), from("9999-12-29T00:00:00Z"), 300), Err(SimulateError::From));
}
