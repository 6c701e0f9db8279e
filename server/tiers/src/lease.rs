//! One writer a bucket: a small object, `lease`, names the server that writes there, and is only replaced if unchanged
//! since it was read. It does not expire, so no clock decides anything: its holder keeps it, over restarts and
//! crashes, until an administrator gives it to another server.
//!
//! A server writes to the bucket only while the lease is the one it wrote last, and checks that before each piece
//! of work (T8). When it loses the lease, at most one piece is in progress: puts of new blobs, never a removal that
//! had not begun.
//!
//! A missing lease was deleted or never written: a server that used the bucket before writes a new one only if the
//! bucket has the contents it knows, or if an administrator says so. A forgotten drill server does not.
//!
//! The text of a lease is recorded before it is written, so after a crash between the request, its answer and the
//! record the lease in the bucket is still recognised as this server's.

use holdfast_volume::{BlobName, VolumeError, list_all};
use parking_lot::Mutex;

use crate::compare::{There, compare};
use crate::error::CopyError;
use crate::holder::{Holder, plain};
use crate::record::{Record, RecordError};
use crate::shared::Shared;
use crate::survey::{Here, Local};
use crate::waiting::Kind;

/// Name of the object.
const NAME: &str = "lease";

/// Text that stands for a missing lease. An empty object is treated alike.
const NO_LEASE: &str = "";

/// Name of the holder of a missing lease: 'tier take-over --from' asks for it.
const NO_HOLDER: &str = "no server (lease missing)";

/// The holder that a text names.
fn holder_of(text: &str) -> Holder {
    match text {
        NO_LEASE => Holder { name: NO_HOLDER.to_owned(), ..Holder::default() },
        text => Holder::parse(text),
    }
}

impl Record {
    /// Returns the other server that writes to the bucket, as far as this data folder knows; or a placeholder if
    /// the lease is gone and the bucket does not have the contents this data folder knows.
    ///
    /// # Errors
    /// The database's.
    pub fn other_writer(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease_of_other()?.as_deref().map(holder_of))
    }

    /// Same as [`Record::other_writer`], but only a server that has the lease.
    pub(crate) fn other_writer_there(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease_of_other()?.filter(|text| text != NO_LEASE).as_deref().map(holder_of))
    }

    /// Returns this data folder's own last lease; `None`: it never had one. Another server may hold it by now
    /// ([`Record::other_writer`]).
    ///
    /// # Errors
    /// The database's.
    pub fn own_lease(&self) -> Result<Option<Holder>, RecordError> {
        Ok(self.lease()?.written.as_deref().map(Holder::parse))
    }

    /// Makes this server take the bucket over from that one at its next attempt, unless the lease has changed
    /// since it was seen.
    ///
    /// # Errors
    /// The database's.
    pub fn take_over(&self) -> Result<(), RecordError> {
        self.lease_take_over()
    }
}

/// Returns true if a blob is the lease.
pub(crate) fn is_lease(name: &BlobName) -> bool {
    name.as_str() == NAME
}

/// The lease, as one process holds it.
#[derive(Debug)]
pub(crate) struct Lease {
    object: BlobName,
    /// Display name of this server.
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Tag of the lease this process wrote.
    held: Option<String>,
    /// Changes found when this text was about to be replaced, or a missing lease written: they are determined once.
    changed: Option<(String, Changes)>,
}

/// Counts of objects missing from the record, and of recorded objects missing from the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Changes {
    more: u64,
    fewer: u64,
}

impl Lease {
    /// Creates it without acquiring the lease.
    pub(crate) fn new(name: &str) -> Result<Self, RecordError> {
        let object = BlobName::new(NAME).ok_or_else(|| RecordError::Foreign(NAME.to_owned()))?;
        Ok(Self { object, name: plain(name), state: Mutex::default() })
    }

    /// (T8) Called right before a write: fails if another server writes to the bucket.
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

    /// Returns the holder if it is another server; it is recorded, so that it can be taken over.
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

    /// Acquires the lease if allowed; returns its tag.
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
            // The next call finds out which server won.
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

    /// Fails if the bucket has the copies of another repository.
    fn check_place(&self, shared: &Shared) -> Result<(), CopyError> {
        let Some(mark) = Kind::Mark.folder() else { return Ok(()) };
        let here = match shared.local.open(&mark) {
            Ok(here) => here,
            // The local volume has no mark: it may have been made from this bucket.
            Err(VolumeError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(CopyError::Local(error)),
        };
        match compare(&*shared.remote.store, &mark, &*here).map_err(CopyError::Remote)? {
            There::Nothing | There::Same(_) => Ok(()),
            There::Other { .. } => Err(CopyError::OtherRepository),
        }
    }
}

/// (T8) Fails unless this server may replace `text` by its own lease. If the lease is missing, removals recorded
/// perhaps months ago must not hit objects that another server has come to count on.
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
    // A lease is another server's unless this one wrote it last, or was told to take over.
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

/// (T8) Compares the containers and restore points in the bucket with those this server knows: by its record (those
/// due for removal included), as a local file of that length, in another form or as an earlier revision. A server that
/// takes a bucket over counts on them from then on. One that `is_new` there knows none. Lists the bucket; the log
/// names unknown objects.
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
