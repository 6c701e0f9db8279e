//! Restore points.

use serde::{Deserialize, Serialize};

use super::{Hold, Time};

/// A restore point
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Backup {
    pub id: String,
    pub namespace: String,
    pub vm: String,
    pub job: String,
    pub run: String,
    pub client_host: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub started: Time,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub finished: Time,
    pub disks: Vec<BackupDisk>,
    /// Disks of the VM that could not be read: if there are any, the restore point is partial
    pub missing_disks: Vec<String>,
    /// A disk was smaller than in the restore point before, or gone, and the backup was told to accept that
    pub accepted_change: bool,
    /// Bytes left after deduplication
    pub new_bytes: u64,
    /// Bytes it added to data containers
    pub post_lc: u64,
    /// Bytes it added to recipe containers
    pub meta_bytes: u64,
    /// Bytes of it that cannot be restored, as far as the server knows; 0: whole
    pub damaged_bytes: u64,
    /// When the server last read all of it and found it sound; null: not yet. Of one that is end-to-end encrypted: that it has
    /// what it was sent
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub last_proven: Option<Time>,
    /// Agents encrypt it end to end: its content is proved only by agents
    pub end_to_end: bool,
    /// When an agent last read all of it and found it sound; null: not yet
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub agent_verified: Option<Time>,
    /// The same of any restore point of its VM, be it gone
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub vm_agent_verified: Option<Time>,
    /// Bytes of data that nothing else had when the last reclaim counted them; null: it, or another restore point of its VM, is
    /// newer
    pub exclusive_bytes: Option<u64>,
    /// Its part of the stored bytes of data: what several of a VM share is the oldest's; null: it is newer
    pub attributed_bytes: Option<u64>,
    /// When the last reclaim counted them; null: it is newer
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub attributed_at: Option<Time>,
    /// Where its data lies; null: all of it here, or it is newer than the last reclaim
    pub places: Option<PointPlaces>,
    /// Its newest verification; null: none yet
    pub verify: Option<Verify>,
    /// Until when no one can delete it; null: it is not locked
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub locked_until: Option<Time>,
    /// Its legal hold; null: none
    pub hold: Option<Hold>,
    /// The command that restores each disk
    pub restore_commands: Vec<RestoreCommand>,
}

/// Where the data of a restore point lies, as of the last reclaim: plain bytes without holes and zeros
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PointPlaces {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub as_of: Time,
    pub here_bytes: u64,
    /// In the bucket alone, where they can be read
    pub bucket_bytes: u64,
    /// In the bucket alone, where they must be thawed before they can be read
    pub archive_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct BackupDisk {
    pub name: String,
    pub size_bytes: u64,
    /// Without holes and zeros
    pub data_bytes: u64,
    /// Fingerprint of its recipe's root; all zero: the disk is
    pub root: String,
}

/// A verification of a restore point
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Verify {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub at: Time,
    /// A token's name
    pub by: String,
    /// An agent read it, rather than the server
    pub by_agent: bool,
    pub ok: bool,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RestoreCommand {
    pub disk: String,
    pub command: String,
}
