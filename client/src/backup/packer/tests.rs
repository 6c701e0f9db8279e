#![expect(clippy::cast_possible_truncation, reason = "test disks are small")]

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::{
    EXTENT_BYTES, EXTENTS_PER_MESSAGE_MAX, QUERY_FINGERPRINTS_MAX, RANGES_PER_MESSAGE_MAX, REGION_CHUNKS_MAX,
    REGION_PLAIN_MAX_BYTES,
};
use proptest::prelude::*;

use super::*;
use crate::pool::BufferPool;
use crate::source::testing::image::noise;

/// A server as the protocol describes it: believes nothing it has not received.
#[derive(Default)]
struct Server {
    chunks: HashSet<Fingerprint>,
    extents: Vec<(u64, String)>,
    regions: Vec<usize>,
    received_twice: usize,
}

impl Server {
    fn need(&self, query: &v1::Query) -> v1::Need {
        let asked: Vec<_> = Fingerprint::split_list(&query.fingerprints).unwrap().collect();
        assert!(!asked.is_empty() && asked.len() <= QUERY_FINGERPRINTS_MAX);
        let mut bitmap = vec![0u8; asked.len().div_ceil(8)];
        for (index, _) in asked.iter().enumerate().filter(|(_, name)| !self.chunks.contains(name)) {
            bitmap[index / 8] |= 1 << (index % 8);
        }
        v1::Need { sequence: query.sequence, bitmap: bitmap.into(), ..v1::Need::default() }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Region(region) => {
                region.assert_whole();
                assert!(region.plain.len() <= REGION_PLAIN_MAX_BYTES as usize);
                assert!((1..=REGION_CHUNKS_MAX).contains(&region.lengths.len()));
                let mut rest = &region.plain[..];
                let names = Fingerprint::split_list(&region.fingerprints).unwrap();
                for (name, len) in names.zip(&region.lengths) {
                    let (chunk, tail) = rest.split_at(*len as usize);
                    assert_eq!(Fingerprint::of(chunk), name);
                    self.received_twice += usize::from(!self.chunks.insert(name));
                    rest = tail;
                }
                assert!(rest.is_empty());
                self.regions.push(region.plain.len());
            }
            Output::Extents(message) => {
                assert!(message.chunked.len() <= EXTENTS_PER_MESSAGE_MAX);
                assert!(message.unchanged.len() + message.zero.len() <= RANGES_PER_MESSAGE_MAX);
                for (ranges, kind) in [(&message.unchanged, "unchanged"), (&message.zero, "zero")] {
                    for range in ranges {
                        self.extents
                            .extend((range.first..range.first + range.count).map(|i| (i, kind.into())));
                    }
                }
                for extent in message.chunked {
                    let names: Vec<_> = Fingerprint::split_list(&extent.fingerprints).unwrap().collect();
                    for name in names.iter().filter(|name| !name.is_zero()) {
                        assert!(self.chunks.contains(name), "extent {} before its chunks", extent.index);
                    }
                    let digest = Fingerprint::from_slice(&extent.digest).unwrap();
                    self.extents.push((extent.index, digest.to_string()));
                }
            }
        }
    }
}

fn changed(pool: &BufferPool, index: u64, bytes: &[u8]) -> ScanResult {
    let pieces = Chunker::default().cut(bytes);
    let name = |p: &holdfast_proto::chunker::Piece| {
        if p.zero {
            Fingerprint::ZERO
        } else {
            Fingerprint::of(&bytes[p.offset as usize..][..p.len as usize])
        }
    };
    let fingerprints = pieces.iter().map(name).collect();
    let mut buffer = pool.take().unwrap();
    buffer[..bytes.len()].copy_from_slice(bytes);
    let len = bytes.len() as u32;
    ScanResult::Changed(Changed::new(index, len, Fingerprint::of(bytes), pieces, fingerprints, buffer))
}

/// Feeds results, letting `delay` queries stay unanswered, and returns the server.
fn run(results: Vec<ScanResult>, delay: usize, server: Server) -> Server {
    let mut server = server;
    let mut packer = Packer::new(Arc::default());
    let mut unanswered = VecDeque::new();
    let step = |packer: &mut Packer, server: &mut Server, open: &mut VecDeque<v1::Query>, flush: bool| {
        while let Some(query) = packer.take_query(flush) {
            open.push_back(query);
        }
        while open.len() > if flush { 0 } else { delay } {
            let query = open.pop_front().unwrap();
            packer.answer(&server.need(&query)).unwrap();
        }
        while let Some(output) = packer.take_output() {
            server.take(output);
        }
    };
    for result in results {
        packer.add(result);
        step(&mut packer, &mut server, &mut unanswered, false);
    }
    step(&mut packer, &mut server, &mut unanswered, true);
    assert!(packer.is_idle());
    packer.finish();
    step(&mut packer, &mut server, &mut unanswered, true);
    assert!(packer.needed.is_empty(), "everything needed was packed");
    server
}

