//! Walks everything and says what is wrong, down to which VM it hits.
//!
//! Containers first, so that damage is known; then every recipe of every backup: each chunk must be found,
//! undamaged and of the length the recipe says. Damage found is remembered like damage met in operation, so
//! the next backups store what is lost again. What was damaged and proves sound counts again. (R4)

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_catalog::{ContainerRecord, ContainerState, FalseDigest, RootRecord};
use holdfast_proto::{ErrorCode, Fingerprint};
use holdfast_types::ids::{ContainerClass, NamespaceId};

use crate::container::{ContainerError, RecentDirectories, scan_container};
use crate::core::Core;
use crate::digests::{self, FarData, ReadExtent};
use crate::error::EngineError;
use crate::format::recipe::ExtentEntry;
use crate::jobs::Progress;
use crate::parity;
use crate::points;
use crate::recipe::TreeReader;
use crate::recovery;
use crate::store::{NodeReader, region_is_sound};

/// Problems listed at most; more are only counted.
const PROBLEMS_MAX: usize = 1000;

/// Options of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Read, decode and hash every chunk and every extent, too.
    pub read_data: bool,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The damaged object: a container, or a disk of a backup.
    pub object: String,
    /// Description of the problem.
    pub what: String,
    /// `Damaged`, or why it could not be judged: `Unsupported` when a newer version wrote it.
    pub code: ErrorCode,
}

/// Result of a check: counts of objects checked, problems, and healed damage.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    pub containers: u64,
    pub container_bytes: u64,
    /// Containers that lie in an archive, of which nothing but the directory was looked at.
    pub cold_containers: u64,
    pub backups: u64,
    /// Points on the volume.
    pub points: u64,
    pub disks: u64,
    pub extents: u64,
    pub chunks: u64,
    pub problems: Vec<Problem>,
    /// Problems that did not fit the list.
    pub further_problems: u64,
    /// Damaged containers, or regions of them, by which nothing is lost: every restore point of their namespace is whole
    /// without them.
    pub healed: Vec<Problem>,
    /// Count of healed items beyond those in the list.
    pub further_healed: u64,
}

impl CheckReport {
    /// Returns true if there are no problems.
    pub const fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Error code for the report as a whole: `None` without problems, `Damaged` when anything is damaged, otherwise the
    /// first problem's code.
    pub fn code(&self) -> Option<ErrorCode> {
        let codes = || self.problems.iter().map(|problem| problem.code);
        codes().find(|code| *code == ErrorCode::Damaged).or_else(|| codes().next())
    }

    const fn problem_count(&self) -> u64 {
        self.problems.len() as u64 + self.further_problems
    }

    fn add(&mut self, object: impl Into<String>, what: impl Into<String>, code: ErrorCode) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { object: object.into(), what: what.into(), code });
        } else {
            self.further_problems += 1;
        }
    }
}

/// Nodes already checked in one namespace.
#[derive(Debug)]
struct Seen {
    /// Extent nodes all of whose chunks were found.
    sound: HashSet<Fingerprint>,
    /// Digests computed from extent nodes, when data is read.
    digests: Option<HashMap<Fingerprint, ReadExtent>>,
}

impl Seen {
    fn new(options: CheckOptions) -> Self {
        Self { sound: HashSet::new(), digests: options.read_data.then(HashMap::new) }
    }
}

pub(crate) fn run(
    core: &Arc<Core>,
    options: CheckOptions,
    progress: &dyn Progress,
) -> Result<CheckReport, EngineError> {
    let mut report = CheckReport::default();
    for problem in core.catalog.integrity_check()? {
        report.add("catalog", problem, ErrorCode::Damaged);
    }
    if let Err(error) = core.store.index.verify() {
        report.add("index", error.to_string(), ErrorCode::Damaged);
    }
    let damaged = check_containers(core, options, progress, &mut report)?;
    check_parity(core, options, &mut report)?;
    let hurt = check_recipes(core, options, progress, &mut report)?;
    tell_damage(core, damaged, &hurt, &mut report)?;
    let problem = |object, error: EngineError| report.add(object, error.to_string(), error.code());
    let points = points::verify(core, progress, problem)?;
    report.points = points;
    Ok(report)
}

/// Damage of a container: it is a problem only where a restore point lacks something.
struct Damage {
    record: ContainerRecord,
    what: String,
}

