//! Arguments about data that lies in an archive. Doc comments here are what `--help` shows.

use clap::{Args, ValueEnum};

/// What to do about data that lies in an archive.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Thawing {
    /// Thaw what lies in an archive, at this speed, and wait for it; without this, what that takes is shown, and asked
    #[arg(long, value_enum, value_name = "SPEED")]
    pub(super) thaw: Option<ThawSpeed>,
    /// Days for which what is thawed can be read [default: the server's choice]
    #[arg(long, value_name = "DAYS", requires = "thaw")]
    pub(super) thaw_days: Option<u32>,
    /// Thaw without being asked
    #[arg(long, requires = "thaw")]
    pub(super) yes: bool,
    /// Start to thaw, and do not wait for it: the same command works later
    #[arg(long, requires = "thaw")]
    pub(super) no_wait: bool,
}

/// How fast, as Amazon calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ThawSpeed {
    /// Cheapest: within 12 hours, from DEEP_ARCHIVE 48
    Bulk,
    /// Within 5 hours, from DEEP_ARCHIVE 12
    Standard,
    /// Within minutes; not from DEEP_ARCHIVE
    Expedited,
}

impl ThawSpeed {
    /// As the server knows it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Standard => "standard",
            Self::Expedited => "expedited",
        }
    }
}
