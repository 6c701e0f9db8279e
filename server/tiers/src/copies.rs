//! Copies sealed blobs to the bucket, and removes blobs from it that were removed locally. In steps: the caller of
//! [`Copies::work`] decides when.
//!
//! Every blob is sent once. After a lost answer or a crash, the bucket is asked first whether it has the blob. A
//! failed round resumes at the same place with the next call.

mod removals;

use std::collections::{BTreeMap, HashSet};
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{BlobChecksum, BlobName, Owner, Volume, VolumeError};
use parking_lot::Mutex;

use crate::compare::{There, compare, pieces};
use crate::error::CopyError;
use crate::holder::Holder;
use crate::lease::Lease;
use crate::record::{Record, RecordError};
use crate::round::{Round, Stage};
use crate::shared::Shared;
use crate::volume::TieredVolume;
use crate::waiting::{Kind, Unread};

/// Names listed at a time.
const PAGE: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Blobs each thread copies in one call of [`Copies::work`].
const BLOBS_PER_THREAD: usize = 8;

/// Most local blobs that are remembered as unreadable.
const UNREADABLE_MAX: usize = 1000;

/// Retry interval for unreadable blobs: the cause may have been a cable.
const UNREADABLE_AGAIN_MS: i64 = 3_600_000;

/// Result of one call of [`Copies::work`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Worked {
    pub blobs: u64,
    pub bytes: u64,
    /// `true` if there is more to do now.
    pub more: bool,
}

/// Snapshot of the progress of copying.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyStatus {
    /// Blobs known to be waiting.
    pub waiting_blobs: u64,
    pub waiting_bytes: u64,
    /// All blobs sealed before this are in the bucket, in milliseconds since the Unix epoch. `None`: never complete.
    pub copied_up_to_ms: Option<i64>,
    /// `true` while the local listing is being compared: more blobs may be waiting than is known.
    pub is_comparing: bool,
    /// Blobs copied by this process.
    pub copied_blobs: u64,
    pub copied_bytes: u64,
    /// Removals that the bucket has yet to carry out.
    pub removals: u64,
    /// Local blobs that cannot be read.
    pub unreadable: Vec<BlobName>,
    /// The last failure; cleared when a call succeeds.
    pub failure: Option<String>,
}

/// Copies blobs to the bucket (see the module documentation). Calls of [`Copies::work`] run one at a time.
#[derive(Debug)]
pub struct Copies {
    pub(crate) shared: Arc<Shared>,
    threads: usize,
    lease: Arc<OnceLock<Lease>>,
    state: Mutex<State>,
    status: Mutex<CopyStatus>,
    unread: Mutex<Unread>,
}

#[derive(Debug)]
struct State {
    round: Option<Round>,
    /// The next round compares the whole listing.
    is_whole_due: bool,
    has_discarded: bool,
    /// Blobs sent without an answer.
    unsure: HashSet<BlobName>,
    unreadable: BTreeMap<BlobName, String>,
    /// When the first unreadable blob was found.
    unreadable_since_ms: i64,
}

/// Result of copying a blob.
enum Copied {
    Done(u64),
    /// The local blob was removed.
    Gone,
    /// The local disk cannot read it.
    Unreadable(String),
}

const COPIED_UP_TO: &str = "copied_up_to_ms";

impl TieredVolume {
    /// Creates the copier of this volume, with `threads` blobs in parallel. `name`: this server's name in
    /// messages to others.
    ///
    /// # Errors
    /// The record's.
    pub fn copies(&self, threads: NonZeroUsize, name: &str) -> Result<Copies, RecordError> {
        let lease = Lease::new(name)?;
        self.lease.get_or_init(|| lease);
        let copied_up_to_ms = self.shared.record.said(COPIED_UP_TO)?.and_then(|text| text.parse().ok());
        let removals = self.shared.record.removals_count()?;
        let status = CopyStatus { copied_up_to_ms, removals, is_comparing: true, ..CopyStatus::default() };
        let state = State {
            round: None,
            is_whole_due: true,
            has_discarded: false,
            unsure: HashSet::new(),
            unreadable: BTreeMap::new(),
            unreadable_since_ms: 0,
        };
        Ok(Copies {
            shared: Arc::clone(&self.shared),
            threads: threads.get(),
            lease: Arc::clone(&self.lease),
            state: Mutex::new(state),
            status: Mutex::new(status),
            unread: Mutex::default(),
        })
    }
}

