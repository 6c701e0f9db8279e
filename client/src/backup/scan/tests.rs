use std::os::unix::fs::FileExt as _;

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1;

use super::*;
use crate::source::testing::MemorySource;
use crate::source::testing::image::{self, noise};
use crate::source::walk::ParentDisk;
use crate::source::{Content, RawDisk};

const EXTENT: usize = EXTENT_BYTES as usize;

/// A disk of five extents and a bit: noise, hole, few bytes, zeros written out, noise, a short one.
fn bytes() -> Vec<u8> {
    let mut bytes = vec![0; 5 * EXTENT + 1000];
    bytes[..EXTENT].copy_from_slice(&noise(1, EXTENT));
    bytes[2 * EXTENT + 700_000..][..5000].fill(9);
    bytes[4 * EXTENT..].copy_from_slice(&noise(2, EXTENT + 1000));
    bytes
}

/// The same, opened: sparse but for the zeros.
fn disk() -> (tempfile::NamedTempFile, Arc<RawDisk>) {
    let (file, _) = image::raw(&bytes());
    file.as_file().write_all_at(&vec![0; EXTENT], 3 * EXTENT as u64).unwrap();
    let disk = RawDisk::open("d", file.path()).unwrap();
    (file, Arc::new(disk))
}

fn digests() -> Vec<Fingerprint> {
    bytes().chunks(EXTENT).map(Fingerprint::of).collect()
}

fn parent_of(digests: &[Fingerprint]) -> ParentDigests {
    let (sender, blocks) = mpsc::channel(4);
    let digests: Vec<u8> = digests.iter().flat_map(|digest| *digest.as_bytes()).collect();
    if !digests.is_empty() {
        sender.try_send(Ok(v1::DigestBlock { first_extent: 0, digests: digests.into() })).unwrap();
    }
    ParentDigests::streamed(blocks)
}

fn start(disk: Arc<dyn Source>, walk: ExtentWalk, buffers: usize) -> (Scanner, mpsc::Receiver<Scanned>) {
    let pool = BufferPool::new(buffers, EXTENT);
    Scanner::start(disk, walk, ParentDigests::none(), pool, 4, Default::default()).unwrap()
}

fn first_error(mut results: mpsc::Receiver<Scanned>) -> ClientError {
    std::iter::from_fn(|| results.blocking_recv()).find_map(Result::err).expect("no error")
}

fn describe(result: &ScanResult) -> String {
    match result {
        ScanResult::Zero { first, count } => format!("zero {first}+{count}"),
        ScanResult::Accepted { first, count } => format!("accepted {first}+{count}"),
        ScanResult::Unchanged { index } => format!("unchanged {index}"),
        ScanResult::Changed(changed) => {
            let len: u32 = changed.pieces.iter().map(|piece| piece.len).sum();
            format!("changed {} {len} {}", changed.index, changed.digest.short())
        }
    }
}

/// Returns all results in order, and the bytes read.
fn scan(
    disk: Arc<dyn Source>,
    walk: ExtentWalk,
    parent: &[Fingerprint],
    buffers: usize,
) -> (Vec<String>, u64) {
    let pool = BufferPool::new(buffers, EXTENT);
    let (scanner, mut results) =
        Scanner::start(disk, walk, parent_of(parent), pool, 4, Default::default()).unwrap();
    let mut order = ReorderBuffer::default();
    let mut seen = Vec::new();
    while let Some(scanned) = results.blocking_recv() {
        let (sequence, result) = scanned.unwrap();
        order.put(sequence, result);
        seen.extend(std::iter::from_fn(|| order.take()).map(|result| describe(&result)));
        scanner.delivered(order.taken());
    }
    assert!(order.is_empty());
    (seen, scanner.read_bytes())
}

fn kinds(seen: &[String]) -> Vec<&str> {
    seen.iter().map(|line| line.split(' ').next().unwrap()).collect()
}

fn whole(disk: &dyn Source) -> ExtentWalk {
    ExtentWalk::new(disk, vec![v1::ExtentRange { first: 5, count: 0 }], None).unwrap()
}

#[test]
fn results_come_in_order_and_agree_with_the_bytes() {
    let (_file, disk) = disk();
    let digests = digests();
    let changed = |index: usize, len: usize| format!("changed {index} {len} {}", digests[index].short());
    let expected = [
        changed(0, EXTENT),
        "zero 1+1".into(),
        changed(2, EXTENT),
        "zero 3+1".into(),
        changed(4, EXTENT),
        changed(5, 1000),
    ];
    for buffers in [1, 2, 9] {
        let (seen, read) = scan(disk.clone(), whole(&*disk), &[], buffers);
        assert_eq!(seen, expected, "{buffers} buffers");
        assert!(read < 4 * EXTENT as u64, "{read}: holes within an extent are not read");
    }
}

