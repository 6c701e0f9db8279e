//! A part of a disk on its way: who needs any of it waits here, and asks for it no second time.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use parking_lot::{Condvar, Mutex};

use super::layout::Layout;
use crate::restore::BadRange;

/// A part of a disk that was asked for.
#[derive(Debug, Default)]
pub(super) struct Flight {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    chunks: HashMap<Fingerprint, Arc<[u8]>>,
    layout: Option<Arc<Layout>>,
    bad: Vec<BadRange>,
    /// Set once nothing more comes, with the reason if that is a failure.
    ended: Option<Result<(), Arc<str>>>,
}

impl Flight {
    pub(super) fn chunk(&self, fingerprint: Fingerprint, bytes: Arc<[u8]>) {
        self.state.lock().chunks.insert(fingerprint, bytes);
        self.changed.notify_all();
    }

    pub(super) fn layout(&self, layout: Arc<Layout>) {
        self.state.lock().layout = Some(layout);
        self.changed.notify_all();
    }

    /// Chunks that will not come.
    pub(super) fn lose(&self, bad: Vec<BadRange>) {
        self.state.lock().bad.extend(bad);
    }

    /// Nothing more comes. The first reason counts.
    pub(super) fn end(&self, outcome: Result<(), Arc<str>>) {
        self.state.lock().ended.get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// Waits for the chunk at `offset` of the disk.
    pub(super) fn wait_for_chunk(&self, fingerprint: &Fingerprint, offset: u64) -> io::Result<Arc<[u8]>> {
        self.wait(
            |state| state.chunks.get(fingerprint).cloned(),
            |state| {
                let bad = state.bad.iter().find(|bad| (bad.offset..bad.offset + bad.len).contains(&offset));
                bad.map_or_else(|| format!("chunk {fingerprint} did not come"), |bad| bad.reason.to_string())
            },
        )
    }

    pub(super) fn wait_for_layout(&self) -> io::Result<Arc<Layout>> {
        self.wait(|state| state.layout.clone(), |_| "its layout did not come".to_owned())
    }

    fn wait<T>(
        &self,
        find: impl Fn(&State) -> Option<T>,
        lack: impl FnOnce(&State) -> String,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = find(&state) {
                return Ok(found);
            }
            match &state.ended {
                Some(Ok(())) => return Err(io::Error::other(lack(&state))),
                Some(Err(reason)) => return Err(io::Error::other(reason.to_string())),
                None => self.changed.wait(&mut state),
            }
        }
    }
}
