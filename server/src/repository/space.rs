//! Space used, by place and kind.

use holdfast_engine::catalog::{Catalog, ContainerState, ContainerTotals, SpaceDay, day_of};
use holdfast_engine::ids::ContainerClass;
use holdfast_tiers::is_archive;

use super::Tiers;
use super::tiers::record_error;
use crate::error::ServiceError;

/// The kind of blobs that data is in.
const CONTAINERS: &str = "containers";

/// Space used now, as of today. `containers`: all of them, added up.
///
/// Containers in the bucket alone are taken off data as far as there is any here: data is what moves there, but for a server whose
/// data lives there. Snapshots of the catalog do not count: this figure is in them.
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
        day: day_of(now_ms),
        data_bytes: in_use(ContainerClass::Data),
        recipe_bytes: in_use(ContainerClass::Recipe),
        parity_bytes: catalog.parity_totals()?.stored_bytes,
        condemned_bytes: sum(&|of| of.state == ContainerState::Condemned),
        ..SpaceDay::default()
    };
    let Some(tiers) = tiers else { return Ok(space) };
    let (places, _) = tiers.places(now_ms)?;
    for place in places.iter().filter(|place| place.kind == CONTAINERS) {
        let mut alone = place.bucket.bytes;
        for here in [&mut space.data_bytes, &mut space.condemned_bytes, &mut space.recipe_bytes] {
            let gone = alone.min(*here);
            (*here, alone) = (*here - gone, alone - gone);
        }
        space.bucket_bytes = place.both.bytes.saturating_add(place.bucket.bytes);
    }
    let archived = tiers.totals(now_ms).map_err(record_error)?.classes;
    let archived = archived.iter().filter(|of| is_archive(&of.class)).map(|of| of.bytes);
    space.archive_bytes = archived.fold(0, u64::saturating_add);
    Ok(space)
}
