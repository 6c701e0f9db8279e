//! From a request to a session: what is checked, which run it joins, what its parents are.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_catalog::{DiskRecord, NamespaceRecord, new_id};
use holdfast_proto::limits::{
    DISK_MAX_BYTES, DISKS_PER_BACKUP_MAX, ID_SHOWN_BYTES, NAME_MAX_BYTES, check_name, plain_text,
};
use holdfast_proto::{KeyId, v1};
use holdfast_types::ids::{BackupId, NamespaceId, RunId, SessionId};

use super::parent::ParentDisk;
use super::session::{DiskSlot, Session, SessionParts, Starter};
use crate::core::Core;
use crate::error::EngineError;
use crate::fair::Tenant;
use crate::quota::Applicant;
use crate::space::Grant;

/// Bytes kept of what an agent calls its version.
const VERSION_MAX_BYTES: usize = 64;

/// The highest compression level there is.
const LEVEL_MAX: u32 = 22;

/// Restore points before the latest in which a disk is looked for that the latest lacks.
const PARTIAL_LOOK_BACK: u32 = 100;

/// A request to start a backup, in a namespace the caller was authorised for.
#[derive(Debug)]
pub struct StartBackup {
    pub namespace: NamespaceId,
    pub request: v1::StartRequest,
    /// The caller. The session is theirs alone.
    pub starter: Starter,
}

/// Validates the request by itself, without the state of the repository. (R3) Bounds every count and length in it.
pub(super) fn check_request(request: &v1::StartRequest) -> Result<(), EngineError> {
    let invalid = EngineError::Invalid;
    check_name("VM", &request.vm).map_err(invalid)?;
    check_name("job", &request.job).map_err(invalid)?;
    let count = request.disks.len();
    if count == 0 || count > DISKS_PER_BACKUP_MAX {
        return Err(invalid(format!("a backup has 1 to {DISKS_PER_BACKUP_MAX} disks, not {count}")));
    }
    let mut names = HashSet::new();
    for disk in &request.disks {
        check_name("disk", &disk.name).map_err(invalid)?;
        if !names.insert(&disk.name) {
            return Err(invalid(format!(
                "two disks are called {:?}; give them names with NAME=PATH",
                disk.name
            )));
        }
        if disk.size_bytes > DISK_MAX_BYTES {
            let size = disk.size_bytes;
            return Err(invalid(format!(
                "disk {:?} is {size} bytes; the limit is {DISK_MAX_BYTES}",
                disk.name
            )));
        }
    }
    check_missing(request, names)
}

/// Names of disks that are left out are kept with the backup, so they are held to the same bounds.
fn check_missing<'a>(
    request: &'a v1::StartRequest,
    mut names: HashSet<&'a String>,
) -> Result<(), EngineError> {
    let count = request.missing_disks.len();
    if count > DISKS_PER_BACKUP_MAX {
        return Err(EngineError::Invalid(format!(
            "a backup may lack up to {DISKS_PER_BACKUP_MAX} disks, not {count}"
        )));
    }
    for name in &request.missing_disks {
        check_name("missing disk", name).map_err(EngineError::Invalid)?;
        if !names.insert(name) {
            return Err(EngineError::Invalid(format!("disk {name:?} is named twice, once as missing")));
        }
    }
    Ok(())
}

/// (N2) Checks that the agent encrypts as its namespace requires: with that key, or not at all.
pub(super) fn check_key(namespace: &NamespaceRecord, request: &v1::StartRequest) -> Result<(), EngineError> {
    let theirs =
        KeyId::from_field(&request.key_id).map_err(|error| EngineError::Invalid(error.to_string()))?;
    let name = &namespace.name;
    let message = match (namespace.key_id, theirs) {
        (ours, theirs) if ours == theirs => return Ok(()),
        (Some(ours), None) => format!(
            "namespace {name:?} is end-to-end encrypted with key {ours}, and the agent has no key: give it that key with --namespace-key FILE"
        ),
        (Some(ours), Some(theirs)) => format!(
            "namespace {name:?} is end-to-end encrypted with key {ours}, and the agent has key {theirs}: give it the right one"
        ),
        (None, _) => format!(
            "namespace {name:?} is not end-to-end encrypted, and the agent has a key to encrypt with: leave the key out, or back up to a namespace that was created with 'holdfast-server namespace create NAME --end-to-end {}'",
            request.key_id
        ),
    };
    Err(EngineError::Invalid(message))
}

