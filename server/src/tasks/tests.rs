//! Tasks over a real catalog, with work, clock and timer that the test owns. Nothing waits for real time.

mod schedules;
mod verify;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use holdfast_engine::catalog::{Catalog, TaskStatus};
use holdfast_engine::clock::ManualClock;
use holdfast_volume::testing::ManualTimer;

use super::*;
use board::ATTEMPTS_MAX;
use control::Steered;
use work::Share;

type Run = dyn Fn(&Order, &Control) -> Result<(), WorkError> + Send + Sync;

/// Does what a test says.
struct Scripted {
    kind: TaskKind,
    default: Option<DefaultSchedule>,
    own: Mutex<Vec<OwnSchedule>>,
    run: Mutex<Arc<Run>>,
    orders: Mutex<Vec<Order>>,
    /// Limit of its tasks that have not ended; then they are shared, too.
    bounds: Mutex<Option<usize>>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.word())
    }
}

impl Scripted {
    fn new(kind: TaskKind) -> Arc<Self> {
        Arc::new(Self {
            kind,
            default: None,
            own: Mutex::default(),
            run: Mutex::new(Arc::new(|_, _| Ok(()))),
            orders: Mutex::default(),
            bounds: Mutex::default(),
        })
    }

    fn runs(&self, run: impl Fn(&Order, &Control) -> Result<(), WorkError> + Send + Sync + 'static) {
        *self.run.lock() = Arc::new(run);
    }
}

impl Work for Scripted {
    fn kind(&self) -> TaskKind {
        self.kind
    }

    fn default_schedule(&self) -> Option<DefaultSchedule> {
        self.default
    }

    fn unfinished_max(&self) -> usize {
        self.bounds.lock().unwrap_or(usize::MAX)
    }

    fn shares(&self) -> &'static [Share] {
        &[Share { option: "tenant", unfinished_max: 2, what: "tenant" }]
    }

    fn is_shared(&self) -> bool {
        self.bounds.lock().is_some()
    }

    fn own_schedules(&self) -> Result<Vec<OwnSchedule>, ServiceError> {
        Ok(self.own.lock().clone())
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        if options == "bad" { Err(ServiceError::invalid("options: bad")) } else { Ok(options.to_owned()) }
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        self.orders.lock().push(order.clone());
        let run = Arc::clone(&self.run.lock());
        run(order, control)
    }
}

#[derive(Debug, Default)]
struct Beside(AtomicBool);

impl Surroundings for Beside {
    fn is_busy(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn tasks_changed(&self) {}
}

struct Bench {
    _folder: tempfile::TempDir,
    sqlite: Arc<Catalog>,
    clock: Arc<ManualClock>,
    timer: Arc<ManualTimer>,
    beside: Arc<Beside>,
    reclaim: Arc<Scripted>,
    verify: Arc<Scripted>,
    tasks: Arc<Tasks>,
}

/// 2025-11-21, 04:40 UTC, a Friday.
const START_MS: i64 = 1_763_700_000_000;

impl Bench {
    fn new() -> Self {
        Self::with(Scripted::new(TaskKind::Reclaim), Scripted::new(TaskKind::Verify))
    }

