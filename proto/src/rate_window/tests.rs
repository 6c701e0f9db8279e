use super::*;

fn window(text: &str) -> RateWindow {
    text.parse().unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_window_holds_in_its_hours_on_its_days() {
    let work = window("mon-fri 08:00-18:00 5MiB");
    // 2026-11-23 is a Monday.
    for (time, holds) in [
        ("2026-11-23T07:59:59Z", false),
        ("2026-11-23T08:00:00Z", true),
        ("2026-11-27T17:59:59Z", true),
        ("2026-11-27T18:00:00Z", false),
        ("2026-11-28T12:00:00Z", false),
        ("2026-11-29T12:00:00Z", false),
    ] {
        assert_eq!(work.holds(at(time)), holds, "{time}");
    }
    let weekend = window("sat-mon 00:00-24:00 0");
    assert!(weekend.holds(at("2026-11-28T00:00:00Z")));
    assert!(weekend.holds(at("2026-11-23T23:59:59Z")));
    assert!(!weekend.holds(at("2026-11-24T00:00:00Z")));
}

#[test]
fn what_passes_midnight_belongs_to_the_day_it_begins_on() {
    let night = window("fri 22:00-06:00 0");
    for (time, holds) in [
        ("2026-11-27T05:00:00Z", false),
        ("2026-11-27T22:00:00Z", true),
        ("2026-11-28T05:59:59Z", true),
        ("2026-11-28T06:00:00Z", false),
        ("2026-11-28T22:00:00Z", false),
    ] {
        assert_eq!(night.holds(at(time)), holds, "{time}");
    }
    // From Sunday to Monday the days begin anew.
    assert!(window("sun 22:00-06:00 0").holds(at("2026-11-23T01:00:00Z")));
}

#[test]
fn the_hours_are_those_of_the_zone() {
    let berlin = window("08:00-18:00 Europe/Berlin 1MiB");
    assert!(berlin.holds(at("2026-11-23T07:00:00Z")));
    assert!(!berlin.holds(at("2026-11-23T17:00:00Z")));
    // An hour earlier in summer.
    assert!(berlin.holds(at("2026-07-20T06:00:00Z")));
    assert!(!berlin.holds(at("2026-07-20T16:00:00Z")));
}

#[test]
fn the_first_window_that_holds_counts() {
    let rates = RateWindows {
        windows: vec![window("mon 12:00-13:00 0"), window("mon-fri 08:00-18:00 5MiB")],
        otherwise: ByteSize(50 << 20),
    };
    for (time, rate) in [
        ("2026-11-23T09:00:00Z", Some(5 << 20)),
        ("2026-11-23T12:30:00Z", None),
        ("2026-11-23T20:00:00Z", Some(50 << 20)),
    ] {
        let found = rates.bytes_per_sec(at(time).as_millisecond());
        assert_eq!(found.map(NonZeroU64::get), rate, "{time}");
    }
    assert!(rates.is_limited() && !RateWindows::default().is_limited());
}

#[test]
fn what_is_no_window_says_why() {
    for (text, why) in [
        ("", "are needed"),
        ("08:00-18:00", "are needed"),
        ("monday 08:00-18:00 1MiB", "monday is no day"),
        ("8:00-18:00 1MiB", "8:00 is no time"),
        ("08:00-24:01 1MiB", "24:01 is no time"),
        ("08:00-08:00 1MiB", "has no length"),
        ("08:00 1MiB", "has no end"),
        ("08:00-18:00 Berlin 1MiB", "no time zone \"Berlin\""),
        ("08:00-18:00 fast", "is not a size"),
    ] {
        let error = text.parse::<RateWindow>().unwrap_err().to_string();
        assert!(error.contains(why), "{text}: {error}");
    }
}
