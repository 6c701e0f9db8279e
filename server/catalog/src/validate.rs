//! Validates everything written to a catalog and every question, whatever database is behind it. Pure:
//! checked before a transaction begins, so that a refusal names both sides of a contradiction and costs
//! nothing.

use std::collections::HashSet;

use holdfast_proto::limits::{
    DISK_MAX_BYTES, DISKS_PER_BACKUP_MAX, NAME_MAX_BYTES, REASON_MAX_BYTES, check_name, extent_count,
};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId};

use super::limits::{
    ARCHIVE_DAYS_MAX, AUDIT_REPEATS_MAX, COMMIT_NUMBER_MAX, EXPIRING_PAYLOAD_MAX_BYTES, HISTORY_MAX,
    LOCK_DAYS_MAX, REPORT_PAGE_MAX, RETENTION_IDS_MAX, SCHEDULE_TEXT_MAX_BYTES, SEARCH_MAX_BYTES,
    TASK_TEXT_MAX_BYTES,
};
use super::reports::TotalsBy;
use super::token::{Role, TokenSpec, VM_PATTERNS_MAX};
use super::{
    Attempt, AttributionRecord, AuditRepeat, BACKUPS_PER_PAGE_MAX, BackupCommit, BackupShareRecord,
    CatalogError, ContainerRecord, ContainerState, DetailFilter, DetailRow, DiskRecord, ExpiringRecord,
    FailedRun, NAMESPACES_PER_FILTER_MAX, PointRecord, RetentionPolicy, RowStatus, ScheduleMark,
    ScheduleRecord, TaskRecord,
};

/// Statuses one filter may name: all there are, and then some.
const STATUSES_MAX: usize = 16;

type Checked = Result<(), CatalogError>;

fn ensure(holds: bool, reason: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(CatalogError::invalid(reason())) }
}

/// Checks that `name` may name a `what`.
pub(super) fn name(what: &str, name: &str) -> Checked {
    check_name(what, name).map_err(CatalogError::invalid)
}

/// Cuts a text written by others to what the catalog keeps of it.
pub(super) fn clip(text: &str) -> &str {
    text.get(..text.floor_char_boundary(REASON_MAX_BYTES)).unwrap_or_default()
}

/// Checks that a filter's scope fits one query.
pub(super) fn scope(namespaces: Option<&[NamespaceId]>) -> Checked {
    let count = namespaces.map_or(0, <[_]>::len);
    ensure(count <= NAMESPACES_PER_FILTER_MAX, || {
        format!("{count} namespaces in one question; the limit is {NAMESPACES_PER_FILTER_MAX}")
    })
}

/// Checks the length and characters of a search text.
pub(super) fn search(text: Option<&str>) -> Checked {
    let text = text.unwrap_or_default();
    ensure(text.len() <= SEARCH_MAX_BYTES, || {
        format!("a search text of {} bytes; the limit is {SEARCH_MAX_BYTES}", text.len())
    })?;
    ensure(!text.contains(char::is_control), || "the search text has control characters".to_owned())
}

/// Checks that a filter fits one query.
pub(super) fn detail_filter(filter: &DetailFilter) -> Checked {
    scope(filter.namespaces.as_deref())?;
    search(filter.search.as_deref())?;
    let count = filter.statuses.as_ref().map_or(0, Vec::len);
    ensure(count <= STATUSES_MAX, || format!("{count} statuses in one question; there are fewer"))
}

/// Checks the number of items of a report's page.
pub(super) fn report_page(limit: u32) -> Checked {
    ensure(limit <= REPORT_PAGE_MAX, || format!("a page of {limit} items; the limit is {REPORT_PAGE_MAX}"))
}

/// Checks the number of rows of a history.
pub(super) fn history(limit: u32) -> Checked {
    ensure(limit <= HISTORY_MAX, || format!("a history of {limit} rows; the limit is {HISTORY_MAX}"))
}

/// Checks that rows can be added up per day and these groups.
pub(super) fn day_groups(by: TotalsBy) -> Checked {
    ensure(!matches!(by, TotalsBy::Run | TotalsBy::Disk), || {
        "days can be added up by namespace, job, VM or for the repository".to_owned()
    })
}

/// Checks a backup that is to be committed.
pub(super) fn commit(commit: &BackupCommit) -> Checked {
    let BackupCommit { attempt, number, backup, disks, missing_disks, details, containers, .. } = commit;
    check_number(*number)?;
    restore_point(attempt, *backup, disks, missing_disks, details)?;
    check_containers(containers, attempt)?;
    check_sum(commit, "post_lc", |row| row.post_lc, ContainerClass::Data)?;
    check_sum(commit, "meta_bytes", |row| row.meta_bytes, ContainerClass::Recipe)
}

