//! Damaged containers: named, contained, and healed by the next backup of their data.

use std::path::PathBuf;

use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, Container, containers_of};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server, wait_for};
use tempfile::{TempDir, tempdir};

pub(super) struct Scene {
    _folder: TempDir,
    pub(super) data_dir: PathBuf,
    pub(super) harmed: Disk,
    pub(super) other: Disk,
}

/// Two VMs in a repository without a running task.
pub(super) fn scene() -> Scene {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let harmed = Disk::of_noise(folder.path().join("harmed.raw"), 1, 20 << 20);
    let other = Disk::of_noise(folder.path().join("other.raw"), 2, 20 << 20);
    server.agent().back_up("harmed", &[harmed.arg()]);
    server.agent().back_up("other", &[other.arg()]);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    Scene { _folder: folder, data_dir, harmed, other }
}

/// The first data container: the first VM's, as each container is filled by one stream.
pub(super) fn victim(scene: &Scene) -> Container {
    let by_age = |container: &Container| std::fs::metadata(&container.path).unwrap().modified().unwrap();
    let oldest = containers_of(&scene.data_dir, Class::Data).into_iter().min_by_key(by_age);
    oldest.expect("data was stored")
}

fn damaged_data_is_named_contained_and_healed(damage: impl FnOnce(&Container)) {
    let scene = scene();
    let container = victim(&scene);
    damage(&container);

    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert_eq!(status.code(), Some(5), "{said}");
    let number = container.name();
    let stem = number.split('.').next().unwrap();
    assert!(said.contains(stem), "the check should name container {stem}:\n{said}");

    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    agent.run(&["verify", "latest", "--vm", "harmed"]).fails(5, &["harmed"]);
    let to = scene.data_dir.with_file_name("restored.raw");
    let ran = agent.run(&["restore", "latest", "--vm", "harmed", "--to", to.to_str().unwrap()]);
    ran.fails(5, &["harmed"]);
    // Other VMs are unaffected.
    agent.run(&["verify", "latest", "--vm", "other"]).ok();
    assert_eq!(agent.read_back("other"), scene.other.bytes());
    // The next backup of the same data stores it anew, under whatever name, and both restore.
    agent.back_up("harmed", &[scene.harmed.arg()]);
    assert_eq!(agent.read_back("harmed"), scene.harmed.bytes());
    agent.run(&["verify", "latest", "--vm", "harmed"]).ok();
}

/// Bytes that each restore point has lost, from `list --json`.
pub(super) fn damaged_bytes(agent: &holdfast_tests::Agent, vm: &str) -> Vec<u64> {
    let list = agent.run(&["list", "--vm", vm, "--json"]).ok().summary();
    let backups = list["backups"].as_array().unwrap().iter();
    backups.map(|backup| backup["damaged_bytes"].as_u64().unwrap()).collect()
}

/// Damage found by a verification: the list names what is lost, and the next backup heals it.
#[test]
fn rot_that_was_met_is_named_and_healed() {
    let scene = scene();
    let container = victim(&scene);
    container.flip_bit(container.len / 2);
    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    agent.run(&["verify", "latest", "--vm", "harmed"]).fails(5, &["harmed"]);
    wait_for("the list names the damage", || (damaged_bytes(&agent, "harmed")[0] > 0).then_some(()));
    assert!(damaged_bytes(&agent, "harmed")[0] <= 256 << 10, "one region");
    assert_eq!(damaged_bytes(&agent, "other"), [0]);
    let shown = agent.run(&["list"]).ok().text();
    assert_eq!(shown.matches("DAMAGED").count(), 1, "{shown}");
    assert!(server.log().contains("a restore point lacks data"));

    agent.back_up("harmed", &[scene.harmed.arg()]);
    wait_for("the older restore point is whole again", || {
        (damaged_bytes(&agent, "harmed") == [0, 0]).then_some(())
    });
    assert!(server.log().contains("a restore point is whole again"));
    let oldest = agent.backups("harmed").pop().unwrap();
    let to = scene.data_dir.with_file_name("oldest.raw");
    agent.restore_of(&oldest, "harmed", None, &to).ok();
    assert!(std::fs::read(&to).unwrap() == scene.harmed.bytes());
    server.stop();
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success() && said.contains("healed"), "{said}");
}

/// A check reports lost data in terms of restores.
#[test]
fn a_check_names_the_bytes_that_are_lost() {
    let scene = scene();
    std::fs::remove_file(&victim(&scene).path).unwrap();
    let (status, said) = maintain(&scene.data_dir, "check", &[]);
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("VM \"harmed\"") && said.contains("bytes cannot be restored: 0 to "), "{said}");
    assert!(!said.contains("VM \"other\""), "{said}");
}

