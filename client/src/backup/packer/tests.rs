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
use crate::backup::again::AgainRequests;
use crate::pool::BufferPool;
use crate::source::testing::image::noise;

/// A server as the protocol describes it: believes nothing it has not received.
#[derive(Default)]
struct Server {
    chunks: HashSet<Fingerprint>,
    /// Fingerprints that another stream is bringing.
    pending: HashSet<Fingerprint>,
    extents: Vec<(u64, String)>,
    /// Chunks of the chunked ones.
    named: Vec<(u64, Vec<Fingerprint>)>,
    regions: Vec<usize>,
    received_twice: usize,
}

impl Server {
    fn need(&self, query: &v1::Query) -> v1::Need {
        let asked: Vec<_> = Fingerprint::split_list(&query.fingerprints).unwrap().collect();
        assert!(!asked.is_empty() && asked.len() <= QUERY_FINGERPRINTS_MAX);
        let mut bitmaps = [vec![0u8; asked.len().div_ceil(8)], vec![0u8; asked.len().div_ceil(8)]];
        for (index, name) in asked.iter().enumerate().filter(|(_, name)| !self.chunks.contains(name)) {
            let bitmap = &mut bitmaps[usize::from(self.pending.contains(name))];
            bitmap[index / 8] |= 1 << (index % 8);
        }
        let [bitmap, pending] = bitmaps.map(Into::into);
        v1::Need { sequence: query.sequence, bitmap, pending }
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
                        let there = self.chunks.contains(name) || self.pending.contains(name);
                        assert!(there, "extent {} before its chunks", extent.index);
                    }
                    self.named.push((extent.index, names));
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

impl Server {
    /// Asks for what `broken` says will not come, as far as extents name it: for some chunks with one extent only.
    fn again(&mut self, broken: &HashSet<Fingerprint>) -> Option<v1::Again> {
        self.pending.retain(|name| !broken.contains(name));
        let mut asked: HashSet<Fingerprint> = HashSet::new();
        let mut extents = Vec::new();
        for (index, names) in &self.named {
            let lacking: Vec<_> = names.iter().filter(|name| broken.contains(name)).collect();
            let lacking: HashSet<_> = lacking
                .into_iter()
                .filter(|name| index % 2 == 0 || !asked.contains(*name))
                .copied()
                .collect();
            asked.extend(&lacking);
            let fingerprints: Vec<u8> = lacking.iter().flat_map(|name| *name.as_bytes()).collect();
            if !lacking.is_empty() {
                extents.push(v1::AgainExtent { index: *index, fingerprints: fingerprints.into() });
            }
        }
        (!extents.is_empty()).then_some(v1::Again { extents })
    }
}

/// Feeds results, letting `delay` queries stay unanswered, and returns the server.
fn run(results: Vec<ScanResult>, delay: usize, server: Server) -> Server {
    run_packer(results, delay, server).1
}

fn run_packer(results: Vec<ScanResult>, delay: usize, server: Server) -> (Packer, Server) {
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
    (packer, server)
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
    let answer =
        |sequence, bytes: usize| v1::Need { sequence, bitmap: vec![0xFF; bytes].into(), ..right.clone() };
    assert!(packer.answer(&answer(query.sequence + 1, right.bitmap.len())).is_err());
    assert!(packer.answer(&answer(query.sequence, right.bitmap.len() + 1)).is_err());
    assert!(packer.answer(&right).is_err(), "the query is closed by a wrong answer");
}

#[test]
fn answers_about_what_others_bring_must_make_sense() {
    let refused = |pending: fn(&[u8]) -> Vec<u8>, word: &str| {
        let pool = BufferPool::new(1, 100_000);
        let mut packer = Packer::new(Arc::default());
        packer.add(changed(&pool, 0, &noise(1, 100_000)));
        let need = Server::default().need(&packer.take_query(true).unwrap());
        let text = packer
            .answer(&v1::Need { pending: pending(&need.bitmap).into(), ..need })
            .unwrap_err()
            .to_string();
        assert!(text.contains(word), "{text}");
    };
    refused(|needed| vec![0; needed.len() + 1], "bytes");
    refused(|needed| vec![1; needed.len().min(1)], "both as needed and as brought by another backup");
}

#[test]
fn what_another_backup_brings_is_named_and_not_sent() {
    let pool = BufferPool::new(4, 2_000_000);
    let bytes = noise(1, 2_000_000);
    let there = run(vec![changed(&pool, 0, &bytes)], 0, Server::default()).chunks;
    let server = Server { pending: there.clone(), ..Server::default() };
    let server = run(vec![changed(&pool, 0, &bytes), changed(&pool, 1, &bytes)], 2, server);
    assert!(server.regions.is_empty());
    assert_eq!(server.extents.len(), 2);
    assert!(server.named.iter().all(|(_, names)| names.iter().all(|name| there.contains(name))));
}

#[test]
#[should_panic(expected = "chunks the server asked for again are not packed")]
fn finishing_without_what_is_asked_for_again_is_a_defect() {
    let mut packer = Packer::new(Arc::default());
    packer.finish();
    let extent = v1::AgainExtent { index: 0, fingerprints: vec![1; 32].into() };
    let again = AgainRequests::new(9).check(&v1::Again { extents: vec![extent] }).unwrap();
    packer.begin_again(again);
    packer.finish();
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

    /// Another backup brings some of the chunks and breaks off, twice: the server gets exactly what it then lacks.
    #[test]
    fn what_another_backup_does_not_bring_is_sent_when_asked_for(
        seeds in proptest::collection::vec((0u64..4, 1usize..300_000), 1..12),
        fates in proptest::collection::vec(0u8..4, 16),
        delay in 0usize..4,
    ) {
        let pool = BufferPool::new(64, EXTENT_BYTES as usize);
        let disk = || {
            (0u64..).zip(&seeds).map(|(index, (seed, len))| changed(&pool, index, &noise(*seed, *len))).collect::<Vec<_>>()
        };
        let all = run(disk(), 0, Server::default()).chunks;
        // 0: needed; 1: brought; 2 and 3: broken in the first and in the second round.
        let fate = |name: &Fingerprint| fates[usize::from(name.as_bytes()[31] % 16)];
        let of = |wanted: u8| all.iter().filter(|name| fate(name) == wanted).copied().collect::<HashSet<_>>();
        let pending = all.iter().filter(|name| fate(name) > 0).copied().collect();
        let (mut packer, mut server) = run_packer(disk(), delay, Server { pending, ..Server::default() });
        prop_assert_eq!(&server.chunks, &of(0));
        let described = server.extents.len();
        let mut requests = AgainRequests::new(64 * u64::from(EXTENT_BYTES));
        for round in [2, 3] {
            let Some(again) = server.again(&of(round)) else { continue };
            packer.begin_again(requests.check(&again).unwrap());
            for result in disk() {
                packer.add_again(&result).unwrap();
            }
            packer.finish();
            let sent: usize = server.regions.iter().sum();
            while let Some(output) = packer.take_output() {
                server.take(output);
            }
            prop_assert!(server.regions.iter().sum::<usize>() > sent);
        }
        server.pending.clear();
        prop_assert_eq!(server.chunks, all.difference(&of(1)).copied().collect::<HashSet<_>>());
        prop_assert_eq!(server.received_twice, 0);
        prop_assert_eq!(server.extents.len(), described, "extents are described once");
    }
}
