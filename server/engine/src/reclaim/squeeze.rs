//! Compresses old containers anew, at a level that is too slow for a backup.
//!
//! Everything in a container is taken over, referenced or not, so nothing has to be marked first. The order is that of
//! [`copy_forward`]: new containers are durable and in the index before the caller replaces the old ones by them. The
//! catalog remembers at which level a container was tried, so it is not tried again; a crash before it does costs one
//! look at a few regions, which finds no gain.

use holdfast_catalog::ContainerRecord;
use holdfast_proto::region::{Decoder, Encoder};
use holdfast_types::ids::ContainerId;

use super::control::Control;
use super::live::SlotSet;
use super::plan::Victim;
use super::plan::{Chosen, batches};
use super::repack::{Copied, RepackOptions, copy_forward};
use crate::container::{ContainerError, OpenContainer};
use crate::core::Core;
use crate::error::EngineError;
use crate::rewrite;

/// Containers looked at together: 1 GiB, of which copies of 32 MiB are there twice at most.
const TOGETHER: u32 = 32;

/// Regions of a container that are tried before all of it is.
const SAMPLES: usize = 4;

/// What a sample must save, in hundredths, for its container to be worth writing again.
const WORTHWHILE_PCT: u64 = 2;

/// What is compressed anew.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Squeeze {
    /// zstd's, 1 to 19.
    pub(crate) level: i32,
    /// Containers made later are left as they are.
    pub(crate) made_before_ms: i64,
    /// Threads that compress, beside the one that reads.
    pub(crate) threads: usize,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Squeezed {
    /// Containers replaced, what they took, and what took their place.
    pub(crate) containers: u64,
    pub(crate) bytes_before: u64,
    pub(crate) bytes_after: u64,
    /// Containers not worth it.
    pub(crate) kept: u64,
}

/// Compresses all containers anew that were made long enough ago, were never tried at that level, and gain by it.
/// `replace` makes the new containers known and deletes the victims that are complete; it says which of these went.
///
/// # Errors
/// The catalog's, `replace`'s, and why copying ended early; what was replaced until then stays so.
pub(crate) fn squeeze(
    core: &Core,
    options: &Squeeze,
    control: &Control,
    mut replace: impl FnMut(&[Victim], &Copied) -> Result<Vec<ContainerId>, EngineError>,
) -> Result<Squeezed, EngineError> {
    let mut done = Squeezed::default();
    let mut pacer = control.pacer();
    let mut after = None;
    let internal = |error: &dyn std::fmt::Display| EngineError::Internal(error.to_string());
    let mut encoder = Encoder::new(options.level).map_err(|error| internal(&error))?;
    let mut decoder = Decoder::new().map_err(|error| internal(&error))?;
    loop {
        let Squeeze { level, made_before_ms, threads } = *options;
        let rows = core.catalog.squeezable_containers(level, made_before_ms, after, TOGETHER)?;
        let Some(last) = rows.last() else { return Ok(done) };
        after = Some(last.id);
        let (mut chosen, mut kept) = (Vec::new(), Vec::new());
        for row in &rows {
            match worth(core, row, &mut encoder, &mut decoder)? {
                Some(true) => chosen.push(chosen_of(row)),
                Some(false) => kept.push(row.id),
                None => {}
            }
            pacer.charge(0, 0)?;
        }
        done.kept += kept.len() as u64;
        core.catalog.note_squeezed(&kept, level)?;
        for batch in batches(chosen) {
            let victims = batch.open(core)?;
            let copying = RepackOptions { level: Some(level), threads, ..RepackOptions::default() };
            let copied = copy_forward(core, &victims, &copying, control);
            let gone = replace(&victims, &copied)?;
            let new: Vec<_> = copied.containers.iter().map(|new| new.id).collect();
            core.catalog.note_squeezed(&new, level)?;
            done.containers += gone.len() as u64;
            let went = rows.iter().filter(|row| gone.contains(&row.id));
            done.bytes_before += went.map(|row| row.stored_bytes).sum::<u64>();
            done.bytes_after += copied.containers.iter().map(|new| new.stored_bytes).sum::<u64>();
            if let Some(ended) = copied.ended {
                return Err(ended);
            }
        }
        control.add_done(rows.len() as u64);
    }
}

