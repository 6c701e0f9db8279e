//! Restore points that someone names: what deleting them frees, deleting, locks and holds.

use serde::{Deserialize, Serialize};

use super::Time;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FreedQuestion {
    /// IDs of restore points: 1 to 1000
    pub ids: Vec<String>,
    /// Where beginnings of ids do, and `latest` with a VM; empty: the token's. null: whole ids, wherever they are
    #[serde(default)]
    pub namespace: Option<String>,
    /// All of them must be of this VM, in `namespace`; empty: of any
    #[serde(default)]
    pub vm: String,
    /// Leave `freed_bytes` out: it takes as long as finding out what is in use
    #[serde(default)]
    pub without_bytes: bool,
}

/// Space that deleting restore points would free
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Freed {
    /// Bytes that the next reclaim could free once all of them are deleted; null: not known, or not soon enough
    pub freed_bytes: Option<u64>,
    pub points: Vec<ChosenPoint>,
}

/// A restore point that was chosen
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChosenPoint {
    pub id: String,
    pub namespace: String,
    pub vm: String,
    pub job: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub started: Time,
    /// null: it is not locked
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub locked_until: Option<Time>,
    /// null: it is not held
    pub hold: Option<Hold>,
}

/// A legal hold: no end, until an admin releases it
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Hold {
    pub reason: String,
    /// A token's name
    pub by: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub since: Time,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DeletePoints {
    /// IDs of restore points: 1 to 1000
    pub ids: Vec<String>,
    /// Where beginnings of ids do, and `latest` with a VM; empty: the token's. null: whole ids, wherever they are
    #[serde(default)]
    pub namespace: Option<String>,
    /// All of them must be of this VM, in `namespace`; empty: of any
    #[serde(default)]
    pub vm: String,
    /// For the audit log
    #[serde(default)]
    pub reason: String,
    /// Delete the others when some are locked or held, or gone by now
    #[serde(default)]
    pub others: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DeletedPoints {
    /// How many were deleted
    pub deleted: u64,
    /// IDs of those that are locked or held
    pub refused: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LockPoints {
    /// IDs of restore points: 1 to 1000
    pub ids: Vec<String>,
    /// Where beginnings of ids do, and `latest` with a VM; empty: the token's. null: whole ids, wherever they are
    #[serde(default)]
    pub namespace: Option<String>,
    /// All of them must be of this VM, in `namespace`; empty: of any
    #[serde(default)]
    pub vm: String,
    /// RFC 3339
    pub until: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HoldPoints {
    /// IDs of restore points: 1 to 1000
    pub ids: Vec<String>,
    /// Where beginnings of ids do, and `latest` with a VM; empty: the token's. null: whole ids, wherever they are
    #[serde(default)]
    pub namespace: Option<String>,
    /// All of them must be of this VM, in `namespace`; empty: of any
    #[serde(default)]
    pub vm: String,
    /// For the audit log
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ChangedPoints {
    /// IDs of those that were not so already
    pub changed: Vec<String>,
}
