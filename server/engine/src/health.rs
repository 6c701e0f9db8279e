//! The one latch of a repository: the kinds of work that have stopped, each with its reason.
//!
//! After a failed fsync it is unknown what the disk holds, so nothing is retried (W9): the work that depends on it
//! stops until the server is started again, and says why. Reading goes on. Transient failures (a timeout, too many open
//! files, a full disk) stop nothing. The table "Failures and what they stop" of ORDERING is [`Part::stops`],
//! [`VolumeError::poisons_writes`] and [`CatalogError::stops_writes`].
//!
//! The catalog is opened with this latch ([`Latch`]): it asks before every change and reports every one that
//! failed, whether the engine or the server made it.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use holdfast_catalog::{CatalogError, Latch};
use holdfast_volume::VolumeError;
use parking_lot::Mutex;

/// A kind of work that can stop by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// New containers and commits.
    Writing,
    /// Flushing and merging the index.
    IndexMaintenance,
    /// All changes of the catalog.
    Catalog,
}

impl Work {
    /// Name, for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Writing => "writing",
            Self::IndexMaintenance => "index maintenance",
            Self::Catalog => "catalog changes",
        }
    }
}

/// Work that has stopped, and the failure that stopped it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stopped {
    pub work: Work,
    pub reason: String,
}

/// A reason for which a repository does not accept backups. The words are labels of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// Work has stopped after a failure, until the next start.
    Stopped,
    /// The volume is not there, or not readable.
    VolumeAbsent,
    /// The volume takes no writes.
    VolumeReadOnly,
    /// Free space is down to the reserve.
    Full,
    /// The index is damaged.
    IndexDamaged,
    /// The catalog takes no changes.
    Catalog,
    /// Points on the volume cannot be read.
    PointsUnread,
    /// The server was started without its keys.
    Locked,
    /// Data lies in a bucket alone that the settings do not name.
    NoBucket,
}

impl Obstacle {
    /// All obstacles.
    pub const ALL: [Self; 9] = [
        Self::Stopped,
        Self::VolumeAbsent,
        Self::VolumeReadOnly,
        Self::Full,
        Self::IndexDamaged,
        Self::Catalog,
        Self::PointsUnread,
        Self::Locked,
        Self::NoBucket,
    ];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::VolumeAbsent => "volume_absent",
            Self::VolumeReadOnly => "volume_read_only",
            Self::Full => "full",
            Self::IndexDamaged => "index_damaged",
            Self::Catalog => "catalog",
            Self::PointsUnread => "points_unread",
            Self::Locked => "locked",
            Self::NoBucket => "no_bucket",
        }
    }
}

/// The part of the repository that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Data,
    Index,
    Catalog,
}

impl Part {
    /// Kinds of work that stop when this part fails. Writing always does: a container that cannot enter the index or
    /// the catalog is of no use to any backup.
    const fn stops(self) -> &'static [Work] {
        match self {
            Self::Data => &[Work::Writing],
            Self::Index => &[Work::IndexMaintenance, Work::Writing],
            Self::Catalog => &[Work::Catalog, Work::Writing],
        }
    }
}

/// The latch of a repository. Once work has stopped it stays so.
#[derive(Debug, Default)]
pub struct Health {
    /// Reason for which nothing is read or written, however sound it is.
    locked: OnceLock<String>,
    writing: OnceLock<String>,
    index: OnceLock<String>,
    catalog: OnceLock<String>,
    /// Obstacles that can pass without a restart, as reported by the parts of the engine.
    obstacles: Mutex<BTreeMap<Obstacle, String>>,
}

impl Health {
    /// Reports that something keeps backups from being accepted (`Some` reason, for people), or no longer does
    /// (`None`). For parts that notice by themselves; the rest is looked at when readiness is asked for.
    pub fn report(&self, obstacle: Obstacle, reason: Option<String>) {
        let mut obstacles = self.obstacles.lock();
        match reason {
            Some(reason) => drop(obstacles.insert(obstacle, reason)),
            None => drop(obstacles.remove(&obstacle)),
        }
    }

    /// Obstacles that were [reported](Health::report) and still stand.
    pub(crate) fn reported(&self) -> Vec<(Obstacle, String)> {
        self.obstacles.lock().iter().map(|(&obstacle, reason)| (obstacle, reason.clone())).collect()
    }

    const fn latch(&self, work: Work) -> &OnceLock<String> {
        match work {
            Work::Writing => &self.writing,
            Work::IndexMaintenance => &self.index,
            Work::Catalog => &self.catalog,
        }
    }

