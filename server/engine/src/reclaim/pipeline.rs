//! The stages before and after the thread that copies: regions that a plan names are read ahead, checked, and encoded beside
//! each other, handed back in the order in which they came.
//!
//! Reading, decoding and hashing are half of the work of copying, and have a thread of their own. Reader and writer go
//! through the same pieces and keep the same regions, so both know at every piece whether a region is read for it.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use holdfast_proto::Fingerprint;
use holdfast_proto::region::{Decoder, Encoder, RegionError};

use super::plan::{Piece, Victim};
use crate::container::{ContainerError, OpenContainer, StoredRegion, VerifiedRegion};
use crate::error::EngineError;
use crate::rewrite;

/// Regions under way for each thread: one being encoded, one waiting. With their plain bytes, what they are encoded to
/// and what they were before they take 768 KiB each.
const UNDER_WAY_MAX: usize = 2;

/// Chunks that become one region.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) fingerprints: Vec<Fingerprint>,
    pub(super) lengths: Vec<u32>,
    pub(super) bytes: Bytes,
    /// The chunks as stored now, when that is one region: encoding them anew counts only when that is smaller.
    pub(super) stored: Option<VerifiedRegion>,
}

impl Plain {
    /// (W1) Hashes every chunk once more, on the way into its new region.
    fn encode(self, encoder: &mut Encoder) -> Result<VerifiedRegion, RegionError> {
        let mut rest = &*self.bytes;
        let mut chunks = Vec::with_capacity(self.lengths.len());
        for (fingerprint, length) in self.fingerprints.iter().zip(&self.lengths) {
            let (chunk, after) = rest.split_at_checked(*length as usize).unwrap_or((rest, &[]));
            chunks.push((*fingerprint, chunk));
            rest = after;
        }
        let encoded = VerifiedRegion::encode(&chunks, encoder)?;
        Ok(match self.stored {
            Some(stored) if stored.stored_bytes() <= encoded.stored_bytes() => stored,
            _ => encoded,
        })
    }
}

type Answer = Result<VerifiedRegion, RegionError>;

#[derive(Debug)]
enum UnderWay {
    Ready(Box<VerifiedRegion>),
    Encoding(Receiver<Answer>),
}

/// A region under way, with the value that is handed back with it.
type Entry<T> = (UnderWay, T);

/// Encodes regions beside each other, and hands them back in order.
#[derive(Debug)]
pub(super) struct Encoders<T> {
    /// Used where there are no threads.
    own: Option<Encoder>,
    jobs: Option<Sender<(Plain, Sender<Answer>)>>,
    under_way: VecDeque<Entry<T>>,
    under_way_max: usize,
}

impl<T> Encoders<T> {
    /// On so many threads beside the caller's; 0: on the caller's.
    pub(super) fn new(level: i32, threads: usize) -> Result<Self, EngineError> {
        let internal = |error: RegionError| EngineError::Internal(error.to_string());
        let under_way_max = (threads * UNDER_WAY_MAX).max(1);
        if threads == 0 {
            let own = Some(Encoder::new(level).map_err(internal)?);
            return Ok(Self { own, jobs: None, under_way: VecDeque::new(), under_way_max });
        }
        let (jobs, waiting) = bounded::<(Plain, Sender<Answer>)>(under_way_max);
        for _ in 0..threads {
            let (waiting, mut encoder) = (waiting.clone(), Encoder::new(level).map_err(internal)?);
            let work = move || {
                for (plain, answer) in waiting {
                    // No one waits for it when the work was stopped.
                    drop(answer.send(plain.encode(&mut encoder)));
                }
            };
            let spawned = std::thread::Builder::new().name("recompress".into()).spawn(work);
            spawned.map_err(|error| EngineError::Internal(format!("cannot start a thread: {error}")))?;
        }
        Ok(Self { own: None, jobs: Some(jobs), under_way: VecDeque::new(), under_way_max })
    }

    /// A region that is as it should be.
    pub(super) fn pass(&mut self, region: VerifiedRegion, of: T) {
        self.under_way.push_back((UnderWay::Ready(Box::new(region)), of));
    }

