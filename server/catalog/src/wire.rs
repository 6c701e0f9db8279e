//! The catalog's rows as messages of the protocol: the only file of this crate that names both.

use holdfast_proto::details::{Factors, RowExt, Totals};
use holdfast_proto::v1;

use crate::rows::{BackupRecord, ChunkerParams, DetailRow, DiskRecord, RowStatus};

impl From<RowStatus> for v1::RowStatus {
    fn from(status: RowStatus) -> Self {
        match status {
            RowStatus::Done => Self::Done,
            RowStatus::Failed => Self::Failed,
            RowStatus::Aborted => Self::Aborted,
            RowStatus::Expired => Self::Expired,
        }
    }
}

impl From<DetailRow> for v1::DetailRow {
    fn from(row: DetailRow) -> Self {
        Self {
            status: v1::RowStatus::from(row.status).into(),
            namespace: row.namespace,
            job: row.job,
            run: row.run,
            vm: row.vm,
            disk: row.disk,
            backup: row.backup,
            started_ms: row.started_ms,
            finished_ms: row.finished_ms,
            virtual_bytes: row.virtual_bytes,
            bytes: row.bytes,
            read_bytes: row.read_bytes,
            unchanged_bytes: row.unchanged_bytes,
            dup_bytes: row.dup_bytes,
            new_bytes: row.new_bytes,
            post_lc: row.post_lc,
            meta_bytes: row.meta_bytes,
            wire_bytes: row.wire_bytes,
            chunks: row.chunks,
            new_chunks: row.new_chunks,
            error: row.error,
            retried_new_bytes: row.retried_new_bytes,
            retried_post_lc: row.retried_post_lc,
        }
    }
}

/// Derived numbers, computed where agent and server agree on them.
impl RowExt for DetailRow {
    fn factors(&self) -> Factors {
        Factors::of(
            self.bytes,
            self.new_bytes.saturating_add(self.retried_new_bytes),
            self.post_lc.saturating_add(self.retried_post_lc),
        )
    }

    fn seconds(&self) -> f64 {
        times(self).seconds()
    }

    fn mb_per_s(&self) -> Option<f64> {
        times(self).mb_per_s()
    }
}

/// What a row's duration and rate follow from, without its texts.
fn times(row: &DetailRow) -> v1::DetailRow {
    let DetailRow { bytes, started_ms, finished_ms, .. } = *row;
    v1::DetailRow { bytes, started_ms, finished_ms, ..v1::DetailRow::default() }
}

/// Adds a row to sums as the protocol's module does. Only numbers and the status are copied.
pub(crate) fn add_to(sums: &mut Totals, row: &DetailRow) {
    let numbers = DetailRow {
        namespace: String::new(),
        job: String::new(),
        run: String::new(),
        vm: String::new(),
        disk: String::new(),
        backup: String::new(),
        error: String::new(),
        ..*row
    };
    sums.add(&numbers.into());
}

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

    /// Reports, downloads and the command line show the protocol's words; the database keeps ours.
    #[test]
    fn both_sides_call_a_status_the_same() {
        for status in RowStatus::ALL {
            let wire = v1::RowStatus::from(status);
            assert_eq!(holdfast_proto::details::status_word(wire.into()), status.word());
        }
    }

    #[test]
    fn chunker_parameters_survive_both_ways() {
        let params = holdfast_proto::chunker::params();
        assert_eq!(v1::ChunkerParams::from(ChunkerParams::from(params.clone())), params);
    }

    #[test]
    fn a_row_keeps_every_number_and_text() {
        let row = DetailRow {
            namespace: "n".into(),
            job: "j".into(),
            run: "r".into(),
            vm: "v".into(),
            disk: "d".into(),
            backup: "b".into(),
            status: RowStatus::Expired,
            started_ms: 1,
            finished_ms: 2,
            virtual_bytes: 3,
            bytes: 4,
            read_bytes: 5,
            unchanged_bytes: 6,
            dup_bytes: 7,
            new_bytes: 8,
            post_lc: 9,
            meta_bytes: 10,
            wire_bytes: 11,
            chunks: 12,
            new_chunks: 13,
            error: "e".into(),
            retried_new_bytes: 14,
            retried_post_lc: 15,
        };
        let wire = v1::DetailRow::from(row.clone());
        let cells = holdfast_proto::details::tsv(std::slice::from_ref(&wire));
        assert_eq!(wire.status(), v1::RowStatus::Expired);
        assert_eq!(
            format!("{wire:?}").replace("status: Expired", ""),
            format!("{row:?}").replace("status: Expired", "")
        );
        assert!(cells.contains("\texpired\t") && cells.ends_with("\te\t15\n"), "{cells}");
        assert_eq!((row.factors(), row.mb_per_s()), (wire.factors(), wire.mb_per_s()));
        let (mut ours, mut theirs) = (Totals::default(), Totals::default());
        add_to(&mut ours, &row);
        theirs.add(&wire);
        assert_eq!(ours, theirs);
    }
}