/// Checks a point that is to be entered.
pub(super) fn point(point: &PointRecord) -> Checked {
    let PointRecord {
        number, namespace, attempt, backup, disks, missing_disks, details, next_container, ..
    } = point;
    check_number(*number)?;
    ensure(*number > 0, || format!("backup {backup} has no commit number"))?;
    name("namespace", &namespace.name)?;
    ensure(namespace.id == attempt.namespace, || {
        format!("backup {backup} is of namespace {}, not {}", attempt.namespace, namespace.id)
    })?;
    ensure((1..=1 << ContainerId::BITS).contains(next_container), || {
        format!("backup {backup} has {next_container} for the next container number")
    })?;
    restore_point(attempt, *backup, disks, missing_disks, details)
}

fn check_number(number: u64) -> Checked {
    ensure(number <= COMMIT_NUMBER_MAX, || {
        format!("the commit number is {number}; the limit is {COMMIT_NUMBER_MAX}")
    })
}

fn restore_point(
    attempt: &Attempt,
    backup: BackupId,
    disks: &[DiskRecord],
    missing_disks: &[String],
    details: &[DetailRow],
) -> Checked {
    check_attempt(attempt)?;
    ensure((1..=DISKS_PER_BACKUP_MAX).contains(&disks.len()), || {
        format!("backup {backup} has {} disks; it must have 1 to {DISKS_PER_BACKUP_MAX}", disks.len())
    })?;
    ensure(disks.len() == details.len(), || {
        format!("backup {backup} has {} disks but {} rows of details", disks.len(), details.len())
    })?;
    let mut names = HashSet::new();
    for (disk, row) in disks.iter().zip(details) {
        check_disk(disk)?;
        ensure(names.insert(&disk.name), || format!("backup {backup} has two disks {:?}", disk.name))?;
        check_row(row, attempt)?;
        equal(row, "disk", &row.disk, &disk.name)?;
        equal(row, "backup", &row.backup, &backup.to_string())?;
        equal(row, "virtual_bytes", &row.virtual_bytes, &disk.size_bytes)?;
        ensure(row.status == RowStatus::Done, || {
            format!("the details of disk {:?} of backup {backup} are not of status done", row.disk)
        })?;
    }
    for missing in missing_disks {
        name("missing disk", missing)?;
        ensure(names.insert(missing), || format!("backup {backup} has disk {missing:?}, and lacks it"))?;
    }
    Ok(())
}

/// Checks a failed run that is to be recorded.
pub(super) fn failed(failed: &FailedRun) -> Checked {
    let FailedRun { attempt, details, containers } = failed;
    check_attempt(attempt)?;
    // A row is also what makes a repeated record of the same session recognisable.
    ensure((1..=DISKS_PER_BACKUP_MAX).contains(&details.len()), || {
        let count = details.len();
        format!(
            "session {} has {count} rows of details; it must have 1 to {DISKS_PER_BACKUP_MAX}",
            attempt.session
        )
    })?;
    for row in details {
        check_row(row, attempt)?;
        name("disk", &row.disk)?;
        equal(row, "backup", &row.backup, &String::new())?;
        let status = row.status;
        ensure(matches!(status, RowStatus::Failed | RowStatus::Aborted | RowStatus::Expired), || {
            format!("disk {:?} of failed session {} has status {status:?}", row.disk, attempt.session)
        })?;
    }
    check_containers(containers, attempt)
}

/// Checks the specification of a token.
pub(super) fn token(spec: &TokenSpec, now_ms: i64) -> Checked {
    name("token", &spec.name)?;
    scope(Some(&spec.namespaces))?;
    ensure(spec.role != Role::Admin || spec.namespaces.is_empty(), || {
        "an admin token cannot be limited to namespaces, because it may make other tokens; \
         use the role operator"
            .to_owned()
    })?;
    name("owner", &spec.owner)?;
    let patterns = spec.vm_patterns.len();
    ensure(patterns <= VM_PATTERNS_MAX, || {
        format!("a token of {patterns} VM name patterns; the limit is {VM_PATTERNS_MAX}")
    })?;
    spec.vm_patterns.iter().try_for_each(|pattern| name("VM name pattern", pattern))?;
    ensure(spec.role != Role::Admin || spec.vm_patterns.is_empty(), || {
        "an admin token cannot be limited to VM names, because it may make other tokens; use another role"
            .to_owned()
    })?;
    ensure(spec.expires_ms.is_none_or(|end_ms| end_ms > now_ms), || {
        format!("the token {:?} would have expired already", spec.name)
    })
}

