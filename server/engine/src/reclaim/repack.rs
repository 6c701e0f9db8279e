//! Writes the live chunks of containers into as few new ones as possible, so that the old ones can go.
//!
//! Every region that is read is checked before anything of it is written (R2, W1). New containers are durable (W2)
//! before the index knows their chunks (W3), and grow only with a grant (W10), one at a time; the caller makes them
//! known to the catalog, together with what it condemns. It may do so for a victim only when *everything* live of it is
//! in a sealed container: [`Copied::complete`] names those. What is damaged is noted, and its container is never among
//! them. However it ends (stopped, no room, an error) what was sealed until then counts, and the next round goes on
//! with what is left: a crash leaves new containers that a start adopts, so chunks are there twice, never not at all.
//!
//! Memory: 12 bytes a live chunk of the victims (the plan), 4 a chunk for a read order, 58 MiB of regions read and
//! decoded ([`Source`]), 512 KiB being joined, 1.5 MiB for each thread that encodes, and the new container's directory.
//!
//! [`squeeze`] compresses old containers anew, at a level that is too slow for a backup. Everything in a container is
//! taken over, referenced or not, so nothing has to be marked first. The order is that of
//! [`copy_forward`]: new containers are durable and in the index before the caller replaces the old ones by them. The
//! catalog remembers at which level a container was tried, so it is not tried again; a crash before it does costs one
//! look at a few regions, which finds no gain.

use bytes::{Bytes, BytesMut};
use holdfast_catalog::ContainerRecord;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{REGION_CHUNKS_MAX, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::region::{DEFAULT_LEVEL, Decoder, Encoder};
use holdfast_types::ids::{ContainerId, RunId};

use super::control::{Control, Pacer};
use super::live::SlotSet;
use super::pipeline::{Checked, Encoders, Plain, Source, Taken};
use super::plan::{Chosen, Piece, ReadOrder, Victim, batches, plan};
use crate::container::{ContainerError, OpenContainer, VerifiedRegion};
use crate::core::Core;
use crate::error::EngineError;
use crate::rewrite::{self, Rewriter, record_of};
use crate::space::Purpose;

/// Options of a copy.
#[derive(Debug, Default)]
pub(crate) struct RepackOptions {
    /// Level at which all regions are compressed anew, where that makes them smaller. `None`: regions that are live as
    /// a whole, and not small, go over verbatim.
    pub(crate) level: Option<i32>,
    /// Threads that compress, beside the one that reads; 0: that one does.
    pub(crate) threads: usize,
    /// Order in which the chunks are read; `None`: that of the victims.
    pub(crate) order: Option<ReadOrder>,
    /// The run the new containers are said to be of: whose containers belong together later.
    pub(crate) run: Option<RunId>,
}

/// Results of copying.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    /// Sealed, durable, in the index; the catalog does not know them.
    pub(crate) containers: Vec<ContainerRecord>,
    /// Victims whose live chunks are all in `containers`.
    pub(crate) complete: Vec<ContainerId>,
    /// Regions that could not be copied; noted as damage.
    pub(crate) damaged: Vec<(ContainerId, u16)>,
    /// Chunks in `containers`.
    pub(crate) chunks: u64,
    /// Regions in `containers` that are as they were, and those that were encoded.
    pub(crate) verbatim_regions: u64,
    pub(crate) encoded_regions: u64,
    /// Reason for ending before all victims were read: [`EngineError::Stopped`], [`EngineError::Full`], or a failure.
    pub(crate) ended: Option<EngineError>,
}

