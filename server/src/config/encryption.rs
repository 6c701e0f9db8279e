//! Whether a repository is encrypted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is asked for. A repository that is encrypted stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Everything on the volume is encrypted; in a repository that was made without, everything that is written from now
    /// on
    On,
    /// A new repository lies in the open
    Off,
}

impl fmt::Display for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
        })
    }
}
