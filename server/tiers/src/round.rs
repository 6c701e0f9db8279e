//! A round of copying: first what was sealed before the round began, kind by kind, then what is to go.
//!
//! ```text
//! begin ──▶ mark ──▶ keys ──▶ containers ──▶ points ──▶ snapshots ──▶ removals ──▶ end
//!                     ▲           │ one went before it was copied: what it was copied forward into,
//!                     └───────────┘ perhaps with newer keys, comes first
//! ```
//!
//! (T7) Once a table of keys is there, those before it go at once, whatever else waits: someone may have their secrets.
//! (T1) A point of the round was sealed before the round began, and all it needs before the point; so by the time that
//! points are copied, all that they need is there. Points sealed during the round wait for the next one. (T2) So do
//! removals that were noted during it.
//!
//! A round either copies what was noted, or compares the whole local listing with the record: the first one of a
//! process, and when so much waits that not all of it could be noted.

use std::collections::VecDeque;

use holdfast_volume::BlobName;

use crate::waiting::Kind;

/// Where a round is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Copying(Kind),
    Removing,
    Done,
    /// It cannot tell what is its own any more; the next one begins anew.
    Abandoned,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Round {
    /// Whether it compares the whole listing.
    pub(crate) is_whole: bool,
    /// Numbers of what was sealed before it began.
    pub(crate) up_to: u64,
    /// As `up_to`, for containers: later when one of them went.
    pub(crate) containers_up_to: u64,
    /// The last removal noted before it began.
    pub(crate) removals_up_to: i64,
    /// The last removal that was dealt with.
    pub(crate) removed_up_to: i64,
    pub(crate) began_ms: i64,
    pub(crate) stage: Stage,
    /// Of a whole round: the last name listed, and whether there is more.
    pub(crate) listed: Option<BlobName>,
    pub(crate) has_listed_all: bool,
    /// To copy now.
    pub(crate) queue: VecDeque<BlobName>,
    /// A container was gone before it was copied.
    pub(crate) went: bool,
    /// Keys and containers come once more: those that were noted meanwhile.
    repeats: bool,
}

impl Round {
    pub(crate) fn begin(is_whole: bool, up_to: u64, removals_up_to: i64, began_ms: i64) -> Self {
        Self {
            is_whole,
            up_to,
            containers_up_to: up_to,
            removals_up_to,
            removed_up_to: 0,
            began_ms,
            stage: Stage::Copying(Kind::Mark),
            listed: None,
            has_listed_all: false,
            queue: VecDeque::new(),
            went: false,
            repeats: false,
        }
    }

    /// Numbers of blobs of this kind that the round is about.
    pub(crate) const fn limit(&self, kind: Kind) -> u64 {
        match kind {
            // Never too early: a table opens what those before it opened, or nothing needs what it does not open.
            Kind::Keys => u64::MAX,
            Kind::Container => self.containers_up_to,
            _ => self.up_to,
        }
    }

    /// All of `kind` is copied.
    pub(crate) fn next_stage(&mut self, kind: Kind) {
        let next = Kind::ALL.into_iter().find(|next| *next > kind);
        self.stage = next.map_or(Stage::Removing, Stage::Copying);
        self.listed = None;
        self.repeats &= kind < Kind::Container;
        self.has_listed_all = self.repeats;
        self.went = false;
    }

    /// (T1) (T2) Containers went before they were copied: what of them is live was written anew before, so it has a number
    /// by now, and may need keys that are newer. Everything noted up to `last` comes before any point.
    pub(crate) fn repeat_containers(&mut self, last: u64) {
        self.containers_up_to = last;
        self.went = false;
        self.repeats = true;
        self.has_listed_all = true;
        self.stage = Stage::Copying(Kind::Keys);
    }
}
