//! Rules carried out, or only shown, VM by VM: what is in memory is one VM's restore points, and 16 bytes for each that
//! goes.

use std::collections::{HashMap, HashSet};

use aws_lc_rs::digest::{Context, SHA256};
use holdfast_engine::catalog::{BackupRecord, Catalog, CatalogError, PageRequest, RetentionPolicy};
use holdfast_engine::clock::utc_text;
use holdfast_engine::ids::{BackupId, NamespaceId, PolicyId};
use holdfast_engine::{Engine, EngineError};
use holdfast_proto::ErrorCode;
use holdfast_proto::api::Rules;
use holdfast_proto::details::shell_word;
use holdfast_proto::schedule::zone;
use holdfast_retention::{RestorePoint, TimeZone, leaving};

use crate::error::ServiceError;
use crate::retention::plan::{Decided, decide_vm, each_point};
use crate::retention::policies;

/// Restore points deleted in one transaction.
const BATCH: usize = 500;

/// VMs read at a time.
const VMS_PAGE: u32 = 1000;

/// Restore points of one run that are remembered as to be deleted at most: 16 MB. What is beyond that waits for the next
/// run.
const DOOMED_MAX: usize = 1_000_000;

/// A run of retention rules: its subject, and how it decides.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) namespace: NamespaceId,
    pub(crate) subject: Subject,
    pub(crate) rules: Rules,
    pub(crate) zone: TimeZone,
    pub(crate) dry_run: bool,
    /// Caller, for the audit log.
    pub(crate) who: String,
    pub(crate) reason: String,
}

/// Restore points that rules decide about.
#[derive(Debug)]
pub(crate) enum Subject {
    /// Restore points of these VMs, and of one job if it says so.
    Vms { vms: Vec<String>, job: Option<String> },
    /// Restore points that a policy decides about, among all of its namespace.
    Policy { policy: PolicyId, vm: Option<String>, all: Vec<RetentionPolicy> },
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) kept: u64,
    /// Deleted; of a dry run: to be deleted.
    pub(crate) deleted: u64,
    /// Restore points not deleted after all: locked or held since it was decided.
    pub(crate) refused: Vec<BackupId>,
    /// VMs with too many restore points, which were not decided about.
    pub(crate) skipped: Vec<String>,
    /// VMs that have restore points which were decided about.
    pub(crate) vms: u64,
    /// Restore points that a dry run would delete.
    pub(crate) doomed: Vec<BackupId>,
}

/// Hears of decisions; `false` ends the run before anything more is deleted.
pub(crate) type Tell<'a> = dyn FnMut(&[Decided]) -> bool + 'a;

impl Work {
    /// The run, or dry run, of a policy. Blocks.
    ///
    /// # Errors
    /// `Invalid` when the policy is switched off and this is no dry run.
    pub(crate) fn of_policy(
        catalog: &Catalog,
        policy: &RetentionPolicy,
        who: &str,
        dry_run: bool,
    ) -> Result<Self, ServiceError> {
        let all = policies::of_namespace(catalog, policy.namespace)?;
        // As it is now, with the others as they are now.
        let policy = all.iter().find(|found| found.id == policy.id).ok_or_else(|| {
            ServiceError::new(ErrorCode::NotFound, format!("policy {:?} was removed", policy.name))
        })?;
        let name = &policy.name;
        // (P10)
        if let Some(since_ms) = policy.resting_since_ms.filter(|_| policy.enabled && !dry_run) {
            return Err(ServiceError::invalid(format!(
                "policy {name:?} rests since {}, when the catalog was found to be an older copy. See that it still names the \
                 right VMs and jobs, then 'holdfast policy enable {}', or try it with --dry-run",
                utc_text(since_ms),
                shell_word(name)
            )));
        }
        if !policy.enabled && !dry_run {
            return Err(ServiceError::invalid(format!(
                "policy {name:?} is switched off; switch it on with 'holdfast policy set', or try it with --dry-run"
            )));
        }
        let zone = zone(&policy.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
        let rules = policy.rules;
        let reason = format!("policy {name:?}: {rules}");
        let (namespace, policy, vm) = (policy.namespace, policy.id, policy.vm.clone());
        let subject = Subject::Policy { policy, vm, all };
        Ok(Self { namespace, subject, rules, zone, dry_run, who: who.to_owned(), reason })
    }
}

impl Work {
    /// (L9) Stands for what a dry run showed: the policies as they are, and the restore points that would be deleted.
    pub(crate) fn plan(&self, doomed: &[BackupId]) -> String {
        let mut digest = Context::new(&SHA256);
        if let Subject::Policy { policy, all, .. } = &self.subject {
            digest.update(format!("{policy} {all:?}").as_bytes());
        }
        for id in doomed {
            digest.update(id.to_string().as_bytes());
        }
        digest.finish().as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }
}

impl Subject {
    /// A run can take long: policies that were changed since it began, to keep more or by being switched off, are not to
    /// delete by what they said then.
    ///
    /// # Errors
    /// `Invalid` when they were changed; those of the catalog.
    fn check_unchanged(&self, catalog: &Catalog, namespace: NamespaceId) -> Result<(), ServiceError> {
        match self {
            Self::Policy { all, .. } if policies::of_namespace(catalog, namespace)? != *all => {
                Err(ServiceError::invalid(
                    "retention policies of the namespace were changed while this one ran; what was deleted stays \
                     deleted; run it again",
                ))
            }
            _ => Ok(()),
        }
    }