/// (R4) Damage is a problem in namespaces of which a restore point lacks something, and told as healed in others. What
/// can be closed is.
fn tell_damage(
    core: &Core,
    damaged: Vec<Damage>,
    hurt: &HashSet<NamespaceId>,
    report: &mut CheckReport,
) -> Result<(), EngineError> {
    let absent = core.store.absence().is_some();
    for Damage { record, what } in damaged {
        let object = format!("container {}", record.id);
        if absent || !is_harmless(core, &record, hurt)? {
            report.add(object, what, ErrorCode::Damaged);
            continue;
        }
        if report.healed.len() < PROBLEMS_MAX {
            report.healed.push(Problem { object, what, code: ErrorCode::Damaged });
        } else {
            report.further_healed += 1;
        }
    }
    Ok(())
}

/// Returns true if the damage of a container loses nothing. False if a restore point of its namespace lacks something,
/// which may have been in the container, or needs something that can only be read past the damage.
fn is_harmless(
    core: &Core,
    record: &ContainerRecord,
    hurt: &HashSet<NamespaceId>,
) -> Result<bool, EngineError> {
    let id = record.id;
    if core.store.close_healed(id)? || core.store.is_healed(id) {
        return Ok(true);
    }
    let known = core.store.known_damage(id);
    // Damage that loses nothing now may matter when another part of the container is damaged, too.
    if known.is_empty() || hurt.contains(&record.namespace) {
        return Ok(false);
    }
    let as_a_whole = known.iter().any(|(region, _)| region.is_none());
    Ok(!as_a_whole || core.store.salvaged(id)?.is_none())
}

/// Checks all containers that the catalog knows, and returns their damage.
fn check_containers(
    core: &Core,
    options: CheckOptions,
    progress: &dyn Progress,
    report: &mut CheckReport,
) -> Result<Vec<Damage>, EngineError> {
    let mut damaged = Vec::new();
    let mut files = recovery::list_files(&*core.volume)?;
    let total = files.len() as u64;
    for record in core.catalog.all_containers() {
        let record = record?;
        files.remove(&record.id);
        if record.state == ContainerState::Condemned {
            continue;
        }
        progress.step("containers", report.containers, total);
        report.containers += 1;
        report.container_bytes += record.stored_bytes;
        check_container(core, options, &record, &mut damaged, report)?;
    }
    for (id, file) in files {
        if let Err(error) = core.store.containers.get(id, file.class) {
            report.add(format!("container {id}"), error.to_string(), error.code());
        }
    }
    if let Some(reason) = core.store.absence() {
        report.add("volume", reason, ErrorCode::Damaged);
    }
    Ok(damaged)
}

/// (V6) Header and table of the parity of every group, and with the data all of it.
fn check_parity(core: &Core, options: CheckOptions, report: &mut CheckReport) -> Result<(), EngineError> {
    for (number, was_damaged) in core.catalog.parity_groups(None, u32::MAX)? {
        let proved = parity::prove(&*core.volume, core.repository, number, &mut |_| options.read_data);
        let is_damaged = match proved {
            Ok(all) => was_damaged && !all,
            Err(error) => {
                let is_damaged = matches!(error, EngineError::Damaged(_));
                let help = "; the server makes it anew while the setting 'parity' is on";
                let what = format!("{error}{}", if is_damaged { help } else { "" });
                report.add(format!("parity {number}"), what, error.code());
                is_damaged || was_damaged
            }
        };
        if is_damaged != was_damaged && core.store.absence().is_none() {
            core.catalog.mark_parity_group(number, is_damaged)?;
        }
    }
    Ok(())
}