/// Checks the number of things asked for in one question.
pub(super) fn at_once(what: &str, count: usize) -> Checked {
    let limit = usize::try_from(BACKUPS_PER_PAGE_MAX).unwrap_or(usize::MAX);
    ensure(count <= limit, || format!("{count} {what} in one question; the limit is {limit}"))
}

/// Checks the number of restore points to delete, lock or hold in one transaction.
pub(super) fn retention_ids(ids: &[BackupId]) -> Checked {
    let count = ids.len();
    ensure(count <= RETENTION_IDS_MAX, || {
        format!("{count} restore points in one transaction; the limit is {RETENTION_IDS_MAX}")
    })
}

/// Checks a retention policy.
pub(super) fn policy(policy: &RetentionPolicy) -> Checked {
    name("policy", &policy.name)?;
    policy.vm.as_deref().map_or(Ok(()), |vm| name("VM", vm))?;
    policy.job.as_deref().map_or(Ok(()), |job| name("job", job))?;
    ensure(policy.lock_days <= LOCK_DAYS_MAX, || {
        format!("policy {:?} locks for {} days; the limit is {LOCK_DAYS_MAX}", policy.name, policy.lock_days)
    })?;
    ensure(policy.archive_after_days.is_none_or(|days| days <= ARCHIVE_DAYS_MAX), || {
        format!("policy {:?} names more than {ARCHIVE_DAYS_MAX} days before the archive", policy.name)
    })?;
    for (what, text) in [("schedule", &policy.schedule), ("time zone", &policy.time_zone)] {
        ensure(text.len() <= NAME_MAX_BYTES && !text.contains(char::is_control), || {
            format!("the {what} of policy {:?} is too long, or has control characters", policy.name)
        })?;
    }
    Ok(())
}

/// Checks an expiring record. Its payload is not shown: it may be a secret.
pub(super) fn expiring(record: &ExpiringRecord) -> Checked {
    let len = record.payload.len();
    ensure((1..=EXPIRING_PAYLOAD_MAX_BYTES).contains(&len), || {
        format!(
            "an expiring record has a payload of {len} bytes; it must have 1 to {EXPIRING_PAYLOAD_MAX_BYTES}"
        )
    })?;
    let ExpiringRecord { created_ms, expires_ms, .. } = record;
    ensure(expires_ms > created_ms, || {
        format!("an expiring record ends at {expires_ms}, not after its creation at {created_ms}")
    })
}

/// Checks repeated events that are to be entered into the audit log in one transaction.
pub(super) fn repeats(repeats: &[AuditRepeat]) -> Checked {
    let count = repeats.len();
    ensure(count <= AUDIT_REPEATS_MAX, || {
        format!("{count} repeated events in one transaction; the limit is {AUDIT_REPEATS_MAX}")
    })?;
    ensure(repeats.iter().all(|repeat| repeat.count > 0), || "an event that happened 0 times".to_owned())
}

fn check_attempt(attempt: &Attempt) -> Checked {
    name("VM", &attempt.vm)?;
    name("owner", &attempt.owner)?;
    name("owner of a VM", &attempt.vm_owner)?;
    name("job", &attempt.job)
}

fn check_disk(disk: &DiskRecord) -> Checked {
    name("disk", &disk.name)?;
    let DiskRecord { name, size_bytes, data_bytes, extent_count: extents, .. } = disk;
    ensure(*size_bytes <= DISK_MAX_BYTES, || {
        format!("disk {name:?} has {size_bytes} bytes; the limit is {DISK_MAX_BYTES}")
    })?;
    ensure(data_bytes <= size_bytes, || {
        format!("disk {name:?} has {data_bytes} bytes of data in {size_bytes} bytes")
    })?;
    ensure(*extents == extent_count(*size_bytes), || {
        format!("disk {name:?} has {extents} extents; {size_bytes} bytes are {}", extent_count(*size_bytes))
    })
}

fn equal<T: PartialEq + std::fmt::Debug>(row: &DetailRow, what: &str, found: &T, wanted: &T) -> Checked {
    ensure(found == wanted, || {
        format!("the details of disk {:?} have {what} {found:?} where {wanted:?} belongs", row.disk)
    })
}

fn check_row(row: &DetailRow, attempt: &Attempt) -> Checked {
    equal(row, "vm", &row.vm, &attempt.vm)?;
    equal(row, "job", &row.job, &attempt.job)?;
    equal(row, "run", &row.run, &attempt.run.to_string())?;
    let parts =
        [row.unchanged_bytes, row.dup_bytes, row.new_bytes].iter().try_fold(0u64, |a, b| a.checked_add(*b));
    ensure(parts == Some(row.bytes), || {
        format!(
            "the details of disk {:?} do not add up: bytes {} but unchanged {} + dup {} + new {}",
            row.disk, row.bytes, row.unchanged_bytes, row.dup_bytes, row.new_bytes
        )
    })?;
    ensure(row.new_chunks <= row.chunks, || {
        format!("the details of disk {:?} have {} new of {} chunks", row.disk, row.new_chunks, row.chunks)
    })
}

