//! The audit of the bucket, in the words of people: what it found, which restore points that concerns, and what to do.
//!
//! Data that lies nowhere else is damage from then on, as if a disk had lost it: the next backups send it again. After a
//! crash the audit's own rules hold ([`holdfast_tiers`]); `tier status` reports earlier findings all the same.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_engine::catalog::DamageTotals;
use holdfast_engine::ids::ContainerId;
use holdfast_engine::{Engine, EngineError, NeedingPoint};
use holdfast_proto::ErrorCode;
use holdfast_proto::when::timestamp;
use holdfast_sealing::name_above;
use holdfast_tiers::{AuditEnd, AuditFinding, AuditWatch, Audited, CopyError, Flaw, Outcome};
use holdfast_volume::BlobName;
use serde::{Deserialize, Serialize};

use super::Tiers;
use crate::error::ServiceError;
use crate::insight::lost_text;

/// Findings that are named with their restore points; more are only counted.
const NAMED_MAX: usize = 300;

/// Restore points named of each finding.
const POINTS_SHOWN: usize = 5;

/// Disks named that lack something.
const LOST_LINES: u32 = 300;

/// Key in the record for the result of the last audit, for `tier status`.
const AUDIT: &str = "audit";

/// Key under which a command asks a running server for an audit.
const WANTED: &str = "audit_wanted";

/// Position and results of an audit so far. Kept between the attempts of a task.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct AuditPlace {
    /// The key it goes on behind.
    after: String,
    #[serde(default)]
    pub(crate) figures: AuditFigures,
    /// Flaws to name with their restore points at the end.
    #[serde(default)]
    found: Vec<Told>,
}

/// Counts, as they are kept and shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditFigures {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    pub(crate) lists: u64,
    pub(crate) heads: u64,
    pub(crate) missing: u64,
    pub(crate) wrong_length: u64,
    pub(crate) wrong_content: u64,
    pub(crate) archived: u64,
    pub(crate) copied_again: u64,
    pub(crate) lost: u64,
    pub(crate) damaged_here: u64,
    pub(crate) back: u64,
    pub(crate) taken_in: u64,
    pub(crate) strays: u64,
    pub(crate) strangers: u64,
    #[serde(default)]
    pub(crate) short_retention: u64,
    #[serde(default)]
    pub(crate) brought_back: u64,
    /// Objects that lie there alone and were read, and their bytes.
    #[serde(default)]
    pub(crate) read: u64,
    #[serde(default)]
    pub(crate) read_bytes: u64,
}

/// A finding whose restore points are named at the end.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Told {
    blob: String,
    what: String,
}

/// Steers an audit, and is told of it.
pub(crate) trait AuditSteering {
    /// Returns true if the audit goes on; `bytes` were read since the last call.
    fn go_on(&mut self, bytes: u64) -> bool;
    /// Reports progress: objects checked, and their estimated total.
    fn progress(&mut self, done: u64, total: u64);
    /// A line for people.
    fn say(&mut self, line: String);
    /// A later attempt may go on here.
    fn at(&mut self, place: &AuditPlace);
}

/// Result of an audit.
#[derive(Debug, Clone)]
pub(crate) struct AuditReport {
    pub(crate) figures: AuditFigures,
    /// The verdict in one line.
    pub(crate) verdict: String,
    /// Data that restore points lack, by all damage that is known.
    pub(crate) lost: DamageTotals,
}

impl AuditReport {
    /// Error code, as for `check`: damage, if a restore point lacks something. What later backups have healed is no
    /// damage any more.
    pub(crate) const fn code(&self) -> Option<ErrorCode> {
        let is_damaged = self.figures.lost > 0 || self.figures.damaged_here > 0;
        if is_damaged && self.lost.restore_points > 0 { Some(ErrorCode::Damaged) } else { None }
    }
}

