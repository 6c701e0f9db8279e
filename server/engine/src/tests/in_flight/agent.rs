//! An agent that takes pending chunks, one message at a time. Its disks are a few small chunks among zeros.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{CHUNK_MAX_BYTES, EXTENT_BYTES};
use holdfast_proto::region::Encoder;
use holdfast_proto::v1;
use holdfast_types::ids::SessionId;
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::{Committed, DiskStream};
use crate::tests::agent::{region, request, start};
use crate::tests::noise;

/// The bytes of chunk number `chunk`.
pub(in crate::tests) fn chunk(number: u64) -> Vec<u8> {
    noise(number + 1_000_000, 64 + usize::try_from(number * 37 % 400).unwrap())
}

pub(in crate::tests) fn name(number: u64) -> Fingerprint {
    Fingerprint::of(&chunk(number))
}

/// A disk of these chunks, extent by extent; the rest of each extent is zero.
pub(in crate::tests) fn image(extents: &[Vec<u64>]) -> Vec<u8> {
    let mut image = Vec::new();
    for chunks in extents {
        let mut extent: Vec<u8> = chunks.iter().flat_map(|number| chunk(*number)).collect();
        extent.resize(EXTENT_BYTES as usize, 0);
        image.extend(extent);
    }
    image
}

/// Next step of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tests) enum Next {
    Query(u64),
    Send(Vec<u64>),
    Describe(u64),
    Finish,
    /// Waits for the answer to Finish.
    Wait,
    Commit,
    Done,
}

/// An agent that takes pending chunks, one message at a time.
pub(in crate::tests) struct Agent<'a> {
    engine: &'a Engine,
    pub(in crate::tests) vm: String,
    pub(in crate::tests) session: SessionId,
    pub(in crate::tests) stream: Option<DiskStream>,
    pub(in crate::tests) extents: Vec<Vec<u64>>,
    by_name: HashMap<Fingerprint, u64>,
    pub(in crate::tests) next: VecDeque<Next>,
    pub(in crate::tests) takes_pending: bool,
    /// Number of chunks it was told are pending.
    pub(in crate::tests) pending: usize,
    /// Chunks it was asked again.
    pub(in crate::tests) again: Vec<u64>,
    pub(in crate::tests) done: Option<Committed>,
}

impl<'a> Agent<'a> {
    pub(in crate::tests) fn start(engine: &'a Engine, vm: &str, extents: &[Vec<u64>]) -> Self {
        let mut wanted = request(vm, &[("root", &[])]);
        wanted.disks[0].size_bytes = extents.len() as u64 * u64::from(EXTENT_BYTES);
        let session = start(engine, wanted).unwrap().session_id.parse().unwrap();
        let by_name = extents.iter().flatten().map(|number| (name(*number), *number)).collect();
        let mut agent = Self {
            engine,
            vm: vm.to_owned(),
            session,
            stream: None,
            extents: extents.to_vec(),
            by_name,
            next: VecDeque::new(),
            takes_pending: true,
            pending: 0,
            again: Vec::new(),
            done: None,
        };
        agent.open().unwrap();
        agent
    }

    /// Loses the connection, which is made again later.
    pub(in crate::tests) fn disconnect(&mut self) {
        self.stream = None;
    }

    /// Opens the stream and goes on with what was not accepted.
    pub(in crate::tests) fn open(&mut self) -> Result<(), EngineError> {
        let stream = self.engine.open_stream(self.session, 0)?.taking_pending(self.takes_pending);
        let accepted = stream.opened()?.accepted;
        let is_accepted = |index: u64| accepted.iter().any(|r| (r.first..r.first + r.count).contains(&index));
        self.next =
            (0..self.extents.len() as u64).filter(|index| !is_accepted(*index)).map(Next::Query).collect();
        self.next.extend([Next::Finish, Next::Commit, Next::Done]);
        self.stream = Some(stream);
        Ok(())
    }

    fn chunks_of(&self, extent: u64) -> &[u64] {
        &self.extents[usize::try_from(extent).unwrap()]
    }

    fn stream(&self) -> &DiskStream {
        self.stream.as_ref().expect("connected")
    }

    fn handle(&self, message: Request) -> Result<Option<Response>, EngineError> {
        Ok(self.stream().handle(message, 10)?.and_then(|answer| answer.kind))
    }

