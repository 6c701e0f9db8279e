//! One writer a bucket: a small object, `lease`, names who writes there, and is changed only as it was read. It has no end
//! of its own, so no clock decides anything: who has it keeps it, over restarts and crashes, until an administrator gives
//! it to another server.
//!
//! A server writes to the bucket only while the lease is what it wrote there last, and looks right before each piece of
//! work (T8). What is under way when it loses the lease is a piece at most: blobs that were not there, never a removal
//! that it had not begun.
//!
//! Where no lease lies, it was deleted or none was written yet: a server that used the bucket before writes one only where
//! the bucket is what it knows, or where an administrator says so. The drill server that was forgotten does not.
//!
//! A crash between the change and its answer, or between the answer and the record, leaves a lease whose text the record
//! has: it was written down before.

use holdfast_volume::{BlobName, VolumeError, list_all};
use parking_lot::Mutex;

use crate::compare::{There, compare};
use crate::error::CopyError;
use crate::holder::{Holder, plain};
use crate::record::{Record, RecordError};
use crate::shared::Shared;
use crate::survey::{Here, Local};
use crate::waiting::Kind;

/// What the object is called.
const NAME: &str = "lease";

/// Text of a lease that is not there. An empty object says as little.
const NO_LEASE: &str = "";

/// Name of its holder: 'tier take-over --from' asks for it.
const NO_HOLDER: &str = "no server (lease missing)";

/// The holder that a text names.
fn holder_of(text: &str) -> Holder {
    match text {
        NO_LEASE => Holder { name: NO_HOLDER.to_owned(), ..Holder::default() },
        text => Holder::parse(text),
    }
}

impl Record {
    /// Which other server writes to the bucket, as far as this data folder knows; also that none does, where the lease is
    /// gone and the bucket is not what this data folder knows.
    ///
    /// # Errors
    /// The database's.
    pub fn other_writer(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease_of_other()?.as_deref().map(holder_of))
    }

    /// As [`Record::other_writer`], only a server that has the lease.
    pub(crate) fn other_writer_there(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease_of_other()?.filter(|text| text != NO_LEASE).as_deref().map(holder_of))
    }

    /// How this data folder signed the lease when it had it last; `None`: it never had it. Another server may have it by now
    /// ([`Record::other_writer`]).
    ///
    /// # Errors
    /// The database's.
    pub fn own_lease(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease()?.written.as_deref().map(Holder::parse))
    }

    /// Has this server take the bucket over from that one at its next try, unless the lease has changed since it was
    /// seen.
    ///
    /// # Errors
    /// The database's.
    pub fn take_over(&self) -> Result<(), RecordError> {
        self.lease_take_over()
    }
}

/// Whether a blob is the lease.
pub(crate) fn is_lease(name: &BlobName) -> bool {
    name.as_str() == NAME
}

/// The lease, as a process has it.
#[derive(Debug)]
pub(crate) struct Lease {
    object: BlobName,
    /// Of this server, for people.
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The tag of what this process wrote.
    held: Option<String>,
    /// Changes found when this text was about to be replaced, or one to be written where none lies: they are looked for once.
    changed: Option<(String, Changes)>,
}

/// Objects that the record does not know of, and those that it knows of and that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Changes {
    more: u64,
    fewer: u64,
}

impl Lease {
    /// Not had yet.
    pub(crate) fn new(name: &str) -> Result<Self, RecordError> {
        let object = BlobName::new(NAME).ok_or_else(|| RecordError::Foreign(NAME.to_owned()))?;
        Ok(Self { object, name: plain(name), state: Mutex::default() })
    }

    /// (T8) Right before something is written: fails when another server writes there.
    pub(crate) fn check(&self, shared: &Shared) -> Result<(), CopyError> {
        let mut state = self.state.lock();
        if let Some(tag) = &state.held {
            let found = shared.remote.store.tag(&self.object).map_err(CopyError::Remote)?;
            if found.as_ref() == Some(tag) {
                return Ok(());
            }
            tracing::warn!(
                "the lease of the bucket is not what this server wrote: nothing is written there until it is clear why"
            );
            state.held = None;
        }
        state.held = Some(self.acquire(&mut state, shared)?);
        Ok(())
    }

    /// Who has it, if that is another server; it is remembered, so that it can be taken over.
    pub(crate) fn other(&self, shared: &Shared) -> Result<Option<Holder>, CopyError> {
        let Some((text, _)) = self.read(shared)? else { return Ok(None) };
        if shared.record.lease()?.is_ours(&text) {
            return Ok(None);
        }
        shared.record.lease_seen(&text)?;
        Ok(Some(holder_of(&text)))
    }

    fn read(&self, shared: &Shared) -> Result<Option<(String, String)>, CopyError> {
        let found = shared.remote.store.read_tagged(&self.object).map_err(CopyError::Remote)?;
        Ok(found.map(|found| (String::from_utf8_lossy(&found.bytes).into_owned(), found.tag)))
    }