    fn with(reclaim: Arc<Scripted>, verify: Arc<Scripted>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START_MS));
        let path = folder.path().join("catalog.db");
        let sqlite = Arc::new(Catalog::create(&path, Arc::<ManualClock>::clone(&clock)).unwrap());
        let catalog: Arc<Catalog> = Arc::<Catalog>::clone(&sqlite);
        let (timer, beside) = (Arc::<ManualTimer>::default(), Arc::<Beside>::default());
        let tasks = open(&catalog, &clock, &timer, &beside, &[&reclaim, &verify]);
        Self { _folder: folder, sqlite, clock, timer, beside, reclaim, verify, tasks }
    }

    /// The next process. What the one before has in memory is gone.
    fn restart(&mut self) {
        let catalog = Arc::clone(&self.tasks.parts.catalog);
        self.tasks = open(&catalog, &self.clock, &self.timer, &self.beside, &[&self.reclaim, &self.verify]);
        self.tasks.load();
    }

    fn start(&self, kind: TaskKind, options: &str) -> TaskId {
        self.tasks.start(kind, options, "op").unwrap().id
    }

    /// The task as the catalog has it.
    fn stored(&self, id: TaskId) -> TaskRecord {
        self.tasks.parts.catalog.task(id).unwrap().unwrap()
    }

    fn status(&self, id: TaskId) -> TaskStatus {
        let (task, _) = self.tasks.get(id, 0).unwrap();
        assert_eq!(task.status, self.stored(id).status, "what is shown is what is kept");
        task.status
    }

    fn log(&self, id: TaskId) -> Vec<String> {
        self.tasks.get(id, 100).unwrap().1.into_iter().map(|line| line.text).collect()
    }

    /// Makes every attempt that begins, here and now.
    fn work(&self) -> usize {
        let attempts = self.tasks.tick();
        let count = attempts.len();
        attempts.into_iter().for_each(|attempt| attempt.make(&self.tasks));
        count
    }

    fn audit(&self) -> Vec<String> {
        let page = self.tasks.parts.catalog.list_audit(PageRequest::FIRST).unwrap();
        page.items.into_iter().map(|record| format!("{} {}", record.entry.who, record.entry.action)).collect()
    }
}

fn open(
    catalog: &Arc<Catalog>,
    clock: &Arc<ManualClock>,
    timer: &Arc<ManualTimer>,
    beside: &Arc<Beside>,
    works: &[&Arc<Scripted>],
) -> Arc<Tasks> {
    Tasks::new(TaskParts {
        catalog: Arc::clone(catalog),
        clock: Arc::<ManualClock>::clone(clock),
        timer: Arc::<ManualTimer>::clone(timer),
        surroundings: Arc::<Beside>::clone(beside),
        counters: Arc::new(crate::metrics::Counters::new()),
        limits: Limits::new(None, 100, 10),
        works: works.iter().map(|work| Arc::clone(work) as Arc<dyn Work>).collect(),
    })
}

/// Work that tells when it has begun, and goes on when it is told to.
fn held(work: &Scripted) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((begun, is_begun), (go, may_go)) = (mpsc::channel(), mpsc::channel::<()>());
    let may_go = Mutex::new(may_go);
    work.runs(move |_, control| {
        begun.send(()).unwrap();
        may_go.lock().recv().unwrap();
        control.check()?;
        Ok(())
    });
    (is_begun, go)
}

/// Many that people start leave room for others, and one that is under way is not started again.
#[test]
fn a_kind_may_be_bounded_and_shared() {
    let bench = Bench::new();
    *bench.reclaim.bounds.lock() = Some(2);
    let first = bench.start(TaskKind::Reclaim, "1");
    assert_eq!(bench.tasks.tick().len(), 1);
    assert_eq!(bench.status(first), TaskStatus::Running);
    assert_eq!(bench.start(TaskKind::Reclaim, "1"), first, "it is under way");
    bench.start(TaskKind::Reclaim, "2");
    let error = bench.tasks.start(TaskKind::Reclaim, "3", "op").unwrap_err();
    assert_eq!(error.code, ErrorCode::Limit);
    bench.start(TaskKind::Verify, "1");
    // A task that is to end is not shared.
    bench.tasks.cancel(first, "op").unwrap();
    let error = bench.tasks.start(TaskKind::Reclaim, "1", "op").unwrap_err();
    assert_eq!(error.code, ErrorCode::Limit);
}