/// Writes the live chunks of `victims`, all of one namespace and class, into new containers.
pub(crate) fn copy_forward(
    core: &Core,
    victims: &[Victim],
    options: &RepackOptions,
    control: &Control,
) -> Copied {
    let Some(first) = victims.first() else { return Copied::default() };
    let (namespace, class) = (first.container.namespace(), first.container.class());
    let of_one = |victim: &Victim| {
        let container = &victim.container;
        let chunks = container.directory().chunk_count() as u64;
        // The regions of a salvaged container may have other numbers than its live set was made with.
        (container.namespace(), container.class()) == (namespace, class)
            && chunks == u64::from(victim.live.chunks())
            && !container.is_salvaged()
    };
    assert!(
        victims.iter().all(of_one),
        "victims of one namespace and class, with the live sets of their chunks"
    );
    let begun = Source::new().and_then(|source| {
        let level = options.level.unwrap_or(DEFAULT_LEVEL);
        Ok((source, Encoders::new(level, options.threads)?))
    });
    let ((source, loader), encoders) = match begun {
        Ok(begun) => begun,
        Err(error) => return Copied { ended: Some(error), ..Copied::default() },
    };
    let mut repack = Repack {
        core,
        victims,
        options,
        source,
        encoders,
        joining: Joining::default(),
        output: Rewriter::new(core, namespace, class, Purpose::Reclaim),
        in_open: Vec::new(),
        left: victims.iter().map(|victim| victim.live.live()).collect(),
        copied: Copied::default(),
    };
    let pieces = plan(victims, options.order.as_ref());
    std::thread::scope(|scope| {
        let (pieces, pacer) = (pieces.as_slice(), &mut control.pacer());
        let begun = std::thread::Builder::new()
            .name("read-for-copy".into())
            .spawn_scoped(scope, move || loader.run(victims, pieces));
        let ended = match begun {
            Ok(_) => repack.run(pieces, pacer).err(),
            Err(error) => Some(EngineError::Internal(format!("cannot start a thread: {error}"))),
        };
        // The loader waits for nothing but the end of this, which takes the receiver along.
        repack.finish(ended)
    })
}

/// Number of chunks in a region, by victim.
type Parts = Vec<(usize, u32)>;

struct Repack<'a> {
    core: &'a Core,
    victims: &'a [Victim],
    options: &'a RepackOptions,
    source: Source,
    encoders: Encoders<(Parts, bool)>,
    joining: Joining,
    output: Rewriter<'a>,
    /// Chunks in the open container.
    in_open: Parts,
    /// Live chunks of each victim that are in no sealed container yet.
    left: Vec<u32>,
    copied: Copied,
}

impl Repack<'_> {
    fn run(&mut self, pieces: &[Piece], pacer: &mut Pacer<'_>) -> Result<(), EngineError> {
        for &piece in pieces {
            let read_bytes = self.take(piece)?;
            let written_bytes = self.write(false)?;
            // Between two regions, never within one.
            pacer.charge(read_bytes, written_bytes)?;
        }
        self.flush()?;
        let written_bytes = self.write(true)?;
        pacer.charge(0, written_bytes)
    }

    /// Reads a piece and hands it to the encoders, or joins it with others; says how many bytes were read.
    fn take(&mut self, piece: Piece) -> Result<u64, EngineError> {
        let (number, region) = piece.place();
        let Some(victim) = self.victims.get(number) else {
            return Err(EngineError::Internal(format!("there is no victim {number}")));
        };
        let (checked, read_bytes) = match self.source.region(piece)? {
            Taken::Sound(checked, read_bytes) => (checked, read_bytes),
            Taken::Damaged(error) => {
                // (A7) It counts as no copy from now on; its container stays, as what is left of it may be all there is.
                let container = victim.container.id();
                self.core.store.note_failure(container, Some(region), &error);
                self.copied.damaged.push((container, region));
                return Ok(0);
            }
            Taken::Spoilt => return Ok(0),
        };
        match piece {
            Piece::Region { region, .. } => {
                let live = victim.live_in(region);
                self.take_region((number, live), checked)?;
            }
            Piece::Chunk { slot, .. } => self.take_chunk(number, slot, &checked)?,
        }
        Ok(read_bytes)
    }

    /// Takes all of a region, of which so many chunks are live: all but of one that agents sealed.
    fn take_region(&mut self, of: (usize, u32), checked: Checked) -> Result<(), EngineError> {
        let Checked { region, plain } = checked;
        let parts = vec![of];
        let Some(plain) = plain.filter(|_| self.options.level.is_some()) else {
            self.encoders.pass(region, (parts, true));
            return Ok(());
        };
        let (fingerprints, lengths) = (region.fingerprints().to_vec(), region.lengths().to_vec());
        let plain = Plain { fingerprints, lengths, bytes: plain, stored: Some(region) };
        self.encoders.encode(plain, (parts, false))
    }

    fn take_chunk(&mut self, victim: usize, slot: u16, from: &Checked) -> Result<(), EngineError> {
        let slot = usize::from(slot);
        let before: u32 = from.region.lengths().iter().take(slot).sum();
        let chunk = from.region.fingerprints().get(slot).zip(from.region.lengths().get(slot));
        // (N4) Sealed regions are never copied in pieces.
        let plain = from.plain.as_deref().unwrap_or_default();
        let bytes = chunk.and_then(|(_, length)| plain.get(before as usize..(before + length) as usize));
        let (Some((fingerprint, _)), Some(bytes)) = (chunk, bytes) else {
            return Err(EngineError::Internal(format!("a region has no chunk {slot}")));
        };
        if !self.joining.fits(bytes.len()) {
            self.flush()?;
        }
        self.joining.add(victim, *fingerprint, bytes);
        Ok(())
    }

    /// Makes a region of the chunks that were joined.
    fn flush(&mut self) -> Result<(), EngineError> {
        let Some((plain, parts)) = self.joining.take() else { return Ok(()) };
        self.encoders.encode(plain, (parts, false))
    }

    /// Appends the regions that are ready, or all; says how many bytes that were.
    fn write(&mut self, all: bool) -> Result<u64, EngineError> {
        let mut written_bytes = 0;
        while let Some(next) = self.encoders.next(all) {
            let (region, (parts, verbatim)) = next?;
            written_bytes += u64::from(region.stored_bytes());
            self.append(&region, parts)?;
            let count =
                if verbatim { &mut self.copied.verbatim_regions } else { &mut self.copied.encoded_regions };
            *count += 1;
        }
        Ok(written_bytes)
    }

    fn append(&mut self, region: &VerifiedRegion, parts: Parts) -> Result<(), EngineError> {
        if !self.output.has_room_for(region) {
            self.seal()?;
        }
        self.output.append(region)?;
        self.in_open.extend(parts);
        Ok(())
    }

    fn seal(&mut self) -> Result<(), EngineError> {
        let Some(sealed) = self.output.seal()? else { return Ok(()) };
        let record = ContainerRecord { run: self.options.run, ..record_of(&sealed) };
        self.copied.chunks += record.chunk_count;
        self.copied.containers.push(record);
        for (victim, chunks) in self.in_open.drain(..) {
            if let Some(left) = self.left.get_mut(victim) {
                assert!(*left >= chunks, "{chunks} chunks more than are live were written");
                *left -= chunks;
            }
        }
        Ok(())
    }

    /// Seals the open container unless writing failed: when there is no room for more, there still is for this, and when
    /// the work was stopped, the next round goes on after it.
    fn finish(mut self, mut ended: Option<EngineError>) -> Copied {
        if matches!(ended, None | Some(EngineError::Stopped | EngineError::Full(_))) {
            ended = self.seal().err().or(ended);
        }
        // Only now is it known of which victims nothing is missing.
        let complete = self.victims.iter().zip(&self.left).filter(|(_, left)| **left == 0);
        self.copied.complete = complete.map(|(victim, _)| victim.container.id()).collect();
        self.copied.ended = ended;
        self.copied
    }
}