/// Owner of the VM, or the one it gets with this backup. (A11) A token writes VMs of its own owner, unless it may write
/// all. Checked before anything else is done to the VM.
pub(super) fn vm_owner(core: &Core, start: &StartBackup) -> Result<String, EngineError> {
    let StartBackup { namespace, request, starter } = start;
    let known = core.catalog.vm_owner(*namespace, &request.vm)?;
    let owner = known.and_then(|vm| vm.owner).unwrap_or_else(|| starter.owner.clone());
    if owner == starter.owner || starter.is_for_every_owner {
        return Ok(owner);
    }
    Err(EngineError::NotOwner { vm: request.vm.clone() })
}

/// Makes the session; no one knows of it yet.
pub(super) fn open_session(
    core: &Arc<Core>,
    namespace: NamespaceRecord,
    vm_owner: String,
    start: &StartBackup,
    room: Grant,
) -> Result<Session, EngineError> {
    let request = &start.request;
    let clock = &*core.clock;
    let run = run_of(core, &namespace, start)?;
    let id = SessionId(new_id(clock)?);
    // Before anything is sent.
    let charge = Arc::new(core.quotas.admit(&Applicant {
        namespace: &namespace,
        tenant: Tenant { namespace: namespace.id, token: start.starter.token },
        session: id,
        vm: &request.vm,
        job: &request.job,
    })?);
    let domain = core.store.domain(namespace.id);
    let sealed = namespace.key_id.is_some();
    let mut parents = ParentDisk::of_vm(core, &domain, &request.vm, &vm_owner)?;
    let disks = request
        .disks
        .iter()
        .map(|spec| DiskSlot::new(core, &domain, spec, parents.remove(&spec.name), (sealed, &charge)))
        .collect();
    let parts = SessionParts {
        id,
        backup: BackupId(new_id(clock)?),
        run,
        namespace,
        vm: request.vm.clone(),
        vm_owner,
        job: request.job.clone(),
        host: plain_text(&request.client_host, NAME_MAX_BYTES),
        agent: plain_text(&request.client_version, VERSION_MAX_BYTES),
        level: request.level.min(LEVEL_MAX),
        starter: start.starter.clone(),
        missing_disks: request.missing_disks.clone(),
        lost: lost(core, start)?,
        disks,
        charge,
        room,
    };
    Ok(Session::new(core, parts))
}

/// (W16) Disks of the VM's latest restore point, or ends of them, that the next would drop though the agent does not say that
/// they could not be read; each compared with the latest restore point that has it.
pub(super) fn lost(core: &Core, start: &StartBackup) -> Result<Option<String>, EngineError> {
    let StartBackup { namespace, request, .. } = start;
    let Some(latest) = core.catalog.latest_backup(*namespace, &request.vm)? else { return Ok(None) };
    let missing = |name: &String| request.missing_disks.contains(name);
    let mut lost = Vec::new();
    for disk in latest.disks.iter().filter(|disk| !missing(&disk.name)) {
        match request.disks.iter().find(|spec| spec.name == disk.name) {
            Some(spec) if spec.size_bytes >= disk.size_bytes => {}
            Some(spec) => lost.push(shorter(spec, disk)),
            None => lost.push(format!("disk {:?} is not there", disk.name)),
        }
    }
    // A partial restore point does not make anyone forget what the VM has, nor how large it was.
    for spec in request.disks.iter().filter(|spec| latest.missing_disks.contains(&spec.name)) {
        let before = core.catalog.backups_before(latest.id, PARTIAL_LOOK_BACK)?;
        let last = before.iter().flat_map(|backup| &backup.disks).find(|disk| disk.name == spec.name);
        if let Some(disk) = last.filter(|disk| spec.size_bytes < disk.size_bytes) {
            lost.push(shorter(spec, disk));
        }
    }
    let known = |name: &String| missing(name) || request.disks.iter().any(|spec| spec.name == *name);
    let unknown = latest.missing_disks.iter().filter(|name| !known(name));
    lost.extend(unknown.map(|name| format!("disk {name:?} is not there")));
    Ok((!lost.is_empty()).then(|| {
        format!("compared with VM {:?} in restore point {}: {}", request.vm, latest.id, lost.join("; "))
    }))
}

