//! Contents and order of writes, and effects of failures: over every order in which regions may arrive.

use std::sync::atomic::AtomicUsize;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1::{self, read_disk_response::Kind};
use parking_lot::Condvar;
use proptest::prelude::*;

use super::super::super::window::Assembler;
use super::super::super::window::tests::{sample, serve};
use super::super::*;
use super::EXTENTS_MAX;
use crate::progress::Silent;

/// Keeps what is written, and which bytes those are; fails and waits as told.
#[derive(Debug, Default)]
struct Recorder {
    state: Mutex<Recorded>,
    changed: Condvar,
    fails_with: Option<i32>,
}

#[derive(Debug, Default)]
struct Recorded {
    bytes: Vec<u8>,
    /// 1 for each byte written, 2 for each byte made zero.
    marks: Vec<u8>,
    offsets: Vec<u64>,
    /// Writes may not go on.
    held: bool,
    writes_begun: usize,
    /// Zeros may not go on.
    zeros_held: bool,
    zeros_begun: usize,
}

impl Recorder {
    fn new(size: usize) -> Self {
        let recorded = Recorded { bytes: vec![0; size], marks: vec![0; size], ..Recorded::default() };
        Self { state: recorded.into(), ..Self::default() }
    }

    fn hold(&self, held: bool) {
        self.state.lock().held = held;
        self.changed.notify_all();
    }

    fn wait_for_write(&self) {
        let mut state = self.state.lock();
        while state.writes_begun == 0 {
            self.changed.wait(&mut state);
        }
    }

    fn hold_zeros(&self, held: bool) {
        self.state.lock().zeros_held = held;
        self.changed.notify_all();
    }

    fn wait_for_zeros(&self) {
        let mut state = self.state.lock();
        while state.zeros_begun == 0 {
            self.changed.wait(&mut state);
        }
    }

    fn mark(&self, offset: u64, len: usize, mark: u8) {
        let mut state = self.state.lock();
        let at = usize::try_from(offset).unwrap();
        assert!(state.marks[at..][..len].iter().all(|&known| known == 0), "{len} bytes at {at} twice");
        state.marks[at..][..len].fill(mark);
    }
}

impl Target for Recorder {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        {
            let mut state = self.state.lock();
            state.writes_begun += 1;
            self.changed.notify_all();
            while state.held {
                self.changed.wait(&mut state);
            }
            state.offsets.push(offset);
            let at = usize::try_from(offset).unwrap();
            state.bytes[at..][..bytes.len()].copy_from_slice(bytes);
        }
        if let Some(code) = self.fails_with {
            let source = std::io::Error::from_raw_os_error(code);
            return Err(ClientError::File { what: "writing", path: "disk.raw".into(), source });
        }
        self.mark(offset, bytes.len(), 1);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        {
            let mut state = self.state.lock();
            state.zeros_begun += 1;
            self.changed.notify_all();
            while state.zeros_held {
                self.changed.wait(&mut state);
            }
        }
        self.mark(offset, usize::try_from(len).unwrap(), 2);
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        Ok(())
    }
}

fn jobs(target: &Arc<Recorder>, on_damage: OnDamage) -> Arc<Jobs> {
    jobs_that_check(target, on_damage, false)
}

fn jobs_that_check(target: &Arc<Recorder>, on_damage: OnDamage, by_chunk: bool) -> Arc<Jobs> {
    let pool = Arc::new(DecodePool::new(Some(3), Cipher::Plain).unwrap());
    Jobs::new(pool, ("d", by_chunk), Arc::<Recorder>::clone(target), on_damage, Arc::new(Silent), EXTENTS_MAX)
}

/// Follows messages as `Reader` does, up to the first failure.
async fn follow(jobs: &Arc<Jobs>, messages: Vec<Kind>, size: usize) -> Result<(), ClientError> {
    match follow_on(jobs, messages, size).await {
        Err(error) => Err(jobs.ended_by(error).await),
        Ok(()) => jobs.finish().await,
    }
}