fn chosen_of(row: &ContainerRecord) -> Chosen {
    let chunks = u32::try_from(row.chunk_count).unwrap_or(u32::MAX);
    Chosen { id: row.id, class: row.class, namespace: row.namespace, vm: None, live: SlotSet::full(chunks) }
}

/// Whether some of its regions gain; `None`: it cannot be read, or must not be relied on.
fn worth(
    core: &Core,
    row: &ContainerRecord,
    encoder: &mut Encoder,
    decoder: &mut Decoder,
) -> Result<Option<bool>, EngineError> {
    // (E5)
    if !core.store.known_damage(row.id).is_empty() || core.store.protects_others(row.id)? {
        return Ok(None);
    }
    let opened = core.store.containers.get(row.id, row.class);
    if opened.as_ref().is_ok_and(|container| !container.is_at_hand()) {
        return Ok(None);
    }
    let sampled = opened.and_then(|container| sample(&container, encoder, decoder));
    match sampled {
        Ok((before, after)) => Ok(Some(after * 100 <= before * (100 - WORTHWHILE_PCT))),
        Err(error) if error.is_damage() => {
            core.store.note_failure(row.id, error.region(), &error);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// What some of its regions take, and would take.
fn sample(
    container: &OpenContainer,
    encoder: &mut Encoder,
    decoder: &mut Decoder,
) -> Result<(u64, u64), ContainerError> {
    let count = u16::try_from(container.directory().region_count()).unwrap_or(u16::MAX);
    let (mut before, mut after) = (0, 0);
    for number in (0..count).step_by(usize::from(count).div_ceil(SAMPLES).max(1)) {
        let (region, plain) = rewrite::verified(container, container.read_region(number)?, decoder)?;
        let stored = u64::from(region.stored_bytes());
        before += stored;
        // What agents sealed stays as it is.
        let Some(plain) = plain else {
            after += stored;
            continue;
        };
        after += encoder.encode(&plain).map_or(stored, |encoded| stored.min(encoded.payload.len() as u64));
    }
    Ok((before, after))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use holdfast_types::ids::ContainerClass;
    use holdfast_volume::MemoryVolume;

    use super::*;
    use crate::tests::agent::{backup, restore};
    use crate::tests::{Bench, lines, noise};

    #[test]
    fn what_gains_is_replaced_once_and_what_does_not_is_remembered() {
        let bench = Bench::new();
        let engine = bench.open(Arc::new(MemoryVolume::new()));
        let (text, incompressible) = (lines(7, 100_000), noise(9, 3 << 20));
        let id = backup(&engine, "web", &[("root", &text)]).unwrap().backup_id;
        backup(&engine, "db", &[("root", &incompressible)]).unwrap();
        let core = engine.parts().0;
        let options = Squeeze { level: 12, made_before_ms: i64::MAX, threads: 1 };
        let control = Control::default();
        let replace = |_: &[Victim], copied: &Copied| -> Result<Vec<ContainerId>, EngineError> {
            core.catalog.add_containers(&copied.containers)?;
            core.catalog.condemn_containers(&copied.complete)?;
            Ok(copied.complete.clone())
        };
        let young = Squeeze { made_before_ms: 0, ..options };
        assert_eq!(squeeze(core, &young, &control, replace).unwrap(), Squeezed::default());
        let done = squeeze(core, &options, &control, replace).unwrap();
        assert_eq!((done.containers, done.kept), (1, 1), "{done:?}");
        assert!(done.bytes_after * 100 < done.bytes_before * 98, "{done:?}");
        assert_eq!(squeeze(core, &options, &control, replace).unwrap(), Squeezed::default(), "once");
        let lower = Squeeze { level: 9, ..options };
        assert_eq!(squeeze(core, &lower, &control, replace).unwrap(), Squeezed::default());
        assert_eq!(restore(&engine, &id, "root").unwrap(), text);
        let data = core.catalog.containers(None, 100).unwrap();
        assert!(data.iter().any(|row| row.class == ContainerClass::Recipe), "recipes stay as they are");
    }
}