fn shorter(spec: &v1::DiskSpec, disk: &DiskRecord) -> String {
    format!("disk {:?} has {} bytes, and had {}", disk.name, spec.size_bytes, disk.size_bytes)
}

/// The run the backup joins, or a new one. Checked now: a catalog that refused the run at commit would
/// refuse a whole upload, and the record of its failure as well.
fn run_of(core: &Core, namespace: &NamespaceRecord, start: &StartBackup) -> Result<RunId, EngineError> {
    let request = &start.request;
    let text = &request.run_id;
    if text.is_empty() {
        return Ok(RunId(new_id(&*core.clock)?));
    }
    // Not quoted at length: it may be megabytes.
    let shown = || plain_text(text, ID_SHOWN_BYTES);
    let run: RunId = text.parse().map_err(|_| EngineError::Invalid(format!("{:?} is no run id", shown())))?;
    check_run(core, run, namespace, &start.starter.owner)?;
    Ok(run)
}

/// Checks that the run is of that namespace and owner, or not known to the catalog. (P9) Its job may have been renamed
/// since.
pub(super) fn check_run(
    core: &Core,
    run: RunId,
    namespace: &NamespaceRecord,
    owner: &str,
) -> Result<(), EngineError> {
    match core.catalog.run(run)? {
        Some(known) if known.namespace != namespace.id || known.owner != owner => {
            let namespace = &namespace.name;
            Err(EngineError::Invalid(format!(
                "run {run} is not in namespace {namespace:?} and of this token's owner, so this backup cannot join it: leave the run id out"
            )))
        }
        _ => Ok(()),
    }
}

/// Says nothing of the job or the namespace the run belongs to: the caller may not be allowed to know.
pub(super) fn foreign_run(run: RunId, namespace: &NamespaceRecord, job: &str) -> EngineError {
    let namespace = &namespace.name;
    EngineError::Invalid(format!(
        "run {run} is not of job {job:?} in namespace {namespace:?} and of this token's owner, so this backup cannot join it: leave the run id out, or name the job it is of"
    ))
}

/// Response that tells the agent of its session.
pub(super) fn response(core: &Core, session: &Session) -> v1::StartResponse {
    let parents = session.disks.iter().map(|disk| match &disk.parent {
        Some(parent) => v1::ParentDisk {
            present: true,
            size_bytes: parent.size_bytes(),
            reread: parent.reread().map(Into::into),
        },
        None => v1::ParentDisk::default(),
    });
    let parent = session.disks.iter().find_map(|disk| disk.parent.as_ref());
    v1::StartResponse {
        session_id: session.id.to_string(),
        backup_id: session.backup.to_string(),
        run_id: session.run.to_string(),
        lease_secs: core.lease_secs,
        // Empty: there is none.
        parent_backup_id: parent.map_or_else(String::new, |parent| parent.backup().to_string()),
        parents: parents.collect(),
        key_id: KeyId::field(session.namespace.key_id),
    }
}
