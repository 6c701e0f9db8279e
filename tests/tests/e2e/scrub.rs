//! Bit rot is found on request, named, and repaired by the next backup, or by parity alone; and bytes without any good
//! copy are left out of a restore, exactly.

use std::fmt::Write as _;
use std::path::Path;

use holdfast_tests::disk::assert_same;
use holdfast_tests::repository::{Class, Container, containers, containers_of};
use holdfast_tests::server::maintain;
use holdfast_tests::tools::Loop;
use holdfast_tests::web::get;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use serde_json::Value;
use tempfile::tempdir;

use super::damage::{damaged_bytes, scene, victim};

/// A server that scrubs only on request.
fn quiet(data_dir: &Path) -> Server {
    Server::options().arg("--scrub-days=0").start(data_dir)
}

/// A sample of `/metrics`, selected with its labels.
fn metric(server: &Server, series: &str) -> f64 {
    let text = get(server, "/metrics", &server.admin_token()).text();
    let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

/// Waits for a metric: figures are cached for some seconds.
fn until_metric(server: &Server, series: &str, expected: f64) {
    wait_for(&format!("{series} {expected}"), || {
        ((metric(server, series) - expected).abs() < 0.5).then_some(())
    });
}

fn rest(server: &Server, path: &str) -> Value {
    get(server, &format!("/api/v1/{path}"), &server.admin_token()).json()
}

fn log_of(summary: &Value) -> Vec<&str> {
    summary["log"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

/// Unnoticed rot is found by a scrub, named everywhere, and healed by a backup, within one start of the server.
#[test]
fn rot_is_found_named_and_healed_by_the_next_backup() {
    let scene = scene();
    let container = victim(&scene);
    let server = quiet(&scene.data_dir);
    let agent = server.agent();
    let sound = agent.run(&["scrub", "--json"]).ok().summary();
    let all = containers(&scene.data_dir);
    let bytes: u64 = all.iter().map(|container| container.len).sum();
    assert_eq!(sound["figures"]["containers"], all.len(), "{sound}");
    assert_eq!(
        (&sound["figures"]["container_bytes"], &sound["ok"]),
        (&bytes.into(), &true.into()),
        "{sound}"
    );
    assert_eq!(
        (&sound["figures"]["restore_points"], &sound["figures"]["lost_bytes"]),
        (&2.into(), &0.into())
    );

    container.flip_bit(container.len / 2);
    let ran = agent.run(&["scrub", "--json"]);
    assert_eq!(ran.code, Some(5), "{}", ran.said());
    let found = ran.summary();
    let figures = &found["figures"];
    assert_eq!((&figures["damaged_containers"], &figures["unsound_restore_points"]), (&1.into(), &1.into()));
    let damage = rest(&server, "damage");
    let (lost, range) = (&damage["items"][0], &damage["items"][0]["listed"][0]);
    assert_eq!(
        (&damage["restore_points"], &lost["ranges"], &figures["lost_bytes"]),
        (&1.into(), &1.into(), &lost["bytes"])
    );
    let (start, len) = (range["start"].as_u64().unwrap(), range["bytes"].as_u64().unwrap());
    let id = agent.backups("harmed").remove(0);
    let named = format!("disk \"harmed\": {len} bytes cannot be restored: {start} to {}", start + len);
    let log = log_of(&found);
    let told = log.iter().find(|line| line.starts_with("DAMAGED: ")).unwrap_or_else(|| panic!("{log:?}"));
    assert!(told.contains("VM \"harmed\"") && told.contains(&id) && told.contains(&named), "{told}");
    let stem = container.name();
    let stem = stem.split('.').next().unwrap();
    assert!(log.iter().any(|line| line.contains(&format!("container {stem}, region"))), "{log:?}");
    // Exactly the lost ranges are named: no byte less, and none more than chunks.
    let to = scene.data_dir.with_file_name("past.raw");
    let ran = agent.run(&["restore", &id, "--to", to.to_str().unwrap(), "--keep-going", "--json"]);
    let bad = ran.fails(5, &["harmed"]).summary()["disks"][0]["bad"].clone();
    assert_eq!((bad[0]["offset"].as_u64(), bad[0]["length"].as_u64()), (Some(start), Some(len)), "{bad}");
    assert_eq!((damaged_bytes(&agent, "harmed"), damaged_bytes(&agent, "other")), (vec![len], vec![0]));
    assert_eq!(agent.run(&["list"]).ok().text().matches("DAMAGED").count(), 1);
    until_metric(&server, "holdfast_damaged_restore_points", 1.0);
    until_metric(&server, "holdfast_open_damage", 1.0);

    agent.back_up("harmed", &[scene.harmed.arg()]);
    wait_for("the banner is gone", || (rest(&server, "damage")["restore_points"] == 0).then_some(()));
    assert_eq!(damaged_bytes(&agent, "harmed"), [0, 0]);
    assert!(!agent.run(&["list"]).ok().text().contains("DAMAGED"));
    agent.restore_of(&id, "harmed", None, &scene.data_dir.with_file_name("healed.raw"));
    scene.harmed.assert_same(&scene.data_dir.with_file_name("healed.raw"));
    let after = agent.run(&["scrub", "--json"]).ok().summary();
    assert_eq!(
        (&after["figures"]["restore_points"], &after["figures"]["unsound_restore_points"]),
        (&3.into(), &0.into())
    );
    until_metric(&server, "holdfast_damaged_restore_points", 0.0);
    until_metric(&server, "holdfast_open_damage", 0.0);
    let proven = agent.run(&["list", "--vm", "harmed", "--json"]).ok().summary();
    let proven = proven["backups"].as_array().unwrap();
    assert!(proven.iter().all(|backup| backup["last_proven"].is_string()), "{proven:?}");
}

/// So slow that no large container is read to its end.
fn slow(data_dir: &Path) -> Server {
    Server::options().args(&["--scrub-days=0", "--task-rate=32KiB"]).start(data_dir)
}

fn scrub_task(server: &Server) -> Value {
    rest(server, "tasks?kind=scrub")["items"][0].clone()
}

/// Paused, restarted, resumed: each container is read once, and the pass is still the same.
#[test]
fn a_scrub_goes_on_where_it_was_after_a_restart() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = slow(&data_dir);
    let agent = server.agent();
    for (vm, bytes) in [("small", 40_000), ("large", 12 << 20)] {
        let disk = Disk::of_noise(folder.path().join(vm), bytes as u64, bytes);
        agent.back_up(vm, &[disk.arg()]);
    }
    let all = containers(&data_dir).len();
    agent.run(&["scrub", "--no-wait"]).ok();
    wait_for("the small ones are read", || {
        (scrub_task(&server)["figures"]["containers"].as_u64() >= Some(2)).then_some(())
    });
    assert_eq!(agent.run(&["scrub", "--pause", "--json"]).ok().summary()["status"], "paused");
    let before = scrub_task(&server);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");

    let server = quiet(&data_dir);
    assert_eq!(scrub_task(&server)["status"], "paused");
    server.agent().run(&["scrub", "--resume"]).ok();
    let done =
        wait_for("the scrub is done", || Some(scrub_task(&server)).filter(|task| task["status"] == "done"));
    assert_eq!((&done["id"], &done["attempts"]), (&before["id"], &2.into()), "{done}");
    assert_eq!(
        (&done["figures"]["containers"], &done["figures"]["restore_points"]),
        (&all.into(), &2.into()),
        "{done}"
    );
    let scrub = rest(&server, "storage")["scrub"].clone();
    assert_eq!(
        (&scrub["pass"], &scrub["phase"], &scrub["containers_unproven"]),
        (&1.into(), &"idle".into(), &0.into())
    );
    // A new task is a new pass; a cancelled one ends.
    server.agent().run(&["scrub"]).ok();
    assert_eq!(rest(&server, "storage")["scrub"]["pass"], 2);
    drop(server);
    let server = slow(&data_dir);
    server.agent().run(&["scrub", "--no-wait"]).ok();
    server.agent().run(&["scrub", "--cancel"]).ok();
    wait_for("it is cancelled", || (scrub_task(&server)["status"] == "cancelled").then_some(()));
    server.agent().run(&["scrub", "--cancel"]).fails(1, &["no scrub is under way"]);
}

#[test]
fn restore_points_are_verified_at_the_server() {
    let scene = scene();
    let server = quiet(&scene.data_dir);
    let agent = server.agent();
    let sound = agent.run(&["verify", "--at-server", "--json"]).ok().summary();
    assert_eq!((&sound["kind"], &sound["figures"]["sound"]), (&"verify".into(), &2.into()), "{sound}");
    let container = victim(&scene);
    container.flip_bit(container.len / 2);
    agent.run(&["verify", "--at-server"]).fails(5, &["DAMAGED: VM \"harmed\""]);
    let other = agent.run(&["verify", "--at-server", "--vm", "other", "--json"]).ok().summary();
    assert_eq!(other["figures"]["restore_points"], 1, "{other}");
    agent.run(&["verify", "latest", "--vm", "other", "--pause"]).fails(2, &["--at-server"]);
}

/// Makes containers look so old that no backup can still abandon them, and none is waited for.
fn make_older(data_dir: &Path) {
    let catalog = rusqlite::Connection::open(data_dir.join("catalog.db")).unwrap();
    catalog.execute("UPDATE containers SET created_ms = created_ms - 2 * 86400000", []).unwrap();
}

fn vms_are_whole(agent: &Agent, disks: &[Disk]) {
    for (vm, disk) in disks.iter().enumerate() {
        assert_same(&disk.bytes(), &agent.read_back(&format!("vm-{vm}")));
    }
}

/// Four VMs whose containers have parity that can replace two of four.
fn protected(folder: &Path) -> (Server, Vec<Disk>) {
    let data_dir = folder.join("repository");
    let server = Server::start(&data_dir);
    let disks: Vec<Disk> =
        (0..4).map(|vm| Disk::of_noise(folder.join(format!("{vm}.raw")), vm, 5 << 20)).collect();
    for (vm, disk) in disks.iter().enumerate() {
        server.agent().back_up(&format!("vm-{vm}"), &[disk.arg()]);
    }
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    make_older(&data_dir);
    let server = Server::options().args(&["--scrub-days=0", "--parity=4+2"]).start(&data_dir);
    wait_for("parity", || (rest(&server, "storage")["parity"]["containers"] == 8).then_some(()));
    (server, disks)
}

/// Bit rot in one container, and another one's file missing: readers get the right bytes at once, the damage is
/// repaired without a backup, and nothing is ever reported as lost.
fn parity_repairs_by_itself(meet: impl FnOnce(&Server, &[Disk])) {
    let folder = tempdir().unwrap();
    let (server, disks) = protected(folder.path());
    let data = containers_of(server.data_dir(), Class::Data);
    let [rotten, gone, ..] = data.as_slice() else { panic!("{data:?}") };
    rotten.flip_bit(rotten.len / 2);
    std::fs::remove_file(&gone.path).unwrap();
    meet(&server, &disks);
    let number = |container: &Container| container.name().split('.').next().unwrap().to_owned();
    for container in [rotten, gone] {
        let line = format!("container={}", number(container));
        wait_for(&format!("the repair of {line}"), || {
            let log = server.log();
            let mut repairs = log.lines().filter(|line| line.contains("parity repaired a damaged container"));
            repairs.any(|repair| repair.contains(&line)).then_some(())
        });
    }
    until_metric(&server, "holdfast_parity_repairs_total{what=\"rewritten\"}", 2.0);
    until_metric(&server, "holdfast_open_damage", 0.0);
    until_metric(&server, "holdfast_damaged_restore_points", 0.0);
    assert!(metric(&server, "holdfast_parity_containers") > 0.0);
    assert!(metric(&server, "holdfast_repository_bytes{part=\"parity\"}") > 0.0);
    assert!(!server.log().contains("a restore point lacks data"), "never said to be lost");
    vms_are_whole(&server.agent(), &disks);
    server.agent().run(&["scrub"]).ok();
    let data_dir = server.data_dir().to_owned();
    server.stop();
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

#[test]
fn parity_repairs_what_a_restore_meets() {
    parity_repairs_by_itself(|server, disks| {
        vms_are_whole(&server.agent(), disks);
        let read = "holdfast_parity_repairs_total{what=\"read\"}";
        wait_for("both were made again", || (metric(server, read) >= 2.0).then_some(()));
    });
}

#[test]
fn parity_repairs_what_a_scrub_finds() {
    parity_repairs_by_itself(|server, _| {
        let found = server.agent().run(&["scrub", "--json"]).ok().summary();
        assert_eq!(found["figures"]["damaged_containers"], 2, "{found}");
        assert_eq!((&found["figures"]["lost_bytes"], &found["ok"]), (&0.into(), &true.into()), "{found}");
    });
}

/// Parses a map of bad ranges, as any reader of the format would: which bytes are intact.
fn read_map(path: &Path, size: u64) -> Vec<(u64, u64, bool)> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let hex = |text: &str| u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap();
    let status: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!((hex(status[0]), status[1]), (size, "+"), "{text}");
    let mut end = 0;
    let block = |line: &str| {
        let [start, len, state] = line.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line:?}") };
        assert!(hex(start) == end && (state == "+" || state == "-"), "{line:?} after {end}");
        end += hex(len);
        (hex(start), hex(len), state == "+")
    };
    let blocks = lines.map(block).collect();
    assert_eq!(end, size, "all of the disk");
    blocks
}

/// Two places of one disk are damaged. Everything outside of them is restored, to a file, to a block device and
/// through a pipe.
#[test]
fn a_restore_past_two_damaged_places_loses_nothing_else() {
    let scene = scene();
    let container = victim(&scene);
    for quarter in [1, 3] {
        container.flip_bit(container.len / 4 * quarter);
    }
    let server = quiet(&scene.data_dir);
    let agent = server.agent();
    let folder = tempdir().unwrap();
    let (truth, size) = (scene.harmed.bytes(), 20 << 20);
    let restore = |to: &str, map: &Path, more: &[&str]| {
        let args = [
            "restore",
            "latest",
            "--vm",
            "harmed",
            "--to",
            to,
            "--keep-going",
            "--bad-map",
            map.to_str().unwrap(),
        ];
        agent.run(&[&args[..], more].concat()).fails(5, &["harmed", "cannot be read"])
    };
    // Filled with `kept` in bad ranges.
    let check = |read: &[u8], map: &Path, kept: u8| {
        let blocks = read_map(map, size);
        let bad: Vec<_> = blocks.iter().filter(|(_, _, sound)| !sound).collect();
        assert_eq!(bad.len(), 2, "{blocks:?}");
        assert!(bad.iter().all(|(_, len, _)| (1..=256 << 10).contains(len)), "a region each: {bad:?}");
        for (start, len, sound) in &blocks {
            let bytes = usize::try_from(*start).unwrap()..usize::try_from(start + len).unwrap();
            let mut at = format!("{bytes:?}");
            write!(at, ", sound: {sound}").unwrap();
            let expected = if *sound { truth[bytes.clone()].to_vec() } else { vec![kept; bytes.len()] };
            assert!(read[bytes] == expected, "{at}");
        }
        bad.iter().map(|(start, len, _)| (*start, *len)).collect::<Vec<_>>()
    };
    let (to, map) = (folder.path().join("file.raw"), folder.path().join("file.map"));
    let ran = restore(to.to_str().unwrap(), &map, &["--json"]);
    let bad = check(&std::fs::read(&to).unwrap(), &map, 0);
    let summary = ran.summary();
    let disk = &summary["disks"][0];
    assert_eq!((&disk["bad_ranges"], &disk["ok"], &summary["ok"]), (&2.into(), &false.into(), &false.into()));
    for (range, (start, len)) in disk["bad"].as_array().unwrap().iter().zip(&bad) {
        assert_eq!((range["offset"].as_u64(), range["length"].as_u64()), (Some(*start), Some(*len)));
        assert!(range["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{range}");
    }
    assert_eq!(disk["bad_bytes"].as_u64(), Some(bad.iter().map(|(_, len)| len).sum()));

    let pipe = restore("-", &map, &["--force"]);
    assert_eq!(check(&pipe.stdout, &map, 0), bad);

    let image = folder.path().join("device.img");
    std::fs::write(&image, vec![0xEE; truth.len()]).unwrap();
    if let Some(device) = Loop::attach(&image) {
        restore(device.device(), &map, &["--force", "--bad-ranges", "skip"]);
        assert_eq!(check(&std::fs::read(device.device()).unwrap(), &map, 0xEE), bad, "skipped");
        restore(device.device(), &map, &["--force"]);
        assert_eq!(check(&std::fs::read(device.device()).unwrap(), &map, 0), bad, "zeros");
    }
}
