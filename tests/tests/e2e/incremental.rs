//! Stored data is not stored again, and the compression details say so to the byte.

use holdfast_tests::agent::Row;
use holdfast_tests::disk::{noise, text};
use holdfast_tests::repository::{Class, container_bytes};
use holdfast_tests::{Disk, Server};
use tempfile::tempdir;

const MIB: u64 = 1 << 20;

fn assert_laws(rows: &[Row], data_dir: &std::path::Path) {
    for row in rows {
        let parts = ["unchanged_bytes", "dup_bytes", "new_bytes"].map(|column| row.number(column));
        assert_eq!(row.number("bytes"), parts.iter().sum::<u64>(), "{row:?}");
        assert!(row.number("bytes") <= row.number("virtual_bytes"), "{row:?}");
    }
    let sum = |column: &str| rows.iter().map(|row| row.number(column)).sum::<u64>();
    assert_eq!(sum("post_lc"), container_bytes(data_dir, Class::Data), "data containers");
    assert_eq!(sum("meta_bytes"), container_bytes(data_dir, Class::Recipe), "recipe containers");
}

#[test]
fn an_unchanged_disk_stores_nothing() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 40 * MIB);
    agent.back_up("vm", &[disk.arg()]);
    let before = container_bytes(server.data_dir(), Class::Data);
    agent.back_up("vm", &[disk.arg()]);
    assert_eq!(container_bytes(server.data_dir(), Class::Data), before);
    let rows = agent.report();
    let [first, second] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(first.number("unchanged_bytes"), 0);
    assert_eq!(second.number("unchanged_bytes"), first.number("bytes"));
    for column in ["dup_bytes", "new_bytes", "post_lc", "new_chunks"] {
        assert_eq!(second.number(column), 0, "{column}");
    }
    assert!(second.number("wire_bytes") < 10_000, "{} bytes sent", second.number("wire_bytes"));
    assert!(second.number("meta_bytes") < 10_000, "{} bytes of recipes", second.number("meta_bytes"));
    assert_laws(&rows, server.data_dir());
}

#[test]
fn what_another_vm_has_is_not_stored_again() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 30 << 20);
    agent.back_up("one", &[disk.arg()]);
    agent.back_up("other", &[disk.arg()]);
    // The same contents at other offsets: chunks are found wherever they are.
    let moved = Disk::empty(folder.path().join("moved.raw"), 60 * MIB);
    moved.put(13 * MIB + 4096, &noise(1, 30 << 20));
    agent.back_up("moved", &[moved.arg()]);
    let rows = agent.report();
    assert_eq!(rows[1].number("dup_bytes"), rows[1].number("bytes"));
    assert_eq!((rows[1].number("new_bytes"), rows[1].number("post_lc")), (0, 0));
    let (new, all) = (rows[2].number("new_bytes"), rows[2].number("bytes"));
    assert!(new * 100 < all * 15, "{new} of {all} bytes count as new when moved");
    assert_laws(&rows, server.data_dir());
    assert_eq!(agent.read_back("moved"), moved.bytes());
}

#[test]
fn a_small_change_costs_little() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    agent.back_up("vm", &[disk.arg()]);
    disk.put(33 * MIB + 100, &noise(2, 100));
    agent.back_up("vm", &[disk.arg()]);
    let rows = agent.report();
    let row = &rows[1];
    assert_eq!(row.number("unchanged_bytes"), 60 * MIB, "15 of 16 extents");
    assert!((100..300_000).contains(&row.number("new_bytes")), "{}", row.number("new_bytes"));
    assert!(row.number("post_lc") < 310_000, "{}", row.number("post_lc"));
    assert_laws(&rows, server.data_dir());
    assert_eq!(agent.read_back("vm"), disk.bytes());
}

#[test]
fn repetition_within_a_disk_is_stored_once_and_text_is_compressed() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::empty(folder.path().join("disk.raw"), 64 * MIB);
    for copy in 0..8 {
        disk.put(copy * 8 * MIB, &text(1, 4 << 20));
    }
    agent.back_up("vm", &[disk.arg()]);
    let rows = agent.report();
    assert_eq!((rows[0].number("bytes"), rows[0].number("new_bytes")), (32 * MIB, 4 * MIB));
    let stored = rows[0].number("post_lc");
    assert!((2 * MIB..3 * MIB).contains(&stored), "4 bits a byte at best, but {stored} bytes were stored");
    assert_laws(&rows, server.data_dir());
}

#[test]
fn namespaces_share_nothing() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 10 << 20);
    for tenant in ["red", "blue"] {
        let agent = server.agent().with_token(&server.token(tenant, "backup", &[tenant]));
        agent.back_up("vm", &[disk.arg()]);
        let rows = agent.report();
        assert_eq!(rows.len(), 1, "a tenant sees its own runs only");
        assert_eq!(rows[0].text("namespace"), tenant);
        assert_eq!(rows[0].number("new_bytes"), 10 * MIB, "what others have is not known here");
    }
    assert_laws(&server.agent().report(), server.data_dir());
}
