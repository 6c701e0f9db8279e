//! Servers, agents and recoveries killed in the middle of their work, at a system call chosen by a seed, or after so
//! many bytes: acknowledged data is there, deleted data stays deleted, tasks resume, and space is freed.

use std::path::PathBuf;
use std::process::Command;

use holdfast_tests::agent::{Ran, Running};
use holdfast_tests::chance::{Chance, seeds};
use holdfast_tests::clock::Clock;
use holdfast_tests::disk::{assert_same, noise};
use holdfast_tests::faults::{CHANGES, DURABLE, Fault};
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, container_bytes, files};
use holdfast_tests::server::{Options, maintain};
use holdfast_tests::web::{try_get, try_post};
use holdfast_tests::{Disk, Server, program, tasks, wait_for};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use super::recover::lose_all_but_blobs;

const DISK_BYTES: usize = 3 << 20;

/// Calls at which servers are killed, and the least number of them that one thread makes in a backup or a task.
const MOMENTS: [(&str, u64); 4] =
    [("fdatasync,fsync", 6), (DURABLE, 10), (CHANGES, 40), ("rename,renameat2,unlink,unlinkat", 4)];

fn a_moment(chance: &mut Chance) -> Fault {
    let &(calls, most) = chance.pick(&MOMENTS);
    Fault::kill_at(calls, 1 + chance.below(most))
}

/// A VM, and everything that was acknowledged about its restore points.
struct Vm {
    name: &'static str,
    disk: Disk,
    /// Acknowledged restore points, and their contents.
    kept: Vec<(String, Vec<u8>)>,
    /// Contents of attempts that were not acknowledged: they may exist all the same, and are whole then.
    doubtful: Vec<Vec<u8>>,
    deleted: Vec<String>,
}

struct World {
    folder: TempDir,
    data_dir: PathBuf,
    options: Options,
    chance: Chance,
    vms: Vec<Vm>,
}

impl World {
    /// Creates VMs with three restore points each, so that there is something to merge.
    fn new(seed: u64, options: Options) -> (Self, Server) {
        let folder = tempdir().unwrap();
        let data_dir = folder.path().join("repository");
        let server = options.start(&data_dir);
        let names = ["web", "db", "mail"];
        let vms = (1..).zip(names).map(|(number, name)| Vm {
            name,
            disk: Disk::of_noise(folder.path().join(format!("{name}.raw")), seed * 10 + number, DISK_BYTES),
            kept: Vec::new(),
            doubtful: Vec::new(),
            deleted: Vec::new(),
        });
        let mut world = Self { vms: vms.collect(), folder, data_dir, options, chance: Chance::new(seed) };
        for _ in 0..3 {
            for vm in 0..world.vms.len() {
                world.back_up(&server, vm, &[]);
            }
        }
        (world, server)
    }

    fn start(&self) -> Server {
        self.options.start(&self.data_dir)
    }

    /// Changes a VM's disk; returns its contents.
    fn change(&mut self, vm: usize) -> Vec<u8> {
        let (seed, at) = (self.chance.below(u64::MAX), self.chance.below(40) << 16);
        let disk = &self.vms[vm].disk;
        disk.put(at, &noise(seed, 400_000));
        disk.bytes()
    }

    fn back_up(&mut self, server: &Server, vm: usize, more: &[&str]) {
        let (run, bytes) = self.begin(server.grpc(), server, vm, more);
        self.ended(vm, &run.wait().ok(), bytes);
    }

    /// Starts a backup through an address of the server; returns it with the disk's contents.
    fn begin(&mut self, address: &str, server: &Server, vm: usize, more: &[&str]) -> (Running, Vec<u8>) {
        let bytes = self.change(vm);
        let vm = &self.vms[vm];
        let args = [&["backup", "--vm", vm.name, vm.disk.arg()], more].concat();
        (server.agent().through(address).start(&args), bytes)
    }

    fn ended(&mut self, vm: usize, ran: &Ran, bytes: Vec<u8>) {
        let vm = &mut self.vms[vm];
        if ran.succeeded() {
            vm.kept.push((tasks::text(&ran.summary(), "backup").to_owned(), bytes));
        } else {
            vm.doubtful.push(bytes);
        }
    }

    /// Deletes a restore point that is not a VM's newest.
    fn delete_one(&mut self, server: &Server) {
        let old: Vec<usize> = (0..self.vms.len()).filter(|vm| self.vms[*vm].kept.len() > 2).collect();
        if old.is_empty() {
            return;
        }
        let vm = *self.chance.pick(&old);
        let number = self.chance.below(self.vms[vm].kept.len() as u64 - 1);
        self.delete(server, vm, usize::try_from(number).unwrap());
    }

    fn delete(&mut self, server: &Server, vm: usize, number: usize) {
        let vm = &mut self.vms[vm];
        let (id, _) = vm.kept.remove(number);
        server.agent().run(&["delete", &id, "--yes", "--reason", "a test"]).ok();
        vm.deleted.push(id);
    }

