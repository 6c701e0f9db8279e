//! Tasks, their logs, and schedules.

use holdfast_types::clock::Clock;
use holdfast_types::ids::TaskId;

use super::cases;
use super::fixture::{Fixture, START_MS, all_pages};
use crate::{
    AuditEntry, CatalogError, PageRequest, SCHEDULE_TEXT_MAX_BYTES, ScheduleMark, ScheduleRecord,
    TASK_LINES_MAX, TASK_TEXT_MAX_BYTES, TaskKind, TaskLine, TaskProgress, TaskRecord, TaskStatus,
    UNFINISHED_TASKS_MAX,
};

cases![
    a_task_reads_back_as_it_was_written,
    a_task_that_has_ended_stays_as_it_is,
    unfinished_tasks_are_found_and_bounded,
    tasks_are_listed_newest_first_by_kind,
    of_a_log_the_newest_lines_stay,
    history_is_bounded_by_age_and_number,
    the_latest_done_of_a_kind_outlives_the_history,
    a_schedule_starts_what_is_due_once,
    schedules_are_replaced_and_audited,
    contradictory_tasks_and_schedules_are_refused,
];

fn task(f: &Fixture, kind: TaskKind) -> TaskRecord {
    f.clock.advance_ms(1000);
    TaskRecord {
        id: TaskId(f.ulid()),
        kind,
        status: TaskStatus::Queued,
        who: "op".into(),
        scheduled: false,
        options: "{}".into(),
        created_ms: f.clock.now_ms(),
        started_ms: None,
        finished_ms: None,
        paused_until_ms: None,
        attempts: 0,
        progress: TaskProgress::default(),
        place: String::new(),
        figures: String::new(),
        error: String::new(),
    }
}

fn added(f: &Fixture, kind: TaskKind) -> TaskRecord {
    let task = task(f, kind);
    f.add_task(&task, None).unwrap();
    task
}

/// One that ended now.
fn ended(f: &Fixture, kind: TaskKind, status: TaskStatus) -> TaskRecord {
    let mut task = added(f, kind);
    task.status = status;
    task.finished_ms = Some(f.clock.now_ms());
    f.update_task(&task, &[], None).unwrap();
    task
}

fn line(at_ms: i64, text: &str) -> TaskLine {
    TaskLine { number: 0, at_ms, text: text.into() }
}

fn audited(f: &Fixture) -> Vec<String> {
    let page = f.list_audit(PageRequest::FIRST).unwrap();
    let text =
        |entry: AuditEntry| format!("{} {} {} {}", entry.who, entry.action, entry.object, entry.detail);
    page.items.into_iter().map(|record| text(record.entry)).collect()
}

fn is_invalid<T: std::fmt::Debug>(result: &crate::Result<T>) {
    assert!(matches!(result, Err(CatalogError::Invalid { .. })), "{result:?}");
}

fn a_task_reads_back_as_it_was_written(f: &Fixture) {
    let mut task = task(f, TaskKind::Reclaim);
    assert_eq!(f.task(task.id).unwrap(), None);
    f.add_task(&task, None).unwrap();
    assert_eq!(f.task(task.id).unwrap(), Some(task.clone()));
    assert_eq!(audited(f)[0], format!("op task.start {} reclaim, asked for: {{}}", task.id));
    task.status = TaskStatus::Running;
    task.started_ms = Some(f.clock.now_ms());
    task.attempts = 2;
    task.progress = TaskProgress { done: 7, total: 9, unit: "containers".into() };
    task.place = "there".into();
    task.figures = r#"{"freed_bytes":5}"#.into();
    f.update_task(&task, &[line(3, "begun"), line(4, "seven")], None).unwrap();
    assert_eq!(f.task(task.id).unwrap(), Some(task.clone()));
    task.status = TaskStatus::Failed;
    task.finished_ms = Some(f.clock.now_ms());
    task.error = "no".into();
    let entry = AuditEntry {
        who: "op".into(),
        action: "task.end".into(),
        object: task.id.to_string(),
        detail: "failed".into(),
    };
    f.update_task(&task, &[line(5, "failed")], Some(&entry)).unwrap();
    assert_eq!(f.task(task.id).unwrap(), Some(task.clone()));
    assert_eq!(audited(f)[0], format!("op task.end {} failed", task.id));
    let lines = f.task_lines(task.id, 100).unwrap();
    let lines: Vec<_> = lines.iter().map(|line| (line.number, line.at_ms, line.text.as_str())).collect();
    assert_eq!(lines, [(1, 3, "begun"), (2, 4, "seven"), (3, 5, "failed")]);
    assert_eq!(f.task_lines(task.id, 2).unwrap()[0].number, 2, "the newest");
    let again = f.add_task(&TaskRecord { status: TaskStatus::Queued, finished_ms: None, ..task }, None);
    assert!(matches!(again, Err(CatalogError::Exists { what: "task", .. })), "{again:?}");
}

