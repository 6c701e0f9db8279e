//! Backups are restored bit for bit, whatever their shape and target.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use holdfast_tests::disk::{allocated_bytes, assert_same, noise, text};
use holdfast_tests::faults::Fault;
use holdfast_tests::{Disk, Server, tools};
use tempfile::tempdir;

const MIB: u64 = 1 << 20;

#[test]
fn several_disks_of_odd_sizes_come_back() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let sizes = [0, 1, 511, 4095, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 17 * MIB + 4097];
    let disks: Vec<_> = (0u64..)
        .zip(sizes)
        .map(|(n, size)| Disk::varied(folder.path().join(format!("d{n}.raw")), n * 10, size))
        .collect();
    let named: Vec<String> = (0..).zip(&disks).map(|(n, disk)| format!("disk{n}={}", disk.arg())).collect();
    let arguments: Vec<&str> = named.iter().map(String::as_str).collect();
    let agent = server.agent();
    agent.back_up("vm", &arguments);
    assert_eq!(agent.backups("vm").len(), 1, "several disks are one restore point");
    for (n, disk) in disks.iter().enumerate() {
        let to = folder.path().join(format!("restored{n}.raw"));
        agent.restore("vm", Some(&format!("disk{n}")), &to);
        disk.assert_same(&to);
    }
    agent.run(&["verify", "latest", "--vm", "vm"]).ok();
}

#[test]
fn holes_stay_holes() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::empty(folder.path().join("sparse.raw"), 3 << 30);
    for offset in [0, 700 * MIB, (3 << 30) - 5000] {
        disk.put(offset, &noise(offset, 5000));
    }
    // Written zeros are treated like holes.
    disk.put(100 * MIB, &vec![0; 8 << 20]);
    let agent = server.agent();
    agent.back_up("vm", &[disk.arg()]);
    let to = folder.path().join("restored.raw");
    agent.restore("vm", None, &to);
    let (mut before, mut after) = (fs::File::open(disk.path()).unwrap(), fs::File::open(&to).unwrap());
    assert_eq!(after.metadata().unwrap().len(), 3 << 30);
    let (mut left, mut right) = (vec![0; 16 << 20], vec![0; 16 << 20]);
    for _ in 0..(3 << 30) / left.len() {
        std::io::Read::read_exact(&mut before, &mut left).unwrap();
        std::io::Read::read_exact(&mut after, &mut right).unwrap();
        assert_same(&left, &right);
    }
    assert!(allocated_bytes(&to) < MIB, "{} bytes allocated for 15,000", allocated_bytes(&to));
    let row = &agent.report()[0];
    assert_eq!((row.number("virtual_bytes"), row.number("bytes")), (3 << 30, 3 * 5000 + zero_padding(row)));
}

/// `bytes` leaves out runs of zeros, not every single zero: at most 32 KiB stay around each piece of data.
fn zero_padding(row: &holdfast_tests::agent::Row) -> u64 {
    let padding = row.number("bytes").checked_sub(15_000).expect("all data counts");
    assert!(padding <= 3 * 2 * (32 << 10), "{padding} bytes of zeros count as data");
    padding
}

#[test]
fn an_empty_disk_costs_nothing_and_comes_back() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::empty(folder.path().join("empty.raw"), 100 << 20);
    let agent = server.agent();
    agent.back_up("vm", &[disk.arg()]);
    assert_eq!(agent.report()[0].number("post_lc"), 0);
    let to = folder.path().join("restored.raw");
    agent.restore("vm", None, &to);
    disk.assert_same(&to);
    assert_eq!(allocated_bytes(&to), 0);
}

#[test]
fn standard_output_gets_the_disk_and_nothing_else() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::varied(folder.path().join("disk.raw"), 7, 150 * MIB + 333);
    let agent = server.agent();
    agent.back_up("vm", &[disk.arg()]);
    assert_same(&disk.bytes(), &agent.read_back("vm"));
}