/// Chunks on their way into one region. Their bytes are copied: a few chunks of each of many regions would keep all of
/// these in memory.
#[derive(Debug, Default)]
struct Joining {
    fingerprints: Vec<Fingerprint>,
    lengths: Vec<u32>,
    bytes: BytesMut,
    parts: Parts,
}

impl Joining {
    fn fits(&self, bytes: usize) -> bool {
        self.fingerprints.len() < REGION_CHUNKS_MAX
            && self.bytes.len() + bytes <= REGION_PLAIN_MAX_BYTES as usize
    }

    fn add(&mut self, victim: usize, fingerprint: Fingerprint, bytes: &[u8]) {
        self.fingerprints.push(fingerprint);
        // At most 64 KiB: it is a chunk of a region.
        self.lengths.push(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(bytes);
        match self.parts.last_mut() {
            Some((last, chunks)) if *last == victim => *chunks += 1,
            _ => self.parts.push((victim, 1)),
        }
    }

    fn take(&mut self) -> Option<(Plain, Parts)> {
        if self.fingerprints.is_empty() {
            return None;
        }
        let Self { fingerprints, lengths, bytes, parts } = std::mem::take(self);
        Some((Plain { fingerprints, lengths, bytes: Bytes::from(bytes), stored: None }, parts))
    }
}

/// Containers looked at together: 1 GiB, of which copies of 32 MiB are there twice at most.
const TOGETHER: u32 = 32;

/// Regions of a container that are tried before all of it is.
const SAMPLES: usize = 4;

/// Share that a sample must save, in hundredths, for its container to be worth writing again.
const WORTHWHILE_PCT: u64 = 2;

/// Options of compressing anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Squeeze {
    /// zstd's, 1 to 19.
    pub(crate) level: i32,
    /// Containers made later are left as they are.
    pub(crate) made_before_ms: i64,
    /// Threads that compress, beside the one that reads.
    pub(crate) threads: usize,
}

/// Results of compressing anew.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Squeezed {
    /// Containers replaced, what they took, and what took their place.
    pub(crate) containers: u64,
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
    /// Containers not worth it.
    pub(crate) kept: u64,
}