fn check_container(
    core: &Core,
    options: CheckOptions,
    record: &ContainerRecord,
    damaged: &mut Vec<Damage>,
    report: &mut CheckReport,
) -> Result<(), EngineError> {
    let id = record.id;
    let mut is_cold = false;
    let mut tell = |what: String, code| {
        if code == ErrorCode::Damaged {
            damaged.push(Damage { record: record.clone(), what });
        } else {
            report.add(format!("container {id}"), what, code);
        }
    };
    core.store.look_again(id)?;
    let open = core.store.open_afresh(record);
    if let Err(error) = &open {
        if error.is_damage() {
            core.store.note_failure(id, None, error);
        }
        tell(error.to_string(), error.code());
    }
    // A region that still decodes to what its fingerprints say has lost nothing: its header is needed only where
    // there is no directory.
    let is_lost = |error: &ContainerError| match (&open, error.region()) {
        (Ok(open), Some(region)) => !region_is_sound(open, region),
        (Ok(_), None) => true,
        (Err(_), _) => false,
    };
    // (T10) It is not thawed for this.
    is_cold |= open.as_ref().is_ok_and(|open| open.cold().is_some_and(|place| !place.is_readable));
    if options.read_data && !is_cold {
        for error in scan_container(&*core.volume, core.repository, id, record.class).findings {
            // Defects that keep the container from being opened were reported above.
            if open.is_err() && error.region().is_none() {
                continue;
            }
            if error.is_damage() && is_lost(&error) {
                core.store.note_failure(id, None, &error);
            }
            tell(error.to_string(), error.code());
        }
    } else if open.is_ok() {
        for (region, reason) in core.store.known_damage(id) {
            let place = region.map_or(String::new(), |region| format!("region {region}: "));
            tell(format!("{place}{reason}"), ErrorCode::Damaged);
        }
    }
    report.cold_containers += u64::from(is_cold);
    Ok(())
}