    /// Chunks to be encoded.
    pub(super) fn encode(&mut self, plain: Plain, of: T) -> Result<(), EngineError> {
        let under_way = match (&mut self.own, &self.jobs) {
            (Some(own), _) => {
                let encoded = plain.encode(own).map_err(|error| EngineError::Internal(error.to_string()))?;
                UnderWay::Ready(Box::new(encoded))
            }
            (None, Some(jobs)) => {
                let (answer, wait) = bounded(1);
                jobs.send((plain, answer)).map_err(|_| ended())?;
                UnderWay::Encoding(wait)
            }
            (None, None) => return Err(ended()),
        };
        self.under_way.push_back((under_way, of));
        Ok(())
    }

    /// The next region in order: when too many are under way, or `all` are asked for, waits for it.
    pub(super) fn next(&mut self, all: bool) -> Option<Result<(VerifiedRegion, T), EngineError>> {
        if !all && self.under_way.len() < self.under_way_max {
            return None;
        }
        let (under_way, of) = self.under_way.pop_front()?;
        let region = match under_way {
            UnderWay::Ready(region) => Ok(*region),
            UnderWay::Encoding(wait) => match wait.recv() {
                Ok(answer) => answer.map_err(|error| EngineError::Internal(error.to_string())),
                Err(_) => Err(ended()),
            },
        };
        Some(region.map(|region| (region, of)))
    }
}

fn ended() -> EngineError {
    EngineError::Internal("a thread that recompresses ended; the server's log says why".into())
}

/// Regions read with one request at most: 2 MiB.
const SPAN_REGIONS_MAX: u16 = 8;

/// Decoded regions kept: a merge of so many small containers reads from all of them by turns. 256 KiB plain and at most
/// as much stored each: 32 MiB in all.
pub(super) const DECODED_MAX: usize = 64;

/// Regions that wait to be written: as many as are read while a container is made durable, 24 MiB.
const AHEAD_MAX: usize = 48;

/// A region that was checked.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    pub(super) region: VerifiedRegion,
    /// `None`: agents sealed it, and it goes over as a whole.
    pub(super) plain: Option<Bytes>,
}

/// A region, and how many bytes were read for it.
type Loaded = Result<(Checked, u64), ContainerError>;

/// Place of a region: a victim's place in the list, and its number.
type Place = (usize, u16);

/// Regions seen and kept, alike at both ends of the channel.
#[derive(Debug)]
struct Seen<T> {
    /// The last used first.
    kept: VecDeque<(Place, T)>,
    damaged: BTreeSet<Place>,
}

impl<T> Seen<T> {
    const fn new() -> Self {
        Self { kept: VecDeque::new(), damaged: BTreeSet::new() }
    }

    fn get(&mut self, place: Place) -> Option<&T> {
        let found = self.kept.iter().position(|(known, _)| *known == place)?;
        let entry = self.kept.remove(found)?;
        self.kept.push_front(entry);
        self.kept.front().map(|(_, value)| value)
    }

    /// Keeps a region of which single chunks are needed: more of them may be, soon.
    fn add(&mut self, piece: Piece, value: impl FnOnce() -> T) {
        if matches!(piece, Piece::Chunk { .. }) {
            self.kept.push_front((piece.place(), value()));
            self.kept.truncate(DECODED_MAX);
        }
    }
}

/// Source of regions, in the order of the pieces.
#[derive(Debug)]
pub(super) struct Source {
    seen: Seen<Checked>,
    loaded: Receiver<Loaded>,
}

impl Source {
    /// Creates a source, and the loader that must read for it on a thread of its own.
    pub(super) fn new() -> Result<(Self, Loader), EngineError> {
        let decoder = Decoder::new().map_err(|error| EngineError::Internal(error.to_string()))?;
        let (to, loaded) = bounded(AHEAD_MAX);
        let loader = Loader { decoder, span: (0, VecDeque::new()), seen: Seen::new(), to };
        Ok((Self { seen: Seen::new(), loaded }, loader))
    }