#[test]
fn a_flipped_bit_in_a_payload() {
    damaged_data_is_named_contained_and_healed(|container| container.flip_bit(container.len / 2));
}

/// Header, directory and footer are needed to rely on a container, not to read it: restores work, a check reports the
/// damage, and a repair rewrites it.
fn damage_outside_the_regions_loses_nothing(damage: impl FnOnce(&Container)) {
    let scene = scene();
    let container = victim(&scene);
    damage(&container);
    let number = container.name();
    let stem = number.split('.').next().unwrap();
    let (status, said) = maintain(&scene.data_dir, "check", &[]);
    assert!(status.code() == Some(5) && said.contains(stem), "{said}");

    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    agent.run(&["verify", "latest", "--vm", "harmed"]).ok();
    assert!(agent.read_back("harmed") == scene.harmed.bytes());
    assert!(agent.read_back("other") == scene.other.bytes());
    server.stop();

    let (status, said) = maintain(&scene.data_dir, "check", &["--repair"]);
    assert!(status.success() && said.contains("the damaged file was removed"), "{said}");
    assert!(!container.path.exists());
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
    let server = Server::start(&scene.data_dir);
    assert!(server.agent().read_back("harmed") == scene.harmed.bytes());
}

#[test]
fn a_flipped_bit_in_the_header() {
    damage_outside_the_regions_loses_nothing(|container| container.flip_bit(20));
}

#[test]
fn a_flipped_bit_in_the_directory() {
    damage_outside_the_regions_loses_nothing(|container| container.flip_bit(container.len - 300));
}

#[test]
fn a_flipped_bit_in_the_footer() {
    damage_outside_the_regions_loses_nothing(|container| container.flip_bit(container.len - 10));
}

#[test]
fn a_truncated_container() {
    damaged_data_is_named_contained_and_healed(|container| container.truncate(container.len / 3));
}

#[test]
fn an_empty_container() {
    damaged_data_is_named_contained_and_healed(|container| container.truncate(0));
}

#[test]
fn a_container_that_is_gone() {
    damaged_data_is_named_contained_and_healed(|container| std::fs::remove_file(&container.path).unwrap());
}