    /// Takes it where it may be taken; returns its tag.
    fn acquire(&self, state: &mut State, shared: &Shared) -> Result<String, CopyError> {
        self.check_place(shared)?;
        let found = self.read(shared)?;
        may_take(state, shared, found.as_ref().map_or(NO_LEASE, |(text, _)| text.as_str()))?;
        let own = shared.record.lease()?;
        let last = found.as_ref().map(|(text, _)| text).or(own.written.as_ref());
        let holder = Holder {
            name: self.name.clone(),
            server: own.server,
            number: last.map_or(0, |text| Holder::parse(text).number).saturating_add(1),
            since_ms: shared.clock.now_ms(),
        };
        let text = holder.text(&shared.record.random_text()?);
        shared.record.lease_writing(&text)?;
        let tag = found.as_ref().map(|(_, tag)| tag.as_str());
        let replaced = shared.remote.store.replace_tagged(&self.object, text.as_bytes(), tag);
        let Some(tag) = replaced.map_err(CopyError::Remote)? else {
            // Who was faster, the next call finds.
            return Err(CopyError::Remote(VolumeError::Unavailable {
                action: "change",
                name: NAME.to_owned(),
                source: "another server changed it at the same moment".into(),
            }));
        };
        shared.record.lease_written(&text)?;
        shared.remote.store.sign_with(holder.number);
        tracing::info!(%holder, "this server writes to the bucket");
        Ok(tag)
    }

    /// Nothing is written to a place that has the copies of another repository.
    fn check_place(&self, shared: &Shared) -> Result<(), CopyError> {
        let Some(mark) = Kind::Mark.folder() else { return Ok(()) };
        let here = match shared.local.open(&mark) {
            Ok(here) => here,
            // What is only there was found there.
            Err(VolumeError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(CopyError::Local(error)),
        };
        match compare(&*shared.remote.store, &mark, &*here).map_err(CopyError::Remote)? {
            There::Nothing | There::Same(_) => Ok(()),
            There::Other { .. } => Err(CopyError::OtherRepository),
        }
    }
}

/// (T8) Fails unless this server may write its lease in place of `text`. Where none lies, what was noted to be removed, perhaps
/// months ago, must not be what another server has come to count on.
fn may_take(state: &mut State, shared: &Shared, text: &str) -> Result<(), CopyError> {
    let own = shared.record.lease()?;
    let is_told = own.take_over.as_deref() == Some(text);
    if text == NO_LEASE {
        if is_told {
            return Ok(());
        }
    } else if own.is_ours(text) {
        return Ok(());
    } else if !is_told {
        shared.record.lease_seen(text)?;
        return Err(CopyError::Leased(holder_of(text)));
    }
    let known = state.changed.take().filter(|(of, _)| of == text).map(|(_, changes)| changes);
    // What lies there is another's unless it wrote there last, or was told to go on.
    let is_new = text == NO_LEASE && own.written.is_none();
    let changes = known.map_or_else(|| changes(shared, is_new), Ok)?;
    if changes != (Changes { more: 0, fewer: 0 }) {
        shared.record.lease_seen(text)?;
        state.changed = Some((text.to_owned(), changes));
        let Changes { more, fewer } = changes;
        return Err(match text {
            NO_LEASE => CopyError::NoLease { more, fewer },
            text => CopyError::Changed { holder: holder_of(text), more, fewer },
        });
    }
    Ok(())
}

/// (T8) How the bucket differs from what this server knows, of containers and restore points: by its record, be it that they
/// are to go, as its own file of that length, in another form or as an earlier revision. A server that takes a bucket over
/// counts on that from then on. One that `is_new` there knows nothing. Lists the bucket; the log names what is not known.
fn changes(shared: &Shared, is_new: bool) -> Result<Changes, CopyError> {
    let Shared { local, remote, record, names, .. } = shared;
    let here = Here::new(&**local, *names);
    let (mut more, mut fewer) = (0, 0);
    for folder in [Kind::Container, Kind::Point].into_iter().filter_map(Kind::folder) {
        let mut known = 0;
        for entry in list_all(&*remote.reads, &folder) {
            let entry = entry.map_err(CopyError::Remote)?;
            let is_recorded = record.recorded(&entry.name)? == Some(entry.len);
            known += u64::from(is_recorded);
            let is_known = is_recorded
                || record.is_to_go(&entry.name)?
                || matches!(here.find(&entry).map_err(CopyError::Local)?, Local::Here);
            if is_new || !is_known {
                tracing::warn!(name = %entry.name, "an object of the bucket that this data folder does not know");
                more += 1;
            }
        }
        fewer += record.recorded_in(&folder)?.saturating_sub(known);
    }
    Ok(Changes { more, fewer })
}

#[cfg(test)]
mod tests;
