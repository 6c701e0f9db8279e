//! Several connections that read one disk together, and what becomes of those that are lost or refused.
//!
//! Each reads span after span. One that is lost gives back what it did not finish, so that the others go on with it,
//! and connects again. One that the server has no room for leaves, and so does one that was lost for too long, as long
//! as another is left: the last one stays, waits and tries for as long as an outage may last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_proto::limits::extent_count;
use holdfast_proto::v1::restore_client::RestoreClient;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::stream::DiskStreams;
use crate::backoff::Backoff;
use crate::cancel::Cancel;
use crate::connect::connections::{CONNECTIONS_MAX, Connections, Growth, Interval};
use crate::connect::{AuthedChannel, Connection, Settings};
use crate::error::ClientError;
use crate::progress::Notice;
use crate::turn::{Turn, give_way};

type Client = RestoreClient<AuthedChannel>;

/// Parameters to reach the server with, for one disk after another.
#[derive(Debug, Clone)]
pub(super) struct Links {
    pub(super) settings: Settings,
    /// The first one's; others are made like it.
    pub(super) first: Arc<Mutex<Connection>>,
    /// More connections that work and have nothing to do.
    pub(super) spare: Arc<Mutex<Vec<Client>>>,
    pub(super) retry_for: Duration,
}

/// Workers that read one disk, one a connection.
pub(super) struct Workers {
    streams: DiskStreams,
    links: Links,
    epoch: Instant,
    /// Number of workers that have not left.
    workers: Mutex<u32>,
    /// Number of workers that have a connection.
    connected: AtomicU32,
    /// Time at which the last window was completed.
    advanced: Mutex<Duration>,
    /// Worker that reports an outage, so that all of them together do not say the same thing.
    speaker: Mutex<Option<u32>>,
}

/// One worker.
struct Worker {
    number: u32,
    client: Option<Client>,
    /// Set once it has had a connection.
    known: bool,
    backoff: Backoff,
}

/// Remedies for an error; with neither, it ends the restore.
#[derive(Debug, PartialEq, Eq)]
struct Remedy {
    /// The others go on without this one.
    leaving: bool,
    /// It waits and tries again: the error may pass.
    waiting: bool,
}

impl Remedy {
    /// `dialing`: another connection could not be made, which is no reason to end those that work.
    fn of(error: &ClientError, dialing: bool) -> Self {
        let (limit, lost) = (error.is_limit(), error.is_connection_loss());
        let due_to_another = limit || error.is_giving_way();
        Self { leaving: due_to_another || (dialing && !lost), waiting: limit || lost }
    }
}

impl Workers {
    pub(super) fn new(streams: DiskStreams, links: Links) -> Arc<Self> {
        Arc::new(Self {
            streams,
            links,
            epoch: Instant::now(),
            workers: Mutex::new(0),
            connected: AtomicU32::new(0),
            advanced: Mutex::new(Duration::ZERO),
            speaker: Mutex::new(None),
        })
    }

