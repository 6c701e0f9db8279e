//! (N7) What stays of a container that agents sealed although nothing of it is live: another copy is, and no one here can
//! see which of the two is what its name says. Only a region of the very same bytes stands for another.

use std::collections::BTreeSet;

use bytes::Bytes;
use holdfast_types::ids::NamespaceId;

use super::live::{LiveMap, SlotSet};
use super::roots::Roots;
use crate::container::{ContainerError, OpenContainer};
use crate::core::Core;
use crate::error::EngineError;
use crate::store::{Domain, Found};

/// The chunks of it that stay beside what is `live`; `None`: nothing more does. Of a copy outside of the window it is not known whether
/// it is live: then this one stays.
///
/// # Errors
/// When copies cannot be asked for.
pub(super) fn with_contested(
    core: &Core,
    open: &OpenContainer,
    live: &SlotSet,
    map: &LiveMap,
) -> Result<Option<SlotSet>, EngineError> {
    let directory = open.directory();
    if !directory.is_sealed() || live.is_full() {
        return Ok(None);
    }
    let domain = core.store.domain(open.namespace());
    let mut stays = live.clone();
    let mut first = 0u32;
    for (region, (record, _)) in (0u16..).zip(directory.regions_with_ends()) {
        let mut numbers = first..first + u32::from(record.chunk_count);
        first = numbers.end;
        // (N4)
        let is_live = numbers.clone().any(|number| live.contains(number));
        if !is_live && is_contested(core, (open, region), &domain, map)? {
            numbers.all(|number| stays.insert(number));
        }
    }
    Ok((stays.live() > live.live()).then_some(stays))
}

fn is_contested(
    core: &Core,
    (open, region): (&OpenContainer, u16),
    domain: &Domain,
    map: &LiveMap,
) -> Result<bool, EngineError> {
    let names = open.directory().region_chunks(region).map_or(&[][..], |(names, _)| names);
    let mut own: Option<Bytes> = None;
    for name in names {
        for copy in core.store.copies(domain, name)? {
            let (id, of) = (copy.location.container, copy.location.region);
            if (id, of) == (open.id(), region) || !is_needed(map, &copy) {
                continue;
            }
            let payload = match own.take().map_or_else(|| read(open, region), |own| Ok(Some(own))) {
                Ok(Some(payload)) => own.insert(payload),
                // Nothing of it is left to stay.
                Ok(None) => return Ok(false),
                Err(error) => {
                    tracing::warn!(%error, "a container stays: it cannot be compared with another copy now");
                    return Ok(true);
                }
            };
            if !core.store.has_payload(&copy, payload) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// `None`: it is not what was written. What only cannot be read may be read again.
fn read(open: &OpenContainer, region: u16) -> Result<Option<Bytes>, ContainerError> {
    match open.read_region(region) {
        Ok(stored) => Ok(Some(stored.payload)),
        Err(error @ ContainerError::Unreadable { .. }) => Err(error),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_needed(map: &LiveMap, copy: &Found) -> bool {
    let number = copy.container.directory().number_of(copy.location.region, copy.location.slot);
    let Some(live) = map.get(copy.location.container) else { return true };
    number.is_some_and(|number| live.contains(number))
}

/// The namespaces that roots need something of whose agents seal what they send.
///
/// # Errors
/// The catalog's.
pub(super) fn sealed_namespaces(core: &Core, roots: &Roots) -> Result<BTreeSet<NamespaceId>, EngineError> {
    let all: BTreeSet<NamespaceId> = roots.iter().map(|root| root.namespace).collect();
    let mut sealed = BTreeSet::new();
    for id in all {
        let record = core.catalog.namespace(id)?;
        sealed.extend(record.filter(|record| record.key_id.is_some()).map(|record| record.id));
    }
    Ok(sealed)
}
