//! Sums over everything on record, by namespace and job. What has no label of its own is added up as `other`, so
//! that the sum over all labels is always that of the repository.

use std::collections::BTreeMap;
use std::time::Duration;

use holdfast_engine::catalog::{
    AHEAD_MS, Catalog, ContainerTotals, DetailFilter, JobOverview, REPORT_PAGE_MAX, TotalsBy, TotalsOrder,
    VmQuery, VmSort,
};
use holdfast_engine::ids::ContainerClass;
use holdfast_proto::ErrorCode;

use super::super::exposition::Samples;
use super::super::names as n;
use crate::error::ServiceError;
use crate::findings::{self, Regression};
use crate::metrics::{JobLabels, LabelTable, OTHER};

const DAY_MS: i64 = 86_400_000;

/// A VM is stale after this: a day, and two hours for a run that begins late or takes long.
const STALE_MS: i64 = 26 * 3_600_000;

/// Most pages of one day's runs that are looked at, of [`REPORT_PAGE_MAX`] each: of more than 20,000 runs a day the
/// rest is missing.
const RUN_PAGES_MAX: u64 = 10;

/// Sums over the jobs of one label.
#[derive(Debug, Default)]
struct Job {
    runs: u64,
    done: u64,
    failed: u64,
    failing: u64,
    pre_comp: u64,
    new: u64,
    post_lc: u64,
    meta: u64,
    wire: u64,
    done_pre_comp: u64,
    done_new: u64,
    done_post_lc: u64,
    /// The worst of what was found of the last day.
    times_worse: Option<f64>,
}

/// Sums over the namespaces of one label.
#[derive(Debug, Default)]
struct Namespace {
    vms: u64,
    stale: u64,
    restore_points: u64,
    stored: u64,
    protected: u64,
    /// Finish time of the newest restore point; of several namespaces, the oldest of these times.
    newest_ms: Option<i64>,
    /// In the order of [`QUOTAS`].
    quota_used: [u64; 4],
    /// Absent where no namespace has a limit.
    quota_limit: [Option<u64>; 4],
}

/// Names of quotas in labels, in the order of the catalog.
const QUOTAS: [&str; 4] = ["stored_bytes", "protected_bytes", "restore_points", "sessions_per_day"];

/// Runs of the last day.
#[derive(Debug, Default)]
struct Runs {
    done: u64,
    partly: u64,
    failed: u64,
}

/// All sums.
#[derive(Debug)]
pub(super) struct Recorded {
    containers: Vec<ContainerTotals>,
    jobs: BTreeMap<JobLabels, Job>,
    namespaces: BTreeMap<String, Namespace>,
    /// `None`: there is no room to count them in.
    runs: Option<Runs>,
}

impl Recorded {
    /// Asks the catalog.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) fn gather(catalog: &Catalog, labels: &LabelTable, now_ms: i64) -> Result<Self, ServiceError> {
        let mut jobs = catalog.job_overviews(None)?;
        // The jobs that store most get their labels first.
        jobs.sort_by_key(|job| std::cmp::Reverse(job.sums.post_lc));
        Ok(Self {
            containers: catalog.container_totals(None)?,
            jobs: by_label(labels, &jobs, &findings::regressions(catalog, now_ms.saturating_sub(DAY_MS))),
            namespaces: namespaces(catalog, labels, now_ms)?,
            runs: match runs(catalog, now_ms) {
                // There is no room to sort them in: the figures that tell of this must not go with them.
                Err(error) if error.code == ErrorCode::Full => None,
                runs => Some(runs?),
            },
        })
    }

    /// The labels of all jobs.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &JobLabels> {
        self.jobs.keys()
    }

    /// Adds all of them.
    pub(super) fn add(&self, now_ms: i64, samples: &mut Samples) {
        self.add_containers(samples);
        for (labels, job) in &self.jobs {
            add_job(samples, labels, job);
        }
        for (label, namespace) in &self.namespaces {
            add_namespace(samples, label, namespace, now_ms);
        }
        if let Some(runs) = &self.runs {
            samples.whole(&n::RUNS_DAY, &["done"], runs.done);
            samples.whole(&n::RUNS_DAY, &["partly"], runs.partly);
            samples.whole(&n::RUNS_DAY, &["failed"], runs.failed);
        }
    }

    fn add_containers(&self, samples: &mut Samples) {
        for class in [ContainerClass::Data, ContainerClass::Recipe] {
            let of_class = || self.containers.iter().filter(|totals| totals.class == class);
            let word = class.text();
            samples.whole(&n::REPOSITORY_BYTES, &[word], of_class().map(|totals| totals.stored_bytes).sum());
            samples.whole(&n::REPOSITORY_PLAIN, &[word], of_class().map(|totals| totals.plain_bytes).sum());
            for totals in of_class() {
                samples.whole(&n::CONTAINERS, &[word, totals.state.text()], totals.count);
            }
        }
    }
}

