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