/// One tenant leaves room for others, also after a restart.
#[test]
fn a_tenant_has_a_share_of_the_places() {
    let mut bench = Bench::new();
    let of = |tenant: &str, number: u32| format!(r#"{{"tenant":"{tenant}","number":{number}}}"#);
    let first = bench.start(TaskKind::Verify, &of("a", 1));
    bench.start(TaskKind::Verify, &of("a", 2));
    bench.restart();
    let error = bench.tasks.start(TaskKind::Verify, &of("a", 3), "another").unwrap_err();
    assert_eq!(error.code, ErrorCode::Limit);
    assert!(error.message.starts_with("2 tasks of kind verify of this tenant"), "{}", error.message);
    bench.start(TaskKind::Verify, &of("b", 1));
    bench.start(TaskKind::Reclaim, &of("a", 3));
    // Options that name no tenant are bounded by the kind alone.
    for options in ["{}", r#"{"number":1}"#, r#"{"number":2}"#] {
        bench.start(TaskKind::Verify, options);
    }
    bench.tasks.cancel(first, "op").unwrap();
    bench.start(TaskKind::Verify, &of("a", 3));
}

#[test]
fn one_task_of_a_kind_works_at_a_time() {
    let bench = Bench::new();
    let first = bench.start(TaskKind::Verify, "{}");
    let second = bench.start(TaskKind::Verify, r#"{"vm":"web"}"#);
    let other = bench.start(TaskKind::Reclaim, "{}");
    let begun = bench.tasks.tick();
    assert_eq!(begun.iter().map(|attempt| attempt.id).collect::<Vec<_>>(), [other, first]);
    assert_eq!((bench.status(first), bench.status(second)), (TaskStatus::Running, TaskStatus::Queued));
    assert_eq!(bench.tasks.tick().len(), 0);
    begun.into_iter().for_each(|attempt| attempt.make(&bench.tasks));
    assert_eq!((bench.status(first), bench.status(other)), (TaskStatus::Done, TaskStatus::Done));
    assert_eq!(bench.work(), 1);
    assert_eq!(bench.status(second), TaskStatus::Done);
    assert_eq!(bench.verify.orders.lock()[1].options, r#"{"vm":"web"}"#);
}

#[test]
fn who_asks_twice_gets_the_task_that_waits() {
    let bench = Bench::new();
    let first = bench.start(TaskKind::Verify, "{}");
    assert_eq!(bench.start(TaskKind::Verify, "{}"), first);
    let begun = bench.tasks.tick();
    assert_ne!(bench.start(TaskKind::Verify, "{}"), first, "one that works has begun before it was asked");
    drop(begun);
    let error = bench.tasks.start(TaskKind::Verify, "bad", "op").unwrap_err();
    assert_eq!(error.code, ErrorCode::Invalid);
    assert_eq!(bench.tasks.start(TaskKind::Scrub, "{}", "op").unwrap_err().code, ErrorCode::NotFound);
}

#[test]
fn what_a_task_tells_is_shown_and_kept() {
    let bench = Bench::new();
    bench.reclaim.runs(|_, control| {
        control.expect(7, "containers");
        control.advance(3);
        control.log("three of seven");
        control.set_figures(&serde_json::json!({ "freed_bytes": 5 }));
        Ok(())
    });
    let id = bench.start(TaskKind::Reclaim, "{}");
    bench.work();
    let task = bench.stored(id);
    assert_eq!(
        (task.status, task.attempts, task.figures.as_str()),
        (TaskStatus::Done, 1, r#"{"freed_bytes":5}"#)
    );
    assert_eq!((task.progress.done, task.progress.total, task.progress.unit.as_str()), (3, 7, "containers"));
    assert_eq!((task.started_ms, task.finished_ms), (Some(START_MS), Some(START_MS)));
    assert_eq!(bench.log(id), ["begun", "three of seven", "done"]);
    assert_eq!(bench.audit()[..2], ["op task.end", "op task.start"]);
    let (listed, _) = bench.tasks.list(None, PageRequest::FIRST).unwrap();
    assert_eq!(listed, [task]);
}

#[test]
fn failures_and_panics_fail_their_task_alone() {
    let bench = Bench::new();
    bench.verify.runs(|_, _| Err(ServiceError::invalid("no such VM").into()));
    bench.reclaim.runs(|_, _| panic!("on purpose"));
    let (failed, panicked) = (bench.start(TaskKind::Verify, "{}"), bench.start(TaskKind::Reclaim, "{}"));
    assert_eq!(bench.work(), 2);
    assert_eq!(
        (bench.status(failed), bench.stored(failed).error.as_str()),
        (TaskStatus::Failed, "no such VM")
    );
    assert!(bench.stored(panicked).error.contains("internal error"), "{:?}", bench.stored(panicked));
    bench.reclaim.runs(|_, _| Ok(()));
    let next = bench.start(TaskKind::Reclaim, "{}");
    bench.work();
    assert_eq!(bench.status(next), TaskStatus::Done);
}

#[test]
fn a_pause_holds_the_work_until_it_is_resumed() {
    let bench = Bench::new();
    let (begun, go) = held(&bench.verify);
    let id = bench.start(TaskKind::Verify, "{}");
    let attempt = bench.tasks.tick().remove(0);
    let control = Arc::clone(&attempt.control);
    thread::scope(|scope| {
        let working = scope.spawn(|| attempt.make(&bench.tasks));
        begun.recv().unwrap();
        assert_eq!(bench.tasks.pause(id, "op").unwrap().status, TaskStatus::Paused);
        go.send(()).unwrap();
        assert_eq!(bench.tasks.tick().len(), 0, "neither it nor another of its kind begins");
        assert_eq!(bench.status(id), TaskStatus::Paused);
        assert!(!working.is_finished(), "it waits for the resume, however long that takes");
        assert_eq!(bench.tasks.resume(id, "op").unwrap().status, TaskStatus::Running);
        working.join().unwrap();
    });
    assert_eq!(control.check(), Ok(()));
    assert_eq!(bench.status(id), TaskStatus::Done);
    assert_eq!(
        bench.log(id),
        ["begun", "paused by op, until 2025-11-22T04:40:00Z at the latest", "resumed by op", "done"]
    );
    assert_eq!(bench.audit()[..4], ["op task.end", "op task.resume", "op task.pause", "op task.start"]);
    let error = bench.tasks.pause(id, "op").unwrap_err();
    assert!(error.code == ErrorCode::Invalid && error.message.contains("is done"), "{error}");
}

#[test]
fn a_long_pause_releases_what_the_attempt_holds() {
    let bench = Bench::new();
    bench.verify.runs(|_, control| {
        control.set_place("half");
        loop {
            control.check()?;
        }
    });
    let id = bench.start(TaskKind::Verify, "{}");
    let attempt = bench.tasks.tick().remove(0);
    thread::scope(|scope| {
        let working = scope.spawn(|| attempt.make(&bench.tasks));
        bench.tasks.pause(id, "op").unwrap();
        bench.clock.advance_ms(600_000);
        bench.tasks.tick();
        working.join().unwrap();
    });
    assert_eq!(bench.status(id), TaskStatus::Paused, "and it stays paused");
    bench.verify.runs(|_, _| Ok(()));
    assert_eq!(bench.work(), 0);
    assert_eq!(bench.tasks.resume(id, "op").unwrap().status, TaskStatus::Queued);
    assert_eq!(bench.work(), 1);
    assert_eq!(bench.verify.orders.lock()[1].place, "half");
    assert_eq!((bench.status(id), bench.stored(id).attempts), (TaskStatus::Done, 2));
}

#[test]
fn a_task_is_cancelled_wherever_it_is() {
    let bench = Bench::new();
    let (begun, go) = held(&bench.verify);
    let running = bench.start(TaskKind::Verify, "{}");
    let attempt = bench.tasks.tick().remove(0);
    let queued = bench.start(TaskKind::Verify, "{}");
    thread::scope(|scope| {
        let working = scope.spawn(|| attempt.make(&bench.tasks));
        begun.recv().unwrap();
        assert_eq!(bench.tasks.cancel(queued, "op").unwrap().status, TaskStatus::Cancelled);
        bench.tasks.pause(running, "op").unwrap();
        assert_eq!(
            bench.tasks.cancel(running, "boss").unwrap().status,
            TaskStatus::Paused,
            "until it has ended"
        );
        go.send(()).unwrap();
        working.join().unwrap();
    });
    assert_eq!((bench.status(queued), bench.status(running)), (TaskStatus::Cancelled, TaskStatus::Cancelled));
    assert_eq!(bench.audit()[0], "boss task.end");
    assert_eq!(bench.work(), 0);
}

#[test]
fn a_shutdown_interrupts_and_the_next_start_goes_on() {
    let mut bench = Bench::new();
    bench.verify.runs(|_, control| {
        control.set_place("half");
        control.set_figures(&serde_json::json!({ "bytes": 7 }));
        control.check()?;
        Ok(())
    });
    let id = bench.start(TaskKind::Verify, "{}");
    let attempt = bench.tasks.tick().remove(0);
    bench.tasks.board.lock().stop();
    attempt.make(&bench.tasks);
    assert_eq!(bench.stored(id).status, TaskStatus::Interrupted);
    assert_eq!(bench.tasks.tick().len(), 0, "nothing begins any more");
    assert_eq!(bench.tasks.start(TaskKind::Verify, "{}", "op").unwrap_err().code, ErrorCode::Unavailable);
    bench.restart();
    assert_eq!(bench.status(id), TaskStatus::Queued);
    bench.verify.runs(|_, _| Ok(()));
    bench.work();
    assert_eq!(bench.verify.orders.lock()[1].place, "half");
    let done = bench.stored(id);
    assert_eq!((done.status, done.attempts, done.figures.as_str()), (TaskStatus::Done, 2, r#"{"bytes":7}"#));
}

#[test]
fn a_paused_task_stays_paused_over_a_restart() {
    let mut bench = Bench::new();
    let id = bench.start(TaskKind::Reclaim, "{}");
    bench.tasks.pause(id, "op").unwrap();
    bench.restart();
    assert_eq!((bench.work(), bench.status(id)), (0, TaskStatus::Paused));
    bench.tasks.resume(id, "op").unwrap();
    assert_eq!((bench.work(), bench.status(id)), (1, TaskStatus::Done));
}

#[test]
fn a_crash_begins_a_task_again_but_not_for_ever() {
    let mut bench = Bench::new();
    let id = bench.start(TaskKind::Reclaim, "{}");
    for attempt in 1..=ATTEMPTS_MAX {
        // Begun, and never heard of again.
        assert_eq!(bench.tasks.tick().len(), 1, "attempt {attempt}");
        assert_eq!(bench.stored(id).attempts, attempt);
        bench.restart();
    }
    assert_eq!(bench.tasks.tick().len(), 0);
    assert_eq!(bench.status(id), TaskStatus::Failed);
    assert!(bench.stored(id).error.contains("10 attempts"), "{}", bench.stored(id).error);
}

#[test]
fn progress_is_written_every_few_seconds() {
    let bench = Bench::new();
    let (begun, go) = held(&bench.verify);
    let id = bench.start(TaskKind::Verify, "{}");
    let attempt = bench.tasks.tick().remove(0);
    let control = Arc::clone(&attempt.control);
    thread::scope(|scope| {
        let working = scope.spawn(|| attempt.make(&bench.tasks));
        begun.recv().unwrap();
        control.expect(9, "VMs");
        control.advance(4);
        bench.tasks.tick();
        assert_eq!(bench.stored(id).progress.done, 0);
        assert_eq!(bench.tasks.get(id, 0).unwrap().0.progress.done, 4, "shown at once");
        bench.clock.advance_ms(5_000);
        bench.tasks.tick();
        assert_eq!(bench.stored(id).progress.done, 4);
        go.send(()).unwrap();
        working.join().unwrap();
    });
}

#[test]
fn work_keeps_to_its_share_and_to_less_beside_backups() {
    let bench = Bench::new();
    let (timer, beside) = (Arc::clone(&bench.timer), Arc::clone(&bench.beside));
    beside.0.store(true, Ordering::Relaxed);
    bench.verify.runs(move |_, control| {
        timer.advance(Duration::from_millis(10));
        control.charge(0)?;
        assert!(timer.take_sleeps().is_empty(), "not yet worth a wait");
        timer.advance(Duration::from_millis(10));
        control.charge(0)?;
        assert_eq!(
            timer.take_sleeps().iter().sum::<Duration>(),
            Duration::from_millis(180),
            "nine times as long"
        );
        Ok(())
    });
    let id = bench.start(TaskKind::Verify, "{}");
    bench.work();
    assert_eq!(bench.status(id), TaskStatus::Done, "{:?}", bench.stored(id));
    bench.beside.0.store(false, Ordering::Relaxed);
    let timer = Arc::clone(&bench.timer);
    bench.verify.runs(move |_, control| {
        timer.advance(Duration::from_secs(1));
        control.charge(1 << 40)?;
        assert!(timer.take_sleeps().is_empty(), "all of the time, and no limit of bytes");
        Ok(())
    });
    let id = bench.start(TaskKind::Verify, "{}");
    bench.work();
    assert_eq!(bench.status(id), TaskStatus::Done, "{:?}", bench.stored(id));
}

#[test]
fn work_of_the_engine_is_steered_along() {
    #[derive(Debug, Default)]
    struct Engine(Mutex<Vec<String>>);
    impl Steered for Engine {
        fn pause(&self, paused: bool) {
            self.0.lock().push(format!("pause {paused}"));
        }
        fn stop(&self) {
            self.0.lock().push("stop".into());
        }
        fn set_throttle(&self, _: crate::jobs::Throttle) {
            self.0.lock().push("throttle".into());
        }
        fn progress(&self) -> holdfast_engine::catalog::TaskProgress {
            holdfast_engine::catalog::TaskProgress { done: 1, total: 2, unit: "rounds".into() }
        }
    }
    let bench = Bench::new();
    let engine = Arc::<Engine>::default();
    let (begun, go) = (mpsc::channel(), mpsc::channel::<()>());
    let (steered, may_go) = (Arc::clone(&engine), Mutex::new(go.1));
    bench.reclaim.runs(move |_, control| {
        control.steer(Arc::<Engine>::clone(&steered));
        begun.0.send(()).unwrap();
        may_go.lock().recv().unwrap();
        Ok(())
    });
    let id = bench.start(TaskKind::Reclaim, "{}");
    let attempt = bench.tasks.tick().remove(0);
    thread::scope(|scope| {
        let working = scope.spawn(|| attempt.make(&bench.tasks));
        begun.1.recv().unwrap();
        bench.tasks.pause(id, "op").unwrap();
        bench.tasks.resume(id, "op").unwrap();
        bench.tasks.tick();
        bench.tasks.cancel(id, "op").unwrap();
        assert_eq!(bench.tasks.get(id, 0).unwrap().0.progress.unit, "rounds");
        go.0.send(()).unwrap();
        working.join().unwrap();
    });
    assert_eq!(*engine.0.lock(), ["throttle", "pause true", "pause false", "throttle", "stop"]);
    assert_eq!(bench.status(id), TaskStatus::Done, "it had done all before it looked");
}

#[test]
fn a_reclaim_begins_although_the_catalog_is_full() {
    let bench = Bench::new();
    bench.sqlite.answer_full(true);
    let error = bench.tasks.start(TaskKind::Verify, "{}", "op").unwrap_err();
    assert_eq!(error.code, ErrorCode::Full, "only what makes room goes on without: {error}");
    let id = bench.start(TaskKind::Reclaim, "{}");
    assert_eq!(bench.tasks.list(None, PageRequest::FIRST).unwrap().0[0].id, id);
    assert_eq!(bench.work(), 1);
    assert_eq!(bench.tasks.parts.catalog.task(id).unwrap(), None);
    bench.sqlite.answer_full(false);
    bench.clock.advance_ms(5_000);
    bench.tasks.tick();
    assert_eq!(bench.status(id), TaskStatus::Done);
    assert_eq!(bench.log(id), ["begun", "done"]);
}