    /// Does the next thing.
    pub(in crate::tests) fn step(&mut self) -> Result<(), EngineError> {
        match self.next.pop_front().unwrap_or(Next::Done) {
            Next::Query(extent) => self.query(extent),
            Next::Send(chunks) => self.send(&chunks),
            Next::Describe(extent) => self.describe(extent),
            Next::Finish => {
                let finish =
                    Request::Finish(v1::FinishStream { read_bytes: 1, ..v1::FinishStream::default() });
                let answer = self.handle(finish)?;
                self.take_answer(answer);
                Ok(())
            }
            Next::Wait => {
                let answer = self.stream().idle()?.and_then(|answer| answer.kind);
                if answer.is_none() {
                    let _ = self.stream().wait_for_others(Duration::from_millis(5));
                }
                self.take_answer(answer);
                Ok(())
            }
            Next::Commit => {
                self.done = Some(self.engine.commit(self.session)?);
                Ok(())
            }
            Next::Done => Ok(()),
        }
    }

    /// Does everything up to `next`, which is then next. A wait for others is 5 ms at most.
    pub(in crate::tests) fn until(&mut self, next: &Next) {
        for _ in 0..10_000 {
            if self.next.front().expect("it comes") == next {
                return;
            }
            self.step().unwrap();
        }
        panic!("{} never came to {next:?}", self.vm);
    }

    fn query(&mut self, extent: u64) -> Result<(), EngineError> {
        let chunks = self.chunks_of(extent).to_vec();
        let fingerprints: Vec<u8> = chunks.iter().flat_map(|number| *name(*number).as_bytes()).collect();
        let query = v1::Query { sequence: extent, fingerprints: fingerprints.into() };
        let Some(Response::Need(need)) = self.handle(Request::Query(query))? else { panic!("no answer") };
        let is_set = |bitmap: &[u8], place: usize| {
            bitmap.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 1)
        };
        let mut needed = Vec::new();
        for (place, number) in chunks.iter().enumerate() {
            let (need, pending) = (is_set(&need.bitmap, place), is_set(&need.pending, place));
            assert!(!(need && pending), "never in both");
            assert!(self.takes_pending || !pending);
            self.pending += usize::from(pending);
            if need && !needed.contains(number) {
                needed.push(*number);
            }
        }
        self.next.push_front(Next::Describe(extent));
        if !needed.is_empty() {
            self.next.push_front(Next::Send(needed));
        }
        Ok(())
    }

    pub(in crate::tests) fn send(&self, chunks: &[u64]) -> Result<(), EngineError> {
        let bytes: Vec<(Fingerprint, Vec<u8>)> = chunks.iter().map(|n| (name(*n), chunk(*n))).collect();
        let borrowed: Vec<(Fingerprint, &[u8])> = bytes.iter().map(|(n, b)| (*n, b.as_slice())).collect();
        let region = region(&borrowed, &mut Encoder::new(1).unwrap());
        assert_eq!(self.handle(Request::Region(region))?, None);
        Ok(())
    }

    fn describe(&self, index: u64) -> Result<(), EngineError> {
        let message = describe(index, self.chunks_of(index));
        self.handle(Request::Extents(message)).map(drop)
    }

    fn take_answer(&mut self, answer: Option<Response>) {
        match answer {
            None | Some(Response::Ack(_)) => self.next.push_front(Next::Wait),
            Some(Response::Finished(_)) => {}
            Some(Response::Again(again)) => {
                let mut chunks = Vec::new();
                for extent in &again.extents {
                    for fingerprint in Fingerprint::split_list(&extent.fingerprints).unwrap() {
                        let number = self.by_name[&fingerprint];
                        assert!(self.chunks_of(extent.index).contains(&number), "of that extent");
                        chunks.push(number);
                    }
                }
                assert!(!chunks.is_empty());
                self.again.extend(&chunks);
                self.next.push_front(Next::Finish);
                self.next.push_front(Next::Send(chunks));
            }
            Some(other) => panic!("{other:?}"),
        }
    }
}

/// An extent of these chunks and zeros.
pub(in crate::tests) fn describe(index: u64, chunks: &[u64]) -> v1::Extents {
    let mut fingerprints: Vec<u8> = Vec::new();
    let mut lengths = Vec::new();
    for number in chunks {
        fingerprints.extend(name(*number).as_bytes());
        lengths.push(u32::try_from(chunk(*number).len()).unwrap());
    }
    let mut left = EXTENT_BYTES - lengths.iter().sum::<u32>();
    while left > 0 {
        let zeros = left.min(CHUNK_MAX_BYTES);
        fingerprints.extend(Fingerprint::ZERO.as_bytes());
        lengths.push(zeros);
        left -= zeros;
    }
    let digest = Fingerprint::UNKNOWN.as_bytes().to_vec().into();
    let extent = v1::ChunkedExtent { index, digest, fingerprints: fingerprints.into(), lengths };
    v1::Extents { chunked: vec![extent], ..v1::Extents::default() }
}
