use holdfast_proto::limits::EXTENT_BYTES;

use super::*;
use crate::pool::BufferPool;

const SIZE_BYTES: u64 = 10 * EXTENT_BYTES as u64;

fn chunk(number: u64) -> Fingerprint {
    Fingerprint::of(&number.to_le_bytes())
}

fn extent(index: u64, chunks: &[Fingerprint]) -> v1::AgainExtent {
    let fingerprints: Vec<u8> = chunks.iter().flat_map(|chunk| *chunk.as_bytes()).collect();
    v1::AgainExtent { index, fingerprints: fingerprints.into() }
}

fn wire(extents: &[(u64, &[Fingerprint])]) -> v1::Again {
    v1::Again { extents: extents.iter().map(|(index, chunks)| extent(*index, chunks)).collect() }
}

fn refused(requests: &mut AgainRequests, wire: &v1::Again, word: &str) {
    let error = requests.check(wire).map(drop).unwrap_err();
    assert!(matches!(&error, ClientError::Protocol(text) if text.contains(word)), "{error}, not {word}");
}

/// An extent with a chunk of ten bytes for each of `chunks`.
fn changed(index: u64, chunks: &[Fingerprint]) -> ScanResult {
    let pieces: Vec<_> = (0u32..)
        .zip(chunks)
        .map(|(number, chunk)| holdfast_proto::chunker::Piece {
            offset: number * 10,
            len: 10,
            zero: chunk.is_zero(),
        })
        .collect();
    let len = pieces.iter().map(|piece| piece.len).sum();
    let buffer = BufferPool::new(1, len as usize).take().unwrap();
    ScanResult::Changed(Changed::new(index, len, Fingerprint::UNKNOWN, pieces, chunks.to_vec(), buffer))
}

#[test]
fn malformed_requests_are_refused() {
    let mut requests = AgainRequests::new(SIZE_BYTES);
    let many: Vec<_> = (0..=AGAIN_CHUNKS_MAX as u64).map(chunk).collect();
    let (one, other) = (&[chunk(1)][..], &[chunk(2)][..]);
    refused(&mut requests, &v1::Again::default(), "for 0 chunks");
    refused(&mut requests, &wire(&[(0, &many)]), "for 1025 chunks");
    refused(&mut requests, &wire(&[(0, &many[..512]), (1, &many[512..])]), "for 1025 chunks");
    refused(&mut requests, &wire(&[(10, one)]), "extent 10 again, of a disk that has 10");
    refused(&mut requests, &wire(&[(u64::MAX, one)]), "of a disk that has 10");
    refused(&mut requests, &wire(&[(3, one), (3, other)]), "extent 3 twice");
    refused(&mut requests, &wire(&[(4, &[]), (5, one)]), "0 bytes that name no chunks");
    refused(&mut requests, &wire(&[(4, &[Fingerprint::ZERO])]), "32 bytes that name no chunks");
    let ragged = v1::AgainExtent { index: 2, fingerprints: vec![1; 33].into() };
    refused(&mut requests, &v1::Again { extents: vec![ragged] }, "33 bytes that name no chunks");
    requests.check(&wire(&[(9, &many[1..])])).unwrap();
}

#[test]
fn requests_come_to_an_end() {
    let mut requests = AgainRequests::new(SIZE_BYTES);
    requests.check(&wire(&[(1, &[chunk(1), chunk(2)]), (7, &[chunk(2)])])).unwrap();
    refused(&mut requests, &wire(&[(7, &[chunk(3), chunk(2)])]), &chunk(2).short());
    // Other chunks each time: not more than ten extents have.
    let mut requests = AgainRequests::new(SIZE_BYTES);
    let next = |round: u64| (round * 1024..(round + 1) * 1024).map(chunk).collect::<Vec<_>>();
    for round in 0..10 {
        requests.check(&wire(&[(round, &next(round))])).unwrap();
    }
    refused(&mut requests, &wire(&[(0, &[chunk(u64::MAX)])]), "more chunks than the disk can have");
}

#[test]
fn everything_else_is_left_out() {
    let others = |indexes: &[u64]| {
        let extents: Vec<_> = indexes.iter().map(|index| extent(*index, &[chunk(100 + index)])).collect();
        let again = AgainRequests::new(SIZE_BYTES).check(&v1::Again { extents }).unwrap();
        assert_eq!(again.extents(), indexes.len());
        again.others(10).iter().map(|range| (range.first, range.count)).collect::<Vec<_>>()
    };
    assert_eq!(others(&[0]), [(1, 9)]);
    assert_eq!(others(&[9]), [(0, 9)]);
    assert_eq!(others(&[5, 2, 3]), [(0, 2), (4, 1), (6, 4)]);
    assert_eq!(others(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), []);
}

#[test]
fn exactly_what_is_asked_for_is_sent_once() {
    let [a, b, c, d] = [1, 2, 3, 4].map(chunk);
    let mut again = AgainRequests::new(SIZE_BYTES).check(&wire(&[(2, &[b, d]), (5, &[b, a])])).unwrap();
    let mut sent = Vec::new();
    let mut take = |again: &mut Again, result: &ScanResult| {
        again.take(result, |name, bytes| sent.push((name, bytes.len())))
    };
    take(&mut again, &ScanResult::Accepted { first: 0, count: 2 }).unwrap();
    take(&mut again, &changed(2, &[a, b, Fingerprint::ZERO, b, c, d])).unwrap();
    assert!(!again.is_done());
    take(&mut again, &changed(5, &[a, a, b])).unwrap();
    assert!(again.is_done());
    assert_eq!(sent, [(b, 10), (d, 10), (a, 10)]);
}

#[test]
fn what_is_no_longer_there_is_found() {
    let [a, b, c] = [1, 2, 3].map(chunk);
    let asked = || AgainRequests::new(SIZE_BYTES).check(&wire(&[(2, &[a]), (5, &[a, b])])).unwrap();
    let absent = |result: &ScanResult| asked().take(result, |_, _| panic!("sent")).unwrap_err();
    assert_eq!(absent(&changed(5, &[a, c])), Absent { extent: 5, chunk: b });
    assert_eq!(absent(&ScanResult::Zero { first: 1, count: 4 }), Absent { extent: 2, chunk: a });
    assert_eq!(absent(&ScanResult::Zero { first: 2, count: 1 }).extent, 2);
    let mut again = asked();
    again.take(&ScanResult::Zero { first: 3, count: 2 }, |_, _| panic!("sent")).unwrap();
    // Sent with extent 2, and yet extent 5 must have it.
    again.take(&changed(2, &[a]), |_, _| {}).unwrap();
    assert_eq!(again.take(&changed(5, &[b]), |_, _| panic!("sent")), Err(Absent { extent: 5, chunk: a }));
}