impl Copies {
    /// Returns the current progress.
    pub fn status(&self) -> CopyStatus {
        let mut status = self.status.lock().clone();
        let waiting = self.shared.waiting.totals();
        (status.waiting_blobs, status.waiting_bytes) = (waiting.blobs, waiting.bytes);
        if !status.is_comparing {
            status.copied_up_to_ms = Some(waiting.since_ms.unwrap_or_else(|| self.shared.clock.now_ms()));
        }
        status
    }

    /// Calls `tell` whenever a blob was sealed that is to be copied. It must not block.
    pub fn on_sealed(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.shared.waiting.tell(Box::new(tell));
    }

    /// Returns a mark of everything sealed up to now, for [`Copies::has_up_to`].
    pub fn mark(&self) -> u64 {
        self.shared.waiting.last()
    }

    /// (T12) Returns true if the bucket has everything that was sealed before the mark, except snapshots of the
    /// catalog. Blobs that could not be read locally count as missing.
    pub fn has_up_to(&self, mark: u64) -> bool {
        let status = self.status.lock();
        !status.is_comparing && self.unread.lock().is_above(mark) && self.shared.waiting.has_none_up_to(mark)
    }

    /// The record of the bucket's blobs.
    pub fn record(&self) -> &Record {
        &self.shared.record
    }

    /// The local volume, and the record of the bucket's blobs.
    pub(crate) fn parts(&self) -> (&dyn Volume, &Record) {
        (&*self.shared.local, &self.shared.record)
    }

