//! The setting for encryption of the repository.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is asked for. A repository that is encrypted stays so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// Encrypt
    On,
    /// Do not encrypt a repository that is not encrypted
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
