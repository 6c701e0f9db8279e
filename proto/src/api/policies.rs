//! Retention policies, and the results of carrying them out.

use serde::{Deserialize, Serialize};

use super::{Rules, Time};

/// A retention policy
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Policy {
    pub id: String,
    pub namespace: String,
    pub name: String,
    /// null: every VM
    pub vm: Option<String>,
    /// null: every job
    pub job: Option<String>,
    pub rules: Rules,
    /// A calendar expression; empty: it runs by hand only
    pub schedule: String,
    /// Time zone of the schedule and of the rules' days, weeks and months; empty: UTC
    pub time_zone: String,
    /// Each new restore point is locked for so many days
    pub lock_days: u32,
    /// Data that only its restore points need may go to the archive after so many days; null: as the server's settings say
    pub archive_after_days: Option<u32>,
    /// One that is switched off deletes and locks nothing
    pub enabled: bool,
    /// Since when it rests, because the catalog was an older copy: it deletes nothing until it is set again. null: never
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub resting_since: Option<Time>,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub updated: Time,
    /// A token's name
    pub updated_by: String,
    /// null: it does not run by itself
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub next_run: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetPolicy {
    /// Empty: the token's
    #[serde(default)]
    pub namespace: String,
    pub name: String,
    /// null: every VM
    #[serde(default)]
    pub vm: Option<String>,
    /// null: every job
    #[serde(default)]
    pub job: Option<String>,
    #[serde(default)]
    pub rules: Rules,
    /// A calendar expression; empty: it runs by hand only
    #[serde(default)]
    pub schedule: String,
    /// Empty: UTC
    #[serde(default)]
    pub time_zone: String,
    #[serde(default)]
    pub lock_days: u32,
    /// null: as the server's settings say
    #[serde(default)]
    pub archive_after_days: Option<u32>,
    pub enabled: bool,
}

impl From<Policy> for SetPolicy {
    /// The settings that leave the policy as it is.
    fn from(policy: Policy) -> Self {
        Self {
            namespace: policy.namespace,
            name: policy.name,
            vm: policy.vm,
            job: policy.job,
            rules: policy.rules,
            schedule: policy.schedule,
            time_zone: policy.time_zone,
            lock_days: policy.lock_days,
            archive_after_days: policy.archive_after_days,
            enabled: policy.enabled,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SimulatePolicy {
    #[serde(default)]
    pub rules: Rules,
    /// When backups run: a calendar expression
    pub schedule: String,
    /// Empty: UTC
    #[serde(default)]
    pub time_zone: String,
    /// The first day, RFC 3339; null: today
    #[serde(default)]
    pub from: Option<String>,
    /// At most 3660
    pub days: u32,
}

/// Restore points that a policy would keep, day by day
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Simulation {
    pub days: Vec<SimulatedDay>,
}

/// Restore points at the end of a day
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimulatedDay {
    pub date: String,
    /// Newest first
    pub points: Vec<SimulatedPoint>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SimulatedPoint {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub at: Time,
    /// The rules that keep it
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct RunPolicy {
    /// Only show what would be kept and deleted
    pub dry_run: bool,
    /// The plan of a dry run: delete exactly what it showed, or nothing (409, changed). null: what is decided now
    #[serde(default)]
    pub plan: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Forget {
    /// Empty: the token's
    #[serde(default)]
    pub namespace: String,
    /// 1 to 256
    pub vms: Vec<String>,
    /// Only restore points of this job; null: of every job
    #[serde(default)]
    pub job: Option<String>,
    pub rules: Rules,
    /// Whose days, weeks and months count; empty: UTC
    #[serde(default)]
    pub time_zone: String,
    /// Only show what would be kept and deleted
    pub dry_run: bool,
    /// For the audit log
    #[serde(default)]
    pub reason: String,
}

/// Result of a run of rules or a policy, or of its dry run
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PolicyRun {
    pub dry_run: bool,
    /// Token of a dry run: stands for the policies as they are and for what would be deleted
    pub plan: Option<String>,
    pub kept: u64,
    /// Deleted; in a dry run, to be deleted
    pub deleted: u64,
    /// Not deleted after all: locked or held since it was decided
    pub refused: u64,
    /// Which they are; at most 10000
    pub refused_points: Vec<String>,
    /// VMs with too many restore points to decide about; at most 10000
    pub skipped_vms: Vec<String>,
    /// In a dry run, bytes that deleting frees; null: not known
    pub freed_bytes: Option<u64>,
    /// VM by VM, newest first; at most 10000
    pub decisions: Vec<Decision>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Decision {
    pub id: String,
    pub vm: String,
    pub job: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub started: Time,
    pub keep: bool,
    /// The rules that keep it
    pub reasons: Vec<String>,
}

/// A part of a run's result
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RunPart {
    /// VM by VM, newest first; of each as many as there are
    Decisions(Vec<Decision>),
    /// Last; `decisions` came before
    Run(PolicyRun),
}
