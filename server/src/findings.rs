//! Runs out of line with the history of their VM: noted once a run is over, and listed with what other VMs of its job
//! have in common. Figures are kept, words are made when they are read.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use holdfast_engine::catalog::{Catalog, DetailEntry, DetailFilter, FindingRow};
use holdfast_engine::ids::{RunId, SessionId};
use holdfast_proto::api::Finding;

use crate::error::ServiceError;
use crate::insight::findings::{Found, PAST_RUNS, Subject, finding, latest};

/// VMs of a job of which the same was found in one run are told together from so many on.
const TOGETHER_MIN: usize = 3;

/// Notes what is out of line with the run that just ended. A failure is logged: a backup is none the worse for it.
pub(crate) fn note(catalog: &Catalog, session: SessionId) {
    if let Err(error) = try_note(catalog, session) {
        tracing::warn!(%session, %error, "cannot compare a run with those before it");
    }
}

fn try_note(catalog: &Catalog, session: SessionId) -> Result<(), ServiceError> {
    let runs = catalog.runs_up_to(session, PAST_RUNS + 1)?;
    let Some(found) = latest(&runs) else { return Ok(()) };
    let text = serde_json::to_string(&found)
        .map_err(|error| ServiceError::defect(format!("cannot write a finding: {error}")))?;
    Ok(catalog.record_finding(session, &text)?)
}

/// Findings of these rows, each as of the row's own time. (W18) Rows are told without findings that cannot be read.
pub(crate) fn of_rows(catalog: &Catalog, entries: &[DetailEntry]) -> Vec<Option<Finding>> {
    let found = catalog.findings_of(entries).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read what was found of rows");
        vec![None; entries.len()]
    });
    let words = |(found, entry): (Option<String>, &DetailEntry)| {
        let row = &entry.row;
        let subject = Subject { namespace: &row.namespace, job: &row.job, vm: &row.vm };
        Some(finding(&parsed(&found?)?, subject, row.finished_ms))
    };
    found.into_iter().zip(entries).map(words).collect()
}

/// Findings in rows that match, the worst first: those that stored more than they should, then all others by what they
/// stored.
pub(crate) fn list(
    catalog: &Catalog,
    filter: &DetailFilter,
    now_ms: i64,
) -> Result<Vec<Finding>, ServiceError> {
    let (mut groups, mut seen) = (BTreeMap::<GroupKey, Vec<(FindingRow, Found)>>::new(), HashSet::new());
    for row in catalog.findings(filter)? {
        let Some(mut found) = parsed(&row.found) else { continue };
        // The latest of several runs in a row, which comes first, stands for all.
        if !seen.insert((row.namespace.clone(), row.vm.clone(), found.since_ms)) {
            continue;
        }
        let key = (row.namespace.clone(), row.job.clone(), row.run, found.kind as u8);
        found.is_over = row.is_over;
        groups.entry(key).or_default().push((row, found));
    }
    let mut findings: Vec<Finding> = groups.into_values().flat_map(|group| told(&group, now_ms)).collect();
    findings.sort_by_key(|found| {
        Reverse((found.kind.is_regression(), found.more_bytes, found.now.stored_bytes, found.until))
    });
    Ok(findings)
}

/// Namespace, job, run and kind.
type GroupKey = (String, String, RunId, u8);

fn told(group: &[(FindingRow, Found)], now_ms: i64) -> Vec<Finding> {
    let words = |row: &FindingRow, vm: &str, found: &Found| {
        finding(found, Subject { namespace: &row.namespace, job: &row.job, vm }, now_ms)
    };
    let found: Vec<Found> = group.iter().map(|(_, found)| *found).collect();
    match (group.first(), Found::together(&found)) {
        (Some((row, _)), Some(together)) if group.len() >= TOGETHER_MIN => vec![words(row, "", &together)],
        _ => group.iter().map(|(row, found)| words(row, &row.vm, found)).collect(),
    }
}

/// A run that stored more than it should.
#[derive(Debug)]
pub(crate) struct Regression {
    pub(crate) namespace: String,
    pub(crate) job: String,
    /// Factor by which the usual total factor is larger.
    pub(crate) times: f64,
}

/// Regressions in runs that finished since then. (W18) None, where they cannot be read.
pub(crate) fn regressions(catalog: &Catalog, since_ms: i64) -> Vec<Regression> {
    let filter = DetailFilter { finished_since_ms: Some(since_ms), ..DetailFilter::default() };
    let regression = |row: FindingRow| {
        let times = parsed(&row.found)?.times_worse()?;
        Some(Regression { namespace: row.namespace, job: row.job, times })
    };
    let found = catalog.findings(&filter).unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot read what was found of runs");
        Vec::new()
    });
    found.into_iter().filter_map(regression).collect()
}

/// `None`: it is of another version, or damaged.
fn parsed(text: &str) -> Option<Found> {
    serde_json::from_str(text).inspect_err(|error| tracing::debug!(%error, "cannot read a finding")).ok()
}