fn add_job(samples: &mut Samples, labels: &JobLabels, job: &Job) {
    let names = [labels.namespace.as_str(), labels.backup_job.as_str()];
    for (definition, value) in [
        (&n::RECORDED_RUNS, job.runs),
        (&n::JOB_FAILING_VMS, job.failing),
        (&n::RECORDED_PRE_COMP, job.pre_comp),
        (&n::RECORDED_NEW, job.new),
        (&n::RECORDED_POST_LC, job.post_lc),
        (&n::RECORDED_META, job.meta),
        (&n::RECORDED_WIRE, job.wire),
        (&n::RECORDED_DONE_PRE_COMP, job.done_pre_comp),
        (&n::RECORDED_DONE_NEW, job.done_new),
        (&n::RECORDED_DONE_POST_LC, job.done_post_lc),
    ] {
        samples.whole(definition, &names, value);
    }
    samples.float(&n::JOB_REGRESSION, &names, job.times_worse.unwrap_or(1.0));
    let [namespace, name] = names;
    samples.whole(&n::RECORDED_DISKS, &[namespace, name, "done"], job.done);
    samples.whole(&n::RECORDED_DISKS, &[namespace, name, "failed"], job.failed);
}

fn add_namespace(samples: &mut Samples, label: &str, namespace: &Namespace, now_ms: i64) {
    samples.whole(&n::VMS, &[label], namespace.vms);
    samples.whole(&n::VMS_STALE, &[label], namespace.stale);
    samples.whole(&n::RESTORE_POINTS, &[label], namespace.restore_points);
    samples.whole(&n::PROTECTED, &[label], namespace.protected);
    samples.whole(&n::STORED, &[label], namespace.stored);
    for ((quota, used), limit) in QUOTAS.iter().zip(namespace.quota_used).zip(namespace.quota_limit) {
        samples.whole(&n::QUOTA_USED, &[label, quota], used);
        if let Some(limit) = limit {
            samples.whole(&n::QUOTA_LIMIT, &[label, quota], limit);
        }
    }
    if let Some(newest_ms) = namespace.newest_ms {
        // 0 when the clock was set back.
        let age_ms = u64::try_from(now_ms.saturating_sub(newest_ms)).unwrap_or(0);
        samples.float(&n::RESTORE_POINT_AGE, &[label], Duration::from_millis(age_ms).as_secs_f64());
    }
}

fn by_label(labels: &LabelTable, jobs: &[JobOverview], worse: &[Regression]) -> BTreeMap<JobLabels, Job> {
    let mut sums: BTreeMap<JobLabels, Job> = BTreeMap::new();
    for JobOverview { namespace_name, job, runs, failing_vms, sums: of_job, .. } in jobs {
        let sum = sums.entry(labels.job(namespace_name, job)).or_default();
        sum.runs += runs;
        sum.done += of_job.rows.saturating_sub(of_job.failed);
        sum.failed += of_job.failed;
        sum.failing += failing_vms;
        sum.pre_comp = sum.pre_comp.saturating_add(of_job.bytes);
        sum.new = sum.new.saturating_add(of_job.new_bytes);
        sum.post_lc = sum.post_lc.saturating_add(of_job.post_lc);
        sum.meta = sum.meta.saturating_add(of_job.meta_bytes);
        sum.wire = sum.wire.saturating_add(of_job.wire_bytes);
        sum.done_pre_comp = sum.done_pre_comp.saturating_add(of_job.done_bytes);
        sum.done_new = sum.done_new.saturating_add(of_job.done_new_bytes);
        sum.done_post_lc = sum.done_post_lc.saturating_add(of_job.done_post_lc);
    }
    for Regression { namespace, job, times } in worse {
        let sum = sums.entry(labels.job(namespace, job)).or_default();
        sum.times_worse = Some(sum.times_worse.map_or(*times, |worst| worst.max(*times)));
    }
    sums
}