    /// (R2) The region of the next piece, checked against its CRC and every fingerprint.
    ///
    /// # Errors
    /// Errors that say nothing of the region.
    pub(super) fn region(&mut self, piece: Piece) -> Result<Taken, EngineError> {
        let place = piece.place();
        if self.seen.damaged.contains(&place) {
            return Ok(Taken::Spoilt);
        }
        if let Some(checked) = self.seen.get(place) {
            return Ok(Taken::Sound(checked.clone(), 0));
        }
        let Ok(loaded) = self.loaded.recv() else {
            return Err(EngineError::Internal("the thread that reads for a copy ended".into()));
        };
        match loaded {
            Ok((checked, bytes)) => {
                self.seen.add(piece, || checked.clone());
                Ok(Taken::Sound(checked, bytes))
            }
            Err(error) if error.is_damage() => {
                self.seen.damaged.insert(place);
                Ok(Taken::Damaged(error))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Results of reading a region.
#[derive(Debug)]
pub(super) enum Taken {
    /// The region, and how many bytes were read for it now.
    Sound(Checked, u64),
    /// Found damaged now.
    Damaged(ContainerError),
    /// Found damaged before.
    Spoilt,
}

/// Reads ahead for a [`Source`].
#[derive(Debug)]
pub(super) struct Loader {
    decoder: Decoder,
    /// Read, and not decoded yet: of one victim.
    span: (usize, VecDeque<StoredRegion>),
    seen: Seen<()>,
    to: Sender<Loaded>,
}

impl Loader {
    /// Reads the regions of all pieces; ends early when no one waits for them any more, and after an error that says
    /// nothing of a region.
    pub(super) fn run(mut self, victims: &[Victim], pieces: &[Piece]) {
        let mut rest = pieces;
        while let Some((&piece, follow)) = rest.split_first() {
            rest = follow;
            let place = piece.place();
            if self.seen.damaged.contains(&place) || self.seen.get(place).is_some() {
                continue;
            }
            let Some(victim) = victims.get(place.0) else { return };
            let loaded = self.load(&victim.container, piece, follow);
            match &loaded {
                Ok(_) => self.seen.add(piece, || ()),
                Err(error) if error.is_damage() => drop(self.seen.damaged.insert(place)),
                Err(_) => rest = &[],
            }
            if self.to.send(loaded).is_err() {
                return;
            }
        }
    }

    /// Loads a piece. Where one request suffices, the pieces that `follow` are read with it.
    fn load(&mut self, container: &OpenContainer, piece: Piece, follow: &[Piece]) -> Loaded {
        let (victim, region) = piece.place();
        let (stored, read_bytes) = match self.read_ahead(victim, region) {
            Some(stored) => (stored, 0),
            None => {
                // One damaged region fails them all: then each is read by itself.
                let span = container.read_regions(region..span_end(follow, victim, region));
                let mut span = span.map(VecDeque::from).unwrap_or_default();
                let bytes = span.iter().map(|stored| stored.payload.len() as u64).sum();
                let first = span.pop_front();
                self.span = (victim, span);
                match first {
                    Some(stored) => (stored, bytes),
                    None => {
                        let stored = container.read_region(region)?;
                        let bytes = stored.payload.len() as u64;
                        (stored, bytes)
                    }
                }
            }
        };
        let (region, plain) = rewrite::verified(container, stored, &mut self.decoder)?;
        Ok((Checked { region, plain }, read_bytes))
    }

    fn read_ahead(&mut self, victim: usize, region: u16) -> Option<StoredRegion> {
        let (of, span) = &mut self.span;
        let is_next = *of == victim && span.front().is_some_and(|stored| stored.region == region);
        if is_next { span.pop_front() } else { None }
    }
}

/// End of the regions that are needed one after the other from `region` on.
fn span_end(follow: &[Piece], victim: usize, region: u16) -> u16 {
    let mut end = region + 1;
    for piece in follow {
        let (of, next) = piece.place();
        let goes_on = of == victim && (next == end || next + 1 == end);
        if !goes_on || end - region >= SPAN_REGIONS_MAX {
            break;
        }
        end = next + 1;
    }
    end
}
