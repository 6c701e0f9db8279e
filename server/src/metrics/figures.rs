//! Figures looked up for a scrape: index and volume, and sums of the catalog (see [`recorded`]). The figures are cached
//! for a while, so that frequent scrapes cost little.

mod agents;
mod recorded;
mod tasks;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_engine::catalog::{AgentsProofs, DamageTotals, ParityTotals, ProofSummary};
use holdfast_engine::{Engine, EngineStats, ScrubStatus};

use super::Metrics;
use super::exposition::Samples;
use super::names as n;
use crate::error::ServiceError;
use crate::metrics::LabelTable;
use agents::AgentFigures;
use recorded::Recorded;
use tasks::TaskFigures;

/// Time for which figures are cached: Prometheus scrapes every 15 s or less often unless told otherwise.
const KEEP: Duration = Duration::from_secs(15);

/// They are cached longer when looking them up took long, so that it takes at most one part in this many of the
/// time.
const SHARE: u32 = 20;

/// The last figures looked up.
#[derive(Debug, Default)]
pub(super) struct FigureCache {
    figures: Option<Arc<Figures>>,
    /// Start of the last look-up, successful or not.
    begun: Option<Instant>,
    /// Time at which the cached figures were taken.
    taken: Option<Instant>,
    took: Duration,
}

impl FigureCache {
    fn is_due(&self) -> bool {
        self.begun.is_none_or(|begun| begun.elapsed() >= KEEP.max(self.took.saturating_mul(SHARE)))
    }
}

/// Figures of one moment.
#[derive(Debug)]
struct Figures {
    stats: EngineStats,
    damaged_containers: u64,
    damaged_regions: u64,
    open_damage: u64,
    parity: ParityTotals,
    lost: DamageTotals,
    proofs: ProofSummary,
    agents: Vec<AgentsProofs>,
    scrub: ScrubStatus,
    recorded: Recorded,
    tasks: TaskFigures,
    by_the_clock: AgentFigures,
}

/// Adds the figures, looked up again when that is due. Blocks. When it fails, the failure is counted and the figures
/// stay as they were: old ones are better than none.
pub(super) fn add(metrics: &Metrics, engine: &Engine, now_ms: i64, samples: &mut Samples) {
    let mut cache = metrics.cache.lock();
    if cache.is_due() {
        let begun = Instant::now();
        cache.begun = Some(begun);
        match Figures::gather(engine, &metrics.labels, now_ms) {
            Ok(figures) => {
                figures.recorded.jobs().for_each(|labels| metrics.counters.job_seen(labels));
                cache.figures = Some(Arc::new(figures));
                cache.taken = Some(Instant::now());
            }
            Err(error) => {
                metrics.counters.refresh_failures.inc();
                tracing::warn!(%error, "cannot look up figures for /metrics");
            }
        }
        cache.took = begun.elapsed();
    }
    samples.float(&n::REFRESH_DURATION, &[], cache.took.as_secs_f64());
    if let Some(taken) = cache.taken {
        samples.float(&n::REFRESH_AGE, &[], taken.elapsed().as_secs_f64());
    }
    let figures = cache.figures.clone();
    drop(cache);
    if let Some(figures) = figures {
        figures.add(now_ms, samples);
    }
}

impl Figures {
    fn gather(engine: &Engine, labels: &LabelTable, now_ms: i64) -> Result<Self, ServiceError> {
        let catalog = engine.catalog().as_ref();
        let damage = catalog.damaged()?;
        let whole = damage.iter().filter(|damage| damage.region.is_none()).count();
        let open: HashSet<_> = damage.iter().filter(|one| !one.healed).map(|one| one.container).collect();
        Ok(Self {
            stats: engine.stats()?,
            damaged_containers: whole as u64,
            damaged_regions: (damage.len() - whole) as u64,
            open_damage: open.len() as u64,
            parity: catalog.parity_totals()?,
            lost: catalog.damage_totals(None)?,
            proofs: catalog.proof_summary()?,
            agents: catalog.agents_proof_summaries()?,
            scrub: engine.scrub_status()?,
            recorded: Recorded::gather(catalog, labels, now_ms)?,
            tasks: TaskFigures::gather(catalog)?,
            by_the_clock: AgentFigures::gather(catalog)?,
        })
    }

    fn add(&self, now_ms: i64, samples: &mut Samples) {
        samples.whole(&n::DAMAGED_CONTAINERS, &[], self.damaged_containers);
        samples.whole(&n::DAMAGED_REGIONS, &[], self.damaged_regions);
        samples.whole(&n::OPEN_DAMAGE, &[], self.open_damage);
        self.add_scrub(now_ms, samples);
        self.add_stats(samples);
        self.recorded.add(now_ms, samples);
        self.tasks.add(now_ms, samples);
        self.by_the_clock.add(now_ms, samples);
    }

