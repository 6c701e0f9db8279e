//! Runs out of line with the history of their VM or job.

use serde::{Deserialize, Serialize};

use super::Time;

/// What is out of line with the history of a VM or job
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A run created no restore point
    Failed,
    /// Attempts before it stored something in vain
    Retried,
    /// Disks backed up for the first time
    FirstFull,
    /// Several VMs backed up for the first time, most of whose data was known
    Clones,
    /// Everything was read again, and most of it was known
    ReadAgain,
    /// Much new data that hardly compresses, where it did before
    Incompressible,
    /// Much new data in one run, as compressible as before
    Rewritten,
    /// Much new data in several runs, or data that was not there before
    MoreNew,
    /// As much changed as usual, but nearly nothing of it was known
    NoDuplicates,
    /// As much new data as usual, which compresses worse
    Compression,
}

impl FindingKind {
    /// Returns true if more is stored than usual, for no reason that a backup knows.
    pub const fn is_regression(self) -> bool {
        matches!(
            self,
            Self::Incompressible | Self::Rewritten | Self::MoreNew | Self::NoDuplicates | Self::Compression
        )
    }
}

/// Sizes and factors of a run
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Figures {
    pub new_bytes: u64,
    /// `post_lc`, with that of the attempts before it that failed
    pub stored_bytes: u64,
    /// null: nothing was stored
    pub total_factor: Option<f64>,
    /// null: nothing was stored
    pub local_factor: Option<f64>,
}

/// Something out of line with the history of a VM or job
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Finding {
    pub namespace: String,
    pub job: String,
    /// Empty: several VMs of the job together
    pub vm: String,
    pub kind: FindingKind,
    /// Start of the first run it applies to
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub since: Time,
    /// End of the last run it applies to
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub until: Time,
    /// Runs in a row it applies to
    pub runs: u64,
    /// Medians of a run before; null: there is no history to compare with
    pub usual: Option<Figures>,
    /// All runs it applies to
    pub now: Figures,
    /// Bytes stored that would usually not have been
    pub more_bytes: u64,
    /// One sentence: name, figures and time
    pub text: String,
    /// One sentence: what it comes from, as far as sizes tell
    pub cause: String,
}
