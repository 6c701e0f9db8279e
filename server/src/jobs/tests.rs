//! Time is paused: it passes only while all tasks wait, and steps take what a test's timer says.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant as RealInstant;

use holdfast_engine::clock::ManualClock;
use holdfast_engine::{Budget, JobError, JobProgress, Step};
use holdfast_volume::testing::ManualTimer;
use tokio::time::{Instant, sleep};

use super::*;

type Act = dyn Fn(u64, &Budget) -> Result<Step, JobError> + Send + Sync;

/// Does what the test says, given the number of the call.
struct Scripted {
    name: &'static str,
    act: Box<Act>,
    began: Mutex<Vec<Instant>>,
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Job for Scripted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let call = {
            let mut began = self.began.lock();
            began.push(Instant::now());
            began.len() as u64 - 1
        };
        (self.act)(call, budget)
    }
}

impl Scripted {
    fn calls(&self) -> usize {
        self.began.lock().len()
    }

    /// Milliseconds between the beginnings of steps, to the nearest ten.
    fn gaps_ms(&self) -> Vec<u128> {
        self.began.lock().windows(2).map(|two| ((two[1] - two[0]).as_millis() + 5) / 10 * 10).collect()
    }
}

struct Bench {
    jobs: Arc<Jobs>,
    runner: Runner,
    timer: Arc<ManualTimer>,
}

const PACE: Pace = Pace {
    limits: StepLimits::DEFAULT,
    throttle: Throttle::NONE,
    retry: Retry { first: Duration::from_secs(2), longest: Duration::from_secs(5) },
};

const HOUR: Duration = Duration::from_secs(3600);

impl Bench {
    fn new() -> Self {
        let (jobs, timer) = (Arc::<Jobs>::default(), Arc::new(ManualTimer::default()));
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let runner = Runner::new(Arc::clone(&jobs), Arc::<ManualTimer>::clone(&timer), clock);
        Self { jobs, runner, timer }
    }

    fn start(
        &mut self,
        name: &'static str,
        pace: Pace,
        act: impl Fn(u64, &Budget) -> Result<Step, JobError> + Send + Sync + 'static,
    ) -> Arc<Scripted> {
        let job = Arc::new(Scripted { name, act: Box::new(act), began: Mutex::default() });
        self.runner.start(Arc::<Scripted>::clone(&job), pace);
        job
    }

    fn status(&self, name: &str) -> JobStatus {
        status(&self.jobs, name)
    }
}

fn status(jobs: &Jobs, name: &str) -> JobStatus {
    jobs.list().into_iter().find(|status| status.name == name).unwrap()
}

/// Works until it is told to stop; fails when it is not told.
fn until_stopped(budget: &Budget) -> Result<Step, JobError> {
    let began = RealInstant::now();
    while !budget.must_stop() {
        if began.elapsed() > Duration::from_secs(600) {
            return Err("was not told to stop".into());
        }
        std::thread::yield_now();
    }
    Ok(Step::More)
}