/// Compares the bucket with what is known of it, from `place` on. `None`: it was told to stop.
///
/// # Errors
/// When another server writes to the bucket; when the bucket, the record or the catalog cannot be asked.
pub(crate) fn audit(
    engine: &Engine,
    tiers: &Tiers,
    place: AuditPlace,
    now_ms: i64,
    steering: &mut dyn AuditSteering,
) -> Result<Option<AuditReport>, ServiceError> {
    if tiers.bucket.is_none() {
        return Err(ServiceError::invalid("the settings name no bucket: set s3 (and what else it needs)"));
    }
    let record = tiers.copies.record();
    let total = record.totals().map_err(super::record_error)?.iter().map(|kind| kind.blobs).sum();
    let (after, before) = (place.after.clone(), audited(&place.figures));
    let mut watch = Watch { engine, steering, place, total, failed: None };
    let ended = tiers.copies.audit(&after, before, tiers.class.as_deref(), &mut watch);
    let Watch { place, failed, steering, .. } = watch;
    if let Some(error) = failed {
        return Err(error.into());
    }
    if ended.map_err(copy_error)? == AuditEnd::Stopped || !name(engine, &place, steering)? {
        return Ok(None);
    }
    let figures = place.figures;
    if figures.lost > 0 {
        // Costs a walk over recipes; the background job would do it, too.
        for disk in engine.name_damage(LOST_LINES)? {
            steering.say(format!("DAMAGED: {}", lost_text(&disk)));
        }
    }
    let lost = engine.catalog().damage_totals(None)?;
    let verdict = verdict(&figures, lost);
    steering.say(verdict.clone());
    let said = serde_json::json!({ "at_ms": now_ms, "verdict": verdict, "figures": figures }).to_string();
    record.say(&[(AUDIT, said)]).map_err(super::record_error)?;
    Ok(Some(AuditReport { figures, verdict, lost }))
}

/// Report of the last audit, as JSON: when it ended, its verdict and its figures.
///
/// # Errors
/// The record's.
pub(crate) fn last_audit(
    record: &holdfast_tiers::Record,
) -> Result<Option<serde_json::Value>, holdfast_tiers::RecordError> {
    Ok(record.said(AUDIT)?.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Asks the running server for an audit, on behalf of `who`.
///
/// # Errors
/// The record's.
pub(crate) fn want_audit(
    record: &holdfast_tiers::Record,
    who: &str,
) -> Result<(), holdfast_tiers::RecordError> {
    record.say(&[(WANTED, who.to_owned())])
}

impl Tiers {
    /// The caller who asked for an audit since the last look.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn take_wanted_audit(&self) -> Result<Option<String>, holdfast_tiers::RecordError> {
        let record = self.copies.record();
        let wanted = record.said(WANTED)?.filter(|who| !who.is_empty());
        if wanted.is_some() {
            record.say(&[(WANTED, String::new())])?;
        }
        Ok(wanted)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn copy_error(error: CopyError) -> ServiceError {
    let code = match &error {
        CopyError::Remote(_) => ErrorCode::Unavailable,
        CopyError::Leased(_) | CopyError::Changed { .. } | CopyError::NoLease { .. } => ErrorCode::Busy,
        CopyError::OtherRepository | CopyError::Other { .. } | CopyError::NoObjectLock => ErrorCode::Invalid,
        CopyError::Local(_) | CopyError::Record(_) | CopyError::Unnamed => ErrorCode::Internal,
    };
    ServiceError::new(code, error.to_string())
}

const fn audited(figures: &AuditFigures) -> Audited {
    Audited {
        objects: figures.objects,
        bytes: figures.bytes,
        lists: figures.lists,
        asked: figures.heads,
        missing: figures.missing,
        wrong_length: figures.wrong_length,
        wrong_content: figures.wrong_content,
        cold: figures.archived,
        copied_again: figures.copied_again,
        lost: figures.lost,
        back: figures.back,
        taken_in: figures.taken_in,
        strays: figures.strays,
        strangers: figures.strangers,
        short_retention: figures.short_retention,
        brought_back: figures.brought_back,
        read: figures.read,
        read_bytes: figures.read_bytes,
    }
}

struct Watch<'a> {
    engine: &'a Engine,
    steering: &'a mut dyn AuditSteering,
    place: AuditPlace,
    total: u64,
    /// The engine's first error: the audit ends.
    failed: Option<EngineError>,
}

/// The container that an object holds.
fn container_of(name: &BlobName) -> Option<ContainerId> {
    Engine::container_in(&name_above(name))
}

impl Watch<'_> {
    fn or_fail<T: Default>(&mut self, done: Result<T, EngineError>) -> T {
        done.unwrap_or_else(|error| {
            self.failed.get_or_insert(error);
            T::default()
        })
    }

    fn remember(&mut self, name: &BlobName, what: String) {
        if self.place.found.len() < NAMED_MAX {
            self.place.found.push(Told { blob: name.to_string(), what });
        } else if self.place.found.len() == NAMED_MAX {
            self.place.found.push(Told { blob: String::new(), what: "and more".to_owned() });
        }
    }
}

impl AuditWatch for Watch<'_> {
    fn go_on(&mut self, bytes: u64) -> bool {
        self.failed.is_none() && self.steering.go_on(bytes)
    }

    fn is_sound(&mut self, name: &BlobName) -> Option<bool> {
        // Blobs other than containers have checks of their own wherever they are read.
        let Some(container) = container_of(name) else { return Some(true) };
        let read = self.engine.is_container_sound(container);
        self.or_fail(read)
    }

    fn found(&mut self, finding: &AuditFinding) {
        let AuditFinding { name, flaw, outcome } = finding;
        let what = format!("{}; {}", flaw.text(), what_follows(flaw, *outcome));
        tracing::warn!(%name, what, "the audit of the bucket found an object that is not as it should be");
        if *outcome == Outcome::DamagedHere {
            self.place.figures.damaged_here += 1;
        }
        if *outcome == Outcome::Lost
            && let Some(container) = container_of(name)
        {
            let noted = self.engine.note_unreadable(container, &format!("{name}: {}", flaw.text()));
            self.or_fail(noted);
        }
        // (T10) From now on backups count on nothing in it.
        if *outcome == Outcome::Archived {
            self.engine.note_cold([&name_above(name)]);
        }
        self.remember(name, what);
    }

    fn is_back(&mut self, name: &BlobName) {
        let sound = match container_of(name) {
            Some(container) => {
                let looked = self.engine.look_again(container);
                self.or_fail(looked)
            }
            None => true,
        };
        let what =
            if sound { "it is in the bucket again, as it should be" } else { "it is in the bucket again" };
        tracing::info!(%name, what);
        self.steering.say(format!("{name}: {what}"));
    }

    fn stray(&mut self, name: &BlobName, bytes: u64) {
        tracing::warn!(%name, bytes, "an object of the bucket that neither its record nor the data folder knows");
        self.steering.say(format!(
            "{name}: {bytes} bytes that neither tiers.db nor the data folder knows: kept, and not used. If nothing else writes \
             there, it is left of something that was deleted, and can be deleted by hand"
        ));
    }

    fn told(&mut self, audited: &Audited, after: &str) {
        let damaged_here = self.place.figures.damaged_here;
        self.place.figures = AuditFigures {
            objects: audited.objects,
            bytes: audited.bytes,
            lists: audited.lists,
            heads: audited.asked,
            missing: audited.missing,
            wrong_length: audited.wrong_length,
            wrong_content: audited.wrong_content,
            archived: audited.cold,
            copied_again: audited.copied_again,
            lost: audited.lost,
            damaged_here,
            back: audited.back,
            taken_in: audited.taken_in,
            strays: audited.strays,
            strangers: audited.strangers,
            short_retention: audited.short_retention,
            brought_back: audited.brought_back,
            read: audited.read,
            read_bytes: audited.read_bytes,
        };
        after.clone_into(&mut self.place.after);
        self.steering.progress(audited.objects, self.total.max(audited.objects));
        self.steering.at(&self.place);
    }
}

