use std::os::unix::fs::FileExt as _;

use super::*;
use crate::source::DiskArgument;
use holdfast_proto::v1;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// A sparse disk of five extents and a bit: noise, hole, few bytes, zeros written out, noise, a short one.
fn disk() -> (tempfile::NamedTempFile, Arc<SourceDisk>, Vec<u8>) {
    let extent = EXTENT_BYTES as usize;
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; 5 * extent + 1000];
    bytes[..extent].copy_from_slice(&noise(1, extent));
    bytes[2 * extent + 700_000..][..5000].fill(9);
    bytes[4 * extent..].copy_from_slice(&noise(2, extent + 1000));
    file.as_file().set_len(bytes.len() as u64).unwrap();
    for (at, len) in [(0, extent), (2 * extent + 700_000, 5000), (3 * extent, 2 * extent + 1000)] {
        file.as_file().write_all_at(&bytes[at..at + len], at as u64).unwrap();
    }
    let argument = DiskArgument { name: "d".into(), path: file.path().to_owned() };
    (file, Arc::new(SourceDisk::open(&argument).unwrap()), bytes)
}

fn scan(disk: &Arc<SourceDisk>, parent: &[Fingerprint], buffers: usize) -> (Vec<String>, u64) {
    let (sender, blocks) = mpsc::channel(4);
    let digests: Vec<u8> = parent.iter().flat_map(|digest| *digest.as_bytes()).collect();
    if !digests.is_empty() {
        sender.try_send(Ok(v1::DigestBlock { first_extent: 0, digests: digests.into() })).unwrap();
    }
    drop(sender);
    let walk = ExtentWalk::new(disk, vec![v1::ExtentRange { first: 5, count: 0 }]).unwrap();
    let pool = BufferPool::new(buffers, EXTENT_BYTES as usize);
    let parent = ParentDigests::streamed(blocks);
    let (scanner, mut findings) =
        Scanner::start(Arc::clone(disk), walk, parent, pool, 4, Arc::default()).unwrap();
    let mut order = InOrder::default();
    let mut seen = Vec::new();
    while let Some((sequence, finding)) = findings.blocking_recv() {
        order.put(sequence, finding.unwrap());
        while let Some(finding) = order.take() {
            seen.push(match finding {
                Finding::Zero { first, count } => format!("zero {first}+{count}"),
                Finding::Accepted { first, count } => format!("accepted {first}+{count}"),
                Finding::Unchanged { index } => format!("unchanged {index}"),
                Finding::Changed(changed) => {
                    let len: u32 = changed.pieces.iter().map(|piece| piece.len).sum();
                    format!("changed {} {len} {}", changed.index, changed.digest.short())
                }
            });
        }
        scanner.delivered(order.taken());
    }
    assert!(order.is_empty());
    (seen, scanner.read_bytes())
}

#[test]
fn findings_come_in_order_and_agree_with_the_bytes() {
    let (_file, disk, bytes) = disk();
    let digests: Vec<Fingerprint> = bytes.chunks(EXTENT_BYTES as usize).map(Fingerprint::of).collect();
    let changed = |index: usize, len: u32| format!("changed {index} {len} {}", digests[index].short());
    let full = EXTENT_BYTES;
    for buffers in [1, 2, 9] {
        let (seen, read) = scan(&disk, &[], buffers);
        assert_eq!(
            seen,
            [
                changed(0, full),
                "zero 1+1".into(),
                changed(2, full),
                "zero 3+1".into(),
                changed(4, full),
                changed(5, 1000)
            ],
            "{buffers} buffers"
        );
        assert!(read < 4 * u64::from(full), "{read}: holes within an extent are not read");
    }
}

#[test]
fn what_the_parent_has_is_not_cut() {
    let (_file, disk, bytes) = disk();
    let mut parent: Vec<Fingerprint> = bytes.chunks(EXTENT_BYTES as usize).map(Fingerprint::of).collect();
    parent[4] = Fingerprint::UNKNOWN;
    parent.truncate(5);
    let (seen, _) = scan(&disk, &parent, 3);
    let kinds: Vec<&str> = seen.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["unchanged", "zero", "unchanged", "zero", "changed", "changed"]);
}

#[test]
fn a_disk_that_shrinks_is_an_error_with_its_place() {
    let extent = u64::from(EXTENT_BYTES);
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().write_all_at(&noise(3, 3 * EXTENT_BYTES as usize), 0).unwrap();
    let argument = DiskArgument { name: "d".into(), path: file.path().to_owned() };
    let disk = Arc::new(SourceDisk::open(&argument).unwrap());
    let mut walk = ExtentWalk::new(&disk, Vec::new()).unwrap();
    assert_eq!(walk.next(&disk).unwrap(), Some(Span::Read { index: 0, solid: true }));
    file.as_file().set_len(extent + 100_000).unwrap();
    let pool = BufferPool::new(3, EXTENT_BYTES as usize);
    let (_scanner, mut findings) =
        Scanner::start(Arc::clone(&disk), walk, ParentDigests::none(), pool, 2, Arc::default()).unwrap();
    let found = std::iter::from_fn(|| findings.blocking_recv()).find_map(|(_, finding)| finding.err());
    let text = found.expect("extent 1 ends early").to_string();
    assert!(text.contains("changed its size"), "{text}");
    assert!(disk.check_unchanged(0).is_err());
}

#[test]
fn dropping_ends_threads_that_wait() {
    let (_file, disk, _) = disk();
    let walk = ExtentWalk::new(&disk, Vec::new()).unwrap();
    let pool = BufferPool::new(1, EXTENT_BYTES as usize);
    let (mut scanner, findings) =
        Scanner::start(disk, walk, ParentDigests::none(), pool, 4, Arc::default()).unwrap();
    let threads = std::mem::take(&mut scanner.threads);
    drop(scanner);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(findings);
}
