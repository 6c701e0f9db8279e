//! Tasks that the clock starts.

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Daily at 06:00 UTC: the first time is 80 minutes after the start.
fn bench() -> Bench {
    let daily = DefaultSchedule { expression: "0 6 * * *", enabled: true };
    let verify = Arc::into_inner(Scripted::new(TaskKind::Verify)).unwrap();
    let verify = Arc::new(Scripted { default: Some(daily), ..verify });
    Bench::with(Scripted::new(TaskKind::Reclaim), verify)
}

/// Tasks that the schedules have started, so long later.
fn after(bench: &Bench, ms: i64) -> usize {
    bench.clock.advance_ms(ms.max(LOOK_INTERVAL_MS));
    bench.work()
}

fn set(bench: &Bench, expression: &str, time_zone: &str, enabled: bool) -> Result<Schedule, ServiceError> {
    bench.tasks.set_schedule(ScheduleRecord {
        kind: TaskKind::Verify,
        expression: expression.into(),
        time_zone: time_zone.into(),
        options: "{}".into(),
        enabled,
        who: "op".into(),
        updated_ms: 0,
    })
}

#[test]
fn a_schedule_starts_its_task_when_it_is_due() {
    let bench = bench();
    assert_eq!(bench.work(), 0, "nothing is known of the time before");
    assert_eq!(after(&bench, HOUR_MS), 0);
    assert_eq!(after(&bench, 20 * 60_000), 1, "06:00");
    assert_eq!(after(&bench, 60_000), 0, "once");
    assert_eq!(after(&bench, DAY_MS - HOUR_MS), 0);
    assert_eq!(after(&bench, HOUR_MS), 1, "and the next day");
    let (tasks, _) = bench.tasks.list(Some(TaskKind::Verify), PageRequest::FIRST).unwrap();
    assert_eq!((tasks.len(), tasks[0].who.as_str(), tasks[0].scheduled), (2, "schedule", true));
}

#[test]
fn what_was_missed_is_made_up_for_once() {
    let mut bench = bench();
    assert_eq!(after(&bench, 0), 0);
    bench.clock.advance_ms(5 * DAY_MS);
    bench.restart();
    assert_eq!(after(&bench, 0), 1, "five times were missed");
    assert_eq!(after(&bench, 0), 0);
    bench.restart();
    assert_eq!(after(&bench, 0), 0, "a restart starts nothing again");
    assert_eq!(after(&bench, DAY_MS), 1);
}

#[test]
fn what_is_still_under_way_is_not_started_again() {
    let bench = bench();
    assert_eq!(after(&bench, 0), 0);
    bench.clock.advance_ms(DAY_MS);
    let attempt = bench.tasks.tick().remove(0);
    bench.clock.advance_ms(DAY_MS);
    assert_eq!(bench.tasks.tick().len(), 0);
    attempt.make(&bench.tasks);
    assert_eq!(after(&bench, 0), 0, "the second day's is left out");
    assert_eq!(after(&bench, DAY_MS), 1);
}

#[test]
fn a_clock_that_is_set_back_neither_repeats_nor_stops_a_schedule() {
    let bench = bench();
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(after(&bench, 80 * 60_000), 1, "06:00");
    bench.clock.set_by_ms(-60_000);
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(after(&bench, 120_000), 0, "06:00 comes a second time");
    // It was years ahead, and what was due then was done.
    bench.clock.set_by_ms(1000 * DAY_MS);
    assert_eq!(after(&bench, 0), 1);
    bench.clock.set_by_ms(-1000 * DAY_MS);
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(after(&bench, DAY_MS), 1, "not only in years");
}

#[test]
fn schedules_are_read_in_their_time_zone_and_shown_with_what_comes_next() {
    let bench = bench();
    let default = bench.tasks.schedules().unwrap();
    assert_eq!(default.len(), 1, "only kinds that have one");
    assert_eq!((default[0].next_ms, &default[0].set), (Some(START_MS + 80 * 60_000), &None));
    // 06:00 in Berlin is 05:00 UTC in November.
    let berlin = set(&bench, "0 6 * * *", "Europe/Berlin", true).unwrap();
    assert_eq!((berlin.next_ms, &berlin.set), (Some(START_MS + 20 * 60_000), &Some(("op".into(), START_MS))));
    assert_eq!(bench.tasks.schedules().unwrap(), [berlin]);
    assert_eq!(bench.work(), 0);
    assert_eq!(after(&bench, 20 * 60_000), 1);
    let off = set(&bench, "* * * * *", "UTC", false).unwrap();
    assert_eq!((off.next_ms, off.enabled), (None, false));
    assert_eq!(after(&bench, 10 * DAY_MS), 0, "it is off");
    assert!(bench.audit().contains(&"op schedule.set".to_owned()));
}