#[test]
fn every_restore_point_stays_what_it_was() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 20 * MIB);
    let mut days = Vec::new();
    for day in 0..4u64 {
        disk.put(day * 5 * MIB + 12_345, &text(100 + day, 300_000));
        if day == 2 {
            disk.resize(9 * MIB + 17);
            agent.run(&["backup", "--vm", "vm", disk.arg()]).fails(1, &["--accept-change"]);
        }
        if day == 3 {
            disk.resize(30 * MIB);
        }
        agent.back_up("vm", &[disk.arg(), "--accept-change"]);
        days.push(disk.bytes());
    }
    let newest_first = agent.backups("vm");
    assert_eq!(newest_first.len(), 4);
    for (day, (id, bytes)) in newest_first.iter().rev().zip(&days).enumerate() {
        let to = folder.path().join(format!("day{day}.raw"));
        agent.restore_of(id, "vm", None, &to);
        assert_same(bytes, &fs::read(&to).unwrap());
    }
}

#[test]
fn restoring_overwrites_only_when_told_to_and_then_wholly() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 20 * MIB);
    agent.back_up("vm", &[disk.arg()]);
    for garbage_bytes in [100, 20 << 20, 40 << 20] {
        let to = Disk::of_noise(folder.path().join("target.raw"), 99, garbage_bytes);
        let arguments = ["restore", "latest", "--vm", "vm", "--to", to.arg()];
        agent.run(&arguments).fails(1, &["target.raw", "--force"]);
        assert_same(&noise(99, garbage_bytes), &to.bytes());
        agent.run(&[&arguments[..], &["--force"]].concat()).ok();
        disk.assert_same(to.path());
    }
}

/// With direct writes, and through the page cache (`--no-sync`): to a full disk, to a failing one, and killed at a
/// write.
#[test]
fn what_could_not_be_written_is_never_taken_for_restored() {
    let folder = tempdir().unwrap();
    let (mount, whole) = (folder.path().join("small"), folder.path().join("whole"));
    fs::create_dir(&mount).unwrap();
    fs::create_dir(&whole).unwrap();
    let Some(small) = tools::SmallFileSystem::mount(&mount, 32 * MIB) else { return };
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, (40 << 20) + 4097);
    agent.back_up("vm", &[disk.arg()]);
    let (full, to) = (small.folder().join("restored.raw"), whole.join("restored.raw"));
    for more in [&[][..], &["--no-sync"]] {
        let restore_to = |to| [&["restore", "latest", "--vm", "vm", "--to", to], more].concat();
        agent.run(&restore_to(full.to_str().unwrap())).fails(1, &["No space left", "restored.raw"]);
        assert!(!full.exists() && !small.folder().join("restored.raw.holdfast-partial").exists());
        let restore = restore_to(to.to_str().unwrap());
        let faulty = |fault: Fault| fault.on_command(&agent.command(&restore));
        // Calls are counted by thread, and the number of writes of each thread varies: so the first.
        let Some((code, said)) = faulty(Fault::io_error("pwrite64").when("1")) else { return };
        assert!(code == Some(1) && said.contains("Input/output error"), "{said}");
        assert_eq!(fs::read_dir(&whole).unwrap().count(), 0, "nothing of it was kept");
        let Some((code, said)) = faulty(Fault::kill_at("pwrite64", 1)) else { return };
        assert!(code != Some(0) && !to.exists(), "{said}");
        agent.run(&restore).ok();
        disk.assert_same(&to);
        assert_eq!(fs::read_dir(&whole).unwrap().count(), 1, "what the killed one left is gone");
        fs::remove_file(&to).unwrap();
    }
    drop(small);
    // A file system without direct writes, or without unaligned ones. In the temporary folder, perhaps none is tried.
    let Some(roomy) = tools::SmallFileSystem::mount(&mount, 128 * MIB) else { return };
    if !roomy.takes_direct_writes() {
        return;
    }
    let to = roomy.folder().join("restored.raw");
    for nth in ["1", "2"] {
        let restore =
            agent.command(&["restore", "latest", "--vm", "vm", "--force", "--to", to.to_str().unwrap()]);
        let refused = Fault::refusal("pwrite64").when(nth).on_command(&restore);
        let Some((code, said)) = refused else { return };
        assert_eq!(code, Some(0), "{said}");
        disk.assert_same(&to);
    }
}

