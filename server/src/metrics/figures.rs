//! What is looked up for a scrape: index and volume, and sums of the catalog (see [`recorded`]). They are
//! kept for a while, so that scraping often costs little.

mod recorded;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_engine::EngineStats;

use super::exposition::Samples;
use super::names as n;
use crate::app::App;
use crate::error::ServiceError;
use recorded::Recorded;

/// How long figures are kept: what Prometheus scrapes by default comes once in 15 s or more rarely.
const KEEP: Duration = Duration::from_secs(15);

/// They are kept longer when looking them up took long: at most this part of the time goes into it.
const SHARE: u32 = 20;

/// The last figures looked up.
#[derive(Debug, Default)]
pub(super) struct Kept {
    figures: Option<Arc<Figures>>,
    /// When looking them up was last begun, successfully or not.
    begun: Option<Instant>,
    /// When the figures kept were taken.
    taken: Option<Instant>,
    took: Duration,
}

impl Kept {
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
    recorded: Recorded,
}

/// Adds the figures, looked up anew when it is time to. Blocks. What cannot be looked up is left as it was
/// and counted: a scrape without these figures is better than none.
pub(super) fn add(app: &Arc<App>, samples: &mut Samples) {
    let mut kept = app.metrics.kept.lock();
    if kept.is_due() {
        let begun = Instant::now();
        kept.begun = Some(begun);
        match Figures::gather(app) {
            Ok(figures) => {
                kept.figures = Some(Arc::new(figures));
                kept.taken = Some(Instant::now());
            }
            Err(error) => {
                app.metrics.live.refresh_failures.inc();
                tracing::warn!(%error, "cannot look figures up for /metrics");
            }
        }
        kept.took = begun.elapsed();
    }
    samples.float(&n::REFRESH_DURATION, &[], kept.took.as_secs_f64());
    if let Some(taken) = kept.taken {
        samples.float(&n::REFRESH_AGE, &[], taken.elapsed().as_secs_f64());
    }
    let figures = kept.figures.clone();
    drop(kept);
    if let Some(figures) = figures {
        figures.add(app.clock.now_ms(), samples);
    }
}

impl Figures {
    fn gather(app: &App) -> Result<Self, ServiceError> {
        let catalog = app.catalog();
        let damage = catalog.damaged()?;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let whole = damage.iter().filter(|damage| damage.region.is_none()).count();
        Ok(Self {
            stats: app.engine.stats()?,
            damaged_containers: count(whole),
            damaged_regions: count(damage.len() - whole),
            recorded: Recorded::gather(catalog, &app.metrics.labels, app.clock.now_ms())?,
        })
    }

    fn add(&self, now_ms: i64, samples: &mut Samples) {
        samples.whole(&n::DAMAGED_CONTAINERS, &[], self.damaged_containers);
        samples.whole(&n::DAMAGED_REGIONS, &[], self.damaged_regions);
        self.add_stats(samples);
        self.recorded.add(now_ms, samples);
    }

    fn add_stats(&self, samples: &mut Samples) {
        let EngineStats { index, catalog_bytes, space, reserve_bytes, .. } = self.stats;
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
        samples.whole(&n::VOLUME_RESERVE, &[], reserve_bytes);
        if let Some(space) = space {
            samples.whole(&n::VOLUME_SIZE, &[], space.total_bytes);
            samples.whole(&n::VOLUME_FREE, &[], space.free_bytes);
        }
    }
}