async fn follow_on(jobs: &Arc<Jobs>, messages: Vec<Kind>, size: usize) -> Result<(), ClientError> {
    let mut assembler = Assembler::new(size as u64, 0).past_damage(jobs.on_damage.goes_on());
    for message in messages {
        match message {
            Kind::Queued(_) => {}
            Kind::Header(header) => assembler.header(&header)?,
            Kind::Window(window) => jobs.begin_window(assembler.window(&window)?).await?,
            Kind::Regions(batch) => {
                for region in assembler.regions(batch)? {
                    jobs.submit(region, &Arc::default()).await?;
                }
            }
            Kind::Damaged(damaged) => jobs.give_up_all(assembler.damaged(&damaged)?).await?,
            Kind::WindowEnd(_) => {
                let plan = assembler.window_end()?;
                jobs.end_window(&plan).await?;
            }
        }
    }
    Ok(())
}

/// The regions of each window in another order.
fn shuffle(messages: &mut [Kind], seed: u64) {
    let mut key = seed;
    let mut next = || {
        key = key.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        key >> 33
    };
    for window in
        messages.chunk_by_mut(|one, other| matches!((one, other), (Kind::Regions(_), Kind::Regions(_))))
    {
        window.sort_by_cached_key(|_| next());
    }
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn digests(disk: &[u8], messages: &mut [Kind]) {
    for message in messages {
        let Kind::Window(window) = message else { continue };
        let first = usize::try_from(window.first_extent).unwrap();
        for (number, layout) in window.extents.iter_mut().enumerate() {
            let extent = disk.chunks(EXTENT_BYTES as usize).nth(first + number).unwrap();
            if !layout.refs.is_empty() {
                layout.digest = Fingerprint::of(extent).as_bytes().to_vec().into();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    /// In whatever order regions come: every byte of data is written once, zeros are not, and digests hold.
    #[test]
    fn any_order_makes_the_same_disk(
        seed: u64, window in 1usize..4, size in 1usize..20_000_000,
        runs in proptest::collection::vec((0usize..20_000_000, 1usize..3_000_000, any::<u8>()), 0..6),
    ) {
        let mut disk = vec![0; size];
        for (start, len, seed) in runs {
            let (start, end) = (start.min(size), (start + len).min(size));
            blake3::Hasher::new().update(&[seed % 4]).finalize_xof().fill(&mut disk[start..end]);
        }
        let mut messages = serve(&disk, window);
        shuffle(&mut messages, seed);
        digests(&disk, &mut messages);
        let target = Arc::new(Recorder::new(size));
        let jobs = jobs(&target, OnDamage::End);
        block_on(follow(&jobs, messages, size)).unwrap();
        prop_assert_eq!(jobs.false_digests(), (0, vec![]));
        let state = target.state.lock();
        prop_assert!(state.bytes == disk);
        prop_assert!(!state.marks.contains(&0));
        let data = state.marks.iter().filter(|&&mark| mark == 1).count();
        prop_assert_eq!(jobs.written_bytes(), data as u64);
    }
}

/// Data without a hole: as few writes as there may be, the lowest extent of those that wait first.
#[test]
fn extents_are_written_whole_and_in_order() {
    let extent = EXTENT_BYTES as usize;
    let mut disk = vec![0; 6 * extent];
    blake3::Hasher::new().finalize_xof().fill(&mut disk);
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::End);
    // The writer is kept at the first extent that is whole until all of them are.
    target.hold(true);
    let released = Arc::clone(&target);
    let waiting = Arc::clone(&jobs);
    let observer = std::thread::spawn(move || {
        while waiting.permits.available_permits() < usize::from(waiting.pool.jobs_max)
            || waiting.writes.waiting() < 5
        {
            std::thread::yield_now();
        }
        released.hold(false);
    });
    let mut messages = serve(&disk, 16);
    let end = messages.len() - 1;
    messages[2..end].reverse();
    block_on(follow(&jobs, messages, disk.len())).unwrap();
    observer.join().unwrap();
    let state = target.state.lock();
    assert!(state.bytes == disk);
    assert_eq!(state.offsets.len(), 6);
    let later = &state.offsets[1..];
    assert!(later.is_sorted(), "{later:?}");
}

#[test]
fn a_failed_write_is_reported_and_ends_the_rest() {
    let disk = sample();
    for (code, word) in [(28, "No space left"), (5, "Input/output error")] {
        let target = Arc::new(Recorder { fails_with: Some(code), ..Recorder::new(disk.len()) });
        let jobs = jobs(&target, OnDamage::End);
        let error = block_on(follow(&jobs, serve(&disk, 1), disk.len())).unwrap_err();
        assert!(matches!(&error, ClientError::File { source, .. } if source.raw_os_error() == Some(code)));
        assert!(error.to_string().contains(word), "{error}");
        assert!(error.to_string().contains("disk.raw"), "{error}");
    }
}

/// A disk longer than all the room there is, of which nothing can be written: the window that waits for room learns
/// of the failure.
#[test]
fn a_window_that_waits_for_room_does_not_outlive_a_failure() {
    let mut disk = vec![0; (EXTENTS_MAX + 20) * EXTENT_BYTES as usize];
    for extent in disk.chunks_mut(EXTENT_BYTES as usize) {
        extent[..20_000].fill(7);
    }
    let target = Arc::new(Recorder { fails_with: Some(28), ..Recorder::new(disk.len()) });
    let jobs = jobs(&target, OnDamage::End);
    let error = block_on(follow(&jobs, serve(&disk, 16), disk.len())).unwrap_err();
    assert!(matches!(error, ClientError::File { .. }), "{error}");
}

#[test]
fn what_is_in_memory_is_bounded_and_a_slow_target_stops_the_stream() {
    let mut disk = vec![0; (EXTENTS_MAX + 20) * EXTENT_BYTES as usize];
    for extent in disk.chunks_mut(EXTENT_BYTES as usize) {
        extent[..20_000].fill(7);
    }
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::End);
    target.hold(true);
    let begun = Arc::new(AtomicUsize::new(0));
    let (watched, released, counted) = (Arc::clone(&jobs), Arc::clone(&target), Arc::clone(&begun));
    let observer = std::thread::spawn(move || {
        // Two windows of 16 have all the room; all that can be whole is.
        while watched.writes.waiting() < EXTENTS_MAX - 1 {
            std::thread::yield_now();
        }
        counted.store(watched.room.available_permits(), Ordering::SeqCst);
        released.hold(false);
    });
    block_on(follow(&jobs, serve(&disk, 16), disk.len())).unwrap();
    observer.join().unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 0, "no room was left while nothing was written");
    assert_eq!(jobs.room.available_permits(), EXTENTS_MAX, "all of it was given back");
    assert!(target.state.lock().bytes == disk);
}

#[test]
fn what_is_cancelled_is_not_written() {
    let disk = sample();
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::End);
    target.hold(true);
    let mut messages = serve(&disk, 1);
    let rest = messages.split_off(messages.len() - 1);
    drop(rest);
    block_on(async {
        let following = follow(&jobs, messages, disk.len());
        tokio::select! {
            biased;
            () = async {
                let written = Arc::clone(&target);
                tokio::task::spawn_blocking(move || written.wait_for_write()).await.unwrap();
            } => {}
            done = following => panic!("{done:?} although nothing was written"),
        }
        jobs.stop();
        target.hold(false);
        drop(jobs.drain().await);
    });
    assert_eq!(target.state.lock().offsets.len(), 1, "only what was being written");
    assert_eq!(Arc::strong_count(&jobs), 1, "the target is let go of");
}