    /// Asserts that everything promised is there; reads `all` of it, or only new restore points.
    fn check(&mut self, server: &Server, all: bool) {
        let agent = server.agent();
        for vm in &mut self.vms {
            let (name, listed) = (vm.name, agent.backups(vm.name));
            let read = |id: &str| agent.run(&["restore", id, "--vm", name, "--to", "-"]).ok().stdout;
            for (id, bytes) in &vm.kept {
                assert!(listed.contains(id), "restore point {id} of {} is lost: {listed:?}", vm.name);
                if all {
                    assert_same(bytes, &read(id));
                }
            }
            for id in &vm.deleted {
                assert!(!listed.contains(id), "restore point {id} of {} came back", vm.name);
            }
            for id in listed.iter().rev() {
                if vm.kept.iter().any(|(kept, _)| kept == id) {
                    continue;
                }
                let bytes = read(id);
                let known = vm.doubtful.iter().position(|doubtful| *doubtful == bytes);
                let known =
                    known.unwrap_or_else(|| panic!("{id} of {} holds what no one backed up", vm.name));
                vm.kept.push((id.clone(), vm.doubtful.swap_remove(known)));
            }
        }
    }

    /// Deletes all but the newest of each VM, and asserts the space that is left in use.
    fn make_room(mut self, server: Server) {
        tasks::settle(&server);
        self.check(&server, true);
        for vm in &mut self.vms {
            let newest = server.agent().backups(vm.name).first().unwrap().clone();
            for (id, _) in vm.kept.extract_if(.., |(id, _)| *id != newest) {
                server.agent().run(&["delete", &id, "--yes", "--reason", "a test"]).ok();
                vm.deleted.push(id);
            }
        }
        tasks::run(&server, "reclaim", &json!({ "live_share_pct": 100 }));
        let (bytes, live) = (container_bytes(&self.data_dir, Class::Data), DISK_BYTES * self.vms.len());
        assert!(bytes < live as u64 * 11 / 10, "{bytes} bytes are left for {live}");
        self.check(&server, true);
        let (status, said) = server.stop();
        assert!(status.success(), "{said}");
        let (status, said) = maintain(&self.data_dir, "check", &["--read-data"]);
        assert!(status.success(), "{said}");
        drop(self.folder);
    }
}

/// Requests a task; a failure because the server ends is ignored.
fn ask(server: &Server, kind: &str, options: &Value) {
    let body = json!({ "kind": kind, "options": options });
    drop(try_post(server, "/api/v1/tasks", &server.admin_token(), &body));
}

/// Waits until the server has ended, or all that was requested.
fn wait_for_end(server: &mut Server, run: &mut Running) {
    wait_for("the server to end, or its work", || {
        if server.has_ended() {
            return Some(());
        }
        let answer = try_get(server, "/api/v1/tasks", &server.admin_token())?;
        let all = answer.json().get("items")?.as_array()?.iter().all(tasks::has_ended);
        (all && !run.runs()).then_some(())
    });
}

/// Runs backups beside tasks, and kills the server again and again.
fn killed_beside_tasks(own_seed: u64, rounds: u64, options: &Options, tasks: &[(&str, Value)]) {
    for seed in seeds(own_seed) {
        a_life_beside_tasks(World::new(seed, options.clone()), rounds, tasks);
    }
}

fn a_life_beside_tasks((mut world, mut server): (World, Server), rounds: u64, tasks: &[(&str, Value)]) {
    for round in 0..rounds {
        world.delete_one(&server);
        let fault = a_moment(&mut world.chance);
        let vm = usize::try_from(world.chance.below(3)).unwrap();
        let Some(faulty) = fault.on_process(server.pid()) else { return };
        let (mut run, bytes) = world.begin(server.grpc(), &server, vm, &[]);
        for (kind, options) in tasks {
            ask(&server, kind, options);
        }
        wait_for_end(&mut server, &mut run);
        drop(faulty);
        let address = server.grpc().to_owned();
        server.kill();
        // Every other agent survives, and reconnects to the server.
        let survives = round % 2 == 0;
        if !survives && run.runs() {
            run.kill();
            world.vms[vm].doubtful.push(bytes);
            server = world.start();
        } else {
            server = world.options.clone().grpc(&address).start(&world.data_dir);
            // Committed before the server could answer, it is backed up once more.
            world.vms[vm].doubtful.push(bytes.clone());
            world.ended(vm, &run.wait(), bytes);
        }
        world.check(&server, false);
    }
    world.make_room(server);
}

#[test]
fn a_server_killed_beside_backups_and_a_reclaim_that_merges() {
    let reclaim = [("reclaim", json!({ "live_share_pct": 100 }))];
    killed_beside_tasks(1, 5, &Server::options(), &reclaim);
}

#[test]
fn a_server_killed_beside_backups_and_a_reclaim_that_squeezes() {
    let options = json!({ "squeeze": true, "squeeze_level": 2, "squeeze_min_age_days": 0 });
    killed_beside_tasks(2, 4, &Server::options(), &[("reclaim", options)]);
}

#[test]
fn a_server_killed_beside_backups_and_verification() {
    let tasks = [("verify", json!({})), ("scrub", json!({})), ("reclaim", json!({}))];
    killed_beside_tasks(3, 4, &Server::options().arg("--scrub-days=1"), &tasks);
}