#[test]
fn what_the_parent_has_is_not_cut() {
    let (_file, disk) = disk();
    let mut parent = digests();
    parent[4] = Fingerprint::UNKNOWN;
    parent.truncate(5);
    let (seen, _) = scan(disk.clone(), whole(&*disk), &parent, 3);
    assert_eq!(kinds(&seen), ["unchanged", "zero", "unchanged", "zero", "changed", "changed"]);
}

#[test]
fn tracked_extents_are_not_read_where_the_parent_is_sound() {
    let size = bytes().len() as u64;
    let disk = Arc::new(MemorySource::new(bytes()).tracking("01A", &[0..1000, 1000..size]));
    let walk = || {
        let parent = ParentDisk { backup_id: "01A", size_bytes: size };
        ExtentWalk::new(&*disk, Vec::new(), Some(parent)).unwrap()
    };
    let mut parent = digests();
    parent[1] = Fingerprint::ZERO;
    parent[4] = Fingerprint::UNKNOWN;
    let (seen, read) = scan(disk.clone(), walk(), &parent, 3);
    assert_eq!(kinds(&seen), ["unchanged", "zero", "unchanged", "unchanged", "changed", "unchanged"]);
    assert_eq!(read, EXTENT as u64, "only what the server has no digest of");
    let (seen, _) = scan(disk.clone(), walk(), &[], 3);
    assert_eq!(
        kinds(&seen),
        ["changed", "zero", "changed", "zero", "changed", "changed"],
        "no digests at all"
    );
}

#[test]
fn a_disk_that_shrinks_is_an_error_with_its_place() {
    let (file, disk) = image::raw(&noise(3, 3 * EXTENT));
    let disk = Arc::new(disk);
    let mut walk = ExtentWalk::new(&*disk, Vec::new(), None).unwrap();
    assert!(matches!(walk.next(&*disk).unwrap(), Some(Span::Read { index: 0, .. })));
    file.as_file().set_len(EXTENT as u64 + 100_000).unwrap();
    let (_scanner, results) = start(disk.clone(), walk, 3);
    let text = first_error(results).to_string();
    assert!(text.contains("changed size"), "{text}");
    assert!(disk.check_unchanged(0).is_err());
}

#[test]
fn a_read_error_names_disk_place_and_offset() {
    let disk = Arc::new(MemorySource::new(bytes()).unreadable_at(2 * EXTENT as u64 + 5));
    let (_scanner, results) = start(disk.clone(), whole(&*disk), 3);
    let text = first_error(results).to_string();
    for word in ["disk d", "memory", &(2 * EXTENT + 5).to_string(), "bad medium"] {
        assert!(text.contains(word), "no {word:?} in {text}");
    }
}

#[test]
fn a_panic_ends_the_scan_with_an_error() {
    let segments = vec![Segment { start: 0, end: EXTENT as u64, content: Content::Data }];
    let disk = Arc::new(MemorySource::new(bytes()).with_segments(segments));
    let (_scanner, results) = start(disk.clone(), whole(&*disk), 3);
    let error = first_error(results);
    assert!(matches!(error, ClientError::Internal("a reading thread panicked")), "{error}");
}

#[test]
#[should_panic(expected = "extent 7: Piece { offset: 5, len: 5, zero: false } at 0")]
fn pieces_that_do_not_cover_the_extent_are_a_defect() {
    let buffer = BufferPool::new(1, 10).take().unwrap();
    let pieces = vec![holdfast_proto::chunker::Piece { offset: 5, len: 5, zero: false }];
    drop(Changed::new(7, 10, Fingerprint::UNKNOWN, pieces, vec![Fingerprint::UNKNOWN], buffer));
}

#[test]
fn dropping_ends_threads_that_wait() {
    let (_file, disk) = disk();
    let (mut scanner, results) = start(disk.clone(), whole(&*disk), 1);
    let threads = std::mem::take(&mut scanner.threads);
    drop(scanner);
    for thread in threads {
        thread.join().unwrap();
    }
    drop(results);
}

fn buffer(sequences: &[u64]) -> ReorderBuffer {
    let mut buffer = ReorderBuffer::default();
    for &sequence in sequences {
        buffer.put(sequence, ScanResult::Unchanged { index: sequence });
    }
    buffer
}

#[test]
fn results_leave_in_order_and_only_when_due() {
    let mut buffer = buffer(&[2, 0, 1, 4]);
    let order: Vec<_> = std::iter::from_fn(|| buffer.take()).map(|result| result.extents().0).collect();
    assert_eq!(order, [0, 1, 2]);
    assert_eq!((buffer.taken(), buffer.is_empty()), (3, false));
}

#[test]
#[should_panic(expected = "scan result 1 came twice")]
fn a_result_that_comes_twice_is_a_defect() {
    drop(buffer(&[1, 1]));
}

#[test]
#[should_panic(expected = "but 0..256 are due")]
fn a_result_too_far_ahead_is_a_defect() {
    drop(buffer(&[256]));
}
