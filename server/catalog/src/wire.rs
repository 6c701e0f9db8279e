//! The catalog's rows as messages of the protocol: the only file of this crate that names both.

use holdfast_proto::v1;

use crate::rows::{BackupRecord, ChunkerParams, DiskRecord};

impl From<v1::ChunkerParams> for ChunkerParams {
    fn from(params: v1::ChunkerParams) -> Self {
        let v1::ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } =
            params;
        Self { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes }
    }
}

impl From<ChunkerParams> for v1::ChunkerParams {
    fn from(params: ChunkerParams) -> Self {
        let ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } = params;
        Self { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes }
    }
}

impl BackupRecord {
    /// As the protocol tells it.
    pub fn info(&self) -> v1::BackupInfo {
        let disk = |disk: &DiskRecord| v1::DiskInfo {
            name: disk.name.clone(),
            size_bytes: disk.size_bytes,
            data_bytes: disk.data_bytes,
            root: disk.root.to_string(),
        };
        v1::BackupInfo {
            id: self.id.to_string(),
            namespace: self.namespace_name.clone(),
            vm: self.vm.clone(),
            job: self.job.clone(),
            run_id: self.run.to_string(),
            started_ms: self.started_ms,
            finished_ms: self.finished_ms,
            disks: self.disks.iter().map(disk).collect(),
            missing_disks: self.missing_disks.clone(),
            accepted_change: self.accepted_change,
            // Who asks tells these: they follow from more than the row.
            protection: None,
            exclusive_bytes: None,
            places: None,
            attributed_bytes: None,
            attributed_ms: None,
            end_to_end: false,
            agent_verified_ms: 0,
            vm_agent_verified_ms: 0,
            damaged_bytes: 0,
            last_proven_ms: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunker_parameters_survive_both_ways() {
        let params = holdfast_proto::chunker::params();
        assert_eq!(v1::ChunkerParams::from(ChunkerParams::from(params.clone())), params);
    }
}
