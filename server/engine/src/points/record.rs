//! Conversion between the catalog's record of a restore point and a point's bytes.

use holdfast_catalog::{
    Attempt, ChunkerParams, DetailRow, DiskRecord, LegalHold, NamespaceRecord, PointRecord, RetentionLock,
    RowStatus,
};
use holdfast_proto::{Fingerprint, KeyId, chunker};
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId, RunId, SessionId};

use crate::error::EngineError;
use crate::format::FormatError;
use crate::format::point::{Point, PointBody, PointChunker, PointDisk, PointHold};

/// The end of the year 9999, the last moment that every clock and calendar here can show.
const LATEST_MS: i64 = 253_402_300_799_999;

/// The bytes of a point.
///
/// # Errors
/// When it would be longer than a point may be.
pub(crate) fn encode(
    repository: RepositoryId,
    revision: u32,
    record: &PointRecord,
) -> Result<Vec<u8>, EngineError> {
    let point = Point { repository, backup: record.backup, revision, body: body(record) };
    point.encode().map_err(|error| EngineError::Internal(error.to_string()))
}

fn body(record: &PointRecord) -> PointBody {
    let PointRecord {
        number, namespace, attempt, parent, disks, missing_disks, details, next_container, ..
    } = record;
    let hold = |hold: &LegalHold| PointHold {
        reason: hold.reason.clone(),
        who: hold.who.clone(),
        since_ms: hold.since_ms,
    };
    PointBody {
        session: attempt.session.to_bytes().to_vec(),
        run: attempt.run.to_bytes().to_vec(),
        namespace: namespace.id.to_bytes().to_vec(),
        namespace_name: namespace.name.clone(),
        namespace_created_ms: namespace.created_ms,
        vm: attempt.vm.clone(),
        job: attempt.job.clone(),
        client_host: attempt.client_host.clone(),
        who: attempt.who.clone(),
        started_ms: attempt.started_ms,
        finished_ms: attempt.finished_ms,
        number: *number,
        parent: parent.map_or_else(Vec::new, |id| id.to_bytes().to_vec()),
        next_container: *next_container,
        chunker: Some(this_chunker()),
        disks: disks.iter().zip(details).map(|(disk, row)| disk_of(disk, row)).collect(),
        owner: attempt.owner.clone(),
        vm_owner: attempt.vm_owner.clone(),
        missing_disks: missing_disks.clone(),
        locked_until_ms: record.lock.until_ms,
        hold: record.lock.hold.as_ref().map(hold),
        lock_time_ms: record.lock_time_ms,
        namespace_key: namespace.key_id.map_or_else(Vec::new, |id| id.to_bytes().to_vec()),
        accepted_change: attempt.accepted_change,
    }
}

fn this_chunker() -> PointChunker {
    let ChunkerParams { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes } =
        chunker::params();
    PointChunker { algorithm, min_bytes, avg_bytes, max_bytes, extent_bytes, region_bytes }
}

fn disk_of(disk: &DiskRecord, row: &DetailRow) -> PointDisk {
    PointDisk {
        name: disk.name.clone(),
        size_bytes: disk.size_bytes,
        data_bytes: disk.data_bytes,
        extent_count: disk.extent_count,
        root: disk.root.as_bytes().to_vec(),
        started_ms: row.started_ms,
        finished_ms: row.finished_ms,
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
        first_full: row.first_full,
        level: row.level,
        agent: row.agent.clone(),
        reading_ms: row.reading_ms,
        compressing_ms: row.compressing_ms,
        waiting_ms: row.waiting_ms,
    }
}

/// Decodes a point.
///
/// # Errors
/// [`EngineError::Damaged`]; `Unsupported` when a newer build wrote it, or the repository cuts in another way.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Point, PointRecord), EngineError> {
    let point = Point::decode(bytes).map_err(|error| match error {
        FormatError::Unsupported { .. } => EngineError::Unsupported(error.to_string()),
        FormatError::Corrupt { .. } => EngineError::Damaged(error.to_string()),
    })?;
    let record = PointRecord { revision: point.revision, ..record(point.backup, &point.body)? };
    Ok((point, record))
}