#[test]
fn restored_files_are_their_owners_unless_told_otherwise() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, MIB);
    agent.back_up("vm", &[disk.arg()]);
    let to = folder.path().join("restored.raw");
    let restore = |more: &[&str]| {
        let arguments = ["restore", "latest", "--vm", "vm", "--force", "--to", to.to_str().unwrap()];
        let ran = agent.run(&[&arguments[..], more].concat());
        (ran.code, fs::metadata(&to).unwrap().permissions().mode() & 0o7777)
    };
    assert_eq!(restore(&[]), (Some(0), 0o600));
    assert_eq!(restore(&["--mode", "0664"]), (Some(0), 0o664), "whatever the umask");
    assert_eq!(restore(&[]), (Some(0), 0o600), "whatever the file had that is replaced");
    assert_eq!(restore(&["--mode", "4755"]).0, Some(2));
    assert_eq!(restore(&["--disk", "NOSUCH"]).0, Some(1));
    disk.assert_same(&to);
}

#[test]
fn what_is_not_there_cannot_be_restored() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, MIB);
    agent.back_up("vm", &[&format!("root={}", disk.arg()), &format!("data={}", disk.arg())]);
    let to = folder.path().join("restored.raw");
    let to = to.to_str().unwrap();
    agent.run(&["restore", "latest", "--vm", "other", "--to", to, "--disk", "root"]).fails(1, &["other"]);
    agent
        .run(&["restore", "latest", "--vm", "vm", "--to", to, "--disk", "swap"])
        .fails(1, &["swap", "root", "data"]);
    let unknown = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    agent.run(&["restore", unknown, "--vm", "vm", "--to", to, "--disk", "root"]).fails(1, &[unknown]);
    assert!(!fs::exists(to).unwrap(), "a failed restore leaves no file");
}

#[test]
fn a_real_file_system_comes_back_clean() {
    let (Some(mke2fs), Some(e2fsck)) = (tools::find("mke2fs"), tools::find("e2fsck")) else { return };
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let stage = folder.path().join("stage");
    fs::create_dir_all(stage.join("etc")).unwrap();
    for n in 0..200u64 {
        let len = usize::try_from(n * n * 17 % 400_000).unwrap();
        fs::write(stage.join(format!("etc/file{n}")), text(n, len)).unwrap();
    }
    let image = folder.path().join("fs.raw");
    let arguments =
        ["-q", "-F", "-t", "ext4", "-d", stage.to_str().unwrap(), image.to_str().unwrap(), "256M"];
    let (made, said) = tools::run(&mke2fs, &arguments);
    assert!(made, "{said}");
    let agent = server.agent();
    agent.back_up("vm", &[image.to_str().unwrap()]);
    let restored = folder.path().join("restored.raw");
    agent.restore("vm", None, &restored);
    assert_same(&fs::read(&image).unwrap(), &fs::read(&restored).unwrap());
    let (clean, said) = tools::run(&e2fsck, &["-f", "-n", restored.to_str().unwrap()]);
    assert!(clean, "{said}");
    if let Some(qemu_img) = tools::find("qemu-img") {
        let pair = ["compare", "-f", "raw", "-F", "raw", image.to_str().unwrap(), restored.to_str().unwrap()];
        let (same, said) = tools::run(&qemu_img, &pair);
        assert!(same, "{said}");
    }
}

#[test]
fn block_devices_are_sources_and_targets() {
    let folder = tempdir().unwrap();
    let disk = Disk::varied(folder.path().join("disk.raw"), 5, 24 * MIB);
    let target = Disk::of_noise(folder.path().join("target.raw"), 6, 24 << 20);
    let small = Disk::of_noise(folder.path().join("small.raw"), 7, 23 << 20);
    let Some(source) = tools::Loop::attach(disk.path()) else { return };
    let (Some(device), Some(too_small)) =
        (tools::Loop::attach(target.path()), tools::Loop::attach(small.path()))
    else {
        return;
    };
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    agent.back_up("vm", &[&format!("root={}", source.device())]);
    assert_same(&disk.bytes(), &agent.read_back("vm"));
    let to = |device: &str, more: &[&str]| {
        agent.run(&[&["restore", "latest", "--vm", "vm", "--to", device], more].concat())
    };
    to(device.device(), &[]).fails(1, &[device.device(), "--force"]);
    to(too_small.device(), &["--force"]).fails(1, &[too_small.device()]);
    to(device.device(), &["--force"]).ok();
    assert_same(&disk.bytes(), &fs::read(device.device()).unwrap());
}
