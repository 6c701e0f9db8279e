//! Everything but the volume is lost, or the catalog alone: acknowledged data comes back.

use std::fs;
use std::path::Path;

use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

/// Deletes everything in the data folder but the volume.
pub(super) fn lose_all_but_blobs(data_dir: &Path) {
    for entry in fs::read_dir(data_dir).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("blobs") {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
}

fn recover(data_dir: &Path, from: &Path) -> String {
    let (status, said) = maintain(data_dir, "recover", &["--from", from.to_str().unwrap()]);
    assert!(status.success(), "recover: {status}\n{said}");
    said
}

#[test]
fn a_server_that_lost_everything_but_its_volume_comes_back() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let agent_token = server.token("hv1", "backup", &["default"]);
    let gone_token = server.token("hv2", "backup", &["default"]);
    let (status, said) = server.tokens(&["revoke", "hv2"]);
    assert!(status.success(), "{said}");
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 20 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    // The last snapshot has the tokens and the first restore point; the kill comes before another is due.
    server.stop();
    let server = Server::start(&data_dir);
    let late = Disk::varied(folder.path().join("late.raw"), 2, 12 << 20);
    let by_agent = server.agent().with_token(&agent_token);
    by_agent.back_up("mail", &[late.arg()]);
    server.kill();
    lose_all_but_blobs(&data_dir);

    // A start must not make a new repository of it.
    let (status, said) = Server::options().try_start(&data_dir).unwrap_err();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("holdfast-server recover --from"), "{said}");
    assert!(!data_dir.join("admin.token").exists());

    let said = recover(&data_dir, &data_dir.join("blobs"));
    assert!(said.contains("catalog: snapshot snapshots/"), "{said}");
    assert!(said.contains("entered: 1") && said.contains("VM \"mail\""), "{said}");
    assert!(said.contains("tokens disabled") && said.contains("not known"), "{said}");
    let (status, again) =
        maintain(&data_dir, "recover", &["--from", data_dir.join("blobs").to_str().unwrap()]);
    assert!(!status.success() && again.contains("exists"), "{again}");

    let server = Server::start(&data_dir);
    let admin = server.agent();
    assert_eq!(admin.read_back("web"), disk.bytes());
    assert_eq!(admin.read_back("mail"), late.bytes());
    // An agent's token waits for the admin; a revoked one stays revoked.
    admin.with_token(&agent_token).run(&["list"]).fails(4, &[]);
    let (status, said) = server.tokens(&["enable", "hv1"]);
    assert!(status.success(), "{said}");
    assert_eq!(admin.with_token(&agent_token).read_back("mail"), late.bytes());
    let (status, said) = server.tokens(&["enable", "hv2"]);
    assert!(!status.success() && said.contains("revoked"), "{said}");
    admin.with_token(&gone_token).run(&["list"]).fails(4, &[]);
    // And incremental backups continue.
    late.put(5 << 20, b"changed");
    admin.back_up("mail", &[late.arg()]);
    assert_eq!(admin.read_back("mail"), late.bytes());
    server.stop();
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

#[test]
fn an_empty_catalog_never_becomes_a_new_repository() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let token = server.admin_token();
    server.kill();
    fs::write(data_dir.join("catalog.db"), b"").unwrap();
    let (status, said) = Server::options().try_start(&data_dir).unwrap_err();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("catalog.db is missing or empty") && said.contains("recover"), "{said}");
    assert_eq!(fs::read_to_string(data_dir.join("admin.token")).unwrap().trim(), token);
    assert_eq!(fs::metadata(data_dir.join("catalog.db")).unwrap().len(), 0);
}

#[test]
fn an_older_catalog_gets_the_restore_points_made_since() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    server.stop();
    let catalog = data_dir.join("catalog.db");
    let copy = fs::read(&catalog).unwrap();
    let server = Server::start(&data_dir);
    let disks: Vec<Disk> =
        (0..5).map(|n| Disk::varied(folder.path().join(format!("{n}.raw")), n, 6 << 20)).collect();
    for (n, disk) in disks.iter().enumerate() {
        server.agent().back_up(&format!("vm{n}"), &[disk.arg()]);
    }
    server.stop();
    for suffix in ["-wal", "-shm"] {
        let _ = fs::remove_file(data_dir.join(format!("catalog.db{suffix}")));
    }
    fs::write(&catalog, copy).unwrap();
    let server = Server::start(&data_dir);
    for (n, disk) in disks.iter().enumerate() {
        let vm = format!("vm{n}");
        assert_eq!(server.agent().read_back(&vm), disk.bytes(), "{vm}");
        assert!(
            server.stderr().contains(&format!("vm={vm:?}")) || server.stderr().contains(&vm),
            "the log names {vm}"
        );
    }
    server.stop();
}

#[test]
fn the_backup_of_the_server_is_made_beside_it_and_recovers_elsewhere() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let fingerprint = server.fingerprint();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    let to = folder.path().join("backup");
    let (status, said) = maintain(&data_dir, "snapshot", &["--to", to.to_str().unwrap()]);
    assert!(status.success(), "{said}");
    server.kill();
    lose_all_but_blobs(&data_dir);
    // Only the backup of the catalog has the tokens.
    fs::remove_dir_all(data_dir.join("blobs/snapshots")).unwrap();
    let elsewhere = folder.path().join("elsewhere");
    let blobs = data_dir.join("blobs");
    let args = ["--from", blobs.to_str().unwrap(), "--snapshot", to.to_str().unwrap()];
    let (status, said) = maintain(&elsewhere, "recover", &args);
    assert!(status.success(), "{said}");
    assert!(said.contains("tokens disabled, because one of them may have been revoked since: 1;"), "{said}");
    let server = Server::start(&elsewhere);
    assert_eq!(server.fingerprint(), fingerprint, "agents go on trusting it");
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    server.stop();
}
