//! An agent that goes on message by message, takes over what did not change, and waits for what others bring.

use std::collections::VecDeque;
use std::time::Duration;

use holdfast_proto::Fingerprint;
use holdfast_proto::region::Encoder;
use holdfast_proto::v1;
use holdfast_types::ids::SessionId;
use v1::ingest_request::Kind as Request;
use v1::ingest_response::Kind as Response;

use super::disks::{Disk, chunk, name, number};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::ingest::{Committed, DiskStream};
use crate::tests::agent::{region, request, start};

/// Maximum time that one step waits for other streams.
const WAIT: Duration = Duration::from_millis(5);

/// Next step of the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Next {
    Unchanged(usize),
    Zero(usize),
    Query(usize),
    Send(Vec<usize>),
    Describe(usize),
    Finish,
    /// Waits for the answer to Finish.
    Wait,
    Commit,
}

/// An agent that goes on message by message, takes over unchanged extents, and waits for chunks that others bring.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) session: SessionId,
    pub(super) disk: Disk,
    pub(super) run: String,
    stream: Option<DiskStream>,
    /// The parent's digests of extents, as far as they are offered.
    parent: Vec<Fingerprint>,
    next: VecDeque<Next>,
    /// Chunks sent in one region.
    together: usize,
}

pub(super) fn vm_name(vm: usize) -> String {
    format!("vm-{vm}")
}

impl Agent {
    /// Starts a backup; its stream is opened next.
    pub(super) fn start(
        engine: &Engine,
        vm: usize,
        disk: &Disk,
        (together, run): (usize, &str),
    ) -> Result<Self, EngineError> {
        let mut wanted = request(&vm_name(vm), &[("root", &[])]);
        wanted.disks[0].size_bytes = disk.size_bytes();
        run.clone_into(&mut wanted.run_id);
        let started = start(engine, wanted)?;
        let session: SessionId = started.session_id.parse().unwrap();
        let (disk, next, run) = (disk.clone(), VecDeque::new(), started.run_id);
        Ok(Self { session, disk, run, stream: None, parent: Vec::new(), next, together })
    }

    /// Loses the connection, which is made again later.
    pub(super) fn disconnect(&mut self) {
        self.stream = None;
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.stream.is_some()
    }

    /// Returns true if its next message is the commit.
    pub(super) fn is_sent(&self) -> bool {
        self.next.front() == Some(&Next::Commit)
    }

    /// Returns true if it waits for the server.
    pub(super) fn waits(&self) -> bool {
        self.next.front() == Some(&Next::Wait)
    }

    /// Opens the stream and goes on with what was not accepted.
    pub(super) fn open(&mut self, engine: &Engine) -> Result<(), EngineError> {
        self.parent.clear();
        while let Some(block) = engine.parent_digests(self.session, 0, self.parent.len() as u64)? {
            self.parent.extend(Fingerprint::split_list(&block.digests).unwrap());
        }
        let stream = engine.open_stream(self.session, 0)?.taking_pending(true);
        let accepted = stream.opened()?.accepted;
        let is_accepted = |extent: usize| {
            let index = extent as u64;
            accepted.iter().any(|range| (range.first..range.first + range.count).contains(&index))
        };
        let wanted = (0..self.disk.0.len()).filter(|extent| !is_accepted(*extent));
        self.next = wanted
            .map(|extent| match self.disk.digest(extent) {
                digest if self.parent.get(extent) == Some(&digest) => Next::Unchanged(extent),
                digest if digest.is_zero() => Next::Zero(extent),
                _ => Next::Query(extent),
            })
            .collect();
        self.next.extend([Next::Finish, Next::Commit]);
        self.stream = Some(stream);
        Ok(())
    }

    fn handle(&self, message: Request) -> Result<Option<Response>, EngineError> {
        let stream = self.stream.as_ref().expect("connected");
        Ok(stream.handle(message, 10)?.and_then(|answer| answer.kind))
    }

    /// Does the next thing; the answer to a commit is the last.
    pub(super) fn step(&mut self, engine: &Engine) -> Result<Option<Committed>, EngineError> {
        let range = |extent: usize| vec![v1::ExtentRange { first: extent as u64, count: 1 }];
        match self.next.pop_front().expect("not committed yet") {
            Next::Unchanged(extent) => {
                let message = v1::Extents { unchanged: range(extent), ..v1::Extents::default() };
                self.handle(Request::Extents(message))?;
            }
            Next::Zero(extent) => {
                let message = v1::Extents { zero: range(extent), ..v1::Extents::default() };
                self.handle(Request::Extents(message))?;
            }
            Next::Query(extent) => self.query(extent)?,
            Next::Send(chunks) => self.send(&chunks)?,
            Next::Describe(extent) => {
                let chunked = vec![self.disk.describe(extent)];
                self.handle(Request::Extents(v1::Extents { chunked, ..v1::Extents::default() }))?;
            }
            Next::Finish => {
                let finish =
                    v1::FinishStream { read_bytes: self.disk.size_bytes(), ..v1::FinishStream::default() };
                let answer = self.handle(Request::Finish(finish))?;
                self.take_answer(answer);
            }
            Next::Wait => {
                let stream = self.stream.as_ref().expect("connected");
                let answer = stream.idle()?.and_then(|answer| answer.kind);
                if answer.is_none() {
                    let _ = stream.wait_for_others(WAIT);
                }
                self.take_answer(answer);
            }
            Next::Commit => return engine.commit(self.session).map(Some),
        }
        Ok(None)
    }

    fn query(&mut self, extent: usize) -> Result<(), EngineError> {
        let chunks = self.disk.0[extent].clone();
        let fingerprints: Vec<u8> = chunks.iter().flat_map(|number| *name(*number).as_bytes()).collect();
        let query = v1::Query { sequence: extent as u64, fingerprints: fingerprints.into() };
        let Some(Response::Need(need)) = self.handle(Request::Query(query))? else { panic!("no answer") };
        let is_needed = |place: usize| need.bitmap[place / 8] >> (place % 8) & 1 == 1;
        let mut needed = Vec::new();
        for (place, number) in chunks.iter().enumerate() {
            if is_needed(place) && !needed.contains(number) {
                needed.push(*number);
            }
        }
        self.next.push_front(Next::Describe(extent));
        self.send_next(&needed);
        Ok(())
    }

    /// Sends these before anything else, some at a time.
    fn send_next(&mut self, chunks: &[usize]) {
        for some in chunks.chunks(self.together).rev() {
            self.next.push_front(Next::Send(some.to_vec()));
        }
    }

    fn send(&self, chunks: &[usize]) -> Result<(), EngineError> {
        let chunks: Vec<_> = chunks.iter().map(|number| (name(*number), chunk(*number))).collect();
        self.handle(Request::Region(region(&chunks, &mut Encoder::new(1).unwrap())))?;
        Ok(())
    }

    fn take_answer(&mut self, answer: Option<Response>) {
        match answer {
            None | Some(Response::Ack(_)) => self.next.push_front(Next::Wait),
            Some(Response::Finished(_)) => {}
            Some(Response::Again(again)) => {
                let names = again.extents.iter().flat_map(|extent| {
                    Fingerprint::split_list(&extent.fingerprints).unwrap().collect::<Vec<_>>()
                });
                let chunks: Vec<usize> = names.map(|name| number(&name)).collect();
                assert!(!chunks.is_empty(), "asked again for nothing");
                self.next.push_front(Next::Finish);
                self.send_next(&chunks);
            }
            Some(other) => panic!("{other:?}"),
        }
    }
}
