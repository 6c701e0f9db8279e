//! What the repository takes, by place and by what it is.

use holdfast_engine::catalog::{Catalog, ContainerState, ContainerTotals, SpaceDay};
use holdfast_engine::ids::ContainerClass;
use holdfast_tiers::is_archive;

use super::Tiers;
use super::tiers::record_error;
use crate::error::ServiceError;

const DAY_MS: i64 = 86_400_000;

/// What it takes now, as of today. `containers`: all of them, added up.
///
/// What lies in the bucket alone counts as data: only data moves there, but for a server whose data lives there.
///
/// # Errors
/// The catalog's; the record's.
pub(crate) fn space_now(
    catalog: &Catalog,
    containers: &[ContainerTotals],
    tiers: Option<&Tiers>,
    now_ms: i64,
) -> Result<SpaceDay, ServiceError> {
    let sum = |is: &dyn Fn(&ContainerTotals) -> bool| {
        containers.iter().filter(|of| is(of)).map(|of| of.stored_bytes).fold(0, u64::saturating_add)
    };
    let in_use = |class| sum(&|of| of.class == class && of.state != ContainerState::Condemned);
    let mut space = SpaceDay {
        day: i32::try_from(now_ms.div_euclid(DAY_MS)).unwrap_or_default(),
        data_bytes: in_use(ContainerClass::Data),
        recipe_bytes: in_use(ContainerClass::Recipe),
        parity_bytes: catalog.parity_totals()?.stored_bytes,
        condemned_bytes: sum(&|of| of.state == ContainerState::Condemned),
        ..SpaceDay::default()
    };
    let Some(tiers) = tiers else { return Ok(space) };
    let (places, _) = tiers.places(now_ms)?;
    let alone = places.iter().map(|place| place.bucket.bytes).fold(0, u64::saturating_add);
    space.data_bytes = space.data_bytes.saturating_sub(alone);
    for of in tiers.totals(now_ms).map_err(record_error)?.classes {
        space.bucket_bytes = space.bucket_bytes.saturating_add(of.bytes);
        if is_archive(&of.class) {
            space.archive_bytes = space.archive_bytes.saturating_add(of.bytes);
        }
    }
    Ok(space)
}
