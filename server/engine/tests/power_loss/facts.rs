//! What an engine has promised, and when: the truth that every start after a crash is held against.
//!
//! A promise counts from the position in the recording at which it was acknowledged. Between its beginning and that,
//! either outcome is right.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_engine::ids::{BackupId, RepositoryId, TokenId};

/// The disks of a VM, by name.
pub(crate) type Disks = Vec<(&'static str, Arc<[u8]>)>;

/// A restore point that an agent was told of.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) vm: String,
    pub(crate) id: String,
    pub(crate) acknowledged: usize,
}

/// A deletion of a restore point, with the positions of its beginning and its end.
#[derive(Debug, Clone)]
pub(crate) struct Deletion {
    pub(crate) id: BackupId,
    pub(crate) begun: usize,
    pub(crate) done: Option<usize>,
}

/// What keeps a restore point, once that was acknowledged.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) id: BackupId,
    pub(crate) acknowledged: usize,
    /// `None`: held, without an end.
    pub(crate) until_ms: Option<i64>,
    /// When the release of a hold began.
    pub(crate) releasing: Option<usize>,
}

/// A token, with the positions of its making and its end.
#[derive(Debug, Clone)]
pub(crate) struct Token {
    pub(crate) id: TokenId,
    pub(crate) hash: [u8; 32],
    pub(crate) acknowledged: usize,
    pub(crate) revoking: Option<usize>,
    pub(crate) revoked: Option<usize>,
}

/// Everything promised.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) repository: Option<(RepositoryId, usize)>,
    pub(crate) points: Vec<Point>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) deletions: Vec<Deletion>,
    pub(crate) kept: Vec<Kept>,
    /// When the life began to spoil what parity protects.
    pub(crate) spoiling: Option<usize>,
    /// Disks that an agent began to send, and when.
    pub(crate) offers: Vec<(usize, String, Disks)>,
}

impl Facts {
    /// What must be so after a crash at `position`, from which a new count begins.
    pub(crate) fn at(&self, position: usize) -> Self {
        let mut kept = self.clone();
        kept.repository = self.repository.filter(|(_, at)| *at <= position).map(|(id, _)| (id, 0));
        kept.points.retain(|point| point.acknowledged <= position);
        kept.points.iter_mut().for_each(|point| point.acknowledged = 0);
        kept.tokens.retain(|token| token.acknowledged <= position);
        for token in &mut kept.tokens {
            token.acknowledged = 0;
            token.revoking = token.revoking.filter(|at| *at < position).map(|_| 0);
            token.revoked = token.revoked.filter(|at| *at <= position).map(|_| 0);
        }
        kept.deletions.retain(|deletion| deletion.begun < position);
        for deletion in &mut kept.deletions {
            deletion.begun = 0;
            deletion.done = deletion.done.filter(|at| *at <= position).map(|_| 0);
        }
        kept.kept.retain(|one| one.acknowledged <= position);
        for one in &mut kept.kept {
            one.acknowledged = 0;
            one.releasing = one.releasing.filter(|at| *at < position).map(|_| 0);
        }
        kept.spoiling = self.spoiling.filter(|at| *at < position).map(|_| 0);
        // What was being sent when it happened comes last.
        kept.offers.retain(|(at, ..)| *at <= position);
        kept.offers.iter_mut().for_each(|(at, ..)| *at = 0);
        kept
    }

    /// Adds what was promised afterwards.
    pub(crate) fn and(mut self, later: Self) -> Self {
        self.repository = self.repository.or(later.repository);
        self.points.extend(later.points);
        self.tokens.extend(later.tokens);
        self.deletions.extend(later.deletions);
        self.kept.extend(later.kept);
        self.spoiling = self.spoiling.or(later.spoiling);
        self.offers.extend(later.offers);
        self
    }

    /// Restore points of which a deletion was begun, and whether that was acknowledged.
    pub(crate) fn deleted(&self) -> HashMap<String, bool> {
        let mut deleted: HashMap<String, bool> = HashMap::new();
        for deletion in &self.deletions {
            *deleted.entry(deletion.id.to_string()).or_default() |= deletion.done.is_some();
        }
        deleted
    }

    /// The contents that a disk of a VM was ever given.
    pub(crate) fn offered(&self) -> HashMap<(&str, &str), HashSet<&[u8]>> {
        let mut offered: HashMap<_, HashSet<&[u8]>> = HashMap::new();
        for (_, vm, disks) in &self.offers {
            for (name, bytes) in disks {
                offered.entry((vm.as_str(), *name)).or_default().insert(bytes);
            }
        }
        offered
    }

    /// Positions at which something was acknowledged.
    pub(crate) fn acknowledgements(&self) -> Vec<usize> {
        let points = self.points.iter().map(|point| point.acknowledged);
        let tokens = self.tokens.iter().flat_map(|token| [Some(token.acknowledged), token.revoked]).flatten();
        let deletions = self.deletions.iter().filter_map(|deletion| deletion.done);
        let kept = self.kept.iter().map(|one| one.acknowledged);
        points.chain(tokens).chain(deletions).chain(kept).chain(self.repository.map(|(_, at)| at)).collect()
    }
}