    /// Reads all of the disk over as many connections as `wanted` comes to. When it returns, nothing of it but jobs is
    /// in progress.
    pub(super) async fn read(
        self: &Arc<Self>,
        wanted: Connections,
        cancel: &Cancel,
    ) -> Result<(), ClientError> {
        let mut tasks = JoinSet::new();
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ClientError::Interrupted),
            outcome = self.read_with(wanted, &mut tasks) => outcome,
        };
        tasks.shutdown().await;
        self.streams.progress.connections(0);
        outcome
    }

    async fn read_with(
        self: &Arc<Self>,
        wanted: Connections,
        tasks: &mut JoinSet<Result<(), ClientError>>,
    ) -> Result<(), ClientError> {
        let rtt = self.links.first.lock().rtt();
        let extents = extent_count(self.streams.disk.size_bytes);
        let most = u32::try_from(extents).unwrap_or(u32::MAX).clamp(1, CONNECTIONS_MAX);
        let first = wanted.first(rtt, most);
        let mut growth = Growth::new(wanted, rtt, most, first);
        tracing::info!(connections = first, rtt_ms = rtt.as_secs_f64() * 1e3, "reading a disk");
        self.enlist(first, tasks);
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    Some(Ok(Ok(()))) if self.streams.spans.is_complete() => return Ok(()),
                    Some(Ok(Ok(()))) => growth.stopped_at(*self.workers.lock()),
                    Some(Ok(Err(error))) => return Err(error),
                    Some(Err(_)) | None => return Err(ClientError::Internal("a restore stream was cut short")),
                },
                () = tokio::time::sleep(growth.interval()), if growth.may_grow() => {
                    let before = growth.count();
                    let after = growth.after(self.interval(growth.interval()));
                    self.enlist(after.saturating_sub(before), tasks);
                }
            }
        }
    }

    fn interval(&self, length: Duration) -> Interval {
        let (bytes, waited) = self.streams.flow.take();
        Interval { length, bytes, held_up: waited / (*self.workers.lock()).max(1) }
    }

    /// Adds `count` workers.
    fn enlist(self: &Arc<Self>, count: u32, tasks: &mut JoinSet<Result<(), ClientError>>) {
        let numbers = {
            let mut workers = self.workers.lock();
            let numbers = *workers..*workers + count;
            *workers = numbers.end;
            numbers
        };
        for number in numbers {
            let client = if number == 0 {
                Some(self.links.first.lock().restore())
            } else {
                self.links.spare.lock().pop()
            };
            let mut worker =
                Worker { number, client: None, known: false, backoff: Backoff::new(self.links.retry_for) };
            self.set_client(&mut worker, client);
            // The request's id goes with every line that the task logs.
            tasks.spawn(Arc::clone(self).work(worker).in_current_span());
        }
        self.streams.spans.look_again();
    }

    /// Reads spans until the disk is complete, or this one leaves.
    async fn work(self: Arc<Self>, mut worker: Worker) -> Result<(), ClientError> {
        loop {
            let Some(client) = worker.client.clone() else {
                match self.connect(worker.number).await {
                    Ok(client) => self.set_client(&mut worker, Some(client)),
                    Err(error) => {
                        let dialing = worker.number > 0;
                        if !self.stays(&mut worker, error, dialing).await? {
                            return Ok(());
                        }
                    }
                }
                continue;
            };
            let Some(mut span) = self.streams.spans.take(|| u64::from(*self.workers.lock())).await else {
                self.links.spare.lock().extend(worker.client.take().filter(|_| worker.number > 0));
                return Ok(());
            };
            let (begun, first) = (Instant::now(), span.first);
            // One is enough to wait for a turn; the others need not be.
            let may_refuse = worker.number > 0 && *self.workers.lock() > 1;
            let mut turn = Turn::new(&*self.streams.progress);
            let outcome = self.streams.follow(client, &mut span, &mut turn, may_refuse).await;
            if turn.has_waited() {
                // The server was there: a loss after that begins a new outage.
                worker.backoff.progressed();
            }
            drop(turn);
            if span.first > first {
                worker.backoff.progressed();
                *self.advanced.lock() = self.epoch.elapsed();
                self.is_well(worker.number);
            }
            if matches!(outcome, Ok(true)) {
                self.streams.spans.complete(span, begun.elapsed());
                continue;
            }
            self.streams.give_back(span).await?;
            let Err(error) = outcome else { continue };
            if may_refuse && error.is_limit() {
                if self.leaves(&mut worker, &error) {
                    return Ok(());
                }
                // The one that waited for a turn was lost meanwhile: this one takes its place.
                continue;
            }
            if !error.is_limit() && !error.is_giving_way() {
                self.set_client(&mut worker, None);
            }
            if !self.stays(&mut worker, error, false).await? {
                return Ok(());
            }
        }
    }

    /// A new connection for one of them.
    async fn connect(&self, number: u32) -> Result<Client, ClientError> {
        if number > 0 {
            let first = self.links.first.lock().clone();
            return Ok(first.another().await?.restore());
        }
        let connection = Connection::open(&self.links.settings).await?;
        let client = connection.restore();
        *self.links.first.lock() = connection;
        Ok(client)
    }

    /// Handles `error` of one of them: true after a pause, to try again; false if it leaves. `dialing`: there was no
    /// connection yet, nor need there be one.
    async fn stays(
        &self,
        worker: &mut Worker,
        error: ClientError,
        dialing: bool,
    ) -> Result<bool, ClientError> {
        let remedy = Remedy::of(&error, dialing);
        if remedy.leaving && self.leaves(worker, &error) {
            return Ok(false);
        }
        if !remedy.waiting {
            return Err(error);
        }
        if error.is_giving_way() {
            worker.backoff.progressed();
            give_way(&error).await;
            return Ok(true);
        }
        let limit = error.is_limit();
        let now = self.epoch.elapsed();
        let mut delay = worker.backoff.next_delay(now);
        if delay.is_none() {
            if self.leaves(worker, &error) {
                return Ok(false);
            }
            // The outage of the last one began when the others did not get on any more either.
            if now.saturating_sub(*self.advanced.lock()) < self.links.retry_for {
                worker.backoff.progressed();
                delay = worker.backoff.next_delay(now);
            }
        }
        let Some(delay) = delay else { return Err(error) };
        if worker.known && self.speaks(worker.number) {
            let reason = error.to_string();
            let notice = if limit {
                Notice::Waiting { reason, delay }
            } else {
                Notice::Reconnecting { reason, delay }
            };
            self.streams.progress.notice(&notice);
        }
        tokio::time::sleep(delay).await;
        Ok(true)
    }

    /// Leaves, unless it is the last one.
    fn leaves(&self, worker: &mut Worker, error: &ClientError) -> bool {
        {
            let mut workers = self.workers.lock();
            if *workers <= 1 {
                return false;
            }
            *workers -= 1;
            tracing::info!(%error, connections = *workers, "a restore goes on with fewer connections");
        }
        self.set_client(worker, None);
        self.is_well(worker.number);
        self.streams.spans.look_again();
        true
    }

    fn set_client(&self, worker: &mut Worker, client: Option<Client>) {
        let count = match (worker.client.is_some(), client.is_some()) {
            (false, true) => self.connected.fetch_add(1, Ordering::Relaxed) + 1,
            (true, false) => self.connected.fetch_sub(1, Ordering::Relaxed) - 1,
            _ => return,
        };
        worker.known = true;
        worker.client = client;
        self.streams.progress.connections(count);
    }

    /// Returns true if it is this one that reports an outage.
    fn speaks(&self, number: u32) -> bool {
        *self.speaker.lock().get_or_insert(number) == number
    }

    /// The outage is over for this one.
    fn is_well(&self, number: u32) {
        self.speaker.lock().take_if(|speaker| *speaker == number);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::ErrorCode;

    use super::*;

    #[test]
    fn only_what_passes_or_was_extra_does_not_end_a_restore() {
        let damaged = ClientError::Damaged { disk: "d".to_owned(), what: "extent 3".to_owned() };
        let full = || ClientError::Refused { code: ErrorCode::Limit, passes: true, message: String::new() };
        let token = || ClientError::Refused {
            code: ErrorCode::Unauthenticated,
            passes: false,
            message: String::new(),
        };
        let lost = || ClientError::Lost("gone".to_owned());
        let gives_way =
            ClientError::Refused { code: ErrorCode::Unavailable, passes: true, message: String::new() };
        assert_eq!(Remedy::of(&gives_way, false), Remedy { leaving: true, waiting: true });
        let remedy = |leaving, waiting| Remedy { leaving, waiting };
        assert_eq!(Remedy::of(&damaged, false), remedy(false, false), "whichever connection it came over");
        assert_eq!(Remedy::of(&token(), false), remedy(false, false));
        assert_eq!(Remedy::of(&token(), true), remedy(true, false), "those that work go on");
        for dialing in [false, true] {
            assert_eq!(Remedy::of(&full(), dialing), remedy(true, true));
            assert_eq!(Remedy::of(&lost(), dialing), remedy(false, true));
        }
    }
}
