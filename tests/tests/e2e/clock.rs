//! Clocks that jump while the server runs: no lock is released, no policy deletes what it would have kept, schedules
//! start each task once, and backups in progress go on.

use std::time::Instant;

use holdfast_tests::clock::Clock;
use holdfast_tests::disk::noise;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::server::Options;
use holdfast_tests::{Agent, Disk, Server, tasks, wait_for};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

const YEARS: i64 = 3650;

struct Scene {
    folder: TempDir,
    clock: Clock,
    server: Server,
    disk: Disk,
}

/// Long leases: a delayed agent counts as dead only when a clock jumps by years.
fn options(clock: &Clock) -> Options {
    Server::options().clock(clock).arg("--lease-secs=3600")
}

impl Scene {
    fn new() -> Option<Self> {
        let clock = Clock::new()?;
        let real = now_secs();
        assert!((clock.now_secs() - real).abs() < 100, "the clock is right until it is set");
        clock.set_days(YEARS);
        assert!(clock.now_secs() - real > (YEARS - 1) * 86_400, "libfaketime sets no clock here");
        clock.set_days(0);
        let folder = tempdir().unwrap();
        let server = options(&clock).start(&folder.path().join("repository"));
        let disk = Disk::of_noise(folder.path().join("web.raw"), 1, 1 << 20);
        Some(Self { folder, clock, server, disk })
    }

    fn restart(&mut self) {
        let data_dir = self.server.data_dir().to_owned();
        self.server.terminate();
        self.server.wait();
        self.server = options(&self.clock).start(&data_dir);
    }

    fn back_up(&self, seed: u64) {
        self.disk.put(0, &noise(seed, 100_000));
        self.agent().back_up("web", &[self.disk.arg()]);
    }

    fn agent(&self) -> Agent {
        self.server.agent()
    }
}

fn now_secs() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap()
}

/// (L4) Neither while it runs nor over a restart, whichever way the clock jumps.
#[test]
fn a_clock_that_jumps_releases_no_lock() {
    let Some(mut scene) = Scene::new() else { return };
    scene.back_up(2);
    scene.back_up(3);
    let locked = scene.agent().backups("web")[1].clone();
    scene.agent().run(&["lock", &locked, "--for", "30d", "--yes"]).ok();
    let refused = |scene: &Scene| {
        let delete = ["delete", &locked, "--yes", "--reason", "a test"];
        scene.agent().run(&delete).fails(4, &["locked until"]);
        scene.agent().run(&["forget", "--vm", "web", "--keep-last", "1", "--yes"]).ok();
        assert!(scene.agent().backups("web").contains(&locked));
    };
    refused(&scene);
    for days in [YEARS, -YEARS, 31, YEARS] {
        scene.clock.set_days(days);
        refused(&scene);
    }
    for days in [YEARS, 31, 0] {
        scene.clock.set_days(days);
        scene.restart();
        refused(&scene);
    }
    // A start after a kill, with nothing but a clock that is years ahead.
    scene.clock.set_days(YEARS);
    let data_dir = scene.server.data_dir().to_owned();
    scene.server.kill();
    scene.server = options(&scene.clock).start(&data_dir);
    refused(&scene);
}

/// Returns true if the server has recorded up to when a schedule's tasks were started.
fn has_mark(scene: &Scene, schedule: &str) -> bool {
    let catalog = rusqlite::Connection::open(scene.server.data_dir().join("catalog.db")).unwrap();
    let asked = "SELECT EXISTS (SELECT 1 FROM schedule_marks WHERE name LIKE ? || '%')";
    catalog.query_row(asked, [schedule], |row| row.get(0)).unwrap()
}