    /// Stops the work that depends on a failed part; the first reason is kept.
    pub(crate) fn stop(&self, part: Part, reason: &str) {
        for &work in part.stops() {
            if self.latch(work).set(reason.to_owned()).is_ok() {
                tracing::error!(work = work.as_str(), reason, "stopped until the server is restarted");
            }
        }
    }

    /// Takes note of a failed write on a volume.
    pub(crate) fn volume_failed(&self, part: Part, error: &VolumeError) {
        if error.poisons_writes() {
            self.stop(part, &error.to_string());
        }
    }

    /// Reason for which `work` has stopped; `None`: it has not.
    pub(crate) fn reason(&self, work: Work) -> Option<&str> {
        self.latch(work).get().map(String::as_str)
    }

    /// Stops all reading and writing of the volume until the next start, for this reason. Nothing has failed.
    pub(crate) fn lock(&self, reason: &str) {
        let _ = self.locked.set(reason.to_owned());
    }

    /// Reason for which nothing on the volume is read or written; `None`: there is none.
    pub(crate) fn locked_reason(&self) -> Option<&str> {
        self.locked.get().map(String::as_str)
    }

    /// Reason for which writing is refused; `None`: it is not.
    pub(crate) fn read_only_reason(&self) -> Option<&str> {
        self.locked_reason().or_else(|| self.reason(Work::Writing))
    }

    /// All kinds of work that have stopped.
    pub(crate) fn stopped(&self) -> Vec<Stopped> {
        let all = [Work::Writing, Work::IndexMaintenance, Work::Catalog];
        let stopped = |work| Some(Stopped { work, reason: self.reason(work)?.to_owned() });
        all.into_iter().filter_map(stopped).collect()
    }
}

impl Latch for Health {
    fn reason(&self) -> Option<String> {
        self.reason(Work::Catalog).map(str::to_owned)
    }

    fn change_failed(&self, error: &CatalogError) {
        if error.stops_writes() {
            self.stop(Part::Catalog, &error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::BlobName;
    use std::io::{self, ErrorKind};

    fn name() -> BlobName {
        BlobName::new("x").unwrap()
    }

    fn unavailable(error: ErrorKind) -> VolumeError {
        let source = io::Error::from(error).into();
        VolumeError::Unavailable { action: "write", name: "x".into(), source }
    }

    fn works(health: &Health) -> Vec<Work> {
        health.stopped().into_iter().map(|stopped| stopped.work).collect()
    }

    /// The table of ORDERING, row by row.
    #[test]
    fn failures_stop_what_the_table_says() {
        use Work::{Catalog, IndexMaintenance, Writing};
        let not_durable = VolumeError::NotDurable { name: "x".into(), source: "fsync".into() };
        let write_failed =
            VolumeError::WriteFailed { action: "append to", name: "x".into(), source: "EIO".into() };
        let full = VolumeError::Full { name: "x".into(), source: "disk full".into() };
        let lost = VolumeError::OutcomeUnknown { action: "seal", name: "x".into(), source: "lost".into() };
        let passing = [
            full,
            lost,
            VolumeError::NotFound { name: name() },
            VolumeError::Exists { name: name() },
            unavailable(ErrorKind::TimedOut),
            unavailable(ErrorKind::ConnectionReset),
        ];
        for error in &passing {
            for part in [Part::Data, Part::Index] {
                let health = Health::default();
                health.volume_failed(part, error);
                assert_eq!(works(&health), [], "{part:?}: {error}");
            }
        }
        for error in [not_durable, write_failed] {
            let health = Health::default();
            health.volume_failed(Part::Data, &error);
            assert_eq!(works(&health), [Writing], "{error}");
            let health = Health::default();
            health.volume_failed(Part::Index, &error);
            assert_eq!(works(&health), [Writing, IndexMaintenance], "{error}");
        }
        let read_failed = CatalogError::Io { action: "read", cause: "disk".into() };
        let invalid = CatalogError::Invalid { reason: "x".into() };
        for error in [CatalogError::Busy, CatalogError::Full, read_failed, invalid] {
            let health = Health::default();
            health.change_failed(&error);
            assert_eq!(works(&health), [], "{error}");
        }
        for action in ["write", "checkpoint"] {
            let health = Health::default();
            health.change_failed(&CatalogError::WriteFailed { action, cause: "disk".into() });
            assert_eq!(works(&health), [Writing, Catalog], "{action}");
        }
    }

    #[test]
    fn the_first_reason_is_kept() {
        let health = Health::default();
        health.stop(Part::Data, "first");
        health.stop(Part::Index, "second");
        assert_eq!(health.read_only_reason(), Some("first"));
        assert_eq!(health.reason(Work::IndexMaintenance), Some("second"));
    }
}
