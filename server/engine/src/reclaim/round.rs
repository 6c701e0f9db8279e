//! One round: who counts on what is settled, then window by window: mark, choose, copy forward, delete.
//!
//! Order (G1, G3): holds of sessions that end are kept from now on → the bound: containers numbered from there on are
//! not looked at → containers of sessions in progress, which are not either → the window's candidates → roots → mark →
//! sweep. A session that commits after the roots were listed is not known to the mark; what it refers to it found (held),
//! filled (not looked at) or took over from its parent (a root). Ends leave nothing behind: a crash does what any end
//! does, and the next round begins anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_catalog::ContainerRecord;
use holdfast_types::ids::{ContainerClass, NamespaceId};
use parking_lot::{Mutex, MutexGuard};
use roaring::RoaringTreemap;

use super::control::Control;
use super::live::{Candidates, Scope, WINDOW_BYTES};
use super::mark::{Finding, Marked, mark};
use super::plan::sealed_namespaces;
use super::report::{Incomplete, ReclaimOptions, ReclaimReport, RoundStep, Watch};
use super::roots::{Root, Roots};
use super::sweep::Sweep;
use super::tiering;
use crate::core::Core;
use crate::error::EngineError;
use crate::in_use::Recipe;
use crate::ingest::Sessions;
use crate::points;

/// Findings told of at most.
const FINDINGS_MAX: usize = 256;

/// Runs a round to its end.
///
/// # Errors
/// [`EngineError::Stopped`], and what cannot be read or written: what was done until then stays done.
pub(crate) fn run(
    core: &Core,
    sessions: &Sessions,
    options: &ReclaimOptions,
    control: &Control,
) -> Result<ReclaimReport, EngineError> {
    check_ready(core)?;
    run_watched(core, sessions, options, control, &|_| {})
}

/// Runs a round, as [`run`], and reports each step.
pub(crate) fn run_watched(
    core: &Core,
    sessions: &Sessions,
    options: &ReclaimOptions,
    control: &Control,
    watch: Watch<'_>,
) -> Result<ReclaimReport, EngineError> {
    if !options.dry_run {
        core.check_writable()?;
        core.finish_deletions()?;
    }
    let round = Round::begin(core, sessions, watch)?;
    let mut report = ReclaimReport::default();
    let mut after = None;
    loop {
        control.check()?;
        let looked_at = |record: &ContainerRecord| round.scope.is_settled(record.id);
        let window = Candidates::window(&core.catalog, after, WINDOW_BYTES, looked_at)?;
        let Some((candidates, last)) = window else { break };
        watch(RoundStep::Listed);
        round.window(&candidates, options, control, &mut report)?;
        after = Some(last);
    }
    if let Some(squeeze) = options.squeeze.as_ref().filter(|_| !options.dry_run) {
        Sweep::new(core, options, control, &mut report, watch).squeeze(squeeze)?;
    }
    if let Some(moving) = options.moving.as_ref().filter(|_| !options.dry_run) {
        tiering::move_away(core, moving, control, &mut report)?;
    }
    if let Some(freezing) = options.freezing.as_ref().filter(|_| !options.dry_run) {
        tiering::freeze(core, freezing, || round.roots(), control, &mut report)?;
    }
    report.freed_bytes = report.deleted_bytes.saturating_sub(report.copied_bytes);
    Ok(report)
}

const LEFT_POINT: &str =
    "a backup ended whose restore point may be on the volume and is not in the catalog: restart the server";

fn not_now<T>(why: &str) -> Result<T, EngineError> {
    Err(EngineError::NotReclaimable(why.to_owned()))
}

/// (G5) Checks that dead chunks can be determined.
pub(crate) fn check_ready(core: &Core) -> Result<(), EngineError> {
    // (S8)
    core.unrecorded.check()?;
    // (P6)
    if let Some(why) = core.unrecorded.unread_points() {
        return not_now(&why);
    }
    // (P2)
    if core.has_left_point() {
        return not_now(LEFT_POINT);
    }
    // (I4)
    if !core.store.index.is_whole() {
        return not_now("the index has lost entries, which are being repaired: try again when that is done");
    }
    match core.store.absence() {
        Some(why) => not_now(why),
        None => Ok(()),
    }
}

/// A round in progress.
struct Round<'a> {
    core: &'a Core,
    sessions: &'a Sessions,
    scope: Scope,
    watch: Watch<'a>,
}

impl<'a> Round<'a> {
    fn begin(core: &'a Core, sessions: &'a Sessions, watch: Watch<'a>) -> Result<Self, EngineError> {
        // (G1) Before anything is listed.
        if !core.store.leftovers.begin_round() {
            return Err(EngineError::RoundInProgress);
        }
        // From here on dropping it ends the round.
        let scope = Scope { below: 0, unsettled: RoaringTreemap::new() };
        let mut round = Self { core, sessions, scope, watch };
        round.scope.below = core.next_number()?;
        // (G3) The bound first: what a session fills after it was asked has a number above.
        for session in sessions.all() {
            round.scope.unsettled |= session.created();
        }
        // (P2) Once more: a session that left a point before its containers were listed is known by now.
        if core.has_left_point() {
            return not_now(LEFT_POINT);
        }
        watch(RoundStep::Begun);
        Ok(round)
    }