fn a_task_that_has_ended_stays_as_it_is(f: &Fixture) {
    let mut task = ended(f, TaskKind::Scrub, TaskStatus::Cancelled);
    f.update_task(&task, &[line(1, "told again")], None).unwrap();
    let written = f.task(task.id).unwrap();
    for status in [TaskStatus::Running, TaskStatus::Queued, TaskStatus::Done] {
        task.status = status;
        task.finished_ms = status.has_ended().then_some(START_MS);
        is_invalid(&f.update_task(&task, &[line(2, "not added")], None));
    }
    assert_eq!(f.task(task.id).unwrap(), written);
    assert_eq!(f.task_lines(task.id, 9).unwrap().len(), 1);
    let absent = TaskRecord { id: TaskId(f.ulid()), ..self::task(f, TaskKind::Scrub) };
    let result = f.update_task(&absent, &[], None);
    assert!(matches!(result, Err(CatalogError::NotFound { what: "task", .. })), "{result:?}");
}

fn unfinished_tasks_are_found_and_bounded(f: &Fixture) {
    let first = added(f, TaskKind::Verify);
    ended(f, TaskKind::Verify, TaskStatus::Done);
    let mut second = added(f, TaskKind::Policy);
    second.status = TaskStatus::Interrupted;
    f.update_task(&second, &[], None).unwrap();
    assert_eq!(f.unfinished_tasks().unwrap(), [first, second.clone()], "oldest first");
    for _ in 2..UNFINISHED_TASKS_MAX {
        added(f, TaskKind::Verify);
    }
    let one_more = task(f, TaskKind::Verify);
    is_invalid(&f.add_task(&one_more, None));
    second.status = TaskStatus::Cancelled;
    second.finished_ms = Some(START_MS);
    f.update_task(&second, &[], None).unwrap();
    f.add_task(&one_more, None).unwrap();
}

fn tasks_are_listed_newest_first_by_kind(f: &Fixture) {
    let kinds = (0..6).map(|n| if n % 3 == 0 { TaskKind::Verify } else { TaskKind::Reclaim });
    let mut all: Vec<_> = kinds.map(|kind| ended(f, kind, TaskStatus::Done)).collect();
    all.reverse();
    assert_eq!(all_pages(4, |page| f.list_tasks(None, page)), all);
    let verify: Vec<_> = all.iter().filter(|task| task.kind == TaskKind::Verify).cloned().collect();
    assert_eq!(all_pages(1, |page| f.list_tasks(Some(TaskKind::Verify), page)), verify);
    assert_eq!(f.list_tasks(Some(TaskKind::Scrub), PageRequest::FIRST).unwrap().items, []);
    let next = f.list_tasks(None, PageRequest { size: 1, token: "" }).unwrap().next.unwrap();
    is_invalid(&f.list_tasks(Some(TaskKind::Verify), PageRequest { size: 1, token: &next }));
}

fn of_a_log_the_newest_lines_stay(f: &Fixture) {
    let task = added(f, TaskKind::Reclaim);
    let other = added(f, TaskKind::Reclaim);
    f.update_task(&other, &[line(1, "another's")], None).unwrap();
    let lines: Vec<_> = (1..=i64::from(TASK_LINES_MAX)).map(|n| line(n, "a line")).collect();
    f.update_task(&task, &lines, None).unwrap();
    f.update_task(&task, &[line(5000, &"x".repeat(100_000)), line(5001, "last")], None).unwrap();
    let kept = f.task_lines(task.id, u32::MAX).unwrap();
    assert_eq!(kept.len(), TASK_LINES_MAX as usize);
    assert_eq!((kept[0].number, kept.last().unwrap().text.as_str()), (3, "last"));
    assert!(kept[kept.len() - 2].text.len() < 100_000, "clipped");
    assert_eq!(f.task_lines(other.id, 10).unwrap().len(), 1);
}

fn history_is_bounded_by_age_and_number(f: &Fixture) {
    let old = ended(f, TaskKind::Reclaim, TaskStatus::Failed);
    let queued = added(f, TaskKind::Reclaim);
    f.update_task(&old, &[line(1, "goes with it")], None).unwrap();
    let kept: Vec<_> = (0..5).map(|_| ended(f, TaskKind::Reclaim, TaskStatus::Done)).collect();
    let other = ended(f, TaskKind::Verify, TaskStatus::Done);
    assert_eq!(f.prune_tasks(old.finished_ms.unwrap(), 100).unwrap(), 0);
    assert_eq!(f.prune_tasks(old.finished_ms.unwrap() + 1, 100).unwrap(), 1);
    assert_eq!((f.task(old.id).unwrap(), f.task_lines(old.id, 9).unwrap()), (None, vec![]));
    assert_eq!(f.prune_tasks(0, 2).unwrap(), 3);
    let left = all_pages(10, |page| f.list_tasks(None, page));
    assert_eq!(left, [other, kept[4].clone(), kept[3].clone(), queued], "what has not ended stays");
}

