//! Calendar expressions, especially on days when clocks change.

use jiff::Timestamp;

use super::*;

/// The first times after `after`, in the schedule's zone with its offset.
fn times(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let schedule = Schedule::parse(expression, zone).unwrap();
    let after: Timestamp = after.parse().unwrap();
    let times = schedule.times_after_ms(after.as_millisecond()).take(count).map(|at_ms| {
        let at = Timestamp::from_millisecond(at_ms).unwrap().to_zoned(schedule.zone().clone());
        at.strftime("%Y-%m-%d %H:%M %:z").to_string()
    });
    times.collect()
}

#[test]
fn times_are_those_of_the_zone() {
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-01-01T00:00:00Z", 2),
        ["2026-01-01 02:30 +01:00", "2026-01-02 02:30 +01:00"]
    );
    assert_eq!(
        times("30 2 * * *", "", "2026-01-01T02:30:00Z", 1),
        ["2026-01-02 02:30 +00:00"],
        "after, not at"
    );
    assert_eq!(
        times("0 6 * * mon-fri", "UTC", "2026-11-20T12:00:00Z", 2),
        ["2026-11-23 06:00 +00:00", "2026-11-24 06:00 +00:00"]
    );
    assert_eq!(times("@weekly", "UTC", "2026-11-20T12:00:00Z", 1), ["2026-11-22 00:00 +00:00"]);
    assert_eq!(times("0 4 L * *", "UTC", "2028-02-01T00:00:00Z", 1), ["2028-02-29 04:00 +00:00"]);
}

/// Berlin, 29 March 2026: 01:59 is followed by 03:00.
#[test]
fn a_time_that_is_skipped_is_made_up_for() {
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2),
        ["2026-03-29 03:00 +02:00", "2026-03-30 02:30 +02:00"]
    );
    // By elapsed time: nothing is skipped or repeated.
    assert_eq!(
        times("30 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", 3),
        ["2026-03-29 01:30 +01:00", "2026-03-29 03:30 +02:00", "2026-03-29 04:30 +02:00"]
    );
}

/// Berlin, 25 October 2026: 02:59 in summer time is followed by 02:00 in winter time.
#[test]
fn a_time_that_comes_twice_runs_once() {
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2),
        ["2026-10-25 02:30 +02:00", "2026-10-26 02:30 +01:00"]
    );
    assert_eq!(
        times("30 2 * * *", "Europe/Berlin", "2026-10-25T00:30:00Z", 1),
        ["2026-10-26 02:30 +01:00"],
        "also when asked between the two"
    );
    assert_eq!(
        times("30 * * * *", "Europe/Berlin", "2026-10-24T23:45:00Z", 3),
        ["2026-10-25 02:30 +02:00", "2026-10-25 02:30 +01:00", "2026-10-25 03:30 +01:00"]
    );
}

/// Lord Howe Island changes by half an hour; a year of any schedule always advances.
#[test]
fn a_year_of_times_ascends_in_every_zone() {
    for name in ["Australia/Lord_Howe", "America/New_York", "Africa/Casablanca", "America/Asuncion", "UTC"] {
        for expression in ["15 2 * * *", "*/30 * * * *", "0 0 * * *", "@hourly"] {
            let schedule = Schedule::parse(expression, name).unwrap();
            let start = "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap().as_millisecond();
            let end = start + 366 * 86_400_000;
            let times: Vec<i64> = schedule.times_after_ms(start).take_while(|at| *at < end).collect();
            assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{expression} in {name}");
            assert!(times.len() >= 365, "{expression} in {name}: {}", times.len());
            if expression == "@hourly" {
                assert!((8_780..=8_785).contains(&times.len()), "{name}: {}", times.len());
            }
        }
    }
}

#[test]
fn what_is_no_schedule_is_refused_in_words() {
    let refused = |expression: &str, zone: &str| Schedule::parse(expression, zone).unwrap_err().to_string();
    assert!(refused("", "").contains("is not a calendar expression"));
    assert!(refused("daily", "").contains("such as"));
    assert!(refused("61 * * * *", "").contains("is not a calendar expression"));
    assert!(refused("0 0 0 * * *", "").contains("is not a calendar expression"), "no seconds");
    assert!(refused("0 0 30 2 *", "").contains("names no day"));
    assert!(refused("0 0 * * möndag", "").contains("letters"));
    assert!(
        refused(&"1,".repeat(EXPRESSION_MAX_BYTES), "").len() < 600,
        "a long one is not repeated in full"
    );
    for name in
        ["Europe/Berlim", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "Zürich", &"x".repeat(900)]
    {
        let text = refused("@daily", name);
        assert!(text.contains("there is no time zone") && text.len() < 300, "{text}");
    }
}

/// The container image has no database of time zones.
#[test]
fn zones_are_found_without_the_systems_database() {
    let bundled = jiff::tz::TimeZoneDatabase::bundled();
    assert!(bundled.get("Europe/Berlin").is_ok());
}

#[test]
fn a_schedule_says_what_it_was_made_of() {
    let schedule = Schedule::parse("  30   2 * *  SUN ", "Europe/Berlin").unwrap();
    assert_eq!((schedule.expression(), schedule.zone_name()), ("30 2 * * SUN", "Europe/Berlin"));
    assert_eq!(schedule.next_after_ms(i64::MAX), None);
}

proptest::proptest! {
    /// Input by people never panics.
    #[test]
    fn any_text_is_read_or_refused(expression in "[0-9*/,?LW#@a-z +-]{0,24}", zone in "[A-Za-z/._-]{0,12}") {
        drop(Schedule::parse(&expression, &zone));
    }
}

#[test]
fn what_was_missed_is_due_once() {
    let nightly = Schedule::parse("30 2 * * *", "UTC").unwrap();
    let at = |text: &str| text.parse::<Timestamp>().unwrap().as_millisecond();
    let (mark, now) = (at("2026-11-20T03:00:00Z"), at("2026-11-24T12:00:00Z"));
    assert_eq!(nightly.due(Some(mark), at("2026-11-21T02:29:59Z")), Due::Later);
    assert_eq!(nightly.due(Some(mark), now), Due::Now);
    assert_eq!(nightly.due(Some(now), now), Due::Later, "however often it was missed");
    assert_eq!(nightly.due(None, now), Due::Begin);
    assert_eq!(nightly.due(Some(now + AHEAD_MAX_MS + 1), now), Due::Begin, "the clock was set back");
    assert_eq!(nightly.due(Some(now + AHEAD_MAX_MS), now), Due::Later);
}