    fn has(&self, backup: &BackupRecord) -> bool {
        match self {
            Self::Vms { job, .. } => job.as_ref().is_none_or(|job| *job == backup.job),
            Self::Policy { policy, all, .. } => {
                policies::governing(all, &backup.vm, &backup.job).is_some_and(|found| found.id == *policy)
            }
        }
    }
}

/// Decides VM by VM, tells, and unless it is a dry run deletes before it goes on. Ends early when `stop` says so. By the
/// engine's time: no jump of the clock deletes anything (L6). Blocks.
///
/// # Errors
/// Those of catalog and engine; `NotFound` for a VM that was named and is not there.
pub(crate) fn run(
    engine: &Engine,
    work: &Work,
    stop: &dyn Fn() -> bool,
    tell: &mut Tell<'_>,
) -> Result<Outcome, ServiceError> {
    let now_ms = engine.deciding_time_ms();
    let mut outcome = Outcome::default();
    let mut decide = |vm: &str| -> Result<bool, ServiceError> {
        if stop() || outcome.doomed.len() >= DOOMED_MAX {
            return Ok(false);
        }
        work.subject.check_unchanged(engine.catalog().as_ref(), work.namespace)?;
        one_vm(engine, now_ms, work, vm, tell, &mut outcome)
    };
    match &work.subject {
        Subject::Vms { vms, .. } => {
            for vm in vms {
                if engine.catalog().latest_backup(work.namespace, vm)?.is_none() {
                    return Err(ServiceError::new(
                        ErrorCode::NotFound,
                        format!("there is no backup of VM {vm:?}; 'holdfast list' lists the backups"),
                    ));
                }
                if !decide(vm)? {
                    break;
                }
            }
        }
        Subject::Policy { vm: Some(vm), .. } => {
            decide(vm)?;
        }
        Subject::Policy { vm: None, .. } => each_vm(engine, work.namespace, &mut decide)?,
    }
    Ok(outcome)
}

/// (L9) Deletes exactly what a dry run showed, of which this was the [plan](Work::plan), or nothing at all. Blocks.
///
/// # Errors
/// `Changed` when policies or restore points are others by now; those of [`run`].
pub(crate) fn run_shown(
    engine: &Engine,
    work: &mut Work,
    plan: &str,
    stop: &dyn Fn() -> bool,
    tell: &mut Tell<'_>,
) -> Result<Outcome, ServiceError> {
    work.dry_run = true;
    let shown = run(engine, work, stop, tell);
    work.dry_run = false;
    let mut outcome = Outcome { deleted: 0, ..shown? };
    let doomed = std::mem::take(&mut outcome.doomed);
    if stop() {
        return Err(ServiceError::shutting_down());
    }
    if work.plan(&doomed) != plan {
        let text = "since the dry run, policies or restore points have changed, and nothing was deleted; try it again \
                    with a dry run";
        return Err(ServiceError::new(ErrorCode::Changed, text));
    }
    for batch in doomed.chunks(BATCH) {
        if stop() {
            break;
        }
        work.subject.check_unchanged(engine.catalog().as_ref(), work.namespace)?;
        let (deleted, refused) = delete_free(engine, batch, (&work.who, &work.reason))?;
        outcome.deleted += deleted;
        outcome.refused.extend(refused);
    }
    Ok(outcome)
}

/// Goes on as long as `visit` says so.
pub(super) fn each_vm(
    engine: &Engine,
    namespace: NamespaceId,
    visit: &mut dyn FnMut(&str) -> Result<bool, ServiceError>,
) -> Result<(), ServiceError> {
    let mut token = String::new();
    loop {
        let page = PageRequest { size: VMS_PAGE, token: &token };
        let page = engine.catalog().list_vms(Some(&[namespace]), page)?;
        for vm in page.items.iter().filter(|vm| vm.backups > 0) {
            if !visit(&vm.name)? {
                return Ok(());
            }
        }
        match page.next {
            Some(next) => token = next,
            None => return Ok(()),
        }
    }
}

fn one_vm(
    engine: &Engine,
    now_ms: i64,
    work: &Work,
    vm: &str,
    tell: &mut Tell<'_>,
    outcome: &mut Outcome,
) -> Result<bool, ServiceError> {
    let (catalog, mine) = (engine.catalog().as_ref(), |backup: &BackupRecord| work.subject.has(backup));
    let decided = decide_vm(catalog, now_ms, (work.namespace, vm), &mine, (&work.rules, &work.zone))?;
    // (L9) It keeps no other VM from being decided about.
    let Some(decided) = decided else {
        outcome.skipped.push(vm.to_owned());
        return Ok(true);
    };
    if decided.is_empty() {
        return Ok(true);
    }
    if !tell(&decided) {
        return Ok(false);
    }
    outcome.vms += 1;
    outcome.kept += decided.iter().filter(|point| point.keep()).count() as u64;
    // (P7) What was not read may lock one: it stays.
    let unread = engine.unread_points();
    let goes = |point: &&Decided| !point.keep() && !unread.contains(&point.id);
    let doomed: Vec<BackupId> = decided.iter().filter(goes).map(|point| point.id).collect();
    if work.dry_run {
        outcome.deleted += doomed.len() as u64;
        outcome.doomed.extend(doomed);
        return Ok(true);
    }
    for batch in doomed.chunks(BATCH) {
        let (deleted, refused) = delete_free(engine, batch, (&work.who, &work.reason))?;
        outcome.deleted += deleted;
        outcome.refused.extend(refused);
    }
    Ok(true)
}

/// (L9) Deletes those of `ids` that are not locked or held, nor gone, by now: how many, and which were locked or held. Blocks.
///
/// # Errors
/// The engine's.
pub(crate) fn delete_free(
    engine: &Engine,
    ids: &[BackupId],
    (who, reason): (&str, &str),
) -> Result<(u64, Vec<BackupId>), ServiceError> {
    let (mut free, mut refused) = (ids.to_vec(), Vec::new());
    loop {
        let error = match engine.delete_backups(&free, who, reason) {
            Ok(deleted) => return Ok((deleted.len() as u64, refused)),
            Err(error @ (EngineError::Locked(_) | EngineError::Catalog(CatalogError::NotFound { .. }))) => {
                error
            }
            Err(error) => return Err(error.into()),
        };
        tracing::info!("a restore point was not deleted, and the others are: {error}");
        let before = free.len();
        let lock_time_ms = engine.catalog().lock_time()?;
        for id in std::mem::take(&mut free) {
            match engine.catalog().backup(id)? {
                Some(found) if found.lock.is_in_force(lock_time_ms) => refused.push(id),
                Some(_) => free.push(id),
                None => {}
            }
        }
        if free.len() == before {
            return Err(error.into());
        }
        if free.is_empty() {
            return Ok((0, refused));
        }
    }
}

/// Restore points known to leave, at most: 16 bytes each, and more in the set. What is beyond counts as staying.
const LEAVING_MAX: usize = 4_000_000;

/// Restore points of a VM by the policy that decides about them.
type Governed = HashMap<PolicyId, Vec<RestorePoint<BackupId>>>;

/// Restore points that leave, and VMs with too many restore points, of which nothing counts as leaving.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    pub(crate) points: HashSet<BackupId>,
    pub(crate) skipped: Vec<String>,
}

