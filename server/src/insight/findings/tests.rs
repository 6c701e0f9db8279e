//! Each sentence from a history written by hand; then many that were made up.

mod histories;
mod made_up;

use holdfast_proto::api::Finding;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const DAY_MS: i64 = 86_400_000;

/// A Monday.
const MONDAY_MS: i64 = 1_795_000_000_000 - 1_795_000_000_000 % DAY_MS - 2 * DAY_MS;

/// A night of a VM of 100 GiB, with 1 GiB new that compresses 2×.
fn night(day: i64) -> RunSums {
    let known = Amounts {
        bytes: 100 * GIB,
        read_bytes: 2 * GIB,
        dup_bytes: GIB,
        new_bytes: GIB,
        stored_bytes: GIB / 2,
        retried_bytes: 0,
    };
    let started_ms = MONDAY_MS + day * DAY_MS;
    RunSums { started_ms, finished_ms: started_ms + 3_600_000, known, ..RunSums::default() }
}

/// The last finding of three quiet weeks and what follows them.
fn after_quiet(nights: &[fn(&mut RunSums)]) -> Option<Finding> {
    let mut detector = Detector::default();
    for day in -21..0 {
        assert_eq!(detector.take(&night(day)), None);
    }
    let mut last = None;
    for (day, change) in (0..).zip(nights) {
        let mut run = night(day);
        change(&mut run);
        last = detector.take(&run).map(|found| said(&found, run.finished_ms));
    }
    last
}

fn said(found: &Found, now_ms: i64) -> Finding {
    finding(found, Subject { namespace: "default", job: "nightly", vm: "db" }, now_ms)
}

#[track_caller]
fn assert_found(found: Option<Finding>, kind: FindingKind, text: &str, cause: &str) {
    let found = found.expect("a finding");
    assert_eq!((found.kind, found.text.as_str()), (kind, text));
    assert!(found.cause.contains(cause), "{}", found.cause);
}

#[test]
fn quiet_nights_are_no_finding() {
    assert_eq!(
        after_quiet(&[|_| {}, |run| run.known.new_bytes *= 2, |run| run.known.new_bytes /= 2, |_| {}]),
        None
    );
}

/// The run after some that were missed has their data, too.
#[test]
fn missed_nights_are_made_up_for() {
    let week: fn(&mut RunSums) = |run| {
        run.started_ms += 6 * DAY_MS;
        (run.known.dup_bytes, run.known.new_bytes, run.known.stored_bytes) = (6 * GIB, 6 * GIB, 3 * GIB);
    };
    assert_eq!(after_quiet(&[week]), None);
    let night: fn(&mut RunSums) = |run| {
        (run.known.dup_bytes, run.known.new_bytes, run.known.stored_bytes) = (6 * GIB, 6 * GIB, 3 * GIB);
    };
    assert!(after_quiet(&[night]).is_some());
}

#[test]
fn encrypted() {
    let found = after_quiet(&[
        |_| {},
        |run| {
            (run.known.new_bytes, run.known.stored_bytes) = (84 * GIB, 84 * GIB + GIB / 2);
        },
    ]);
    let text = "nightly/db: 200× → 1.2×, 84.0 GiB more than usual, since Tuesday";
    assert_found(found, FindingKind::Incompressible, text, "hardly compresses (1.0× instead of 2.0×)");
}

#[test]
fn rewritten_once() {
    let repack: fn(&mut RunSums) = |run| (run.known.new_bytes, run.known.stored_bytes) = (40 * GIB, 20 * GIB);
    let text = "nightly/db: 200× → 5.0×, 19.5 GiB more than usual, since Monday";
    assert_found(after_quiet(&[repack]), FindingKind::Rewritten, text, "compresses as before");
    assert_eq!(after_quiet(&[repack, |_| {}]), None, "once");
}

#[test]
fn more_in_each_run() {
    let more: fn(&mut RunSums) = |run| (run.known.new_bytes, run.known.stored_bytes) = (10 * GIB, 5 * GIB);
    let text = "nightly/db: 200× → 20.0×, 13.5 GiB more than usual, since Monday";
    assert_found(after_quiet(&[more; 3]), FindingKind::MoreNew, text, "More is new in each run");
    assert_eq!(after_quiet(&[more; 16]), None, "it has become usual");
}

#[test]
fn files_were_added() {
    let found = after_quiet(&[|run| {
        run.known.bytes += 50 * GIB;
        (run.known.new_bytes, run.known.stored_bytes) = (51 * GIB, 25 * GIB);
    }]);
    let text = "nightly/db: 200× → 6.0×, 24.5 GiB more than usual, since Monday";
    assert_found(found, FindingKind::MoreNew, text, "It holds 50.0 GiB more");
}