    /// Asks the bucket for the other server that writes to it; `None`: there is none.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub fn other_writer(&self) -> Result<Option<Holder>, CopyError> {
        self.lease()?.other(&self.shared)
    }

    /// Does the next step: at most a few blobs for each thread, or one removal request.
    ///
    /// # Errors
    /// The reason why copying cannot continue. The next call tries again, at the same place.
    pub fn work(&self, must_stop: &(dyn Fn() -> bool + Sync)) -> Result<Worked, CopyError> {
        let mut state = self.state.lock();
        let worked = self.piece(&mut state, must_stop);
        let mut status = self.status.lock();
        status.failure = worked.as_ref().err().map(ToString::to_string);
        status.unreadable = state.unreadable.keys().cloned().collect();
        if let Ok(worked) = &worked {
            status.copied_blobs += worked.blobs;
            status.copied_bytes += worked.bytes;
        }
        if let Ok(removals) = self.shared.record.removals_count() {
            status.removals = removals;
        }
        worked
    }

    fn piece(&self, state: &mut State, must_stop: &(dyn Fn() -> bool + Sync)) -> Result<Worked, CopyError> {
        let Some(mut round) =
            state.round.take().map_or_else(|| self.begin(state), |round| Ok(Some(round)))?
        else {
            return Ok(Worked::default());
        };
        let worked = match round.stage {
            Stage::Copying(kind) => self.copy_some(state, &mut round, kind, must_stop),
            Stage::Removing => self.remove_some(&mut round),
            Stage::Done | Stage::Abandoned => Ok(Worked::default()),
        };
        match round.stage {
            Stage::Done => self.end(&round)?,
            Stage::Abandoned => state.is_whole_due = true,
            _ => state.round = Some(round),
        }
        worked
    }

    /// Begins the next round; `None`: there is nothing to do.
    fn begin(&self, state: &mut State) -> Result<Option<Round>, CopyError> {
        let Shared { waiting, record, clock, .. } = &*self.shared;
        state.is_whole_due |= waiting.take_lost();
        // (T1) (T2) Blobs and removals noted later belong to the next round.
        let began_ms = clock.now_ms();
        if began_ms.saturating_sub(state.unreadable_since_ms) >= UNREADABLE_AGAIN_MS {
            // (T12) Unreadable blobs count as missing until they are in the bucket.
            let unread = self.unread.lock().names();
            for name in std::mem::take(&mut state.unreadable).into_keys().chain(unread) {
                waiting.note(&name, 0, began_ms);
            }
            state.unreadable_since_ms = began_ms;
        }
        let removals_up_to = record.last_due_removal(began_ms)?;
        let up_to = waiting.last();
        if !state.is_whole_due && waiting.is_empty() && removals_up_to == 0 {
            return Ok(None);
        }
        self.status.lock().is_comparing = state.is_whole_due;
        Ok(Some(Round::begin(std::mem::take(&mut state.is_whole_due), up_to, removals_up_to, began_ms)))
    }

    fn end(&self, round: &Round) -> Result<(), CopyError> {
        let mut status = self.status.lock();
        status.is_comparing = false;
        status.copied_up_to_ms = Some(round.began_ms);
        drop(status);
        Ok(self.shared.record.say(&[(COPIED_UP_TO, round.began_ms.to_string())])?)
    }

    fn copy_some(
        &self,
        state: &mut State,
        round: &mut Round,
        kind: Kind,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Worked, CopyError> {
        self.fill(state, round, kind)?;
        // Checked after the names were listed: names without a number by then were not sealed by this process.
        if kind > Kind::Container && self.shared.waiting.has_lost() {
            // (T1) The points of this round, and the blobs they need, can no longer be determined.
            round.stage = Stage::Abandoned;
            return Ok(Worked { more: true, ..Worked::default() });
        }
        if !round.queue.is_empty() {
            self.may_write(state)?;
        }
        let batch: Vec<BlobName> =
            round.queue.drain(..round.queue.len().min(self.threads * BLOBS_PER_THREAD)).collect();
        if batch.is_empty() {
            if kind == Kind::Keys {
                self.remove_older_keys()?;
            }
            // (T1) Its live chunks were rewritten, perhaps after the round began and with newer keys.
            if kind == Kind::Container && (round.went || self.shared.waiting.take_removed()) {
                round.repeat_containers(self.shared.waiting.last());
            } else {
                round.next_stage(kind);
            }
            return Ok(Worked { more: true, ..Worked::default() });
        }
        self.copy_batch(state, round, batch, must_stop)
    }

    /// Number of blobs copied in parallel.
    pub(crate) const fn threads(&self) -> usize {
        self.threads
    }

    pub(crate) fn lease(&self) -> Result<&Lease, CopyError> {
        self.lease.get().ok_or(CopyError::Unnamed)
    }

    /// (T8) Checks that this server holds the lease.
    fn may_write(&self, state: &mut State) -> Result<(), CopyError> {
        self.lease()?.check(&self.shared)?;
        if !state.has_discarded {
            // Not every object store lists unfinished uploads; a lifecycle rule removes them, too.
            if let Err(error) = self.shared.remote.store.discard_unfinished() {
                tracing::warn!(%error, "cannot discard uploads to the bucket that an earlier process did not finish");
            }
            state.has_discarded = true;
        }
        Ok(())
    }

    /// Refills the queue of names to copy when it is empty.
    fn fill(&self, state: &State, round: &mut Round, kind: Kind) -> Result<(), CopyError> {
        while round.queue.is_empty() {
            if round.is_whole && !round.has_listed_all {
                self.list_more(state, round, kind)?;
                continue;
            }
            let names = self.shared.waiting.first(kind, round.limit(kind), PAGE.get());
            // Names due for removal are copied after their removal, if there is a new blob of that name.
            for name in names {
                let is_to_go = self.is_to_go(&name)?;
                // (T1) Its live chunks were rewritten, and have a number by now.
                round.went |= is_to_go && kind == Kind::Container;
                if is_to_go || state.unreadable.contains_key(&name) {
                    self.shared.waiting.forget(&name);
                } else {
                    round.queue.push_back(name);
                }
            }
            return Ok(());
        }
        Ok(())
    }

    fn list_more(&self, state: &State, round: &mut Round, kind: Kind) -> Result<(), CopyError> {
        let Some(folder) = kind.folder() else { return Ok(()) };
        let Shared { local, record, waiting, .. } = &*self.shared;
        if kind == Kind::Mark {
            round.has_listed_all = true;
            match local.open(&folder) {
                Ok(_) if record.visible(&folder)?.is_none() && !record.is_to_go(&folder)? => {
                    round.queue.push_back(folder);
                }
                Ok(_) | Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(CopyError::Local(error)),
            }
            return Ok(());
        }
        let page = local.list(&folder, round.listed.as_ref(), PAGE).map_err(CopyError::Local)?;
        let known = record.page(&folder, round.listed.as_ref(), PAGE.get())?;
        round.has_listed_all = !page.more;
        round.listed = page.entries.last().map(|entry| entry.name.clone()).or(round.listed.take());
        let known_end = known.entries.last().map(|entry| entry.name.clone()).filter(|_| known.more);
        let known: HashSet<BlobName> = known.entries.into_iter().map(|entry| entry.name).collect();
        for name in page.entries.into_iter().map(|entry| entry.name) {
            if known.contains(&name)
                || state.unreadable.contains_key(&name)
                || self.shared.travels(&name).is_none()
            {
                continue;
            }
            // (T1) A point sealed after the round began may need blobs that were not copied yet, and a snapshot may
            // name it. Keys and containers are never too early.
            let is_later =
                kind > Kind::Container && waiting.number(&name).is_some_and(|number| number > round.up_to);
            let is_known =
                known_end.as_ref().is_some_and(|end| name > *end) && record.visible(&name)?.is_some();
            if is_later || is_known {
                continue;
            }
            if self.is_to_go(&name)? {
                // (T1) Same as above, if it was not listed.
                round.went |= kind == Kind::Container;
            } else {
                round.queue.push_back(name);
            }
        }
        Ok(())
    }

    /// Returns true if an existing local blob's name is due for removal, and makes that removal due now: it
    /// blocks the new blob.
    fn is_to_go(&self, name: &BlobName) -> Result<bool, RecordError> {
        let is_to_go = self.shared.record.is_to_go(name)?;
        if is_to_go {
            self.shared.record.try_held(name)?;
        }
        Ok(is_to_go)
    }

    /// Copies a few blobs in parallel. Blobs that were not copied go back to the queue.
    fn copy_batch(
        &self,
        state: &mut State,
        round: &mut Round,
        batch: Vec<BlobName>,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Worked, CopyError> {
        let left = Mutex::new(
            batch
                .into_iter()
                .map(|name| {
                    let ask_first = round.is_whole || state.unsure.contains(&name);
                    (name, ask_first)
                })
                .collect::<Vec<_>>(),
        );
        let done = Mutex::new(Vec::new());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..self.threads {
                scope.spawn(|| {
                    while !must_stop() && failed.lock().is_none() {
                        let Some((name, ask_first)) = left.lock().pop() else { return };
                        match self.copy_one(&name, ask_first, must_stop) {
                            Ok(copied) => done.lock().push((name, copied)),
                            // An I/O error of the local disk, also while comparing: errors of a bucket have
                            // other variants.
                            Err(
                                CopyError::Local(error @ VolumeError::Io { .. })
                                | CopyError::Remote(error @ VolumeError::Io { .. }),
                            ) => done.lock().push((name, Copied::Unreadable(error.to_string()))),
                            Err(error) => {
                                failed.lock().get_or_insert(error);
                                left.lock().push((name, ask_first));
                            }
                        }
                    }
                });
            }
        });
        let mut worked = Worked { more: true, ..Worked::default() };
        for (name, copied) in done.into_inner() {
            state.unsure.remove(&name);
            match (&copied, self.shared.waiting.number(&name)) {
                (Copied::Unreadable(_), Some(number)) => self.unread.lock().note(&name, number),
                (Copied::Unreadable(_), None) => {}
                (Copied::Done(_) | Copied::Gone, _) => self.unread.lock().forget(&name),
            }
            self.shared.waiting.forget(&name);
            match copied {
                Copied::Done(bytes) => {
                    worked.blobs += 1;
                    worked.bytes += bytes;
                }
                Copied::Gone => round.went = true,
                Copied::Unreadable(why) => {
                    tracing::error!(%name, %why, "cannot be read here, so it is not copied to the bucket");
                    if state.unreadable.is_empty() {
                        state.unreadable_since_ms = self.shared.clock.now_ms();
                    }
                    if state.unreadable.len() < UNREADABLE_MAX {
                        state.unreadable.insert(name, why);
                    }
                }
            }
        }
        for (name, _) in left.into_inner() {
            // Only the bucket knows whether an earlier attempt got through.
            state.unsure.insert(name.clone());
            round.queue.push_front(name);
        }
        failed.into_inner().map_or(Ok(worked), Err)
    }

    fn copy_one(
        &self,
        name: &BlobName,
        ask_first: bool,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Copied, CopyError> {
        let Shared { local, remote, record, .. } = &*self.shared;
        let here = match local.open(name) {
            Ok(here) => here,
            Err(VolumeError::NotFound { .. }) => return Ok(Copied::Gone),
            Err(error) => return Err(CopyError::Local(error)),
        };
        let len = here.len();
        let compare = || compare(&*remote.store, name, &*here).map_err(CopyError::Remote);
        let there = match if ask_first { compare()? } else { There::Nothing } {
            There::Nothing => match self.send(name, &*here, must_stop)? {
                // (T6) Nothing is replaced: the existing object must equal this blob.
                Sent::Exists => compare()?,
                Sent::Done(sum) => {
                    record.add_sent(name, len, sum)?;
                    return Ok(Copied::Done(len));
                }
            },
            there => there,
        };
        match there {
            There::Same(sum) => {
                record.add_sent(name, len, sum)?;
                Ok(Copied::Done(len))
            }
            There::Other { .. } if Kind::of(name) == Some(Kind::Mark) => Err(CopyError::OtherRepository),
            There::Other { len: there } => Err(CopyError::Other { name: name.clone(), here: len, there }),
            // It existed a moment ago.
            There::Nothing => Err(CopyError::Remote(VolumeError::NotFound { name: name.clone() })),
        }
    }

    fn send(
        &self,
        name: &BlobName,
        here: &dyn holdfast_volume::Blob,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Sent, CopyError> {
        let mut writer = match self.shared.remote.writes.create_for(name, Owner::REPOSITORY) {
            Ok(writer) => writer,
            Err(VolumeError::Exists { .. }) => return Ok(Sent::Exists),
            Err(error) => return Err(CopyError::Remote(error)),
        };
        let mut refused = None;
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        let read = pieces(here, |piece| {
            digest.update(piece);
            let appended = if must_stop() { Err(stopped(name)) } else { writer.append(piece) };
            appended.map_err(|error| {
                let said = stopped(name);
                refused = Some(error);
                said
            })
        });
        match (read, refused) {
            (_, Some(error)) => return Err(CopyError::Remote(error)),
            (Err(error), None) => return Err(CopyError::Local(error)),
            (Ok(()), None) => {}
        }
        match writer.seal() {
            Ok(()) => Ok(Sent::Done(BlobChecksum::Crc64Nvme(digest.finalize()))),
            Err(VolumeError::Exists { .. }) => Ok(Sent::Exists),
            Err(error) => Err(CopyError::Remote(error)),
        }
    }
}

/// Result of sending a blob.
enum Sent {
    /// Sent; this is its checksum.
    Done(BlobChecksum),
    Exists,
}

fn stopped(name: &BlobName) -> VolumeError {
    VolumeError::Unavailable {
        action: "copy",
        name: name.to_string(),
        source: "copying was told to stop".into(),
    }
}
