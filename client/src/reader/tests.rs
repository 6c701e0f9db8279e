//! A disk in memory behind the reader, in place of the session with a server.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use holdfast_proto::limits::EXTENT_BYTES;
use proptest::prelude::*;

use super::layout::Piece;
use super::*;

/// A disk that is answered from memory.
struct Fake {
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    /// Chunks sent so far.
    sent: AtomicUsize,
    layouts: AtomicUsize,
    /// Everything asked for fails.
    fails: AtomicBool,
}

impl Fake {
    /// A disk of pieces whose lengths and contents repeat, by a seed: half of them are chunks of seven kinds, and zeros.
    fn new(len: usize, seed: u64) -> Arc<Self> {
        let (mut bytes, mut pieces, mut state) = (Vec::new(), Vec::new(), seed | 1);
        while bytes.len() < len {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let kind = state >> 60;
            let start = bytes.len();
            // As chunks do, pieces end where their extent does.
            let room = (EXTENT_BYTES as usize - start % EXTENT_BYTES as usize).min(len - start);
            let size = (9_000 + 7_000 * (state >> 40 & 7) as usize).min(room);
            let fill = if kind % 2 == 0 { 0 } else { u8::try_from(kind).unwrap() };
            let piece: Vec<u8> =
                (0..size).map(|at| fill.wrapping_mul(u8::try_from(at % 251).unwrap())).collect();
            let content = if fill == 0 { Content::Zeros } else { Content::Chunk(Fingerprint::of(&piece)) };
            bytes.extend(piece);
            pieces.push(Piece { bytes: start as u64..bytes.len() as u64, content });
        }
        let (sent, layouts) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { bytes, pieces, sent, layouts, fails: AtomicBool::new(false) })
    }

    /// The disk, opened with a cache of `cache_bytes`.
    fn open(self: &Arc<Self>, cache_bytes: usize) -> OpenDisk {
        let store = Arc::new(Store::new(cache_bytes));
        self.open_in(&store, 0)
    }

    fn open_in(self: &Arc<Self>, store: &Arc<Store>, number: u32) -> OpenDisk {
        let (parts, mut receiver) = mpsc::channel::<Arc<Part>>(PARTS_MAX);
        let (fake, served) = (Arc::clone(self), Arc::clone(store));
        std::thread::spawn(move || {
            while let Some(part) = receiver.blocking_recv() {
                fake.answer(&part, &served);
            }
        });
        let size_bytes = self.bytes.len() as u64;
        OpenDisk { number, size_bytes, store: Arc::clone(store), parts, sequences: Mutex::default() }
    }

    fn answer(&self, part: &Part, store: &Store) {
        if self.fails.load(Ordering::SeqCst) {
            return part.end(store, Err("no restore point".into()));
        }
        let pieces = self
            .pieces
            .iter()
            .filter(|piece| piece.bytes.start < part.bytes.end && piece.bytes.end > part.bytes.start);
        if let Some(window) = part.window {
            let layout = Arc::new(Layout::of_pieces(pieces.cloned().collect()));
            self.layouts.fetch_add(1, Ordering::SeqCst);
            store.layouts.insert(window, Arc::clone(&layout), layout.memory_bytes());
            part.flight.layout(layout);
            return part.end(store, Ok(()));
        }
        let mut told = HashSet::new();
        for piece in pieces {
            let bytes = &self.bytes[small(piece.bytes.start)..small(piece.bytes.end)];
            if let Content::Chunk(fingerprint) = &piece.content
                && told.insert(*fingerprint)
            {
                self.sent.fetch_add(1, Ordering::SeqCst);
                store.chunks.insert(*fingerprint, bytes.into(), bytes.len());
                part.flight.chunk(*fingerprint, bytes.into());
            }
        }
        part.end(store, Ok(()));
    }
}

fn read(disk: &OpenDisk, offset: usize, len: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0xEE; len];
    disk.read_at(offset as u64, &mut buffer).map(|()| buffer)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn threads_read_what_the_disk_has_however_little_is_kept(
        len in 1usize..90_000_000, seed: u64, cache in prop::sample::select(vec![0usize, 60_000, 100_000_000]),
        reads in prop::collection::vec((any::<usize>(), 1usize..600_000), 1..40), sequential: bool,
    ) {
        let fake = Fake::new(len, seed);
        let disk = fake.open(cache);
        std::thread::scope(|scope| {
            for first in 0..3 {
                let (disk, fake, reads) = (&disk, &fake, &reads);
                scope.spawn(move || {
                    for (number, (offset, size)) in reads.iter().enumerate().skip(first) {
                        let offset = if sequential { number * 300_000 % len } else { offset % len };
                        let size = (*size).min(len - offset);
                        assert!(read(disk, offset, size).unwrap() == fake.bytes[offset..offset + size]);
                    }
                });
            }
        });
        let mut at = 0;
        while at < len {
            for extent in disk.extents(at as u64..len as u64).unwrap() {
                let next = at + small(extent.len);
                prop_assert_eq!(extent.zero, fake.bytes[at..next].iter().all(|byte| *byte == 0));
                at = next;
            }
        }
        // Nothing stays behind of what was under way, once the last answer was given.
        let idle = || disk.store.coming.lock().chunks.is_empty() && disk.store.coming.lock().layouts.is_empty();
        while !idle() {
            std::thread::yield_now();
        }
        prop_assert_eq!(disk.store.ahead_bytes.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn what_was_read_or_a_clone_has_is_not_fetched_again() {
    let fake = Fake::new(30_000_000, 7);
    let disk = fake.open(100 << 20);
    let all = read(&disk, 0, 30_000_000).unwrap();
    assert!(all == fake.bytes);
    let kinds: HashSet<Vec<u8>> = fake
        .pieces
        .iter()
        .filter(|piece| piece.content != Content::Zeros)
        .map(|piece| fake.bytes[small(piece.bytes.start)..small(piece.bytes.end)].to_vec())
        .collect();
    let sent = fake.sent.load(Ordering::SeqCst);
    assert_eq!(sent, kinds.len(), "each chunk once, however often the disk has it");
    assert!(disk.is_at_hand(0..30_000_000));
    let clone = fake.open_in(&disk.store, 1);
    assert!(!clone.is_at_hand(0..1), "its layout is not known");
    assert!(read(&clone, 0, 30_000_000).unwrap() == fake.bytes);
    assert!(read(&disk, 5, 1_000_000).unwrap() == fake.bytes[5..1_000_005]);
    assert_eq!((fake.sent.load(Ordering::SeqCst), fake.layouts.load(Ordering::SeqCst)), (sent, 2));
}

#[test]
fn what_fails_is_asked_for_again_by_a_later_read() {
    let fake = Fake::new(30_000_000, 9);
    let disk = fake.open(0);
    for _ in 0..2 {
        fake.fails.store(true, Ordering::SeqCst);
        let error = read(&disk, 100, 5_000_000).unwrap_err();
        assert!(error.to_string().contains("no restore point"), "{error}");
        fake.fails.store(false, Ordering::SeqCst);
        assert!(read(&disk, 100, 5_000_000).unwrap() == fake.bytes[100..5_000_100]);
    }
    assert!(read(&disk, 29_999_999, 2).is_err() && disk.read_at(u64::MAX, &mut [0; 2]).is_err());
    let (parts, _) = mpsc::channel(1);
    let ended =
        OpenDisk { parts, number: 7, store: Arc::clone(&disk.store), sequences: Mutex::default(), ..disk };
    assert!(read(&ended, 0, 1).is_err(), "reading has ended");
}
