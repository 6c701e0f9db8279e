//! The thread that hands messages to the engine and sends its answers.

use std::sync::mpsc::{self as blocking, RecvTimeoutError, TryRecvError};
use std::time::Duration;

use holdfast_engine::DiskStream;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::{self, ingest_response};

use super::Answers;
use super::intake::{Item, Message};
use super::lanes::Offer;
use crate::activity::streams::StreamGuard;
use crate::activity::worth;
use crate::error::ServiceError;
use crate::grpc::bounds::IDLE_INTERVAL;
use crate::grpc::outgoing::hand_over;

/// The engine's side of a disk coming in, as far as this module needs it; tests have one of their own.
pub(super) trait Disk: Send + 'static {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError>;
    fn handle(&self, kind: Kind, wire_bytes: u64) -> Result<Option<v1::IngestResponse>, ServiceError>;
    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError>;
    /// See [`DiskStream::wait_for_others`].
    fn wait_for_others(&self, timeout: Duration) -> bool;
}

impl Disk for DiskStream {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError> {
        Ok(Self::opened(self)?)
    }

    fn handle(&self, kind: Kind, wire_bytes: u64) -> Result<Option<v1::IngestResponse>, ServiceError> {
        Ok(Self::handle(self, kind, wire_bytes)?)
    }

    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError> {
        Ok(Self::idle(self)?)
    }

    fn wait_for_others(&self, timeout: Duration) -> bool {
        Self::wait_for_others(self, timeout)
    }
}

/// Progress that a message brings, in bytes. A query brings none.
fn worth_of(kind: &Kind, wire_bytes: u64) -> u64 {
    match kind {
        Kind::Extents(v1::Extents { unchanged, zero, chunked }) => {
            let count = |sum: u64, range: &v1::ExtentRange| sum.saturating_add(range.count);
            worth(unchanged.iter().chain(zero).fold(chunked.len() as u64, count), wire_bytes)
        }
        Kind::Region(_) => wire_bytes,
        _ => 0,
    }
}

/// Hands messages to the engine until the disk is finished, the line ends, or the stream must end.
pub(super) fn work(
    disk: &impl Disk,
    guard: &StreamGuard,
    items: &blocking::Receiver<Item>,
    answers: &Answers,
    offer: Offer,
) -> Result<(), ServiceError> {
    let Offer { lanes_max, stream } = offer;
    let opened = v1::StreamOpened { lanes_max, stream, ..disk.opened()? };
    let mut answer = Some(v1::IngestResponse { kind: Some(ingest_response::Kind::Opened(opened)) });
    loop {
        if let Some(answer) = answer.take() {
            let finished = matches!(answer.kind, Some(ingest_response::Kind::Finished(_)));
            if !hand_over(guard, answers, answer)? || finished {
                return Ok(());
            }
        }
        guard.check()?;
        let item = match items.try_recv() {
            Err(TryRecvError::Empty) => {
                answer = disk.idle()?;
                // An agent that waits for Finish says nothing meanwhile.
                if answer.is_some() || guard.working(|| disk.wait_for_others(IDLE_INTERVAL)) {
                    continue;
                }
                match items.recv_timeout(IDLE_INTERVAL) {
                    Err(RecvTimeoutError::Timeout) => continue,
                    Err(RecvTimeoutError::Disconnected) => None,
                    Ok(item) => Some(item),
                }
            }
            Err(TryRecvError::Disconnected) => None,
            Ok(item) => Some(item),
        };
        match item {
            Some(Item::Message(Message { kind, wire_bytes, room }, in_hand)) => {
                let moved = worth_of(&kind, wire_bytes);
                answer = guard.working(|| disk.handle(kind, wire_bytes))?;
                guard.moved(moved);
                drop((room, in_hand));
            }
            Some(Item::Failed(error)) => return Err(error),
            None => {
                guard.check()?;
                return Err(ServiceError::invalid("the agent ended the disk without Finish"));
            }
        }
    }
}