    fn add_scrub(&self, now_ms: i64, samples: &mut Samples) {
        samples.whole(&n::DAMAGED_RESTORE_POINTS, &[], self.lost.restore_points);
        samples.whole(&n::LOST_BYTES, &[], self.lost.bytes);
        for (part, unproven, oldest_ms) in [
            ("containers", self.proofs.containers_unproven, self.proofs.oldest_container_ms),
            ("restore_points", self.proofs.backups_unproven, self.proofs.oldest_backup_ms),
        ] {
            samples.whole(&n::UNPROVEN, &[part], unproven);
            if let Some(oldest_ms) = oldest_ms {
                // 0 when the clock was set back.
                let age_ms = u64::try_from(now_ms.saturating_sub(oldest_ms)).unwrap_or(0);
                samples.float(&n::OLDEST_PROOF_AGE, &[part], Duration::from_millis(age_ms).as_secs_f64());
            }
        }
        if let Some(since_ms) = self.agents.iter().map(|found| found.unproved_since_ms).min() {
            let age_ms = u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0);
            samples.float(&n::AGENTS_PROOF_AGE, &[], Duration::from_millis(age_ms).as_secs_f64());
            samples.whole(&n::UNPROVEN_BY_AGENTS, &[], self.agents.iter().map(|found| found.never).sum());
        }
        let ScrubStatus { found, began_ms, ended_ms, .. } = &self.scrub;
        if let Some(since_ms) = ended_ms.or(Some(*began_ms).filter(|began_ms| *began_ms > 0)) {
            let age_ms = u64::try_from(now_ms.saturating_sub(since_ms)).unwrap_or(0);
            samples.float(&n::SCRUB_PASS_AGE, &[], Duration::from_millis(age_ms).as_secs_f64());
        }
        samples.whole(&n::SCRUBBED, &[], found.container_bytes);
        samples.whole(&n::SCRUB_FOUND, &["damaged_containers"], found.damaged_containers);
        samples.whole(&n::SCRUB_FOUND, &["unsound_restore_points"], found.unsound_restore_points);
        samples.whole(&n::SCRUB_FOUND, &["false_digests"], found.false_digests);
        samples.whole(&n::SCRUB_FOUND, &["unclear"], found.unclear);
    }

    fn add_stats(&self, samples: &mut Samples) {
        let EngineStats { index, catalog_bytes, space, reserve_bytes, digests, shared, parity, .. } =
            self.stats;
        samples.whole(&n::REPOSITORY_BYTES, &["parity"], self.parity.stored_bytes);
        samples.whole(&n::PARITY_CONTAINERS, &[], self.parity.containers);
        samples.whole(&n::PARITY_DAMAGED, &[], self.parity.damaged);
        samples.whole(&n::PARITY_REPAIRS, &["read"], parity.read);
        samples.whole(&n::PARITY_REPAIRS, &["rewritten"], parity.repaired);
        samples.whole(&n::REPOSITORY_BYTES, &["catalog"], catalog_bytes);
        samples.whole(&n::REPOSITORY_BYTES, &["index"], index.disk_bytes);
        samples.whole(&n::INDEX_ENTRIES, &[], index.entries);
        samples.whole(&n::INDEX_RUNS, &[], index.runs);
        samples.whole(&n::INDEX_DEPTH, &[], index.depth);
        samples.whole(&n::INDEX_MEMORY, &["filters"], index.filter_bytes);
        samples.whole(&n::INDEX_MEMORY, &["fences"], index.fence_bytes);
        samples.whole(&n::INDEX_MEMORY, &["buffer"], index.memtable_bytes);
        samples.whole(&n::INDEX_BUFFERED, &[], index.memtable_entries);
        samples.whole(&n::INDEX_UNCOVERED, &[], index.uncovered_containers);
        samples.whole(&n::EXTENT_DIGESTS, &["proved"], digests.proved);
        samples.whole(&n::EXTENT_DIGESTS, &["unproved"], digests.unproved);
        samples.whole(&n::EXTENT_DIGESTS, &["refused"], digests.refused);
        samples.whole(&n::EXTENT_DIGESTS, &["false"], digests.found_false);
        samples.whole(&n::RESTORE_REGIONS, &["volume"], shared.read_regions);
        samples.whole(&n::RESTORE_REGIONS, &["memory"], shared.shared_regions);
        samples.whole(&n::RESTORE_REGION_BYTES, &["volume"], shared.read_bytes);
        samples.whole(&n::RESTORE_REGION_BYTES, &["memory"], shared.shared_bytes);
        samples.whole(&n::RESTORE_SHARED, &[], shared.held_bytes);
        samples.whole(&n::VOLUME_RESERVE, &[], reserve_bytes);
        if let Some(space) = space {
            samples.whole(&n::VOLUME_SIZE, &[], space.total_bytes);
            samples.whole(&n::VOLUME_FREE, &[], space.free_bytes);
        }
    }
}
