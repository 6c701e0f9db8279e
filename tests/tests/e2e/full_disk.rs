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
