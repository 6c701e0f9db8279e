#![expect(clippy::cast_possible_truncation, reason = "test disks are small")]

use std::collections::HashMap;

use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::Encoder;
use holdfast_proto::{Fingerprint, v1};
use proptest::prelude::*;

use super::*;
use crate::end_to_end::Cipher;

/// A server: lays out a disk as windows of `window` extents, regions of up to 8 chunks.
pub(crate) fn serve(disk: &[u8], window: usize) -> Vec<v1::read_disk_response::Kind> {
    use v1::read_disk_response::Kind;
    let extent_bytes = EXTENT_BYTES as usize;
    let mut messages = vec![Kind::Header(v1::DiskHeader {
        size_bytes: disk.len() as u64,
        extent_bytes: EXTENT_BYTES,
        data_bytes: 0,
        key_id: String::new(),
    })];
    for (number, bytes) in disk.chunks(window * extent_bytes).enumerate() {
        let mut seen: HashMap<Fingerprint, u32> = HashMap::new();
        let mut chunks: Vec<&[u8]> = Vec::new();
        let mut layout = v1::Window { first_extent: (number * window) as u64, ..v1::Window::default() };
        for extent in bytes.chunks(extent_bytes) {
            let mut pieces = v1::ExtentLayout::default();
            for piece in Chunker::default().cut(extent) {
                let chunk = &extent[piece.offset as usize..][..piece.len as usize];
                if piece.zero {
                    pieces.refs.push(0);
                    pieces.zero_lengths.push(piece.len);
                    continue;
                }
                let next = seen.len() as u32 + 1;
                let reference = *seen.entry(Fingerprint::of(chunk)).or_insert(next);
                if reference == next {
                    chunks.push(chunk);
                }
                pieces.refs.push(reference);
            }
            if pieces.zero_lengths == [extent.len() as u32] {
                pieces = v1::ExtentLayout::default();
            }
            layout.extents.push(pieces);
        }
        let names: Vec<u8> = chunks.iter().flat_map(|chunk| *Fingerprint::of(chunk).as_bytes()).collect();
        layout.fingerprints = names.into();
        layout.lengths = chunks.iter().map(|chunk| chunk.len() as u32).collect();
        messages.push(Kind::Window(layout));
        let numbered: Vec<(u32, &[u8])> = (0u32..).zip(chunks.iter().copied()).collect();
        for pair in numbered.chunks(8) {
            let regions = pair.chunks(4).map(region).collect();
            messages.push(Kind::Regions(v1::Regions { regions }));
        }
        messages.push(Kind::WindowEnd(v1::WindowEnd {}));
    }
    messages
}

fn region(group: &[(u32, &[u8])]) -> v1::RegionData {
    let plain = group.iter().map(|(_, chunk)| *chunk).collect::<Vec<_>>().concat();
    let encoded = Encoder::new(1).unwrap().encode(&plain).unwrap();
    let mut offset = 0;
    let offsets = group.iter().map(|(_, chunk)| {
        offset += chunk.len() as u32;
        offset - chunk.len() as u32
    });
    v1::RegionData {
        codec: encoded.codec as u32,
        plain_bytes: encoded.plain_bytes,
        payload: encoded.payload.into(),
        offsets: offsets.collect(),
        chunks: group.iter().map(|(index, _)| *index).collect(),
    }
}

#[derive(Debug, Default)]
struct Memory(parking_lot::Mutex<Vec<u8>>);