/// Interrupted while a window's zeros are written: the end waits for those being written, and no more are.
#[test]
fn what_is_cancelled_is_not_made_zero_and_no_one_holds_the_target_afterwards() {
    let disk = sample();
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::Zero);
    target.hold_zeros(true);
    let waited = block_on(async {
        let following = follow_on(&jobs, serve(&disk, 16), disk.len());
        tokio::select! {
            biased;
            () = async {
                let zeroed = Arc::clone(&target);
                tokio::task::spawn_blocking(move || zeroed.wait_for_zeros()).await.unwrap();
            } => {}
            done = following => panic!("{done:?} although nothing was made zero"),
        }
        let mut ended = std::pin::pin!(jobs.ended_by(ClientError::Interrupted));
        let waits = tokio::select! {
            biased;
            _ = &mut ended => false,
            () = std::future::ready(()) => true,
        };
        target.hold_zeros(false);
        if waits {
            drop(ended.await);
            assert_eq!(Arc::strong_count(&jobs), 1, "the target is let go of");
            let range = BadRange::said(0, 512, &v1::Damage::default());
            assert!(jobs.give_up_all(vec![range]).await.is_err());
        }
        waits
    });
    assert!(waited, "zeros were still being written");
    assert_eq!(target.state.lock().zeros_begun, 1);
}