fn namespaces(
    catalog: &Catalog,
    labels: &LabelTable,
    now_ms: i64,
) -> Result<BTreeMap<String, Namespace>, ServiceError> {
    let mut sums: BTreeMap<String, Namespace> = BTreeMap::new();
    for overview in catalog.namespace_overviews(None)? {
        let sum = sums.entry(labels.namespace(&overview.namespace.name)).or_default();
        sum.vms += overview.vms;
        sum.restore_points += overview.backups;
        sum.stored = sum.stored.saturating_add(overview.stored_bytes);
        if overview.backups == 0 {
            continue;
        }
        let until_ms = now_ms.saturating_add(AHEAD_MS);
        if let Some(finished_ms) = catalog.newest_restore_point_ms(overview.namespace.id, until_ms)? {
            sum.newest_ms = Some(sum.newest_ms.map_or(finished_ms, |oldest| oldest.min(finished_ms)));
        }
    }
    for found in catalog.quotas(None)? {
        let sum = sums.entry(labels.namespace(&found.namespace.name)).or_default();
        sum.protected = sum.protected.saturating_add(found.usage.protected_bytes);
        for (place, (_, used, limit)) in found.limits().into_iter().enumerate() {
            if let Some(sum) = sum.quota_used.get_mut(place) {
                *sum = sum.saturating_add(used);
            }
            if let (Some(sum), Some(limit)) = (sum.quota_limit.get_mut(place), limit) {
                *sum = Some(sum.unwrap_or(0).saturating_add(limit));
            }
        }
    }
    let query = VmQuery {
        vm: None,
        search: None,
        stale_before_ms: now_ms.saturating_sub(STALE_MS),
        stale: Some(true),
        sort: VmSort::Vm,
        descending: false,
        offset: 0,
        limit: REPORT_PAGE_MAX,
        now_ms,
    };
    let (stale, total) = catalog.vm_overviews(None, &query)?;
    let listed = stale.len() as u64;
    for vm in stale {
        sums.entry(labels.namespace(&vm.namespace_name)).or_default().stale += 1;
    }
    if total > listed {
        sums.entry(OTHER.to_owned()).or_default().stale += total.saturating_sub(listed);
    }
    Ok(sums)
}

/// Counts the runs that ended in the last 24 hours; those that a clock was ahead for are of no day.
fn runs(catalog: &Catalog, now_ms: i64) -> Result<Runs, ServiceError> {
    let filter = DetailFilter {
        finished_since_ms: Some(now_ms.saturating_sub(DAY_MS)),
        finished_until_ms: Some(now_ms.saturating_add(AHEAD_MS)),
        ..DetailFilter::default()
    };
    let mut counted = Runs::default();
    for page in 0..RUN_PAGES_MAX {
        let offset = page * u64::from(REPORT_PAGE_MAX);
        let (runs, total) = catalog.detail_totals(
            &filter,
            TotalsBy::Run,
            TotalsOrder::WORST_FIRST,
            offset,
            REPORT_PAGE_MAX,
        )?;
        for run in &runs {
            match run.sums.totals.failed {
                0 => counted.done += 1,
                failed if failed == run.sums.totals.rows => counted.failed += 1,
                _ => counted.partly += 1,
            }
        }
        if offset.saturating_add(u64::from(REPORT_PAGE_MAX)) >= total {
            break;
        }
    }
    Ok(counted)
}
