//! A repository without room: says so, keeps what it has, and goes on once there is room.

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
    agent.run(&["backup", "--vm", "large", large.arg()]).fails(8, &["room"]);
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
    // At most two of them fit; then 20 MiB more do as well, once the rest is gone.
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
    // What the refused ones left goes as soon as another needs the room; and what needs none always works.
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

/// After a kill and after a clean stop, whose catalog has no files of SQLite's beside it.
#[test]
fn a_server_starts_and_restores_on_a_disk_without_a_free_byte() {
    let folder = tempdir().unwrap();
    let mount = folder.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let Some(small) = SmallFileSystem::mount(&mount, 160 * MIB) else { return };
    let (ballast, data_dir) = (small.folder().join("ballast"), small.folder().join("repository"));
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 20 << 20);
    let other = Disk::of_noise(folder.path().join("other.raw"), 2, 20 << 20);
    let server = Server::options().arg("--reserve=8MiB").start(&data_dir);
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
        let full = Server::options().arg("--reserve=8MiB").start(&data_dir);
        assert_eq!(full.agent().read_back("web"), disk.bytes());
        full.agent().run(&["backup", "--vm", "other", other.arg()]).fails(8, &["room"]);
        full.kill();
        std::fs::remove_file(&ballast).unwrap();
        let again = Server::options().arg("--reserve=8MiB").start(&data_dir);
        again.agent().back_up(&format!("other-{round}"), &[other.arg()]);
        assert_eq!(again.agent().read_back("web"), disk.bytes());
        server = Some(again);
    }
}