#[test]
fn regions_are_filled_across_extents_and_nothing_is_sent_twice() {
    let pool = BufferPool::new(64, 200_000);
    let pieces: Vec<Vec<u8>> = (0..40).map(|seed| noise(seed % 20, 100_000)).collect();
    let results = (0..).zip(&pieces).map(|(index, bytes)| changed(&pool, index, bytes)).collect();
    let server = run(results, 3, Server::default());
    assert_eq!(server.received_twice, 0);
    assert_eq!(server.extents.len(), 40);
    assert_eq!(server.regions.iter().sum::<usize>(), 20 * 100_000);
    let full = server.regions.iter().rev().skip(1).all(|bytes| *bytes > 190_000);
    assert!(full, "all but the last region are full to within a chunk: {:?}", server.regions);
}

#[test]
fn what_the_server_has_is_not_sent() {
    let pool = BufferPool::new(4, 2_000_000);
    let bytes = noise(1, 2_000_000);
    let first = run(vec![changed(&pool, 0, &bytes)], 0, Server::default());
    let again = run(vec![changed(&pool, 0, &bytes)], 9, Server { chunks: first.chunks, ..Server::default() });
    assert!(again.regions.is_empty());
    assert_eq!(again.extents.len(), 1);
}

#[test]
fn ranges_are_joined_and_bounded() {
    let unchanged = (0..10_000).filter(|index| index % 3 != 0).map(|index| ScanResult::Unchanged { index });
    let zero = (0..10_000).step_by(3).map(|first| ScanResult::Zero { first, count: 1 });
    let mut results: Vec<ScanResult> = unchanged.chain(zero).collect();
    results.push(ScanResult::Zero { first: 10_000, count: 1 << 28 });
    let mut packer = Packer::new(Arc::default());
    results.into_iter().for_each(|result| packer.add(result));
    packer.finish();
    let mut ranges = 0;
    while let Some(output) = packer.take_output() {
        let Output::Extents(message) = output else { panic!("a region of nothing") };
        ranges += message.unchanged.len() + message.zero.len();
    }
    assert!((6_600..6_700).contains(&ranges), "pairs are joined: {ranges}");
}

#[test]
fn few_new_chunks_do_not_hold_up_extents_for_ever() {
    let pool = BufferPool::new(4, 100_000);
    let mut packer = Packer::new(Arc::default());
    let mut server = Server::default();
    for index in 0..300 {
        packer.add(changed(&pool, index, &noise(index, 300)));
        while let Some(query) = packer.take_query(true) {
            packer.answer(&server.need(&query)).unwrap();
        }
        while let Some(output) = packer.take_output() {
            server.take(output);
        }
        let waiting = index as usize + 1 - server.extents.len();
        assert!(waiting <= 128 + EXTENTS_PER_MESSAGE_MAX, "{waiting} extents wait");
    }
}

#[test]
fn answers_to_other_queries_are_refused() {
    let pool = BufferPool::new(1, 100_000);
    let mut packer = Packer::new(Arc::default());
    packer.add(changed(&pool, 0, &noise(1, 100_000)));
    let query = packer.take_query(true).unwrap();
    let right = Server::default().need(&query);
    let answer = |sequence, bytes: usize| v1::Need {
        sequence,
        bitmap: vec![0xFF; bytes].into(),
        ..v1::Need::default()
    };
    assert!(packer.answer(&answer(query.sequence + 1, right.bitmap.len())).is_err());
    assert!(packer.answer(&answer(query.sequence, right.bitmap.len() + 1)).is_err());
    assert!(packer.answer(&right).is_err(), "the query is closed by a wrong answer");
}

#[test]
#[should_panic(expected = "1 extents are not packed")]
fn finishing_with_an_extent_left_over_is_a_defect() {
    let pool = BufferPool::new(1, 100_000);
    let mut packer = Packer::new(Arc::default());
    packer.add(changed(&pool, 0, &noise(1, 100_000)));
    packer.finish();
}

#[test]
#[should_panic(expected = "a chunk of 65537 bytes")]
fn a_chunk_longer_than_the_contract_is_a_defect() {
    MessageBuilder::new(Arc::default()).chunk(Fingerprint::of(b"x"), &[0; 65_537]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever comes, in whatever rhythm: every extent is described once, after its chunks.
    #[test]
    fn any_disk_arrives(kinds in proptest::collection::vec((0u8..4, 0u64..6, 1usize..600_000), 1..40), delay in 0usize..6) {
        let pool = BufferPool::new(64, EXTENT_BYTES as usize);
        let mut expected = Vec::new();
        let results = (0u64..).zip(&kinds).map(|(index, (kind, seed, len))| match kind {
            0 => {
                expected.push((index, "zero".to_owned()));
                ScanResult::Zero { first: index, count: 1 }
            }
            1 => {
                expected.push((index, "unchanged".to_owned()));
                ScanResult::Unchanged { index }
            }
            _ => {
                let bytes = noise(*seed, *len);
                expected.push((index, Fingerprint::of(&bytes).to_string()));
                changed(&pool, index, &bytes)
            }
        }).collect();
        let mut server = run(results, delay, Server::default());
        server.extents.sort();
        prop_assert_eq!(server.extents, expected);
        prop_assert_eq!(server.received_twice, 0);
    }
}