#[test]
fn schedules_that_make_no_sense_are_refused() {
    let bench = bench();
    for (expression, zone) in
        [("every day", "UTC"), ("0 6 * *", "UTC"), ("0 6 * * *", "Mars/Olympus"), ("0 0 30 2 *", "UTC")]
    {
        assert_eq!(
            set(&bench, expression, zone, true).unwrap_err().code,
            ErrorCode::Invalid,
            "{expression} {zone}"
        );
    }
    let reclaim = ScheduleRecord {
        kind: TaskKind::Reclaim,
        expression: "@daily".into(),
        time_zone: "UTC".into(),
        options: "{}".into(),
        enabled: true,
        who: "op".into(),
        updated_ms: 0,
    };
    assert_eq!(
        bench.tasks.set_schedule(reclaim).unwrap_err().code,
        ErrorCode::NotFound,
        "it has none of its own"
    );
}

#[test]
fn a_kind_may_have_many_schedules_of_its_own() {
    let bench = Bench::new();
    let own = |id: u32, expression: &str| OwnSchedule {
        name: format!("reclaim/{id}"),
        expression: expression.into(),
        time_zone: "UTC".into(),
        options: format!(r#"{{"policy":{id}}}"#),
    };
    *bench.reclaim.own.lock() = vec![own(1, "0 6 * * *"), own(2, "no schedule"), own(3, "0 6 * * *")];
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(after(&bench, 2 * HOUR_MS), 1, "one of a kind at a time");
    assert_eq!(bench.work(), 1);
    let options: Vec<_> = bench.reclaim.orders.lock().iter().map(|order| order.options.clone()).collect();
    assert_eq!(options, [r#"{"policy":1}"#, r#"{"policy":3}"#]);
}

/// (G11) A pause switches off neither the schedule nor its alert.
#[test]
fn a_pause_that_is_forgotten_ends_and_what_it_left_out_is_counted() {
    let mut bench = bench();
    assert_eq!(after(&bench, 0), 0);
    let id = bench.start(TaskKind::Verify, "{}");
    bench.tasks.pause(id, "op").unwrap();
    let skipped = |bench: &Bench| bench.tasks.parts.counters.skipped(TaskKind::Verify.word());
    assert_eq!((after(&bench, HOUR_MS), skipped(&bench)), (0, 0));
    assert_eq!((after(&bench, 20 * 60_000), skipped(&bench)), (0, 1), "06:00");
    assert_eq!((after(&bench, HOUR_MS), skipped(&bench)), (0, 1), "once");
    bench.restart();
    assert_eq!((after(&bench, 20 * HOUR_MS), bench.status(id)), (0, TaskStatus::Paused));
    assert_eq!(after(&bench, 2 * HOUR_MS), 1, "a day after it was paused");
    assert_eq!(bench.status(id), TaskStatus::Done);
    assert_eq!(bench.stored(id).paused_until_ms, None);
    assert!(bench.log(id).contains(&"the pause is over".to_owned()), "{:?}", bench.log(id));
    assert_eq!((after(&bench, DAY_MS), skipped(&bench)), (1, 0), "and the next day");
    // One from before the clock was set back ends, too.
    let id = bench.start(TaskKind::Verify, "{}");
    bench.clock.set_by_ms(1000 * DAY_MS);
    bench.tasks.pause(id, "op").unwrap();
    bench.clock.set_by_ms(-1000 * DAY_MS);
    assert_eq!(after(&bench, 0), 1);
}

/// (G11) A task that was paused before ends of pauses were noted has a day from the start on.
#[test]
fn a_pause_of_an_earlier_version_is_not_over_at_once() {
    let mut bench = bench();
    let id = bench.start(TaskKind::Verify, "{}");
    bench.tasks.pause(id, "op").unwrap();
    let old = TaskRecord { paused_until_ms: None, ..bench.stored(id) };
    bench.tasks.parts.catalog.update_task(&old, &[], None).unwrap();
    bench.restart();
    assert_eq!((after(&bench, 0), bench.status(id)), (0, TaskStatus::Paused));
    assert_eq!(bench.stored(id).paused_until_ms, Some(START_MS + DAY_MS));
    assert_eq!((after(&bench, DAY_MS), bench.status(id)), (1, TaskStatus::Done));
}

/// (G11) Once, however long the catalog takes no changes; and not where another task does it.
#[test]
fn what_is_left_out_is_counted_once_and_only_if_nothing_does_it() {
    let bench = bench();
    assert_eq!(after(&bench, 0), 0);
    let skipped = |bench: &Bench| bench.tasks.parts.counters.skipped(TaskKind::Verify.word());
    let paused = bench.start(TaskKind::Verify, "{}");
    bench.tasks.pause(paused, "op").unwrap();
    bench.sqlite.answer_full(true);
    assert_eq!(after(&bench, 2 * HOUR_MS), 0, "06:00");
    assert_eq!((after(&bench, 0), skipped(&bench)), (0, 0), "it stays due");
    bench.sqlite.answer_full(false);
    assert_eq!((after(&bench, 0), skipped(&bench)), (0, 1));
    assert_eq!((after(&bench, 0), skipped(&bench)), (0, 1));
    bench.tasks.pause(paused, "op").unwrap();
    let other = bench.start(TaskKind::Verify, "{}");
    assert_ne!(other, paused);
    let at_work = bench.tasks.tick();
    assert_eq!((at_work.len(), bench.status(other)), (1, TaskStatus::Running));
    bench.clock.advance_ms(23 * HOUR_MS + HOUR_MS / 2);
    assert_eq!((bench.tasks.tick().len(), skipped(&bench)), (0, 1), "another does it");
    assert_eq!((after(&bench, 0), skipped(&bench)), (0, 1), "and the schedule is done for the day");
}

/// (G11) Reclaim makes the room that marks are dropped with.
#[test]
fn marks_that_cannot_be_dropped_keep_no_schedule_from_its_turn() {
    let daily = DefaultSchedule { expression: "0 6 * * *", enabled: true };
    let reclaim = Arc::into_inner(Scripted::new(TaskKind::Reclaim)).unwrap();
    let reclaim = Arc::new(Scripted { default: Some(daily), ..reclaim });
    let bench = Bench::with(reclaim, Scripted::new(TaskKind::Verify));
    *bench.verify.own.lock() = own(0..10);
    assert_eq!(after(&bench, 0), 0);
    let known = bench.tasks.marks().unwrap().len();
    bench.verify.own.lock().clear();
    bench.sqlite.answer_full(true);
    assert_eq!(after(&bench, 2 * HOUR_MS), 1, "reclaim");
    assert_eq!(bench.tasks.marks().unwrap().len(), known);
    bench.sqlite.answer_full(false);
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(bench.tasks.marks().unwrap().len(), 1);
}

fn own(numbers: std::ops::Range<u32>) -> Vec<OwnSchedule> {
    let of = |number: u32| OwnSchedule {
        name: format!("verify/{number}"),
        expression: "0 6 * * *".into(),
        time_zone: "UTC".into(),
        options: format!("{{\"policy\":{number}}}"),
    };
    numbers.map(of).collect()
}

/// Marks are bounded: those of what is gone go, and one that cannot be made keeps no other schedule from its turn.
#[test]
fn schedules_that_are_gone_leave_nothing() {
    let bench = Bench::new();
    for round in 0..3 {
        *bench.verify.own.lock() = own(round * 10..round * 10 + 10);
        assert_eq!(after(&bench, 0), 0);
        assert_eq!(bench.tasks.marks().unwrap().len(), 10);
    }
    let mut long = own(20..30);
    long.insert(0, OwnSchedule { name: format!("verify/{}", "x".repeat(9000)), ..long[0].clone() });
    *bench.verify.own.lock() = long;
    assert_eq!(after(&bench, 0), 0);
    assert_eq!(after(&bench, DAY_MS), 1);
    let waiting = bench.tasks.board.lock().entries.len();
    assert_eq!(waiting, 9, "all ten were due, and one was done");
}

/// Tasks that make room have places of their own, whatever else is due.
#[test]
fn a_thousand_that_are_due_at_once_leave_a_place_to_reclaim() {
    let bench = Bench::new();
    *bench.verify.own.lock() = own(0..1000);
    assert_eq!(after(&bench, 0), 0);
    bench.clock.advance_ms(DAY_MS);
    bench.tasks.tick();
    assert_eq!(bench.tasks.board.lock().entries.len(), 60);
    assert_eq!(bench.tasks.start(TaskKind::Verify, "more", "op").unwrap_err().code, ErrorCode::Limit);
    let reclaim = bench.start(TaskKind::Reclaim, "{}");
    assert_eq!(bench.tasks.tick().len(), 1);
    assert_eq!(bench.status(reclaim), TaskStatus::Running);
}