    /// All roots, as of one moment. (G2)
    fn roots(&self) -> Result<Roots, EngineError> {
        // (G9) The points say what is live; before the rows, which follow them.
        let listed = points::listed(&*self.core.volume)?;
        let (in_use, committed) = self.core.in_use.with(|| Roots::load(self.core));
        let committed = committed?;
        let lost =
            points::lost(self.core, &listed, &committed.restore_points(), &|id| self.sessions.makes(id))?;
        // (P2) One that a session left is none of these.
        if !lost.is_empty() && !self.core.has_left_point() {
            self.core.doubt_catalog();
            return Err(points::lacks_rows(&lost));
        }
        Ok(committed.and(in_use.into_iter().map(root).collect()))
    }

    fn window(
        &self,
        candidates: &Candidates,
        options: &ReclaimOptions,
        control: &Control,
        report: &mut ReclaimReport,
    ) -> Result<(), EngineError> {
        // Candidates before roots: what a session commits in between is not among them.
        let roots = self.roots()?;
        // (P2) A session that leaves a point says so before the recipes it used are in use no more: roots that were listed without
        // these do not tell what the point needs.
        if self.core.has_left_point() {
            return not_now(LEFT_POINT);
        }
        (self.watch)(RoundStep::Rooted);
        let generations = self.generations(candidates);
        let begun_ms = self.core.clock.monotonic_ms();
        let Marked { live, incomplete, lost, salvaged, references } =
            mark(self.core, &roots, candidates, &self.scope, control)?;
        (self.watch)(RoundStep::Marked);
        let marked_ms = self.core.clock.monotonic_ms().saturating_sub(begun_ms);
        report.marked_ms += u64::try_from(marked_ms).unwrap_or(0);
        report.references += references;
        report.containers += candidates.len() as u64;
        for (namespace, findings) in &incomplete {
            let findings = findings.iter().map(|finding| told(*namespace, finding));
            let room = FINDINGS_MAX.saturating_sub(report.incomplete.len());
            report.incomplete.extend(findings.take(room));
        }
        let mut sweep = Sweep::new(self.core, options, control, report, self.watch);
        let sealed = sealed_namespaces(self.core, &roots)?;
        for candidate in candidates.iter() {
            // (G5)
            if incomplete.contains_key(&candidate.namespace) {
                continue;
            }
            let generation = generations.get(&candidate.namespace).copied().unwrap_or(0);
            let namespace = &candidate.namespace;
            // (N7) For data that agents sealed, no copy makes up for a damaged one.
            let is_sealed = candidate.class == ContainerClass::Data && sealed.contains(namespace);
            let lacks = is_sealed || lost.contains_key(namespace) || salvaged.contains(namespace);
            sweep.judge(candidate, &live, generation, lacks)?;
        }
        sweep.run(&roots, &live)
    }

    /// Damage known before the mark, by namespace.
    fn generations(&self, candidates: &Candidates) -> BTreeMap<NamespaceId, u64> {
        let namespaces = candidates.iter().map(|candidate| candidate.namespace);
        namespaces.map(|namespace| (namespace, self.core.store.damage_generation(namespace))).collect()
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        // The mark may have counted on any container that was there.
        self.core.store.leftovers.end_round(self.core.numbers_below());
    }
}

fn root(recipe: Recipe) -> Root {
    let Recipe { namespace, vm, backup, disk, root: fingerprint, size_bytes, committed_ms } = recipe;
    Root { namespace, vm, backup, disk, size_bytes, fingerprint, committed_ms }
}

fn told(namespace: NamespaceId, finding: &Finding) -> Incomplete {
    Incomplete {
        namespace,
        backup: Some(finding.backup),
        vm: finding.vm.clone(),
        disk: finding.disk.to_string(),
        reason: finding.reason.clone(),
    }
}

/// One round at a time, and none once the engine stops.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Held by the round in progress.
    running: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    current: Option<Arc<Control>>,
}

/// The right to be the round in progress.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    rounds: &'a Rounds,
    _running: MutexGuard<'a, ()>,
}

impl Rounds {
    /// Begins a round.
    ///
    /// # Errors
    /// [`EngineError::RoundInProgress`]; [`EngineError::Unavailable`] once [closed](Rounds::close).
    pub(crate) fn begin(&self, control: &Arc<Control>) -> Result<Turn<'_>, EngineError> {
        let running = self.running.try_lock().ok_or(EngineError::RoundInProgress)?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(EngineError::Unavailable);
        }
        state.current = Some(Arc::clone(control));
        Ok(Turn { rounds: self, _running: running })
    }

    /// Stops the round in progress, waits for its end, and lets none begin.
    pub(crate) fn close(&self) {
        {
            let mut state = self.state.lock();
            state.closed = true;
            if let Some(control) = &state.current {
                control.stop();
            }
        }
        drop(self.running.lock());
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.rounds.state.lock().current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_at_a_time_and_none_once_closed() {
        let (rounds, control) = (Rounds::default(), Arc::new(Control::default()));
        let turn = rounds.begin(&control).unwrap();
        assert!(matches!(rounds.begin(&control), Err(EngineError::RoundInProgress)));
        std::thread::scope(|scope| {
            scope.spawn(|| rounds.close());
            while !control.is_stopped() {
                std::thread::yield_now();
            }
            drop(turn);
        });
        assert!(matches!(rounds.begin(&control), Err(EngineError::Unavailable)));
    }
}
