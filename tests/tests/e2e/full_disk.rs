//! A full repository: reports it, keeps its data, and continues once there is space.

use holdfast_tests::disk::{assert_same, noise};
use holdfast_tests::tools::SmallFileSystem;
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

const MIB: u64 = 1 << 20;

#[test]
fn a_full_disk_refuses_new_data_and_harms_nothing() {
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 160 * MIB) else { return };
    let ballast = small.folder().join("ballast");
    std::fs::write(&ballast, vec![1; 60 << 20]).unwrap();
    let data_dir = small.folder().join("repository");
    let server = Server::options().arg("--reserve").arg("8MiB").start(&data_dir);
    let agent = server.agent();
    let fits = Disk::of_noise(folder.path().join("fits.raw"), 1, 20 << 20);
    let large = Disk::of_noise(folder.path().join("large.raw"), 2, 100 << 20);
    agent.back_up("fits", &[fits.arg()]);
    agent.run(&["backup", "--vm", "large", large.arg()]).fails(8, &["add storage"]);
    assert!(agent.backups("large").is_empty(), "nothing half done is visible");
    assert_eq!(agent.read_back("fits"), fits.bytes());
    agent.run(&["verify", "latest", "--vm", "fits"]).ok();

    std::fs::remove_file(&ballast).unwrap();
    agent.back_up("large", &[large.arg()]);
    assert_eq!(agent.read_back("large"), large.bytes());
    assert_eq!(agent.read_back("fits"), fits.bytes());
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

fn free_bytes(folder: &std::path::Path) -> u64 {
    let stat = rustix::fs::statvfs(folder).unwrap();
    stat.f_bavail * stat.f_frsize
}

#[test]
fn twelve_agents_leave_the_reserve_whole_and_block_no_one() {
    const RESERVE: u64 = 40 * MIB;
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 200 * MIB) else { return };
    let data_dir = small.folder().join("repository");
    let server = Server::options().arg("--reserve=40MiB").start(&data_dir);
    let agent = server.agent();
    let steady = Disk::of_noise(folder.path().join("steady.raw"), 99, 10 << 20);
    agent.back_up("steady", &[steady.arg()]);
    // At most two of them fit; then 20 MiB more do as well, once the rest was removed.
    let disks: Vec<Disk> = (0..12)
        .map(|seed| Disk::of_noise(folder.path().join(format!("{seed}.raw")), seed, 48 << 20))
        .collect();
    let refused = std::thread::scope(|scope| {
        let runs: Vec<_> = disks
            .iter()
            .enumerate()
            .map(|(number, disk)| {
                let (agent, vm) = (&agent, format!("vm-{number}"));
                scope.spawn(move || agent.run(&["backup", "--vm", &vm, disk.arg()]).code)
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).filter(|code| *code == Some(8)).count()
    });
    assert!(refused > 0, "they do not all fit");
    assert!(free_bytes(small.folder()) >= RESERVE, "{} of {RESERVE} are left", free_bytes(small.folder()));
    // Leftovers of refused ones are removed as soon as another needs the space; and requests that need none always
    // work.
    agent.back_up("steady", &[steady.arg()]);
    let fits = Disk::of_noise(folder.path().join("fits.raw"), 500, 20 << 20);
    agent.back_up("fits", &[fits.arg()]);
    assert_eq!(agent.read_back("fits"), fits.bytes());
    assert_eq!(agent.read_back("steady"), steady.bytes());
    assert!(free_bytes(small.folder()) >= RESERVE);
    agent.back_up("steady", &[steady.arg()]);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

/// Fills the file system to the last block.
fn fill(ballast: &std::path::Path) {
    let mut file = std::fs::File::create(ballast).unwrap();
    for bytes in [1 << 20, 4096, 512, 1] {
        let block = vec![1; bytes];
        while std::io::Write::write(&mut file, &block).is_ok_and(|written| written > 0) {}
    }
}

/// After a kill, and after a clean stop, which leaves none of SQLite's extra files beside the catalog.
#[test]
fn a_server_starts_and_restores_on_a_disk_without_a_free_byte() {
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 160 * MIB) else { return };
    let (ballast, data_dir) = (small.folder().join("ballast"), small.folder().join("repository"));
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 20 << 20);
    let other = Disk::of_noise(folder.path().join("other.raw"), 2, 20 << 20);
    // More than the room for the catalog, which such a start gives up.
    let reserve = "--reserve=24MiB";
    let server = Server::options().arg(reserve).start(&data_dir);
    server.agent().back_up("web", &[disk.arg()]);
    let mut server = Some(server);
    for (round, is_killed) in [true, false].into_iter().enumerate() {
        let running = server.take().unwrap();
        if is_killed {
            running.kill();
        } else {
            let (status, said) = running.stop();
            assert!(status.success(), "{said}");
        }
        fill(&ballast);
        assert_eq!(free_bytes(small.folder()), 0);
        let full = Server::options().arg(reserve).start(&data_dir);
        assert_eq!(full.agent().read_back("web"), disk.bytes());
        // Data that is not there yet: what stores nothing needs no room.
        let unseen = Disk::of_noise(folder.path().join("unseen.raw"), 3 + round as u64, 20 << 20);
        full.agent().run(&["backup", "--vm", "other", unseen.arg()]).fails(8, &["add storage"]);
        full.kill();
        std::fs::remove_file(&ballast).unwrap();
        let again = Server::options().arg(reserve).start(&data_dir);
        again.agent().back_up(&format!("other-{round}"), &[other.arg()]);
        assert_eq!(again.agent().read_back("web"), disk.bytes());
        server = Some(again);
    }
}

