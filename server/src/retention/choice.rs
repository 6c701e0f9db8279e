//! Restore points that a caller names, by id or by the beginning of one.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{BackupRecord, Catalog, NamespaceRecord};
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_engine::{Engine, EngineError, ReclaimControl};
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::{SELECTION_MAX, check_name, is_deceptive, plain_text};
use parking_lot::{Condvar, Mutex};

use crate::auth::Caller;
use crate::error::ServiceError;
use crate::retention::REASON_MAX_BYTES;

/// Word for the newest backup of a VM.
const LATEST: &str = "latest";

/// Characters of a ULID.
const ULID_CHARS: usize = 26;

/// The restore points of a namespace that `names` name (ids, beginnings of ids, or `latest` with a VM), each once, in
/// this order. Blocks.
///
/// # Errors
/// `Forbidden` by role, scope or VM patterns; `NotFound`; `Invalid`: too many, or a beginning that several have.
pub(crate) fn named(
    catalog: &Catalog,
    caller: &Caller,
    action: Action,
    namespace: &str,
    vm: &str,
    names: &[String],
) -> Result<Vec<BackupRecord>, ServiceError> {
    let namespace = caller.namespace(catalog, namespace, action)?;
    check_count(names.len())?;
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for name in names {
        let backup = one(catalog, &namespace, vm, name)?;
        caller.check_vm(&backup.vm)?;
        if seen.insert(backup.id) {
            found.push(backup);
        }
    }
    Ok(found)
}

/// The restore point of a namespace that `name` names: an id, the beginning of one, or `latest` with a VM. Blocks.
///
/// # Errors
/// `NotFound`; `Invalid`: no such name, or a beginning that several have.
pub(crate) fn one(
    catalog: &Catalog,
    namespace: &NamespaceRecord,
    vm: &str,
    name: &str,
) -> Result<BackupRecord, ServiceError> {
    if !vm.is_empty() {
        check_name("VM", vm).map_err(ServiceError::invalid)?;
    }
    let found = match name {
        LATEST if vm.is_empty() => {
            return Err(ServiceError::invalid("the latest backup of which VM? name it"));
        }
        LATEST => catalog.latest_backup(namespace.id, vm)?,
        name => find(catalog, namespace.id, name)?,
    };
    found.filter(|backup| vm.is_empty() || backup.vm == vm).ok_or_else(|| {
        let of = if vm.is_empty() { String::new() } else { format!(" of VM {vm:?}") };
        let (name, namespace) = (plain_text(name, ULID_CHARS), &namespace.name);
        ServiceError::new(
            ErrorCode::NotFound,
            format!(
                "there is no backup {name}{of} in namespace {namespace:?}; 'holdfast list' lists the backups"
            ),
        )
    })
}

/// The restore points of these ids, each once, in this order. Blocks.
///
/// # Errors
/// As [`named`]; `NotFound` also for what is in a namespace that is not the caller's.
pub(crate) fn by_id(
    catalog: &Catalog,
    caller: &Caller,
    action: Action,
    ids: &[BackupId],
) -> Result<Vec<BackupRecord>, ServiceError> {
    caller.check_role(action)?;
    check_count(ids.len())?;
    let (mut seen, mut found) = (HashSet::new(), Vec::new());
    for id in ids.iter().filter(|id| seen.insert(**id)) {
        let backup = catalog.backup(*id)?.filter(|backup| caller.may(action, backup.namespace));
        let backup = backup
            .ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no backup {id}")))?;
        caller.check_vm(&backup.vm)?;
        found.push(backup);
    }
    Ok(found)
}

/// The one backup whose id begins with `prefix`.
///
/// # Errors
/// `Invalid` when there are several, or it cannot be the beginning of an id.
fn find(
    catalog: &Catalog,
    namespace: NamespaceId,
    prefix: &str,
) -> Result<Option<BackupRecord>, ServiceError> {
    if prefix.is_empty() || prefix.len() > ULID_CHARS {
        return Err(ServiceError::invalid(format!(
            "name a backup by its id, the beginning of its id, or {LATEST:?}"
        )));
    }
    let mut found = catalog.find_backups(namespace, prefix, 2)?;
    let first = found.pop();
    if let (Some(second), Some(first)) = (found.pop(), &first) {
        return Err(ServiceError::invalid(format!(
            "the ids of several backups begin with {prefix}, among them {} and {}; write more of the id",
            second.id, first.id
        )));
    }
    Ok(first)
}

/// A reason as the audit log may have it.
///
/// # Errors
/// `Invalid`: too long, with characters that no log should have, or missing where one is needed.
pub(crate) fn check_reason(reason: &str, needed: bool) -> Result<(), ServiceError> {
    if needed && reason.trim().is_empty() {
        return Err(ServiceError::invalid("say why: a legal hold is placed and released with a reason"));
    }
    if reason.len() > REASON_MAX_BYTES {
        return Err(ServiceError::invalid(format!("the reason is longer than {REASON_MAX_BYTES} bytes")));
    }
    if reason.chars().any(is_deceptive) {
        return Err(ServiceError::invalid("the reason contains control characters"));
    }
    Ok(())
}

fn check_count(count: usize) -> Result<(), ServiceError> {
    match count {
        0 => Err(ServiceError::invalid("name at least one backup")),
        1..=SELECTION_MAX => Ok(()),
        _ => Err(ServiceError::invalid(format!(
            "one call is about {SELECTION_MAX} backups at most, not {count}; make several calls"
        ))),
    }
}

/// Interval between looks whether the answer is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Counting walks all recipes of a namespace, with two threads and up to hundreds of MiB: one at a time.
static COUNTING: Mutex<()> = Mutex::new(());

/// Longest count for an answer over HTTP: it is due after 30 seconds, and what comes too late only keeps others
/// waiting.
const COUNT_AT_MOST: Duration = Duration::from_secs(20);

/// As [`by_deleting`] for an answer that is due soon: `None` also when counting takes too long. Blocks.
///
/// # Errors
/// The errors of [`by_deleting`].
pub(crate) fn soon(
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    within(COUNT_AT_MOST, engine, ids, stop)
}

/// As [`soon`], for so long. Blocks.
///
/// # Errors
/// The errors of [`by_deleting`].
pub(crate) fn within(
    at_most: Duration,
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    let began = Instant::now();
    by_deleting(engine, ids, &|| began.elapsed() >= at_most || stop())
}

/// Returns the bytes that reclaim could free once these restore points are deleted; `None`: it cannot be told exactly, because something
/// cannot be read, or `stop` said that no one wants to know. Blocks.
///
/// # Errors
/// `Limit` while another is counted; those of the engine.
pub(crate) fn by_deleting(
    engine: &Engine,
    ids: &[BackupId],
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<u64>, ServiceError> {
    if ids.is_empty() {
        return Ok(Some(0));
    }
    let Some(_turn) = COUNTING.try_lock() else {
        return Err(ServiceError::at_capacity(
            "what another deletion would free is being counted; try again in a moment",
        ));
    };
    if stop() {
        return Ok(None);
    }
    let control = ReclaimControl::default();
    let (ended, changed) = (Mutex::new(false), Condvar::new());
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ended = ended.lock();
            while !*ended {
                if stop() {
                    control.stop();
                }
                changed.wait_for(&mut ended, LOOK_EVERY);
            }
        });
        let found = engine.freed_by_deleting(ids, &control);
        *ended.lock() = true;
        changed.notify_all();
        found
    });
    match found {
        Ok(freed) => Ok(freed.is_exact.then(|| freed.total_bytes())),
        Err(EngineError::Stopped) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
