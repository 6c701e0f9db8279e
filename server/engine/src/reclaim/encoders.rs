//! Encodes regions beside each other, and hands them back in the order in which they came.

use std::collections::VecDeque;

use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, bounded};
use holdfast_proto::Fingerprint;
use holdfast_proto::region::{Encoder, RegionError};

use crate::container::VerifiedRegion;
use crate::error::EngineError;

/// Regions under way for each thread: one being encoded, one waiting. With their plain bytes, what they are encoded to
/// and what they were before they take 768 KiB each.
const UNDER_WAY_MAX: usize = 2;

/// Chunks that become one region.
#[derive(Debug, Default)]
pub(super) struct Plain {
    pub(super) fingerprints: Vec<Fingerprint>,
    pub(super) lengths: Vec<u32>,
    pub(super) bytes: Bytes,
    /// As they are stored now, when that is one region: what is encoded anew counts only when it is smaller.
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

/// What belongs to a region and is handed back with it.
type Entry<T> = (UnderWay, T);

/// See the module's text.
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
