//! Two sessions side by side that share new chunks, message by message: one is told that the other brings them, and
//! names them with promises.

use std::sync::Arc;

use holdfast_engine::ids::SessionId;
use holdfast_engine::{DiskStream, Engine};
use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::region::Encoder;
use holdfast_proto::v1;
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use crate::agent;

/// An agent that takes pending chunks; its only disk has one extent. Each chunk is sent in a region of its own, so that
/// all but the last few are in a container when the next one is sent.
pub(crate) struct Sharer {
    pub(crate) session: SessionId,
    stream: DiskStream,
    disk: Arc<[u8]>,
    chunks: Vec<(Fingerprint, Vec<u8>)>,
}

/// What it was told of its chunks.
pub(crate) struct Told {
    pub(crate) needed: Vec<usize>,
    pub(crate) pending: usize,
}

impl Sharer {
    pub(crate) fn start(engine: &Engine, vm: &str, disk: &Arc<[u8]>) -> Self {
        let started = agent::start(engine, agent::request(vm, &[("root", disk)])).unwrap();
        let session = started.session_id.parse().unwrap();
        let cut = Chunker::default().cut(disk);
        let bytes = cut.iter().map(|piece| &disk[piece.offset as usize..(piece.offset + piece.len) as usize]);
        let chunks = bytes.map(|bytes| (Fingerprint::of(bytes), bytes.to_vec())).collect();
        let stream = open(engine, session);
        Self { session, stream, disk: Arc::clone(disk), chunks }
    }

    pub(crate) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The connection is lost, and made again.
    pub(crate) fn reconnect(&mut self, engine: &Engine) {
        self.stream = open(engine, self.session);
    }

    fn handle(&self, message: Request) -> Option<Response> {
        self.stream.handle(message, 10).unwrap().and_then(|answer| answer.kind)
    }

    pub(crate) fn ask(&self) -> Told {
        let fingerprints: Vec<u8> = self.chunks.iter().flat_map(|(name, _)| *name.as_bytes()).collect();
        let query = v1::Query { sequence: 1, fingerprints: fingerprints.into() };
        let Some(Response::Need(need)) = self.handle(Request::Query(query)) else { panic!("no answer") };
        let is_set =
            |bits: &[u8], place: usize| bits.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1);
        let places = 0..self.chunks.len();
        Told {
            needed: places.clone().filter(|place| is_set(&need.bitmap, *place)).collect(),
            pending: places.filter(|place| is_set(&need.pending, *place)).count(),
        }
    }

    pub(crate) fn send(&self, places: impl IntoIterator<Item = usize>) {
        let mut encoder = Encoder::new(1).unwrap();
        for place in places {
            let (name, bytes) = &self.chunks[place];
            assert_eq!(self.handle(Request::Region(agent::region(&[(*name, bytes)], &mut encoder))), None);
        }
    }

    pub(crate) fn describe(&self) {
        let extent = v1::ChunkedExtent {
            index: 0,
            digest: Fingerprint::of(&self.disk).as_bytes().to_vec().into(),
            fingerprints: self
                .chunks
                .iter()
                .flat_map(|(name, _)| *name.as_bytes())
                .collect::<Vec<u8>>()
                .into(),
            lengths: self.chunks.iter().map(|(_, bytes)| u32::try_from(bytes.len()).unwrap()).collect(),
        };
        self.handle(Request::Extents(v1::Extents { chunked: vec![extent], ..v1::Extents::default() }));
    }

    /// Says that it has sent all; whether the stream is finished.
    pub(crate) fn finish(&self) -> bool {
        let finish = v1::FinishStream { read_bytes: self.disk.len() as u64, ..v1::FinishStream::default() };
        let answer = self.handle(Request::Finish(finish));
        self.take(answer)
    }

    /// Looks for the answer to Finish until it is there, and sends what it is asked again. Meanwhile the server stores
    /// what it verified of `other`, which has sent all.
    pub(crate) fn wait(&self, other: Option<&Self>) {
        while !self.take(self.stream.idle().unwrap().and_then(|answer| answer.kind)) {
            if let Some(other) = other {
                other.stream.idle().unwrap();
            }
            std::thread::yield_now();
        }
    }

    fn take(&self, answer: Option<Response>) -> bool {
        match answer {
            Some(Response::Finished(_)) => true,
            Some(Response::Again(again)) => {
                for extent in &again.extents {
                    let lost: Vec<Fingerprint> =
                        Fingerprint::split_list(&extent.fingerprints).unwrap().collect();
                    let places = (0..self.chunks.len()).filter(|place| lost.contains(&self.chunks[*place].0));
                    self.send(places);
                }
                self.finish()
            }
            None | Some(Response::Ack(_)) => false,
            other => panic!("{other:?}"),
        }
    }
}

fn open(engine: &Engine, session: SessionId) -> DiskStream {
    let stream = engine.open_stream(session, 0).unwrap().taking_pending(true);
    stream.opened().unwrap();
    stream
}