/// A whole restore does not fail for one damaged chunk: the rest is restored, with a map of the bad ranges, and never
/// as if all were well.
#[test]
fn a_restore_keeps_going_past_damage() {
    let scene = scene();
    let server = Server::start(&scene.data_dir);
    server.agent().back_up("both", &[scene.harmed.arg(), scene.other.arg()]);
    server.stop();
    let container = victim(&scene);
    container.flip_bit(container.len / 2);
    let number = container.name();
    let stem = number.split('.').next().unwrap();

    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    let folder = scene.data_dir.with_file_name("restored");
    std::fs::create_dir(&folder).unwrap();
    let to = folder.to_str().unwrap();
    let ran = agent.run(&["restore", "latest", "--vm", "both", "--to", to, "--keep-going", "--json"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.stderr.contains("disk harmed") && ran.stderr.contains(stem), "{}", ran.stderr);
    let summary = ran.summary();
    assert_eq!(summary["ok"], false);
    let harmed = &summary["disks"][0];
    let range = &harmed["bad"][0];
    assert_eq!((&range["container"], &harmed["bad_ranges"]), (&stem.into(), &1.into()), "{harmed}");
    let (offset, len) = (range["offset"].as_u64().unwrap(), range["length"].as_u64().unwrap());
    let (offset, len) = (usize::try_from(offset).unwrap(), usize::try_from(len).unwrap());
    assert!(len > 0 && len <= 256 << 10, "{len} bytes of one region");
    let mut expected = scene.harmed.bytes();
    expected[offset..offset + len].fill(0);
    assert!(std::fs::read(folder.join("harmed.raw")).unwrap() == expected);
    assert!(std::fs::read(folder.join("other.raw")).unwrap() == scene.other.bytes());
    let map = std::fs::read_to_string(folder.join("harmed.raw.bad-ranges")).unwrap();
    assert!(map.contains(&format!("{offset:#010X}  {len:#010X}  -\n")) && map.contains(stem), "{map}");
    assert!(!folder.join("other.raw.bad-ranges").exists());

    // Skipped ranges of an existing file are unchanged.
    let kept = folder.join("kept.raw");
    std::fs::write(&kept, vec![0xEE; expected.len()]).unwrap();
    let map = folder.join("map");
    let args =
        ["restore", "latest", "--vm", "both", "--disk", "harmed", "--to", kept.to_str().unwrap(), "--force"];
    let skip = ["--keep-going", "--bad-ranges", "skip", "--bad-map", map.to_str().unwrap()];
    agent.run(&[&args[..], &skip[..]].concat()).fails(5, &["harmed"]);
    expected[offset..offset + len].fill(0xEE);
    assert!(std::fs::read(&kept).unwrap() == expected && map.exists());

    // In a pipe they are zeros, at their place.
    let pipe = agent.run(&[
        "restore",
        "latest",
        "--vm",
        "both",
        "--disk",
        "harmed",
        "--to",
        "-",
        "--keep-going",
        "--bad-map",
        map.to_str().unwrap(),
        "--force",
    ]);
    expected[offset..offset + len].fill(0);
    assert!(pipe.code == Some(5) && pipe.stdout == expected, "{}", pipe.stderr);
    // Without the flag nothing changes: the restore fails, and leaves nothing that looks like a disk.
    let strict = folder.join("strict.raw");
    let args = ["restore", "latest", "--vm", "both", "--disk", "harmed", "--to", strict.to_str().unwrap()];
    agent.run(&args).fails(5, &["harmed"]);
    assert!(!strict.exists());
}

#[test]
fn damage_done_while_the_server_runs_is_found_by_reading() {
    let scene = scene();
    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    assert_eq!(agent.read_back("harmed"), scene.harmed.bytes());
    let container = victim(&scene);
    container.flip_bit(container.len / 2);
    agent.run(&["verify", "latest", "--vm", "harmed"]).fails(5, &["harmed"]);
    assert_eq!(agent.read_back("other"), scene.other.bytes());
    agent.back_up("harmed", &[scene.harmed.arg()]);
    assert_eq!(agent.read_back("harmed"), scene.harmed.bytes());
}

#[test]
fn damaged_recipes_harm_only_their_backup() {
    let scene = scene();
    let by_age = |container: &Container| std::fs::metadata(&container.path).unwrap().modified().unwrap();
    let oldest = containers_of(&scene.data_dir, Class::Recipe).into_iter().min_by_key(by_age).unwrap();
    oldest.flip_bit(oldest.len / 2);
    let (status, said) = maintain(&scene.data_dir, "check", &[]);
    assert_eq!(status.code(), Some(5), "{said}");
    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    agent.run(&["verify", "latest", "--vm", "harmed"]).fails(5, &["harmed"]);
    assert_eq!(agent.read_back("other"), scene.other.bytes());
    agent.back_up("harmed", &[scene.harmed.arg()]);
    assert_eq!(agent.read_back("harmed"), scene.harmed.bytes());
}

#[test]
fn an_index_that_is_lost_is_made_again() {
    let scene = scene();
    std::fs::remove_dir_all(scene.data_dir.join("blobs/index")).unwrap();
    let server = Server::start(&scene.data_dir);
    let agent = server.agent();
    assert_eq!(agent.read_back("harmed"), scene.harmed.bytes());
    agent.back_up("copy", &[scene.other.arg()]);
    assert_eq!(agent.report()[2].number("new_bytes"), 0, "everything is known again");
    server.stop();
    let (status, said) = maintain(&scene.data_dir, "rebuild-index", &[]);
    assert!(status.success(), "{said}");
    let (status, said) = maintain(&scene.data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

/// The agent learns it while it sends, or at the commit; in both cases its next session must not find the VM busy.
#[test]
fn damage_found_while_a_backup_runs_makes_the_agent_start_again() {
    let folder = tempdir().unwrap();
    // A delayed agent is not a dead one, and a failed session is not waited for.
    let server = Server::options().arg("--lease-secs=3600").start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 40 << 20);
    agent.back_up("vm", &[disk.arg()]);
    // The last extents are new, so that the backup still sends for a while after it was told which extents are
    // unchanged.
    let mut bytes = disk.bytes();
    let tail = Disk::of_noise(folder.path().join("tail.raw"), 2, 24 << 20).bytes();
    let from = bytes.len() - tail.len();
    bytes[from..].copy_from_slice(&tail);
    std::fs::write(folder.path().join("disk.raw"), &bytes).unwrap();
    let known = containers_of(server.data_dir(), Class::Data);
    let proxy = Proxy::holding(server.grpc(), 6 << 20);
    let run = agent.through(proxy.address()).start(&["backup", "--vm", "vm", disk.arg()]);
    super::crash::wait_until_sending_more_than(&server, known.len(), 1 << 20);
    // In the unchanged part.
    for container in &known {
        container.flip_bit(container.len / 4);
    }
    agent.run(&["verify", "latest", "--vm", "vm"]).fails(5, &["vm"]);
    proxy.release();
    run.wait().ok();
    assert_eq!(agent.backups("vm").len(), 2);
    assert_eq!(agent.read_back("vm"), bytes);
    let failed = agent.report().iter().filter(|row| row.text("status") == "failed").count();
    assert_eq!(failed, 1, "the session that was refused");
}