/// A bad range of an extent that is read again may be sound in another copy.
#[test]
fn bad_ranges_of_what_is_read_again_are_forgotten() {
    let extent = u64::from(EXTENT_BYTES);
    let jobs = jobs(&Arc::new(Recorder::new(1)), OnDamage::Skip);
    for offset in [extent - 512, extent, 2 * extent - 512, 2 * extent, 7 * extent] {
        jobs.bad.add(BadRange::said(offset, 512, &v1::Damage::default()));
    }
    jobs.refused.add(1, [0; 32]);
    jobs.refused.add(7, [0; 32]);
    assert_eq!(block_on(jobs.take_again()).unwrap(), BTreeSet::from([1, 7]));
    let left: Vec<u64> = jobs.bad_ranges().iter().map(|range| range.offset).collect();
    assert_eq!(left, [extent - 512, 2 * extent]);
}

/// Alters a byte of the first chunk that the server sends.
fn spoil(messages: &mut [Kind]) {
    let region = messages.iter_mut().find_map(|message| match message {
        Kind::Regions(batch) => batch.regions.first_mut(),
        _ => None,
    });
    let region = region.unwrap();
    let mut plain = zstd::bulk::decompress(&region.payload, 1 << 20).unwrap_or(region.payload.to_vec());
    plain[5] ^= 1;
    (region.codec, region.payload) = (0, plain.into());
}