/// A schedule that was due while the clock jumped starts once, whatever the number of nights it jumped over.
#[test]
fn a_clock_that_jumps_starts_each_task_once() {
    let Some(mut scene) = Scene::new() else { return };
    scene.back_up(2);
    let policy = ["policy", "set", "p", "--vm", "web", "--keep-last", "1", "--schedule", "* * * * *"];
    scene.agent().run(&policy).ok();
    let of_schedules = |scene: &Scene, kind: &str| {
        let by_schedule = |task: &&Value| task["kind"] == kind && task["who"] == "schedule";
        tasks::all(&scene.server).iter().filter(by_schedule).count()
    };
    wait_for("marks to jump from", || {
        (has_mark(&scene, "policy/") && has_mark(&scene, "reclaim")).then_some(())
    });
    let (begun, before) = (Instant::now(), of_schedules(&scene, "policy"));
    scene.clock.set_days(YEARS);
    scene.restart();
    wait_for("the reclaim that is due", || (of_schedules(&scene, "reclaim") > 0).then_some(()));
    wait_for("the policy that is due", || (of_schedules(&scene, "policy") > before).then_some(()));
    scene.clock.set_days(-YEARS);
    scene.restart();
    scene.back_up(3);
    scene.clock.set_days(0);
    scene.restart();
    tasks::settle(&scene.server);
    let all = tasks::all(&scene.server);
    // And one for each minute that really passed.
    let most = before + 12 + usize::try_from(begun.elapsed().as_secs() / 60).unwrap();
    assert!(all.len() < most, "{} tasks for a clock that was set three times: {all:#?}", all.len());
}

/// A restore point made while the clock was years ahead does not cause all others to be forgotten.
#[test]
fn a_clock_that_jumps_makes_no_policy_delete_what_it_kept() {
    let Some(scene) = Scene::new() else { return };
    for seed in 2..5 {
        scene.back_up(seed);
    }
    let before = scene.agent().backups("web");
    let rules = ["--vm", "web", "--keep-within", "14d"];
    scene.agent().run(&[&["forget", "--yes"][..], &rules].concat()).ok();
    assert_eq!(scene.agent().backups("web"), before);
    scene.clock.set_days(YEARS);
    scene.back_up(5);
    scene.agent().run(&[&["forget", "--yes"][..], &rules].concat()).ok();
    assert_eq!(scene.agent().backups("web").len(), 4, "the clock said that they are ten years old");
    scene.agent().run(&[&["policy", "set", "p"][..], &rules].concat()).ok();
    scene.agent().run(&["policy", "run", "p", "--yes"]).ok();
    assert_eq!(scene.agent().backups("web").len(), 4);
    // The clock is set right: restore points in its former future do no harm, and the newest counts as such.
    scene.clock.set_days(0);
    for seed in 6..9 {
        scene.back_up(seed);
        scene.agent().run(&["forget", "--yes", "--vm", "web", "--keep-last", "3"]).ok();
    }
    let left = scene.agent().backups("web");
    assert_eq!(left.len(), 4, "the three newest, and the one that is in the future: {left:?}");
    assert!(left.iter().all(|id| !before.contains(id)), "{left:?} {before:?}");
    assert_eq!(scene.agent().read_back("web"), scene.disk.bytes());
}

/// A backup in progress while the clock jumps is neither aborted nor refused.
#[test]
fn a_clock_that_jumps_ends_no_backup() {
    let Some(scene) = Scene::new() else { return };
    for (days, vm, seed) in [(YEARS, "forward", 9), (-YEARS, "back", 10)] {
        // Chunks that the server has are not sent, and never held.
        let disk = Disk::of_noise(scene.folder.path().join(vm), seed, 6 << 20);
        scene.clock.set_days(0);
        let proxy = Proxy::holding(scene.server.grpc(), 2 << 20);
        let mut run = scene.agent().through(proxy.address()).start(&["backup", "--vm", vm, disk.arg()]);
        wait_for("the backup to be in progress", || {
            (proxy.upstream_bytes() > 2 << 20 || !run.runs()).then_some(())
        });
        if !run.runs() {
            run.wait().ok();
            panic!("a backup through a held wire ended");
        }
        scene.clock.set_days(days);
        // Leases are checked every two seconds; another backup shows that the server continues meanwhile.
        scene.back_up(days.unsigned_abs());
        assert!(run.runs());
        scene.agent().run(&["backup", "--vm", vm, disk.arg()]).fails(6, &[vm]);
        proxy.release();
        run.wait().ok();
        assert_eq!(scene.agent().read_back(vm), disk.bytes());
    }
}