/// Parity is made from containers that are a day old, and made anew for those that reclaim removes.
#[test]
fn a_server_killed_while_it_makes_parity() {
    for seed in seeds(4) {
        a_life_with_parity(seed);
    }
}

/// Returns `None` where clocks cannot be set, or a server cannot be killed at a chosen call.
fn a_life_with_parity(seed: u64) -> Option<()> {
    let clock = Clock::new()?;
    let (mut world, server) = World::new(seed, Server::options().clock(&clock).arg("--parity=2+1"));
    server.stop();
    let parity = |world: &World| files(&world.data_dir.join("blobs/parity")).len();
    for round in 1..5 {
        clock.set_days(2 * round);
        let before = parity(&world);
        let mut server = world.start();
        let faulty = a_moment(&mut world.chance).on_process(server.pid())?;
        wait_for("parity, or the end of the server", || {
            (server.has_ended() || parity(&world) > before).then_some(())
        });
        drop(faulty);
        server.kill();
        let server = world.start();
        world.check(&server, false);
        world.delete_one(&server);
        // For the next parity.
        world.back_up(&server, 0, &[]);
        world.back_up(&server, 1, &[]);
        server.kill();
    }
    let server = world.start();
    assert!(parity(&world) > 0);
    world.make_room(server);
    Some(())
}

/// A file of the catalog is never incomplete, and a killed recovery starts over.
#[test]
fn a_recovery_killed_half_way_begins_anew() {
    for seed in seeds(5) {
        recoveries_killed(seed);
    }
}

/// Returns `None` where a program cannot be killed at a chosen call.
fn recoveries_killed(seed: u64) -> Option<()> {
    let (mut world, server) = World::new(seed, Server::options());
    let locked = world.vms[0].kept[0].0.clone();
    server.agent().run(&["lock", &locked, "--for", "2d", "--yes"]).ok();
    world.delete(&server, 1, 0);
    // The last snapshot has this; later changes are in none.
    server.stop();
    let server = world.start();
    world.delete(&server, 2, 1);
    world.back_up(&server, 1, &[]);
    server.kill();
    lose_all_but_blobs(&world.data_dir);
    let blobs = world.data_dir.join("blobs");
    let data_dir = world.data_dir.clone();
    let recover = || -> Command {
        let mut command = program("holdfast-server");
        command.arg("recover").arg("--from").arg(&blobs).arg("--data-dir").arg(&data_dir);
        command
    };
    let mut killed = 0;
    for _ in 0..12 {
        if world.data_dir.join("catalog.db").exists() {
            break;
        }
        let (calls, most) = *world.chance.pick(&[(DURABLE, 25), (CHANGES, 200)]);
        // The first is killed early.
        let most = if killed == 0 { 5 } else { most };
        let fault = Fault::kill_at(calls, 1 + world.chance.below(most));
        let (code, said) = fault.on_command(&recover())?;
        assert!(code.is_none() || code == Some(0), "recover: {code:?}\n{said}");
        killed += u32::from(code.is_none());
    }
    assert!(killed > 0, "no recovery was killed");
    if !world.data_dir.join("catalog.db").exists() {
        let (status, said) = maintain(&world.data_dir, "recover", &["--from", blobs.to_str().unwrap()]);
        assert!(status.success(), "{said}");
    }
    let server = world.start();
    world.check(&server, true);
    server.agent().run(&["delete", &locked, "--yes", "--reason", "a test"]).fails(4, &["locked until"]);
    for vm in 0..3 {
        world.back_up(&server, vm, &[]);
    }
    tasks::run(&server, "reclaim", &json!({ "live_share_pct": 100 }));
    world.check(&server, true);
    server.stop();
    let (status, said) = maintain(&world.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    Some(())
}

/// Agents that die after any number of bytes leave nothing that does harm, or takes space in the end.
#[test]
fn agents_killed_beside_a_reclaim_leave_nothing() {
    seeds(7).for_each(agents_killed);
}

fn agents_killed(seed: u64) {
    let (mut world, server) = World::new(seed, Server::options());
    for vm in [0, 1, 2, 0] {
        world.delete_one(&server);
        let disk = &world.vms[vm].disk;
        disk.put(0, &noise(world.chance.below(u64::MAX), DISK_BYTES));
        let proxy = Proxy::holding(server.grpc(), 20_000 + world.chance.below(DISK_BYTES as u64 / 2));
        let (run, bytes) = world.begin(proxy.address(), &server, vm, &[]);
        let held = world.chance.below(DISK_BYTES as u64 / 2);
        wait_for("bytes of the agent", || (proxy.upstream_bytes() > held.min(20_000)).then_some(()));
        ask(&server, "reclaim", &json!({ "live_share_pct": 100 }));
        run.kill();
        world.vms[vm].doubtful.push(bytes);
        tasks::settle(&server);
        world.back_up(&server, vm, &["--take-over"]);
        world.check(&server, false);
    }
    // Leftovers of the dead agents are collected by rounds that begin after their sessions have ended.
    world.make_room(server);
}
