use std::collections::HashSet;

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::{Chunker, is_zero};
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::{DEFAULT_LEVEL, Encoder};

use super::*;
use crate::estimate::variant::{Cutter, cutters};
use crate::progress::Silent;
use crate::source::testing::MemorySource;
use crate::source::testing::image::noise;

/// Text-like bytes that compress.
fn text(seed: u64, len: usize) -> Vec<u8> {
    noise(seed, len).into_iter().map(|byte| b"etaoin shrdlu\n--"[usize::from(byte % 16)]).collect()
}

/// Two disks that share an "operating system", at different places, with holes.
fn disks() -> Vec<Vec<u8>> {
    let system = text(1, 6_000_000);
    let mut first = vec![0; 30 << 20];
    first[1 << 20..][..system.len()].copy_from_slice(&system);
    first[(20 << 20) + 77..][..3_000_000].copy_from_slice(&noise(2, 3_000_000));
    let mut second = vec![0; (18 << 20) + 4321];
    second[(4 << 20) + 4096..][..system.len()].copy_from_slice(&system);
    second[(17 << 20)..].fill(5);
    vec![first, second]
}

fn open(images: &[Vec<u8>]) -> Vec<Arc<dyn Source>> {
    let open = |(number, bytes): (usize, &Vec<u8>)| -> Arc<dyn Source> {
        Arc::new(MemorySource::sparse(bytes.clone()).named(&format!("disk{number}")))
    };
    images.iter().enumerate().map(open).collect()
}

fn options(share: f64) -> EstimateOptions {
    EstimateOptions { levels: vec![1, DEFAULT_LEVEL], share, threads: Some(2) }
}

/// All chunks of a disk, the plain way.
fn chunks_of(cutter: Cutter, disk: &[u8]) -> Vec<&[u8]> {
    let extents = disk.chunks(EXTENT_BYTES as usize);
    match cutter {
        Cutter::Fixed(block) => disk.chunks(block).filter(|chunk| !is_zero(chunk)).collect(),
        Cutter::Extent(chunker) => extents
            .flat_map(|extent| {
                let pieces = chunker.cut(extent).into_iter().filter(|piece| !piece.zero);
                pieces.map(|p| &extent[p.offset as usize..][..p.len as usize]).collect::<Vec<_>>()
            })
            .collect(),
        // Spans between the runs of zeros of every extent, in one piece each.
        Cutter::Long(bounds) => {
            let mut spans: Vec<(usize, usize)> = Vec::new();
            for (number, extent) in extents.enumerate() {
                for piece in Chunker::default().cut(extent).into_iter().filter(|piece| !piece.zero) {
                    let start = number * EXTENT_BYTES as usize + piece.offset as usize;
                    let end = start + piece.len as usize;
                    match spans.last_mut().filter(|(_, to)| *to == start) {
                        Some((_, to)) => *to = end,
                        None => spans.push((start, end)),
                    }
                }
            }
            let mut chunks = Vec::new();
            for (start, end) in spans {
                let mut from = start;
                for to in bounds.ends(&disk[start..end]).map(|to| start + to) {
                    chunks.push(&disk[from..to]);
                    from = to;
                }
            }
            chunks
        }
    }
}

fn distinct(cutter: Cutter, disks: &[&[u8]]) -> (u64, u64) {
    let mut seen = HashSet::new();
    let all = disks.iter().flat_map(|disk| chunks_of(cutter, disk));
    let new: Vec<_> = all.filter(|chunk| seen.insert(Fingerprint::of(chunk))).collect();
    (new.len() as u64, new.iter().map(|chunk| chunk.len() as u64).sum())
}