fn check_containers(containers: &[ContainerRecord], attempt: &Attempt) -> Checked {
    let mut ids = HashSet::new();
    for container in containers {
        let id = container.id;
        ensure(ids.insert(id), || format!("container {id} is listed twice"))?;
        ensure(container.namespace == attempt.namespace, || {
            format!("container {id} is of namespace {}, not {}", container.namespace, attempt.namespace)
        })?;
        ensure(container.run == Some(attempt.run), || {
            format!("container {id} is of run {:?}, not {}", container.run, attempt.run)
        })?;
        ensure(container.state == ContainerState::Live, || {
            format!("container {id} is {:?}, not live", container.state)
        })?;
    }
    Ok(())
}

/// The sum of a column over the rows is what the containers of a class hold, to the byte.
fn check_sum(
    commit: &BackupCommit,
    column: &str,
    of: fn(&DetailRow) -> u64,
    class: ContainerClass,
) -> Checked {
    let told = sum(commit.details.iter().map(of));
    let stored = sum(commit.containers.iter().filter(|c| c.class == class).map(|c| c.stored_bytes));
    ensure(told == stored, || {
        format!(
            "the details of backup {} do not add up: {column} is {told} but its {class:?} containers have \
             {stored} bytes",
            commit.backup
        )
    })
}

fn sum(numbers: impl Iterator<Item = u64>) -> u128 {
    numbers.map(u128::from).sum()
}

/// Checks that attributed bytes add up, and that nothing has more exclusive than attributed bytes.
pub(super) fn attribution(found: &AttributionRecord) -> Checked {
    let sum = found.backups.iter().try_fold(0u64, |sum, one| sum.checked_add(one.attributed_bytes));
    if sum != Some(found.live_bytes) {
        let (sum, live) = (sum.unwrap_or(u64::MAX), found.live_bytes);
        return Err(CatalogError::invalid(format!("{sum} bytes are attributed, but {live} are live")));
    }
    match found.backups.iter().find(|one| one.exclusive_bytes > one.attributed_bytes) {
        Some(BackupShareRecord { backup, exclusive_bytes, attributed_bytes }) => {
            Err(CatalogError::invalid(format!(
                "backup {backup} has {exclusive_bytes} bytes to itself, but is attributed {attributed_bytes}"
            )))
        }
        None => Ok(()),
    }
}

/// Checks a task that is to be added.
pub(super) fn new_task(task: &TaskRecord) -> Checked {
    ensure(!task.status.has_ended(), || format!("task {} is {} already", task.id, task.status.word()))?;
    self::task(task)
}

/// Checks a task that is to be written.
pub(super) fn task(task: &TaskRecord) -> Checked {
    ensure(task.finished_ms.is_some() == task.status.has_ended(), || {
        let (id, status, finished) = (task.id, task.status.word(), task.finished_ms);
        format!("task {id} is {status}, and finished at {finished:?}")
    })?;
    for (what, text) in [("options", &task.options), ("place", &task.place), ("figures", &task.figures)] {
        ensure(text.len() <= TASK_TEXT_MAX_BYTES, || {
            format!("the {what} of a task take {} bytes; the limit is {TASK_TEXT_MAX_BYTES}", text.len())
        })?;
    }
    Ok(())
}

/// Checks a schedule.
pub(super) fn schedule(schedule: &ScheduleRecord) -> Checked {
    for (what, text) in [("calendar expression", &schedule.expression), ("time zone", &schedule.time_zone)] {
        schedule_text(what, text)?;
    }
    ensure(schedule.options.len() <= TASK_TEXT_MAX_BYTES, || {
        let bytes = schedule.options.len();
        format!("the options of a schedule take {bytes} bytes; the limit is {TASK_TEXT_MAX_BYTES}")
    })
}

/// Checks a schedule's mark.
pub(super) fn schedule_mark(mark: &ScheduleMark) -> Checked {
    schedule_text("name of a schedule", &mark.name)
}

fn schedule_text(what: &str, text: &str) -> Checked {
    ensure((1..=SCHEDULE_TEXT_MAX_BYTES).contains(&text.len()), || {
        format!("a {what} of {} bytes; 1 to {SCHEDULE_TEXT_MAX_BYTES} are allowed", text.len())
    })
}