/// Action taken on a finding, and what is left to do.
fn what_follows(flaw: &Flaw, outcome: Outcome) -> &'static str {
    match (outcome, flaw) {
        (Outcome::CopiedAgain, _) => "the blob here is sound and is copied again",
        (Outcome::BroughtBack, _) => {
            "what was put there lay below, and is there again: someone deleted or replaced it, find out who"
        }
        (Outcome::Extended, _) => "it was made to stay again: someone shortened that who may, find out who",
        (Outcome::NotExtended, _) => {
            "it could not be made to stay again: 'holdfast-server tier status' says why"
        }
        (Outcome::AlsoHere, _) => {
            "it lies here, too, so nothing needs it now; but should this machine be lost it must be brought back first: change the \
             lifecycle rule that moved it"
        }
        (Outcome::DamagedHere, _) => {
            "the blob here is not sound, either, so it is not copied again: back up its VMs, which brings back what their sources \
             still have"
        }
        (Outcome::Lost, _) => {
            "it lies nowhere else: damage. Back up its VMs, which brings back what their sources still have; or put the object back \
             (an earlier version, a replica) and audit again"
        }
        (Outcome::Archived, _) => {
            "it lies nowhere else, so what needs it cannot be restored until it is brought back with the tools of the object store \
             (restore-object): change the lifecycle rule that moved it"
        }
    }
}