/// Restore points that policies will have deleted after some time: what only they need is not worth a storage class that is
/// paid for longer.
///
/// `None`: `go_on` said no. Blocks.
///
/// # Errors
/// The catalog's errors; `Invalid`: a policy whose time zone is not known any more.
pub(crate) fn leaving_within(
    engine: &Engine,
    days: u32,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Leaving>, ServiceError> {
    let now_ms = engine.deciding_time_ms();
    let mut found = Leaving::default();
    for namespace in engine.catalog().namespaces()? {
        let policies = policies::of_namespace(engine.catalog().as_ref(), namespace.id)?;
        if !policies.iter().any(RetentionPolicy::is_at_work) {
            continue;
        }
        let mut stopped = false;
        each_vm(engine, namespace.id, &mut |vm| {
            stopped = !go_on();
            if !stopped {
                of_vm(engine, (namespace.id, vm), &policies, (now_ms, days), &mut found)?;
            }
            Ok(!stopped && found.points.len() < LEAVING_MAX)
        })?;
        if stopped {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

fn of_vm(
    engine: &Engine,
    (namespace, vm): (NamespaceId, &str),
    policies: &[RetentionPolicy],
    (now_ms, days): (i64, u32),
    found: &mut Leaving,
) -> Result<(), ServiceError> {
    let mut governed = Governed::new();
    let is_whole =
        each_point(engine.catalog().as_ref(), (namespace, vm), &mut |backup: &BackupRecord, point| {
            // One that is switched off, or rests, keeps everything.
            let policy = policies::governing(policies, &backup.vm, &backup.job);
            let policy = policy.filter(|policy| policy.is_at_work());
            if let Some(policy) = policy {
                governed.entry(policy.id).or_default().push(point);
            }
        })?;
    if !is_whole {
        // (L9) Nor is anything of this VM deleted.
        found.skipped.push(vm.to_owned());
        return Ok(());
    }
    for policy in policies {
        let Some(points) = governed.get(&policy.id) else { continue };
        let zone = zone(&policy.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
        found.points.extend(leaving(points, &policy.rules, &zone, now_ms, days));
    }
    Ok(())
}