impl Memory {
    fn put(&self, offset: u64, bytes: &[u8]) {
        self.0.lock()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    fn zero(&self, offset: u64, len: u64) {
        self.0.lock()[offset as usize..][..len as usize].fill(0);
    }
}

/// Follows messages as `Reader` does, on one thread.
fn restore(messages: Vec<v1::read_disk_response::Kind>, size: usize) -> Result<Vec<u8>, crate::ClientError> {
    use v1::read_disk_response::Kind;
    let memory = Memory(vec![0xEE; size].into());
    let mut assembler = Assembler::new(size as u64, 0);
    let (tools, stages) = Default::default();
    for message in messages {
        match message {
            Kind::Header(header) => assembler.header(&header)?,
            Kind::Window(window) => {
                for (offset, len) in &assembler.window(&window)?.zeros {
                    memory.zero(*offset, *len);
                }
            }
            Kind::Regions(batch) => {
                for region in assembler.regions(batch)? {
                    let put = |at, bytes: &[u8]| memory.put(at, bytes);
                    crate::restore::job::run(&region, ("d", true), (&Cipher::Plain, &tools), &stages, &put)?;
                }
            }
            Kind::Damaged(damaged) => drop(assembler.damaged(&damaged)?),
            Kind::WindowEnd(_) => drop(assembler.window_end()?),
            Kind::Queued(_) => {}
        }
    }
    assert!(assembler.is_complete());
    Ok(memory.0.into_inner())
}

pub(crate) fn sample() -> Vec<u8> {
    let mut disk = vec![0; (9 << 20) + 12_345];
    blake3::Hasher::new().finalize_xof().fill(&mut disk[100_000..1_500_000]);
    let copy = disk[4096..1_000_000].to_vec();
    disk[(4 << 20) + 4096..][..copy.len()].copy_from_slice(&copy);
    disk[(9 << 20)..].fill(7);
    disk
}

#[test]
fn a_disk_comes_back_bit_for_bit() {
    let disk = sample();
    for window in [1, 2, 16] {
        assert!(restore(serve(&disk, window), disk.len()).unwrap() == disk, "windows of {window}");
    }
    assert!(restore(serve(&[], 1), 0).unwrap().is_empty());
}

type Message = v1::read_disk_response::Kind;

fn window_of(messages: &mut [Message]) -> &mut v1::Window {
    messages.iter_mut().find_map(|m| if let Message::Window(w) = m { Some(w) } else { None }).unwrap()
}

fn batch_of(messages: &mut [Message]) -> &mut v1::Regions {
    messages.iter_mut().find_map(|m| if let Message::Regions(r) = m { Some(r) } else { None }).unwrap()
}

fn region_of(messages: &mut [Message]) -> &mut v1::RegionData {
    &mut batch_of(messages).regions[0]
}

type Lie = (&'static str, &'static str, Box<dyn Fn(&mut Vec<Message>)>);

/// Every lie a server can tell, and a word of the error it must cause.
#[test]
fn lies_about_the_layout_are_refused() {
    refuse(vec![
        ("no header", "header was due", Box::new(|m| drop(m.remove(0)))),
        ("two headers", "header", Box::new(|m| m.insert(1, m[0].clone()))),
        ("a skipped window", "was due", Box::new(|m| window_of(m).first_extent = 1)),
        (
            "too many extents",
            "window of 17",
            Box::new(|m| window_of(m).extents = vec![Default::default(); 17]),
        ),
        ("no extents", "window of 0", Box::new(|m| window_of(m).extents.clear())),
        ("past the disk", "4 extents", Box::new(|m| window_of(m).extents.push(Default::default()))),
        ("a ragged list", "chunks with", Box::new(|m| window_of(m).fingerprints = vec![0; 33].into())),
        ("a length missing", "lengths", Box::new(|m| window_of(m).lengths.truncate(1))),
        ("a chunk of nothing", "is 0 bytes", Box::new(|m| window_of(m).lengths[0] = 0)),
        ("a huge chunk", "bytes long", Box::new(|m| window_of(m).lengths[0] = u32::MAX)),
        ("a chunk not there", "does not have", Box::new(|m| window_of(m).extents[0].refs[1] = u32::MAX)),
        ("an extent too long", "longer", Box::new(|m| window_of(m).extents[0].refs.push(1))),
        ("an extent too short", "shorter", Box::new(|m| window_of(m).extents[1].refs.truncate(1))),
        ("a zero run of nothing", "or empty", Box::new(|m| window_of(m).extents[0].zero_lengths[0] = 0)),
        (
            "a zero run too many",
            "lengths of zeros",
            Box::new(|m| window_of(m).extents[0].zero_lengths.push(1)),
        ),
        ("a zero run missing", "no length", Box::new(|m| window_of(m).extents[0].zero_lengths.clear())),
        ("zeros without pieces", "no pieces", Box::new(|m| window_of(m).extents[0].refs.clear())),
        ("too many pieces", "too many", Box::new(|m| window_of(m).extents[0].refs = vec![1; 1025])),
        (
            "an unused chunk",
            "is not used",
            Box::new(|m| {
                let window = window_of(m);
                window.lengths.push(9);
                let list = [&window.fingerprints[..], &[9; 32]].concat();
                window.fingerprints = list.into();
            }),
        ),
    ]);
}

/// The same for what fills the layout.
#[test]
fn lies_about_what_arrives_are_refused() {
    refuse(vec![
        (
            "a region out of place",
            "window was due",
            Box::new(|m| {
                let batch = batch_of(m).clone();
                m.insert(1, Message::Regions(batch));
            }),
        ),
        (
            "an end out of place",
            "window was due",
            Box::new(|m| m.insert(1, Message::WindowEnd(v1::WindowEnd {}))),
        ),
        ("a window within a window", "was due", Box::new(|m| m.insert(2, m[1].clone()))),
        (
            "a chunk twice",
            "before",
            Box::new(|m| {
                let region = region_of(m).clone();
                batch_of(m).regions.push(region);
            }),
        ),
        ("a chunk of another window", "does not have", Box::new(|m| region_of(m).chunks[0] = 1 << 30)),
        ("lists that differ", "offsets", Box::new(|m| region_of(m).offsets.truncate(1))),
        (
            "no chunks",
            "0 chunks",
            Box::new(|m| {
                region_of(m).offsets.clear();
                region_of(m).chunks.clear();
            }),
        ),
    ]);
}

/// The same for what is in a region, and for the disk's header.
#[test]
fn lies_about_bytes_and_sizes_are_refused() {
    refuse(vec![
        ("an offset past the end", "past the region", Box::new(|m| region_of(m).offsets[0] = u32::MAX - 5)),
        ("a wrong offset", "hashes to", Box::new(|m| region_of(m).offsets[0] = 1)),
        ("an unknown codec", "codec 9", Box::new(|m| region_of(m).codec = 9)),
        ("a huge region", "limit", Box::new(|m| region_of(m).plain_bytes = u32::MAX)),
        (
            "a bomb",
            "decodes to",
            Box::new(|m| {
                region_of(m).codec = 1;
                region_of(m).payload = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap().into();
            }),
        ),
        (
            "a flipped bit",
            "extent 0",
            Box::new(|m| {
                let mut payload = region_of(m).payload.to_vec();
                let middle = payload.len() / 2;
                payload[middle] ^= 1;
                region_of(m).payload = payload.into();
            }),
        ),
        (
            "a region missing",
            "missing",
            Box::new(|m| {
                batch_of(m).regions.pop();
            }),
        ),
        ("no regions", "is empty", Box::new(|m| batch_of(m).regions.clear())),
        (
            "another size",
            "the disk has",
            Box::new(|m| {
                if let Message::Header(header) = &mut m[0] {
                    header.size_bytes += 1;
                }
            }),
        ),
        (
            "other extents",
            "the disk has",
            Box::new(|m| {
                if let Message::Header(header) = &mut m[0] {
                    header.extent_bytes = 1;
                }
            }),
        ),
    ]);
}

fn refuse(lies: Vec<Lie>) {
    let disk = sample();
    for (lie, word, tell) in lies {
        let mut messages = serve(&disk, 16);
        tell(&mut messages);
        let error = restore(messages, disk.len()).err().unwrap_or_else(|| panic!("{lie} was believed"));
        assert!(error.to_string().contains(word), "{lie}: {error}");
    }
}

/// The restored disk, and the ranges that were said to be bad.
fn restore_past_damage(messages: Vec<Message>, size: usize) -> (Vec<u8>, Vec<(u64, u64)>) {
    let memory = Memory(vec![0; size].into());
    let mut assembler = Assembler::new(size as u64, 0).past_damage(true);
    let mut bad = Vec::new();
    let (tools, stages) = Default::default();
    for message in messages {
        match message {
            Message::Header(header) => assembler.header(&header).unwrap(),
            Message::Window(window) => {
                bad.extend(
                    assembler.window(&window).unwrap().bad.iter().map(|range| (range.offset, range.len)),
                );
            }
            Message::Regions(batch) => {
                for region in assembler.regions(batch).unwrap() {
                    let put = |at, bytes: &[u8]| memory.put(at, bytes);
                    let how = (&Cipher::Plain, &tools);
                    if crate::restore::job::run(&region, ("d", true), how, &stages, &put).is_err() {
                        let ranges = crate::restore::job::run_past_damage(&region, how, &put).unwrap().0;
                        bad.extend(ranges.iter().map(|range| (range.offset, range.len)));
                    }
                }
            }
            Message::Damaged(damaged) => {
                let ranges = assembler.damaged(&damaged).unwrap();
                bad.extend(ranges.iter().map(|range| (range.offset, range.len)));
            }
            Message::WindowEnd(_) => drop(assembler.window_end().unwrap()),
            Message::Queued(_) => {}
        }
    }
    assert!(assembler.is_complete());
    (memory.0.into_inner(), bad)
}

/// Whichever way a server tells it, the disk is right everywhere but in the ranges that are named.
#[test]
fn what_is_damaged_is_named_and_the_rest_comes_back() {
    let disk = sample();
    let damage = || Some(v1::Damage { reason: "spoilt".into(), container: "0a".into() });
    let lost_region = |messages: &mut Vec<Message>| {
        let region = batch_of(messages).regions.remove(0);
        let chunks = region.chunks;
        messages.insert(2, Message::Damaged(v1::DamagedChunks { chunks, damage: damage() }));
    };
    let one_wrong_chunk = |messages: &mut Vec<Message>| {
        let region = region_of(messages);
        region.codec = 0;
        region.payload =
            zstd::bulk::decompress(&region.payload, 1 << 20).unwrap_or(region.payload.to_vec()).into();
        let mut plain = region.payload.to_vec();
        plain[5] ^= 1;
        region.payload = plain.into();
    };
    let lost_extent = |messages: &mut Vec<Message>| {
        let window = window_of(messages);
        window.extents[0] = v1::ExtentLayout { damage: damage(), ..Default::default() };
        window.extents[1] = Default::default();
        window.lengths.drain(..window.lengths.len() - 1);
        let last = window.fingerprints.len() - 32;
        window.fingerprints = window.fingerprints.slice(last..);
        messages.retain(|message| !matches!(message, Message::Regions(_)));
        messages.insert(2, Message::Damaged(v1::DamagedChunks { chunks: vec![0], damage: damage() }));
        window_of(messages).extents[2].refs.iter_mut().filter(|k| **k > 0).for_each(|k| *k = 1);
    };
    type Tell<'a> = &'a dyn Fn(&mut Vec<Message>);
    let cases: [(&str, Tell<'_>); 2] =
        [("a region that is lost", &lost_region), ("a chunk that is wrong", &one_wrong_chunk)];
    for (case, tell) in cases {
        let mut messages = serve(&disk, 16);
        tell(&mut messages);
        let (image, bad) = restore_past_damage(messages, disk.len());
        assert!(!bad.is_empty(), "{case}");
        let mut expected = disk.clone();
        for (offset, len) in &bad {
            expected[*offset as usize..][..*len as usize].fill(0);
        }
        assert!(image == expected && image != disk, "{case}: {bad:?}");
    }
    // Only who asked for it is told of damage.
    for tell in [&lost_region as &dyn Fn(&mut Vec<Message>), &lost_extent] {
        let mut messages = serve(&disk, 16);
        tell(&mut messages);
        let error = restore(messages, disk.len()).unwrap_err();
        assert!(matches!(error, crate::ClientError::Window(_)), "{error}");
    }
}

#[test]
fn damage_names_disk_extent_and_chunk() {
    let disk = sample();
    let mut messages = serve(&disk, 16);
    let name = Fingerprint::from_slice(&window_of(&mut messages).fingerprints[..32]).unwrap();
    region_of(&mut messages).offsets[0] = 1;
    let error = restore(messages, disk.len()).unwrap_err();
    assert_eq!(error.exit_code(), 5);
    let text = error.to_string();
    assert!(
        text.contains("\"d\"") && text.contains("extent 0") && text.contains(&name.to_string()),
        "{text}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_disk_comes_back(size in 0usize..10_000_000, window in 1usize..5,
                           runs in proptest::collection::vec((0usize..10_000_000, 1usize..2_000_000, any::<u8>()), 0..6)) {
        let mut disk = vec![0; size];
        for (start, len, seed) in runs {
            let (start, end) = (start.min(size), (start + len).min(size));
            blake3::Hasher::new().update(&[seed % 4]).finalize_xof().fill(&mut disk[start..end]);
        }
        prop_assert!(restore(serve(&disk, window), size).unwrap() == disk);
    }
}