/// Tells each finding with the restore points that it concerns. `false`: told to stop.
fn name(engine: &Engine, place: &AuditPlace, steering: &mut dyn AuditSteering) -> Result<bool, ServiceError> {
    let blob = |told: &Told| BlobName::new(told.blob.as_str());
    let wanted: BTreeSet<ContainerId> =
        place.found.iter().filter_map(|told| blob(told).as_ref().and_then(container_of)).collect();
    let needing = if wanted.is_empty() {
        BTreeMap::new()
    } else {
        match engine.points_needing(&wanted, &mut |bytes| steering.go_on(bytes)) {
            Err(EngineError::Stopped) => return Ok(false),
            needing => needing?,
        }
    };
    for told in &place.found {
        let Some(name) = blob(told) else {
            steering
                .say(format!("{}; 'holdfast-server tier status' has all that are not put right", told.what));
            continue;
        };
        let points = match container_of(&name) {
            Some(container) => needing.get(&container).map_or_else(String::new, |points| needed_by(points)),
            None => engine
                .point_in(&name_above(&name))?
                .map_or_else(String::new, |point| needed_by(std::slice::from_ref(&point))),
        };
        steering.say(format!("{name}: {}{points}", told.what));
    }
    Ok(true)
}

/// The newest ones, and how many more.
fn needed_by(points: &[NeedingPoint]) -> String {
    let shown: Vec<String> = points
        .iter()
        .rev()
        .take(POINTS_SHOWN)
        .map(|point| {
            let NeedingPoint { backup, namespace_name, vm, started_ms, .. } = point;
            format!(
                "VM {vm:?} (namespace {namespace_name:?}), restore point {backup} of {}",
                timestamp(*started_ms)
            )
        })
        .collect();
    let more = points.len().saturating_sub(shown.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!(". Concerns {}{more}", shown.join("; "))
}

fn verdict(figures: &AuditFigures, lost: DamageTotals) -> String {
    let AuditFigures { objects, bytes, lists, heads, .. } = *figures;
    let mut text =
        format!("{objects} objects of {bytes} bytes compared, by {lists} listings and {heads} single looks");
    if figures.read > 0 {
        text += &format!(", {} of them read ({} bytes)", figures.read, figures.read_bytes);
    }
    let counts = [
        (figures.missing, "gone"),
        (figures.wrong_length, "of another length"),
        (figures.wrong_content, "of another content"),
        (figures.archived, "in an archive by a rule of others"),
        (figures.short_retention, "that need not stay as long as promised"),
        (figures.brought_back, "brought back from below"),
        (figures.copied_again, "of these copied again"),
        (figures.lost, "of these lie nowhere else"),
        (figures.damaged_here, "of these damaged here, too"),
        (figures.back, "back"),
        (figures.taken_in, "taken into the record"),
        (figures.strays, "unknown, and kept"),
        (figures.strangers, "of others"),
    ];
    let wrong = figures.missing
        + figures.wrong_length
        + figures.wrong_content
        + figures.archived
        + figures.short_retention;
    if wrong == 0 {
        text += ", all as they should be";
    }
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("; {count} {what}");
    }
    if figures.lost > 0 && lost.restore_points > 0 {
        text += &format!(
            "; {} restore points lack {} bytes: back up their VMs, which brings back what their sources still have",
            lost.restore_points, lost.bytes
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_counts_what_is_wrong_and_nothing_else() {
        let nothing = DamageTotals::default();
        let sound = AuditFigures { objects: 3, bytes: 9, lists: 1, ..AuditFigures::default() };
        assert!(verdict(&sound, nothing).ends_with("all as they should be"));
        let text = verdict(&AuditFigures { read: 1, read_bytes: 4, ..sound }, nothing);
        assert!(text.contains("looks, 1 of them read (4 bytes), all as"), "{text}");
        let figures = AuditFigures { missing: 2, lost: 1, copied_again: 1, ..sound };
        let text = verdict(&figures, DamageTotals { restore_points: 4, disks: 4, bytes: 100 });
        assert!(text.contains("2 gone; 1 of these copied again; 1 of these lie nowhere else"), "{text}");
        assert!(
            text.contains("4 restore points lack 100 bytes") && !text.contains("as they should"),
            "{text}"
        );
    }

    #[test]
    fn the_newest_restore_points_are_named() {
        let point = |number: u32| NeedingPoint {
            backup: format!("{number:026}").parse().unwrap(),
            namespace: "00000000000000000000000001".parse().unwrap(),
            namespace_name: "n".to_owned(),
            vm: format!("vm{number}"),
            started_ms: 0,
        };
        let points: Vec<NeedingPoint> = (1..=7).map(point).collect();
        let text = needed_by(&points);
        assert!(text.contains("vm7") && !text.contains("\"vm2\"") && text.ends_with("and 2 more"), "{text}");
    }
}