#[test]
fn deduplication_is_what_brute_force_says() {
    let images = disks();
    let sources = open(&images);
    let found = estimate(&sources, &options(1.0), &Silent, &Cancel::never()).unwrap();
    let scopes: [(Option<&str>, Vec<&[u8]>); 3] = [
        (Some("disk0"), vec![&images[0]]),
        (Some("disk1"), vec![&images[1]]),
        (None, vec![&images[0], &images[1]]),
    ];
    for (name, _, cutter) in cutters() {
        for (disk, images) in &scopes {
            let mut all = found.figures.iter();
            let figures = all.find(|f| f.variant == name && f.disk.as_deref() == *disk).unwrap();
            let (count, bytes) = distinct(cutter, images);
            assert_eq!(
                (figures.new_chunks, figures.new_bytes),
                (count, Estimated::exact(bytes)),
                "{name} {disk:?}"
            );
            let chunks: usize = images.iter().map(|image| chunks_of(cutter, image).len()).sum();
            assert_eq!(figures.chunks, chunks as u64, "{name} {disk:?}");
        }
    }
    assert_eq!(found.figures.len(), 3 * cutters().len());
}

#[test]
fn the_production_variant_is_compressed_completely() {
    let images = disks();
    let sources = open(&images[..1]);
    let found = estimate(&sources, &options(1.0), &Silent, &Cancel::never()).unwrap();
    let figures = found.figures.iter().find(|figures| figures.production).unwrap();
    let cutter = cutters().into_iter().find(|(name, ..)| *name == figures.variant).unwrap().2;
    // Greedy regions, as the packer fills them.
    let (mut seen, mut regions) = (HashSet::new(), vec![Vec::new()]);
    let (mut encoder, mut fast) = (Encoder::new(DEFAULT_LEVEL).unwrap(), Encoder::new(1).unwrap());
    for chunk in chunks_of(cutter, &images[0]) {
        if !seen.insert(Fingerprint::of(chunk)) {
            continue;
        }
        if regions.last().unwrap().len() + chunk.len() > 256 << 10 {
            regions.push(Vec::new());
        }
        regions.last_mut().unwrap().extend_from_slice(chunk);
    }
    let stored: usize = regions.iter().map(|plain| encoder.encode(plain).unwrap().payload.len()).sum();
    let default = figures.levels.iter().find(|level| level.level == DEFAULT_LEVEL).unwrap();
    assert_eq!(default.stored_bytes, Estimated::exact(stored as u64));
    assert_eq!(default.measured_bytes, figures.new_bytes.value);
    let level1 = figures.levels.iter().find(|level| level.level == 1).unwrap();
    assert!(!level1.stored_bytes.is_exact() && level1.measured_bytes < default.measured_bytes / 8);
    let truth: usize = regions.iter().map(|plain| fast.encode(plain).unwrap().payload.len()).sum();
    let off = level1.stored_bytes.value.abs_diff(truth as u64);
    assert!(
        off <= 2 * level1.stored_bytes.margin.unwrap().max(truth as u64 / 100),
        "off by {off} of {truth}"
    );
}

#[test]
fn a_sample_is_near_and_says_how_near() {
    let images = disks();
    let sources = open(&images);
    let whole = estimate(&sources, &options(1.0), &Silent, &Cancel::never()).unwrap();
    let part = estimate(&sources, &options(0.3), &Silent, &Cancel::never()).unwrap();
    for (whole, part) in whole.figures.iter().zip(&part.figures).filter(|(whole, _)| whole.new_chunks > 300) {
        let margin = part.new_bytes.margin.unwrap();
        let off = part.new_bytes.value.abs_diff(whole.new_bytes.value);
        assert!(margin > 0 && off <= 2 * margin, "{}: off by {off}, margin {margin}", whole.variant);
        assert_eq!(part.chunks, whole.chunks, "what is counted anyway stays exact");
    }
}

#[test]
fn an_empty_disk_has_no_factors() {
    let sources = open(&[vec![0; 9 << 20]]);
    let found = estimate(&sources, &options(1.0), &Silent, &Cancel::never()).unwrap();
    assert_eq!(found.disks[0].data_bytes, 0);
    for figures in &found.figures {
        assert_eq!((figures.chunks, figures.dedupe_factor), (0, None));
        assert!(figures.levels.iter().all(|level| level.total_factor.is_none()));
    }
}