/// Asserts the bytes of every restore point of a VM, each acknowledged.
fn assert_whole(server: &Server, vm: &str, bytes: &[u8]) {
    assert_same(bytes, &server.agent().read_back(vm));
}

/// Deleting, forgetting, locking and reclaiming use the reserve, and need no restart.
#[test]
fn a_disk_that_backups_filled_is_emptied_by_those_who_may() {
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 160 * MIB) else { return };
    let data_dir = small.folder().join("repository");
    let server = Server::options().arg("--reserve=16MiB").start(&data_dir);
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 20 << 20);
    let mut kept = Vec::new();
    loop {
        disk.put(0, &noise(100 + kept.len() as u64, 10 << 20));
        let ran = agent.run(&["backup", "--vm", "web", disk.arg()]);
        if !ran.succeeded() {
            ran.fails(8, &["add storage"]);
            break;
        }
        kept.push(disk.bytes());
    }
    assert!(kept.len() >= 6, "{} backups fit", kept.len());
    let ids = agent.backups("web");
    let oldest = ids.last().unwrap();
    agent.run(&["lock", oldest, "--for", "2d", "--yes"]).ok();
    agent.run(&["hold", oldest, "--reason", "a test"]).ok();
    agent.run(&["delete", &ids[2], "--yes", "--reason", "a test"]).ok();
    agent.run(&["forget", "--vm", "web", "--keep-last", "2", "--yes"]).ok();
    let left = agent.backups("web");
    assert_eq!(left, [ids[0].clone(), ids[1].clone(), oldest.clone()]);
    let before = free_bytes(small.folder());
    // All restore points share one copy of the second half of the disk, in a container that is half dead by now.
    agent.run(&["reclaim"]).ok();
    let freed = free_bytes(small.folder()).saturating_sub(before);
    assert!(freed >= 30 * MIB, "{freed} bytes were freed");
    disk.put(0, &noise(99, 10 << 20));
    agent.back_up("web", &[disk.arg()]);
    assert_whole(&server, "web", &disk.bytes());
    let to = folder.path().join("oldest.raw");
    agent.restore_of(oldest, "web", None, &to).ok();
    assert_same(&kept[0], &std::fs::read(&to).unwrap());
    agent.run(&["delete", oldest, "--yes", "--reason", "a test"]).fails(4, &["lock"]);
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
}

/// Even the reserve is used up by others. Reclaim still works.
#[test]
fn a_disk_without_a_free_byte_is_emptied() {
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 160 * MIB) else { return };
    let data_dir = small.folder().join("repository");
    let server = Server::options().arg("--reserve=16MiB").start(&data_dir);
    let agent = server.agent();
    let disks: Vec<Disk> = (0..4)
        .map(|seed| Disk::of_noise(folder.path().join(format!("{seed}.raw")), seed, 12 << 20))
        .collect();
    for disk in &disks {
        agent.back_up("web", &[&format!("disk={}", disk.arg())]);
    }
    let ids = agent.backups("web");
    fill(&small.folder().join("ballast"));
    assert_eq!(free_bytes(small.folder()), 0);
    let refused = Disk::of_noise(folder.path().join("refused.raw"), 9, 12 << 20);
    agent.run(&["backup", "--vm", "other", refused.arg()]).fails(8, &["free"]);
    agent.run(&["delete", &ids[3], "--yes", "--reason", "a test"]).ok();
    agent.run(&["forget", "--vm", "web", "--keep-last", "1", "--yes"]).ok();
    assert_eq!(agent.backups("web"), ids[..1]);
    agent.run(&["reclaim"]).ok();
    assert!(free_bytes(small.folder()) >= 30 * MIB, "{} bytes are free", free_bytes(small.folder()));
    agent.back_up("other", &[refused.arg()]);
    assert_whole(&server, "other", &refused.bytes());
    assert_whole(&server, "web", &disks[3].bytes());
    agent.run(&["lock", "latest", "--vm", "web", "--for", "2d", "--yes"]).ok();
    let (status, said) = server.stop();
    assert!(status.success(), "{said}");
    let server = Server::options().arg("--reserve=8MiB").start(&data_dir);
    assert_eq!(server.agent().backups("web"), ids[..1]);
    assert_whole(&server, "web", &disks[3].bytes());
}