async fn is_running(jobs: &Jobs, name: &str) {
    while status(jobs, name).state != JobState::Running {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn failing_steps_are_shown_and_retried_less_and_less_often() {
    let mut bench = Bench::new();
    let job = bench.start("job", PACE, |call, _| match call {
        0..=3 | 5 => Err(format!("failure {call}").into()),
        4 => Ok(Step::Idle(Duration::from_secs(1))),
        _ => Ok(Step::Idle(HOUR)),
    });
    sleep(Duration::from_millis(1500)).await;
    let failed = bench.status("job");
    assert_eq!((failed.state, failed.failures, failed.failures_in_row), (JobState::Failed, 1, 1));
    assert_eq!(failed.last_error.unwrap().message, "failure 0");
    assert_eq!(failed.last_success_ms, None);
    sleep(Duration::from_secs(60)).await;
    // A success resets the wait.
    assert_eq!(job.gaps_ms(), [2000, 4000, 5000, 5000, 1000, 2000]);
    let idle = bench.status("job");
    assert_eq!((idle.state, idle.steps, idle.failures, idle.failures_in_row), (JobState::Idle, 2, 5, 0));
    assert_eq!(idle.last_error.unwrap().message, "failure 5");
    assert_eq!(idle.last_success_ms, Some(1_700_000_000_000));
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panicking_step_is_a_failure_like_any_other() {
    let mut bench = Bench::new();
    let panicking = bench.start("panicking", PACE, |call, _| match call {
        0 => panic!("a rule was broken"),
        _ => Ok(Step::Idle(HOUR)),
    });
    let other = bench.start("other", PACE, |_, _| Ok(Step::Idle(Duration::from_secs(1))));
    sleep(Duration::from_millis(1500)).await;
    let failed = bench.status("panicking");
    assert_eq!((failed.state, failed.failures_in_row), (JobState::Failed, 1));
    assert!(failed.last_error.unwrap().message.contains("a rule was broken"));
    sleep(Duration::from_secs(2)).await;
    assert_eq!(panicking.gaps_ms(), [2000]);
    assert_eq!(bench.status("panicking").state, JobState::Idle);
    assert_eq!(other.calls(), 4);
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_waits_at_once_and_steps_early() {
    let mut bench = Bench::new();
    let waiting = bench.start("waiting", PACE, |_, _| Ok(Step::Idle(HOUR)));
    let failing = bench.start("failing", PACE, |_, _| Err("always".into()));
    let busy = bench.start("busy", PACE, |_, budget| until_stopped(budget));
    let paused = bench.start("paused", PACE, |_, _| Ok(Step::Idle(HOUR)));
    assert!(bench.jobs.pause("paused"));
    is_running(&bench.jobs, "busy").await;
    while bench.status("waiting").steps == 0 || bench.status("failing").failures == 0 {
        tokio::task::yield_now().await;
    }
    let (jobs, began) = (Arc::clone(&bench.jobs), Instant::now());
    bench.runner.stop().await;
    assert!(began.elapsed() < Duration::from_millis(10), "{:?}", began.elapsed());
    let states: Vec<JobState> = jobs.list().iter().map(|status| status.state).collect();
    assert_eq!(states, [JobState::Stopped; 4]);
    assert_eq!((status(&jobs, "busy").steps, status(&jobs, "busy").failures), (1, 0));
    assert_eq!((busy.calls(), paused.calls()), (1, 0));
    assert_eq!((waiting.calls(), failing.calls()), (1, 1));
    // Final.
    assert!(jobs.resume("waiting"));
    sleep(HOUR * 2).await;
    assert_eq!(status(&jobs, "waiting").state, JobState::Stopped);
    assert_eq!(waiting.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_until_it_is_ended() {
    let mut bench = Bench::new();
    let job = bench.start("job", PACE, |_, _| Ok(Step::Idle(Duration::from_secs(10))));
    sleep(Duration::from_secs(4)).await;
    assert!(bench.jobs.pause("job") && !bench.jobs.pause("another"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((job.calls(), bench.status("job").state), (1, JobState::Paused));
    assert!(bench.jobs.resume("job") && !bench.jobs.resume("another"));
    sleep(Duration::from_secs(4)).await;
    assert_eq!((job.calls(), bench.status("job").state), (1, JobState::Idle), "the wait goes on");
    assert!(bench.jobs.pause("job"));
    sleep(HOUR).await;
    assert_eq!((job.calls(), bench.status("job").state), (1, JobState::Paused));
    assert!(bench.jobs.resume("job"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(job.calls(), 2);
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_ends_the_step_under_way() {
    let mut bench = Bench::new();
    let job = bench.start("job", PACE, |_, budget| until_stopped(budget));
    is_running(&bench.jobs, "job").await;
    assert!(bench.jobs.pause("job"));
    sleep(HOUR).await;
    let paused = bench.status("job");
    assert_eq!((paused.state, paused.steps, paused.failures), (JobState::Paused, 1, 0));
    assert_eq!(job.calls(), 1);
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_is_woken_only_where_it_waits_for_work() {
    let mut bench = Bench::new();
    let job = bench.start("job", PACE, |call, _| match call {
        2 => Err("no bucket".into()),
        _ => Ok(Step::Idle(HOUR)),
    });
    sleep(Duration::from_secs(1)).await;
    bench.jobs.wake("another");
    assert_eq!(job.calls(), 1);
    bench.jobs.wake("job");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(job.calls(), 2);
    assert!(bench.jobs.pause("job"));
    bench.jobs.wake("job");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(job.calls(), 2, "paused");
    assert!(bench.jobs.resume("job"));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(job.calls(), 3, "woken meanwhile");
    bench.jobs.wake("job");
    bench.jobs.wake("job");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(job.calls(), 3, "it waits after a failure");
    sleep(Duration::from_secs(60)).await;
    assert_eq!(job.calls(), 5, "tried again, and then woken once");
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_not_called_again() {
    let mut bench = Bench::new();
    let job = bench.start("job", PACE, |call, _| Ok(if call < 2 { Step::More } else { Step::Finished }));
    sleep(HOUR).await;
    assert_eq!((job.calls(), bench.status("job").state), (3, JobState::Finished));
    bench.runner.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_job_keeps_its_share() {
    let mut bench = Bench::new();
    let timer = Arc::clone(&bench.timer);
    let work = move |call, budget: &Budget| {
        timer.advance(Duration::from_millis(30));
        budget.charge(1, 1000);
        Ok(if call < 4 { Step::More } else { Step::Idle(HOUR) })
    };
    let share = Pace { throttle: Throttle::share(25), ..PACE };
    // 30 of 120 ms: the timer's 30 and 90 of waiting.
    let slow = bench.start("share", share, work.clone());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(slow.gaps_ms(), [90; 4]);
    let rate = Throttle::NONE.with_bytes_per_sec(NonZeroU64::new(1000).unwrap());
    let slow = bench.start("rate", Pace { throttle: rate, ..PACE }, work.clone());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(slow.gaps_ms(), [970; 4]);
    // Failing does not make it faster.
    let hasty = Retry { first: Duration::ZERO, longest: Duration::ZERO };
    let failing = bench.start("failing", Pace { retry: hasty, ..share }, move |call, budget| {
        work(call, budget).and_then(|step| if call < 2 { Err("failure".into()) } else { Ok(step) })
    });
    sleep(Duration::from_secs(60)).await;
    assert_eq!(failing.gaps_ms(), [90; 4]);
    bench.runner.stop().await;
}

/// Counts to its end, as many a step as the budget has items.
#[derive(Debug)]
struct Counting {
    at: AtomicU64,
    counted: Arc<Mutex<Vec<u64>>>,
}

const END: u64 = 10;

impl Job for Counting {
    fn name(&self) -> &'static str {
        "counting"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        while !budget.is_spent() {
            let at = self.at.load(Ordering::Relaxed);
            if at == END {
                return Ok(Step::Finished);
            }
            self.counted.lock().push(at);
            self.at.store(at + 1, Ordering::Relaxed);
            budget.charge(1, 0);
        }
        Ok(Step::More)
    }

    fn progress(&self) -> Option<JobProgress> {
        Some(JobProgress { done: self.at.load(Ordering::Relaxed), total: END, unit: "numbers" })
    }

    fn resume_point(&self) -> Option<u64> {
        Some(self.at.load(Ordering::Relaxed)).filter(|at| *at < END)
    }
}

/// Idle for an hour once it has counted to four.
#[derive(Debug)]
struct Interrupted(Counting);

impl Job for Interrupted {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let step = self.0.step(budget)?;
        Ok(if self.0.at.load(Ordering::Relaxed) == 4 { Step::Idle(HOUR) } else { step })
    }

    fn progress(&self) -> Option<JobProgress> {
        self.0.progress()
    }

    fn resume_point(&self) -> Option<u64> {
        self.0.resume_point()
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_where_it_was_stopped() {
    let counted = Arc::<Mutex<Vec<u64>>>::default();
    let counting = |at| Arc::new(Counting { at: AtomicU64::new(at), counted: Arc::clone(&counted) });
    let limits = StepLimits { items: 2, ..StepLimits::DEFAULT };
    let mut bench = Bench::new();
    let first = Counting { at: AtomicU64::new(0), counted: Arc::clone(&counted) };
    // Two steps, then a wait in which it is stopped.
    bench.runner.start(Arc::new(Interrupted(first)), Pace { limits, ..PACE });
    sleep(Duration::from_secs(1)).await;
    let jobs = Arc::clone(&bench.jobs);
    bench.runner.stop().await;
    let stopped = status(&jobs, "counting");
    assert_eq!((stopped.state, stopped.steps, stopped.resume_point), (JobState::Stopped, 2, Some(4)));
    assert_eq!(stopped.progress.unwrap().done, 4);
    let place = stopped.resume_point.unwrap();
    // In a later process.
    let mut bench = Bench::new();
    bench.runner.start(counting(place), Pace { limits, ..PACE });
    sleep(HOUR).await;
    let finished = bench.status("counting");
    assert_eq!((finished.state, finished.resume_point), (JobState::Finished, None));
    assert_eq!(finished.progress.unwrap().done, END);
    assert_eq!(*counted.lock(), (0..END).collect::<Vec<_>>(), "each once, in order");
    bench.runner.stop().await;
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_share_is_kept_by_waiting() {
    assert_eq!(Throttle::NONE.wait(ms(500), 1 << 30), ms(0));
    assert_eq!(Throttle::share(50).wait(ms(500), 0), ms(500));
    assert_eq!(Throttle::share(25).wait(ms(500), 0), ms(1500));
    assert_eq!(Throttle::share(0).wait(ms(10), 0), ms(990));
    assert_eq!(Throttle::share(400).wait(ms(10), 0), ms(0));
}

#[test]
fn a_rate_is_kept_by_waiting() {
    let rate = Throttle::NONE.with_bytes_per_sec(NonZeroU64::new(1000).unwrap());
    assert_eq!(rate.wait(ms(100), 1000), ms(900));
    assert_eq!(rate.wait(ms(100), 50), ms(0));
    let both = Throttle::share(50).with_bytes_per_sec(NonZeroU64::new(1000).unwrap());
    assert_eq!(both.wait(ms(800), 1000), ms(800));
    assert_eq!(both.wait(ms(100), 1000), ms(900));
    assert!(rate.wait(ms(1), u64::MAX) > Duration::from_secs(1 << 33), "no overflow");
}

#[test]
fn retries_grow_and_are_bounded() {
    let retry = Retry { first: ms(100), longest: ms(1000) };
    let waits: Vec<Duration> = (1..=6).map(|failures| retry.wait(failures)).collect();
    assert_eq!(waits, [ms(100), ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
    assert_eq!(retry.wait(u32::MAX), ms(1000));
}