fn record(backup: BackupId, body: &PointBody) -> Result<PointRecord, EngineError> {
    if body.chunker.as_ref() != Some(&this_chunker()) {
        let found = &body.chunker;
        return Err(EngineError::Unsupported(format!(
            "it is of a repository that cuts in another way: {found:?}"
        )));
    }
    let run = RunId::from_bytes(id("run", &body.run)?);
    let namespace = NamespaceRecord {
        id: NamespaceId::from_bytes(id("namespace", &body.namespace)?),
        name: body.namespace_name.clone(),
        created_ms: time(body.namespace_created_ms)?,
        key_id: key_id(&body.namespace_key)?,
    };
    let attempt = Attempt {
        session: SessionId::from_bytes(id("session", &body.session)?),
        run,
        namespace: namespace.id,
        vm: body.vm.clone(),
        job: body.job.clone(),
        client_host: body.client_host.clone(),
        owner: body.owner.clone(),
        vm_owner: body.vm_owner.clone(),
        who: body.who.clone(),
        started_ms: time(body.started_ms)?,
        finished_ms: time(body.finished_ms)?,
        accepted_change: body.accepted_change,
    };
    let parent = match body.parent.as_slice() {
        [] => None,
        bytes => Some(BackupId::from_bytes(id("parent", bytes)?)),
    };
    let mut disks = Vec::with_capacity(body.disks.len());
    let mut details = Vec::with_capacity(body.disks.len());
    for disk in &body.disks {
        disks.push(disk_record(disk)?);
        details.push(detail_row(backup, &attempt, &namespace.name, disk)?);
    }
    let (number, next_container) = (body.number, body.next_container);
    let missing_disks = body.missing_disks.clone();
    Ok(PointRecord {
        number,
        namespace,
        attempt,
        backup,
        parent,
        disks,
        missing_disks,
        details,
        next_container,
        revision: 1,
        lock: lock(body)?,
        lock_time_ms: body.lock_time_ms.map(time).transpose()?,
    })
}

fn lock(body: &PointBody) -> Result<RetentionLock, EngineError> {
    let hold = |hold: &PointHold| {
        let PointHold { reason, who, since_ms } = hold;
        // Without a reason the catalog would take it for none.
        let reason = if reason.is_empty() { "no reason given".to_owned() } else { reason.clone() };
        time(*since_ms).map(|since_ms| LegalHold { reason, who: who.clone(), since_ms })
    };
    Ok(RetentionLock {
        until_ms: body.locked_until_ms.map(time).transpose()?,
        hold: body.hold.as_ref().map(hold).transpose()?,
    })
}

fn disk_record(disk: &PointDisk) -> Result<DiskRecord, EngineError> {
    let root: [u8; 32] = disk.root.as_slice().try_into().map_err(|_| wrong("root", disk.root.len()))?;
    Ok(DiskRecord {
        name: disk.name.clone(),
        size_bytes: disk.size_bytes,
        data_bytes: disk.data_bytes,
        extent_count: disk.extent_count,
        root: Fingerprint::from_bytes(root),
    })
}

fn detail_row(
    backup: BackupId,
    attempt: &Attempt,
    namespace: &str,
    disk: &PointDisk,
) -> Result<DetailRow, EngineError> {
    Ok(DetailRow {
        namespace: namespace.to_owned(),
        job: attempt.job.clone(),
        run: attempt.run.to_string(),
        vm: attempt.vm.clone(),
        disk: disk.name.clone(),
        backup: backup.to_string(),
        status: RowStatus::Done,
        started_ms: time(disk.started_ms)?,
        finished_ms: time(disk.finished_ms)?,
        virtual_bytes: disk.size_bytes,
        bytes: disk.bytes,
        read_bytes: disk.read_bytes,
        unchanged_bytes: disk.unchanged_bytes,
        dup_bytes: disk.dup_bytes,
        new_bytes: disk.new_bytes,
        post_lc: disk.post_lc,
        meta_bytes: disk.meta_bytes,
        wire_bytes: disk.wire_bytes,
        chunks: disk.chunks,
        new_chunks: disk.new_chunks,
        first_full: disk.first_full,
        level: disk.level,
        host: attempt.client_host.clone(),
        agent: disk.agent.clone(),
        reading_ms: disk.reading_ms,
        compressing_ms: disk.compressing_ms,
        waiting_ms: disk.waiting_ms,
        ..DetailRow::default()
    })
}

fn key_id(bytes: &[u8]) -> Result<Option<KeyId>, EngineError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let id = bytes.try_into().map_err(|_| wrong("namespace's key id", bytes.len()))?;
    Ok(Some(KeyId::from_bytes(id)))
}

fn id(what: &str, bytes: &[u8]) -> Result<[u8; 16], EngineError> {
    bytes.try_into().map_err(|_| wrong(what, bytes.len()))
}

fn wrong(what: &str, len: usize) -> EngineError {
    EngineError::Damaged(format!("its {what} has {len} bytes"))
}

fn time(at_ms: i64) -> Result<i64, EngineError> {
    if (0..=LATEST_MS).contains(&at_ms) {
        return Ok(at_ms);
    }
    Err(EngineError::Damaged(format!("{at_ms} ms after 1970 is no time it can have been made at")))
}
