//! A round of copying: first blobs sealed before the round began, kind by kind, then removals.
//!
//! ```text
//! begin ──▶ mark ──▶ keys ──▶ containers ──▶ points ──▶ snapshots ──▶ removals ──▶ end
//!                     ▲           │ one was removed before it was copied: the containers that took over
//!                     └───────────┘ its live chunks, perhaps with newer keys, come first
//! ```
//!
//! (T7) Once a table of keys is in the bucket, older ones are removed at once, whatever else waits: their secrets may
//! have leaked. (T1) A point of the round was sealed before the round began, and everything it needs before the point;
//! so by the time points are copied, everything they need is there. Points sealed during the round wait for the next
//! one. (T2) So do removals recorded during it.
//!
//! A round either copies noted blobs, or compares the whole local listing with the record: the first one of a process
//! does, and any one when more blobs wait than could be noted.

use std::collections::VecDeque;

use holdfast_volume::BlobName;

use crate::waiting::Kind;

/// Stage of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Copying(Kind),
    Removing,
    Done,
    /// The round's own points can no longer be determined; the next round starts over.
    Abandoned,
}

/// State of a round (see the module documentation).
#[derive(Debug)]
pub(crate) struct Round {
    /// `true` if the round compares the whole listing.
    pub(crate) is_whole: bool,
    /// Blobs with numbers up to this one were sealed before the round began.
    pub(crate) up_to: u64,
    /// Same as `up_to`, for containers: later if one of them was removed.
    pub(crate) containers_up_to: u64,
    /// Number of the last removal recorded before the round began.
    pub(crate) removals_up_to: i64,
    /// Number of the last removal that was processed.
    pub(crate) removed_up_to: i64,
    pub(crate) began_ms: i64,
    pub(crate) stage: Stage,
    /// Last name listed by a whole round.
    pub(crate) listed: Option<BlobName>,
    pub(crate) has_listed_all: bool,
    /// Names to copy now.
    pub(crate) queue: VecDeque<BlobName>,
    /// A container was removed before it was copied.
    pub(crate) went: bool,
    /// Keys and containers are copied once more: those noted meanwhile.
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

    /// The highest number of blobs of this kind that the round copies.
    pub(crate) const fn limit(&self, kind: Kind) -> u64 {
        match kind {
            // Never too early: a newer table opens everything that older ones did.
            Kind::Keys => u64::MAX,
            Kind::Container => self.containers_up_to,
            _ => self.up_to,
        }
    }

    /// Moves on after all blobs of `kind` were copied.
    pub(crate) fn next_stage(&mut self, kind: Kind) {
        let next = Kind::ALL.into_iter().find(|next| *next > kind);
        self.stage = next.map_or(Stage::Removing, Stage::Copying);
        self.listed = None;
        self.repeats &= kind < Kind::Container;
        self.has_listed_all = self.repeats;
        self.went = false;
    }

    /// (T1) (T2) Containers were removed before they were copied: their live chunks were rewritten before that, so
    /// they have a number by now, and may need newer keys. Everything noted up to `last` is copied before any point.
    pub(crate) fn repeat_containers(&mut self, last: u64) {
        self.containers_up_to = last;
        self.went = false;
        self.repeats = true;
        self.has_listed_all = true;
        self.stage = Stage::Copying(Kind::Keys);
    }
}