#[test]
fn compresses_worse() {
    let hardly: fn(&mut RunSums) = |run| run.known.stored_bytes = GIB;
    let text = "nightly/db: 200× → 100×, 512 MiB more than usual, since Monday";
    assert_found(after_quiet(&[hardly]), FindingKind::Compression, text, "1.0× instead of 2.0×");
    let somewhat: fn(&mut RunSums) = |run| run.known.stored_bytes = GIB * 10 / 17;
    assert_eq!(after_quiet(&[somewhat; 2]), None, "may be chance");
    let text = "nightly/db: 200× → 170×, 271 MiB more than usual, since Monday";
    assert_found(after_quiet(&[somewhat; 3]), FindingKind::Compression, text, "compression level");
    let idle: fn(&mut RunSums) = |run| (run.known.new_bytes, run.known.stored_bytes) = (MIB, MIB);
    let text = "nightly/db: 200× → 170×, 361 MiB more than usual, since Monday";
    let found = after_quiet(&[somewhat, somewhat, somewhat, idle, somewhat]);
    assert_found(found, FindingKind::Compression, text, "As much is new as usual");
}

#[test]
fn read_again() {
    let found = after_quiet(&[|run| {
        (run.known.read_bytes, run.known.dup_bytes) = (100 * GIB, 98 * GIB);
        (run.known.new_bytes, run.known.stored_bytes) = (2 * GIB, GIB);
    }]);
    let text = "nightly/db: all 100 GiB read again, of which 98 % was stored already, since Monday";
    assert_found(found, FindingKind::ReadAgain, text, "moved");
}

#[test]
fn first_fulls_and_clones() {
    let full: fn(&mut RunSums) = |run| {
        run.first = Amounts {
            bytes: 100 * GIB,
            dup_bytes: 20 * GIB,
            new_bytes: 80 * GIB,
            stored_bytes: 40 * GIB,
            ..Amounts::default()
        };
    };
    let text = "nightly/db: first backup of 100 GiB, of which 20 % was stored already";
    assert_found(after_quiet(&[full]), FindingKind::FirstFull, text, "no restore point");
    let mut run = RunSums { known: Amounts::default(), ..night(0) };
    full(&mut run);
    assert_eq!(Detector::default().take(&run).map(|found| found.kind), Some(FindingKind::FirstFull));
    let clone = Found::of_run(
        FindingKind::FirstFull,
        &run,
        Amounts {
            bytes: 30 * GIB,
            dup_bytes: 29 * GIB,
            new_bytes: GIB,
            stored_bytes: GIB / 2,
            ..Amounts::default()
        },
        0,
    );
    let together = |vms| Found::together(&vec![clone; vms]).map(|found| said(&found, MONDAY_MS));
    let text = "nightly/db: first backups of 30 VMs, 900 GiB, of which 97 % was stored already";
    assert_found(together(30), FindingKind::Clones, text, "copies of each other");
    assert_eq!(together(2).map(|found| found.kind), Some(FindingKind::FirstFull));
    assert_eq!(together(0), None);
}

#[test]
fn several_vms_are_told_together() {
    let mut found = Vec::new();
    for level in [2, 4] {
        let mut detector = Detector::default();
        for day in -21..=0 {
            let mut run = night(day);
            run.known.stored_bytes = if day < 0 { GIB / level } else { GIB };
            found.extend(detector.take(&run));
        }
    }
    let joined = Found::together(&found).unwrap();
    let usual = joined.usual.unwrap();
    assert_eq!((usual.stored_bytes, usual.local_factor), (GIB * 3 / 4, Some(8.0 / 3.0)));
    let text = said(&joined, joined.until_ms).text;
    assert_eq!(text, "nightly/db: 2 VMs, 267× → 100×, 1.25 GiB more than usual, since Monday");
    assert!((joined.times_worse().unwrap() - 8.0 / 3.0).abs() < 1e-9);
}

#[test]
fn attempts_in_vain() {
    let found = after_quiet(&[|run| run.known.retried_bytes = 461 * MIB]);
    let text = "nightly/db: the attempts before it stored 461 MiB, which its factors count";
    assert_found(found, FindingKind::Retried, text, "no restore point");
}

#[test]
fn little_does_not_matter() {
    let mut detector = Detector::default();
    let small = |day, new_bytes, stored_bytes| {
        let run = night(day);
        RunSums { known: Amounts { new_bytes, stored_bytes, ..run.known }, ..run }
    };
    (-21..0).for_each(|day| assert_eq!(detector.take(&small(day, 0, 0)), None));
    assert_eq!(detector.take(&small(0, 240 * MIB, 120 * MIB)), None);
    let found = detector.take(&small(1, 640 * MIB, 130 * MIB)).unwrap();
    assert_eq!((found.kind, found.usual.unwrap().total_factor), (FindingKind::MoreNew, None));
    assert!(found.times_worse().unwrap() > 2.0, "an alert tells of it: {:?}", found.times_worse());
    assert_eq!(said(&found, found.until_ms).text, "nightly/db: 250 MiB more than usual, since Monday");
}

#[test]
fn times_are_told_as_of_now() {
    let found =
        Found { is_over: true, ..Found::of_run(FindingKind::Rewritten, &night(1), night(1).known, GIB) };
    let text = |found: &Found, day| said(found, night(day).started_ms).text;
    assert!(text(&found, 3).ends_with("1.00 GiB more than usual, on Tuesday"), "{}", text(&found, 3));
    assert!(text(&found, 30).contains(", on 2026-11-17"), "{}", text(&found, 30));
    let found = Found { until_ms: night(3).finished_ms, runs: 3, ..found };
    assert!(text(&found, 4).ends_with("from Tuesday to Thursday"), "{}", text(&found, 4));
}