/// A chunk that is not what its fingerprint says is never written, whatever proves it; where that ends the restore, the
/// error names it.
#[test]
fn nothing_unchecked_is_written() {
    let disk = sample();
    let mut messages = serve(&disk, 16);
    spoil(&mut messages);
    let mut with_digests = messages.clone();
    digests(&disk, &mut with_digests);
    let mut with_loss = with_digests.clone();
    let place = with_loss.iter().position(|message| matches!(message, Kind::Regions(_))).unwrap();
    let Kind::Regions(batch) = &mut with_loss[place] else { unreachable!() };
    let (chunks, damage) = (batch.regions.remove(1).chunks, Some(v1::Damage::default()));
    with_loss.insert(place + 1, Kind::Damaged(v1::DamagedChunks { chunks, damage }));
    for on_damage in [OnDamage::End, OnDamage::Zero, OnDamage::Skip] {
        for (served, by_chunk) in [
            (&messages, false),
            (&messages, true),
            (&with_digests, false),
            (&with_digests, true),
            (&with_loss, false),
        ] {
            if std::ptr::eq(served, &with_loss) && on_damage == OnDamage::End {
                continue;
            }
            let target = Arc::new(Recorder::new(disk.len()));
            let jobs = jobs_that_check(&target, on_damage, by_chunk);
            let outcome = block_on(follow(&jobs, served.clone(), disk.len()));
            assert_eq!(outcome.is_err(), on_damage == OnDamage::End, "{outcome:?}");
            if let Err(error) = outcome {
                let text = error.to_string();
                // It is met again in the next extent, which may be checked first.
                let place = ["extent 0, offset", "extent 1, offset"].iter().any(|place| text.contains(place));
                let named = place && text.contains("the data hashes to");
                assert!(matches!(error, ClientError::Damaged { .. }) && named, "{text}");
            }
            let bad = jobs.bad_ranges();
            assert_eq!(bad.is_empty(), on_damage == OnDamage::End);
            assert_eq!(jobs.false_digests().0, 0, "what is damaged is no one's lie");
            let state = target.state.lock();
            let written = |at: usize| state.marks[at] == 1;
            assert!((0..disk.len()).all(|at| !written(at) || state.bytes[at] == disk[at]), "{on_damage:?}");
            let is_bad = |at: usize| bad.iter().any(|r| (r.offset..r.offset + r.len).contains(&(at as u64)));
            if on_damage == OnDamage::Skip {
                // All that is not bad is there, in an extent that has bad ranges, too.
                assert!((0..disk.len()).step_by(997).all(|at| (state.marks[at] == 0) == is_bad(at)));
            }
        }
    }
}

/// The extent's digest proves the extent, whatever its chunks are called; a verification looks at both.
#[test]
fn an_extent_that_is_what_was_backed_up_needs_no_other_proof() {
    let disk = sample();
    let mut messages = serve(&disk, 16);
    digests(&disk, &mut messages);
    for message in &mut messages {
        if let Kind::Window(window) = message {
            let mut names = window.fingerprints.to_vec();
            names[0] ^= 1;
            window.fingerprints = names.into();
        }
    }
    let target = Arc::new(Recorder::new(disk.len()));
    let restore = jobs_that_check(&target, OnDamage::End, false);
    block_on(follow(&restore, messages.clone(), disk.len())).unwrap();
    assert!(target.state.lock().bytes == disk);
    let verify = jobs_that_check(&Arc::new(Recorder::new(disk.len())), OnDamage::End, true);
    let error = block_on(follow(&verify, messages, disk.len())).unwrap_err();
    assert!(error.to_string().contains("the data hashes to"), "{error}");
}

/// Where every chunk is what it is called, it is the digest that is false: the extent is written all the same.
#[test]
fn a_digest_that_is_false_is_told_from_damage() {
    let disk = sample();
    let mut messages = serve(&disk, 16);
    digests(&vec![1; disk.len()], &mut messages);
    for by_chunk in [false, true] {
        let target = Arc::new(Recorder::new(disk.len()));
        let jobs = jobs_that_check(&target, OnDamage::End, by_chunk);
        block_on(follow(&jobs, messages.clone(), disk.len())).unwrap();
        assert!(target.state.lock().bytes == disk);
        assert_eq!(jobs.false_digests(), (3, vec![0, 1, 2]));
    }
}

/// Chunks that the server says are lost are left out; the rest of their extent is written.
#[test]
fn an_extent_of_which_something_is_lost_is_written_in_part() {
    let disk = sample();
    let mut messages = serve(&disk, 16);
    let place = messages.iter().position(|message| matches!(message, Kind::Regions(_))).unwrap();
    let Kind::Regions(batch) = &mut messages[place] else { unreachable!() };
    let chunks = batch.regions.remove(0).chunks;
    let damage = Some(v1::Damage { reason: "spoilt".into(), container: "0a".into() });
    messages.insert(place, Kind::Damaged(v1::DamagedChunks { chunks, damage }));
    digests(&disk, &mut messages);
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::Zero);
    block_on(follow(&jobs, messages, disk.len())).unwrap();
    let bad: u64 = jobs.bad_ranges().iter().map(|range| range.len).sum();
    assert!(bad > 0);
    let state = target.state.lock();
    assert!(!state.marks.contains(&0));
    let different = state.bytes.iter().zip(&disk).filter(|(is, was)| is != was).count();
    assert!(different > 0 && different as u64 <= bad, "{different} bytes of {bad}");
    assert_eq!(jobs.false_digests().0, 0, "an extent that is not whole is not compared");
}

