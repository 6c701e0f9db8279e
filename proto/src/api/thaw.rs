//! Bringing back what lies in the archive of a bucket.

use serde::{Deserialize, Serialize};

use super::Task;

/// Archived parts of a restore point, and the cost of bringing them back
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Thaw {
    /// Objects to be thawed before it can be restored
    pub objects: u64,
    pub bytes: u64,
    /// Objects being thawed
    pub objects_under_way: u64,
    pub bytes_under_way: u64,
    /// Objects that were thawed and can be read
    pub objects_readable: u64,
    pub bytes_readable: u64,
    /// Storage classes of what has to be thawed
    pub classes: Vec<String>,
    /// For which it can be read then
    pub days: u32,
    /// The cheapest first; none where nothing has to be thawed
    pub offers: Vec<ThawOffer>,
    /// Where the prices are from, and since when
    pub region: String,
    pub as_of: String,
    /// The task that thaws something of this restore point; null: none does
    pub task: Option<Task>,
}

/// A way to thaw it
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThawOffer {
    /// bulk, standard or expedited
    pub speed: String,
    /// Within which it can be read, as a rule
    pub hours: u32,
    /// In US dollars, lines that may not apply left out
    pub cost: f64,
    pub lines: Vec<ThawLine>,
}

/// A line of an offer
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ThawLine {
    pub what: String,
    /// In US dollars
    pub cost: f64,
    /// True when it is not in the sum, because it may not apply
    pub extra: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StartThaw {
    /// bulk, standard or expedited
    pub speed: String,
    /// For which what is thawed can be read; left out: as the settings say
    #[serde(default)]
    pub days: u32,
    /// Left out: all disks
    #[serde(default)]
    pub disks: Vec<String>,
}