/// Returns true if every chunk of every restore point of a namespace has a copy that counts, with the length its recipe
/// says. (R12) Copies that can be read only from damaged containers, or from parity, do not count. Reads directories,
/// no data.
pub(crate) fn is_whole(
    core: &Arc<Core>,
    namespace: NamespaceId,
    progress: &dyn Progress,
) -> Result<bool, EngineError> {
    let (mut report, mut seen) = (CheckReport::default(), Seen::new(CheckOptions::default()));
    for root in core.catalog.all_roots() {
        let root = root?;
        let Some(backup) = core.catalog.backup(root.backup)? else { continue };
        if backup.namespace != namespace {
            continue;
        }
        progress.step("disks", report.disks, report.disks + 1);
        report.disks += 1;
        let nodes = NodeReader::of_sound_copies(Arc::clone(&core.store), core.store.domain(namespace));
        let looked = check_disk(core, nodes, &root, "", &mut seen, &mut report);
        if looked.is_err() || !report.is_sound() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The namespaces of which a restore point lacks something, or could not be looked at.
fn check_recipes(
    core: &Arc<Core>,
    options: CheckOptions,
    progress: &dyn Progress,
    report: &mut CheckReport,
) -> Result<HashSet<NamespaceId>, EngineError> {
    let mut hurt = HashSet::new();
    let roots: Vec<RootRecord> = core.catalog.all_roots().collect::<Result<_, _>>()?;
    let mut seen: HashMap<NamespaceId, Seen> = HashMap::new();
    let mut backups = HashSet::new();
    let total = roots.len() as u64;
    for root in roots {
        progress.step("disks", report.disks, total);
        report.disks += 1;
        backups.insert(root.backup);
        let Some(backup) = core.catalog.backup(root.backup)? else { continue };
        let object = format!("disk {:?} of VM {:?}, backup {}", root.disk, backup.vm, root.backup);
        let seen = seen.entry(backup.namespace).or_insert_with(|| Seen::new(options));
        let before = report.problem_count();
        let nodes = NodeReader::new(Arc::clone(&core.store), core.store.domain(backup.namespace));
        if let Err(error) = check_disk(core, nodes, &root, &object, seen, report) {
            report.add(object, error.to_string(), error.code());
        }
        if report.problem_count() > before {
            hurt.insert(backup.namespace);
        }
    }
    report.backups = backups.len() as u64;
    Ok(hurt)
}

/// Checks the extents of one disk; those whose nodes were found sound before are not looked at again.
fn check_disk(
    core: &Arc<Core>,
    nodes: NodeReader,
    root: &RootRecord,
    object: &str,
    seen: &mut Seen,
    report: &mut CheckReport,
) -> Result<(), EngineError> {
    let namespace = nodes.domain().namespace;
    let tree = TreeReader::open(nodes, root.root, root.size_bytes)?;
    let mut recent = RecentDirectories::default();
    let mut damaged = Vec::new();
    let mut lies = Vec::new();
    for index in 0..tree.extent_count() {
        report.extents += 1;
        let entry = tree.entry(index)?;
        if entry.node.is_zero() {
            continue;
        }
        if seen.sound.contains(&entry.node) {
            check_digest(core, &tree, index, &entry, &mut recent, seen, &mut lies)?;
            continue;
        }
        match check_extent(&tree, index, &mut recent, report)? {
            None => {
                seen.sound.insert(entry.node);
                check_digest(core, &tree, index, &entry, &mut recent, seen, &mut lies)?;
            }
            Some(problem) => damaged.push((index, problem)),
        }
    }
    if let Some((index, problem)) = damaged.first() {
        let count = damaged.len();
        report.add(
            object,
            format!("extents that cannot be restored: {count}; the first is extent {index}: {problem}"),
            ErrorCode::Damaged,
        );
    }
    report_lies(core, namespace, object, &lies, report)
}

/// A digest that is not what its extent hashes to: the extent's number and entry.
type Lie = (u64, ExtentEntry);

/// Compares the recorded digest of a sound extent with what it hashes to; reads each node once.
fn check_digest(
    core: &Core,
    tree: &TreeReader<NodeReader>,
    index: u64,
    entry: &ExtentEntry,
    recent: &mut RecentDirectories,
    seen: &mut Seen,
    lies: &mut Vec<Lie>,
) -> Result<(), EngineError> {
    let Some(known) = &mut seen.digests else { return Ok(()) };
    if !digests::is_claim(&entry.digest) {
        return Ok(());
    }
    let read = match known.get(&entry.node) {
        Some(read) => *read,
        None => {
            let Some(node) = tree.extent_of(index, entry)? else { return Ok(()) };
            let domain = tree.source().domain();
            let read = match digests::digest_of(&core.store, domain, &node, recent, FarData::Read) {
                // (T10) It is told with its container.
                Err(EngineError::Archived(_)) => return Ok(()),
                read => read?,
            };
            // Extents that turn out unreadable are reported with their container.
            if read == ReadExtent::Lacks {
                return Ok(());
            }
            known.insert(entry.node, read);
            read
        }
    };
    if read.disproves(&entry.digest) {
        lies.push((index, *entry));
    }
    Ok(())
}

/// Reports digests found false, and keeps them: the next backup reads these extents anew. (R6)
fn report_lies(
    core: &Core,
    namespace: NamespaceId,
    object: &str,
    lies: &[Lie],
    report: &mut CheckReport,
) -> Result<(), EngineError> {
    let Some((first, entry)) = lies.first() else { return Ok(()) };
    let (count, digest) = (lies.len(), entry.digest);
    report.add(
        object,
        format!(
            "{count} extents do not hash to the digests that were recorded; the first is extent {first}, recorded as {digest}: what was backed up there may not be what was on the disk; the next backup reads these extents anew"
        ),
        ErrorCode::Damaged,
    );
    let found_ms = core.clock.now_ms();
    let found: Vec<FalseDigest> = lies
        .iter()
        .map(|(_, entry)| FalseDigest { namespace, node: entry.node, digest: entry.digest, found_ms })
        .collect();
    digests::keep(core, &found, object, "check")
}

fn check_extent(
    tree: &TreeReader<NodeReader>,
    index: u64,
    recent: &mut RecentDirectories,
    report: &mut CheckReport,
) -> Result<Option<String>, EngineError> {
    let node = match tree.extent(index) {
        Ok(Some(node)) => node,
        Ok(None) => return Ok(None),
        Err(error) => return Ok(Some(EngineError::from(error).to_string())),
    };
    let nodes = tree.source();
    for piece in node.pieces().iter().filter(|piece| !piece.is_zero()) {
        report.chunks += 1;
        let fingerprint = &piece.fingerprint;
        let (store, domain) = (nodes.store(), nodes.domain());
        let found = match store.find_to_read(domain, ContainerClass::Data, fingerprint, recent)? {
            None if !nodes.is_sound_only() => {
                store.find_salvaged(domain, ContainerClass::Data, fingerprint)?
            }
            found => found,
        };
        match found {
            None => return Ok(Some(format!("chunk {fingerprint} is missing or damaged"))),
            Some(found) if found.chunk.bytes != piece.bytes => {
                let (is, said) = (found.chunk.bytes, piece.bytes);
                return Ok(Some(format!("chunk {fingerprint} is {is} bytes long, the recipe says {said}")));
            }
            Some(_) => {}
        }
    }
    Ok(None)
}