/// Compresses all containers anew that were made long enough ago, were never tried at that level, and gain by it.
/// `replace` makes the new containers known and deletes the victims that are complete; it says which of these went.
///
/// # Errors
/// The catalog's, `replace`'s, and why copying ended early; what was replaced until then stays so.
pub(crate) fn squeeze(
    core: &Core,
    options: &Squeeze,
    control: &Control,
    mut replace: impl FnMut(&[Victim], &Copied) -> Result<Vec<ContainerId>, EngineError>,
) -> Result<Squeezed, EngineError> {
    let mut done = Squeezed::default();
    let mut pacer = control.pacer();
    let mut after = None;
    let internal = |error: &dyn std::fmt::Display| EngineError::Internal(error.to_string());
    let mut encoder = Encoder::new(options.level).map_err(|error| internal(&error))?;
    let mut decoder = Decoder::new().map_err(|error| internal(&error))?;
    loop {
        let Squeeze { level, made_before_ms, threads } = *options;
        let rows = core.catalog.squeezable_containers(level, made_before_ms, after, TOGETHER)?;
        let Some(last) = rows.last() else { return Ok(done) };
        after = Some(last.id);
        let (mut chosen, mut kept) = (Vec::new(), Vec::new());
        for row in &rows {
            match worth(core, row, &mut encoder, &mut decoder)? {
                Some(true) => chosen.push(chosen_of(row)),
                Some(false) => kept.push(row.id),
                None => {}
            }
            pacer.charge(0, 0)?;
        }
        done.kept += kept.len() as u64;
        core.catalog.note_squeezed(&kept, level)?;
        for batch in batches(chosen) {
            let victims = batch.open(core)?;
            let copying = RepackOptions { level: Some(level), threads, ..RepackOptions::default() };
            let copied = copy_forward(core, &victims, &copying, control);
            let gone = replace(&victims, &copied)?;
            let new: Vec<_> = copied.containers.iter().map(|new| new.id).collect();
            core.catalog.note_squeezed(&new, level)?;
            done.containers += gone.len() as u64;
            let went = rows.iter().filter(|row| gone.contains(&row.id));
            done.bytes_before += went.map(|row| row.stored_bytes).sum::<u64>();
            done.bytes_after += copied.containers.iter().map(|new| new.stored_bytes).sum::<u64>();
            if let Some(ended) = copied.ended {
                return Err(ended);
            }
        }
        control.add_done(rows.len() as u64);
    }
}

fn chosen_of(row: &ContainerRecord) -> Chosen {
    let chunks = u32::try_from(row.chunk_count).unwrap_or(u32::MAX);
    Chosen { id: row.id, class: row.class, namespace: row.namespace, vm: None, live: SlotSet::full(chunks) }
}

/// Returns true if some of its regions gain; `None`: it cannot be read, or must not be relied on.
fn worth(
    core: &Core,
    row: &ContainerRecord,
    encoder: &mut Encoder,
    decoder: &mut Decoder,
) -> Result<Option<bool>, EngineError> {
    // (E5)
    if !core.store.known_damage(row.id).is_empty() || core.store.protects_others(row.id)? {
        return Ok(None);
    }
    let opened = core.store.containers.get(row.id, row.class);
    if opened.as_ref().is_ok_and(|container| !container.is_at_hand()) {
        return Ok(None);
    }
    let sampled = opened.and_then(|container| sample(&container, encoder, decoder));
    match sampled {
        Ok((before, after)) => Ok(Some(after * 100 <= before * (100 - WORTHWHILE_PCT))),
        Err(error) if error.is_damage() => {
            core.store.note_failure(row.id, error.region(), &error);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Bytes that some of its regions take, and would take.
fn sample(
    container: &OpenContainer,
    encoder: &mut Encoder,
    decoder: &mut Decoder,
) -> Result<(u64, u64), ContainerError> {
    let count = u16::try_from(container.directory().region_count()).unwrap_or(u16::MAX);
    let (mut before, mut after) = (0, 0);
    for number in (0..count).step_by(usize::from(count).div_ceil(SAMPLES).max(1)) {
        let (region, plain) = rewrite::verified(container, container.read_region(number)?, decoder)?;
        let stored = u64::from(region.stored_bytes());
        before += stored;
        // Regions that agents sealed stay as they are.
        let Some(plain) = plain else {
            after += stored;
            continue;
        };
        after += encoder.encode(&plain).map_or(stored, |encoded| stored.min(encoded.payload.len() as u64));
    }
    Ok((before, after))
}

#[cfg(test)]
mod tests;
