//! Keeps the number of time series bounded whatever namespaces and jobs are called.
//!
//! Names come from people and from agents, and a monitoring system keeps every series it ever saw. So each name that
//! is to be a label's value is looked up here first: the first [`NAMESPACES_MAX`] namespaces and the first
//! [`JOBS_MAX`] jobs of each keep their names, all others share the label [`OTHER`]. Jobs on record get their labels
//! at the first scrape, those that store most first. A name keeps its label until the process ends, so that no
//! series ever changes its meaning.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;

/// Namespaces with a name of their own.
pub(super) const NAMESPACES_MAX: usize = 32;

/// Jobs with a name of their own, in each of these. 32 × 32 × 17 series are 17,408 at most.
pub(super) const JOBS_MAX: usize = 32;

/// The label of all the others.
pub(super) const OTHER: &str = "other";

/// Labels of a figure about a job.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, EncodeLabelSet)]
pub(super) struct JobLabels {
    pub(super) namespace: String,
    /// Not called `job`: every series gets a label of that name from Prometheus.
    pub(super) backup_job: String,
}

/// The names that are labels of their own.
#[derive(Debug, Default)]
pub(super) struct LabelTable(Mutex<HashMap<String, HashSet<String>>>);

impl LabelTable {
    /// The label for `namespace`.
    pub(super) fn namespace(&self, namespace: &str) -> String {
        let mut table = self.0.lock();
        if has_label(&mut table, namespace) { namespace.to_owned() } else { OTHER.to_owned() }
    }

    /// The labels for `job` in `namespace`. The jobs of a namespace without a label of its own have none either.
    pub(super) fn job(&self, namespace: &str, job: &str) -> JobLabels {
        let mut table = self.0.lock();
        let labels =
            |namespace: &str, job: &str| JobLabels { namespace: namespace.into(), backup_job: job.into() };
        if !has_label(&mut table, namespace) {
            return labels(OTHER, OTHER);
        }
        let Some(jobs) = table.get_mut(namespace) else { return labels(OTHER, OTHER) };
        if jobs.contains(job) {
            return labels(namespace, job);
        }
        if jobs.len() >= JOBS_MAX {
            return labels(namespace, OTHER);
        }
        jobs.insert(job.to_owned());
        labels(namespace, job)
    }
}

fn has_label(table: &mut HashMap<String, HashSet<String>>, namespace: &str) -> bool {
    if table.contains_key(namespace) {
        return true;
    }
    if table.len() >= NAMESPACES_MAX {
        return false;
    }
    table.insert(namespace.to_owned(), HashSet::new());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_of_names_make_a_bounded_number_of_labels() {
        let table = LabelTable::default();
        let mut seen = HashSet::new();
        for namespace in 0..1000 {
            for job in 0..100 {
                seen.insert(table.job(&format!("n{namespace}"), &format!("j{job}")));
            }
        }
        assert_eq!(seen.len(), NAMESPACES_MAX * (JOBS_MAX + 1) + 1);
        assert!(seen.contains(&JobLabels { namespace: "n0".into(), backup_job: OTHER.into() }));
        assert!(seen.contains(&JobLabels { namespace: OTHER.into(), backup_job: OTHER.into() }));
    }

    #[test]
    fn a_label_once_given_is_kept() {
        let table = LabelTable::default();
        assert_eq!(table.namespace("first"), "first");
        for number in 0..2 * NAMESPACES_MAX {
            table.namespace(&number.to_string());
        }
        assert_eq!(table.namespace("first"), "first");
        assert_eq!(table.namespace("late"), OTHER);
        assert_eq!(table.job("first", "nightly").backup_job, "nightly");
    }
}