/// Every second extent is lost: only the memory of the others is kept, to be used again.
#[test]
fn a_lost_extent_leaves_no_memory_behind() {
    let extent = EXTENT_BYTES as usize;
    let mut disk = vec![0; 8 * extent];
    for (number, bytes) in disk.chunks_mut(extent).enumerate() {
        bytes[..20_000].fill(u8::try_from(number + 1).unwrap());
    }
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::Zero);
    let mut messages = serve(&disk, 1);
    for batch in messages.chunk_by_mut(|_, next| !matches!(next, Kind::Window(_))).skip(1).step_by(2) {
        for message in batch {
            let Kind::Regions(regions) = message else { continue };
            let chunks = regions.regions.iter().flat_map(|region| region.chunks.clone()).collect();
            *message = Kind::Damaged(v1::DamagedChunks { chunks, damage: Some(v1::Damage::default()) });
        }
    }
    block_on(follow(&jobs, messages, disk.len())).unwrap();
    assert_eq!(jobs.bad_ranges().len(), 4);
    let mut kept = 0;
    while let Ok(buffer) = jobs.pool.extents.take_or(|| Err(())) {
        assert!(!buffer.is_empty());
        kept += 1;
    }
    assert!((1..=4).contains(&kept), "{kept}");
}

/// Read again after a lost connection: what was put together is let go of, and its room is there for the next attempt.
#[test]
fn what_is_read_again_begins_anew() {
    let disk = sample();
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::End);
    block_on(async {
        for _ in 0..2 * EXTENTS_MAX {
            let mut assembler = Assembler::new(disk.len() as u64, 0);
            let mut messages = serve(&disk, 16).into_iter();
            let Some(Kind::Header(header)) = messages.next() else { unreachable!() };
            assembler.header(&header).unwrap();
            let Some(Kind::Window(window)) = messages.next() else { unreachable!() };
            *target.state.lock() = Recorder::new(disk.len()).state.into_inner();
            jobs.begin_window(assembler.window(&window).unwrap()).await.unwrap();
            jobs.drain().await.unwrap();
            jobs.forget(&(0..u64::MAX));
        }
        assert_eq!(jobs.room.available_permits(), EXTENTS_MAX);
        *target.state.lock() = Recorder::new(disk.len()).state.into_inner();
        follow(&jobs, serve(&disk, 16), disk.len()).await.unwrap();
    });
    assert!(target.state.lock().bytes == disk);
}

/// A stream that ended well and something of it is not written: that must not pass for success.
#[test]
fn what_never_became_whole_is_noticed() {
    let disk = sample();
    let target = Arc::new(Recorder::new(disk.len()));
    let jobs = jobs(&target, OnDamage::End);
    let error = block_on(async {
        let mut assembler = Assembler::new(disk.len() as u64, 0);
        for message in serve(&disk, 16) {
            match message {
                Kind::Queued(_) => {}
                Kind::Header(header) => assembler.header(&header).unwrap(),
                Kind::Window(window) => {
                    jobs.begin_window(assembler.window(&window).unwrap()).await.unwrap();
                }
                // The regions are lost on the way.
                Kind::Regions(batch) => drop(assembler.regions(batch).unwrap()),
                Kind::Damaged(_) => unreachable!(),
                Kind::WindowEnd(_) => {
                    jobs.end_window(&assembler.window_end().unwrap()).await.unwrap();
                }
            }
        }
        jobs.finish().await.unwrap_err()
    });
    assert!(error.to_string().contains("was not written"), "{error}");
}