fn the_latest_done_of_a_kind_outlives_the_history(f: &Fixture) {
    assert_eq!(f.last_done_task(TaskKind::Reclaim).unwrap(), None);
    let done = ended(f, TaskKind::Reclaim, TaskStatus::Done);
    ended(f, TaskKind::Reclaim, TaskStatus::Failed);
    assert_eq!(f.last_done_task(TaskKind::Reclaim).unwrap().as_ref(), Some(&done));
    f.prune_tasks(i64::MAX, 0).unwrap();
    assert_eq!(all_pages(10, |page| f.list_tasks(None, page)), [done]);
}

fn mark(name: &str, at_ms: i64) -> ScheduleMark {
    ScheduleMark { name: name.into(), at_ms }
}

fn a_schedule_starts_what_is_due_once(f: &Fixture) {
    let task = TaskRecord { scheduled: true, who: "schedule".into(), ..task(f, TaskKind::Policy) };
    f.set_schedule_mark(&mark("policy/1", 5)).unwrap();
    f.add_task(&task, Some(&mark("policy/1", 100))).unwrap();
    assert_eq!(f.schedule_marks().unwrap(), [mark("policy/1", 100)]);
    assert!(audited(f)[0].contains("policy, by schedule"), "{:?}", audited(f));
    // A task that is refused moves no mark.
    let again = f.add_task(&task, Some(&mark("policy/1", 200)));
    assert!(matches!(again, Err(CatalogError::Exists { .. })), "{again:?}");
    f.set_schedule_mark(&mark("another", 7)).unwrap();
    assert_eq!(f.schedule_marks().unwrap(), [mark("another", 7), mark("policy/1", 100)]);
    f.drop_schedule_marks(&["policy/1".into(), "never".into()]).unwrap();
    f.drop_schedule_marks(&[]).unwrap();
    assert_eq!(f.schedule_marks().unwrap(), [mark("another", 7)]);
}

fn schedule() -> ScheduleRecord {
    ScheduleRecord {
        kind: TaskKind::Verify,
        expression: "0 6 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        options: "{}".into(),
        enabled: true,
        who: "op".into(),
        updated_ms: START_MS,
    }
}

fn schedules_are_replaced_and_audited(f: &Fixture) {
    assert_eq!(f.schedules().unwrap(), []);
    f.set_schedule(&schedule()).unwrap();
    assert_eq!(f.schedules().unwrap(), [schedule()]);
    assert_eq!(f.schedule_marks().unwrap(), [mark("verify", START_MS)]);
    let off = ScheduleRecord { enabled: false, updated_ms: START_MS + 5, who: "admin".into(), ..schedule() };
    f.set_schedule(&off).unwrap();
    assert_eq!(f.schedules().unwrap(), [off]);
    assert_eq!(f.schedule_marks().unwrap(), [mark("verify", START_MS + 5)], "nothing before is due");
    let expected = "admin schedule.set verify off: 0 6 * * * (Europe/Berlin), options {}";
    assert_eq!(audited(f)[0], expected);
}

fn contradictory_tasks_and_schedules_are_refused(f: &Fixture) {
    let good = task(f, TaskKind::Reclaim);
    let long = "x".repeat(TASK_TEXT_MAX_BYTES + 1);
    for bad in [
        TaskRecord { status: TaskStatus::Done, finished_ms: Some(1), ..good.clone() },
        TaskRecord { finished_ms: Some(1), ..good.clone() },
        TaskRecord { options: long.clone(), ..good.clone() },
        TaskRecord { place: long.clone(), ..good.clone() },
        TaskRecord { figures: long.clone(), ..good.clone() },
    ] {
        is_invalid(&f.add_task(&bad, None));
    }
    is_invalid(&f.add_task(&good, Some(&mark("", 1))));
    f.add_task(&good, None).unwrap();
    is_invalid(&f.update_task(&TaskRecord { status: TaskStatus::Done, ..good.clone() }, &[], None));
    is_invalid(&f.update_task(&TaskRecord { figures: long.clone(), ..good }, &[], None));
    let name = "x".repeat(SCHEDULE_TEXT_MAX_BYTES + 1);
    is_invalid(&f.set_schedule_mark(&mark(&name, 1)));
    for bad in [
        ScheduleRecord { expression: name.clone(), ..schedule() },
        ScheduleRecord { time_zone: String::new(), ..schedule() },
        ScheduleRecord { options: long, ..schedule() },
    ] {
        is_invalid(&f.set_schedule(&bad));
    }
    assert_eq!((f.schedules().unwrap(), f.schedule_marks().unwrap()), (vec![], vec![]));
}
