//! Namespaces: what they take, and what they may take.

use serde::{Deserialize, Serialize};

use super::Time;

/// A tenant
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Namespace {
    pub name: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub created: Time,
    /// Id of the key that agents encrypt its content with (end to end); null: they do not. The server can read and prove
    /// nothing of it: only `holdfast verify`, by an agent with the key, does
    pub key_id: Option<String>,
    /// What agents proved of it; null: it is not end-to-end encrypted, or has no restore points
    pub agents: Option<AgentsProved>,
    pub vms: u64,
    /// Restore points
    pub backups: u64,
    /// Bytes of its containers
    pub stored_bytes: u64,
    pub quota: Quota,
    pub usage: Usage,
    /// The limits that are nearly reached (nine tenths and more), in words
    pub near: Vec<String>,
}

/// What agents proved of a namespace whose content only they can prove
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentsProved {
    /// VMs with restore points
    pub vms: u64,
    /// Those of them of which no agent has ever verified a restore point
    pub never_verified: u64,
    /// When the VM was verified that waits longest; null: none ever was
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub oldest: Option<Time>,
    /// What to do, when some of it was not verified for two weeks
    pub reminder: Option<String>,
    /// The command that verifies all of it, to be pasted at an agent
    pub command: String,
}

/// What a namespace may take; null: no limit
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// Bytes of its containers
    #[serde(default)]
    pub stored_bytes: Option<u64>,
    /// Data of the newest restore point of each VM; holes and zeros do not count
    #[serde(default)]
    pub protected_bytes: Option<u64>,
    /// Restore points
    #[serde(default)]
    pub restore_points: Option<u64>,
    /// Backups started on one day (UTC), however they end
    #[serde(default)]
    pub sessions_per_day: Option<u64>,
}

/// What counts against a quota
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Usage {
    /// Bytes of its containers
    pub stored_bytes: u64,
    /// Data of the newest restore point of each VM
    pub protected_bytes: u64,
    /// Restore points
    pub restore_points: u64,
    /// Backups started since midnight UTC
    pub sessions_today: u64,
}
