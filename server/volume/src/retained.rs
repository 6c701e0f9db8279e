//! How long an object must stay, as the place far away sees to it.

use std::fmt;

/// Who may let go of an object before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// Those who have a right to, which a server should not be.
    Governance,
    /// No one.
    Compliance,
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Governance => "governance",
            Self::Compliance => "compliance",
        })
    }
}

/// How long an object must stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retained {
    pub mode: LockMode,
    /// In milliseconds since the Unix epoch, by the clock there.
    pub until_ms: i64,
}

/// Until when an object cannot be removed; the longer one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// Its retention ends then, in milliseconds since the Unix epoch.
    Until(i64),
    /// Someone holds it, without an end.
    Endless,
}
