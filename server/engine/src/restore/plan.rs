//! From a window of extents to reads: which distinct chunks it needs, and which regions hold them.

use std::collections::HashMap;
use std::ops::Range;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::region::Codec;
use holdfast_proto::region::sealed::commitment_of;
use holdfast_proto::v1;
use holdfast_types::ids::{ContainerClass, ContainerId, Location};

use super::open::{OnDamage, OpenDisk};
use crate::container::{ChunkRef, RecentDirectories};
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, ExtentNode};
use crate::memory::REGIONS_PER_READ_MAX;
use crate::store::Found;

/// A chunk a window needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Its number in the window.
    pub(super) chunk: u32,
    pub(super) fingerprint: Fingerprint,
    pub(super) bytes: u32,
    /// Offset in the plain bytes of the region it is read from.
    pub(super) offset: u32,
    /// An extent that needs it, for messages.
    pub(super) extent: u64,
}

impl Wanted {
    /// The chunk in the region it is read from.
    pub(super) const fn place(&self) -> ChunkRef {
        ChunkRef { fingerprint: self.fingerprint, offset: self.offset, bytes: self.bytes }
    }
}

/// A region to read, and what is wanted of it.
#[derive(Debug)]
pub(super) struct RegionRead {
    pub(super) region: u16,
    pub(super) wanted: Vec<Wanted>,
}

/// Consecutive regions of one container, read with one request.
#[derive(Debug)]
pub(super) struct ReadJob {
    pub(super) container: ContainerId,
    pub(super) regions: Vec<RegionRead>,
}

impl ReadJob {
    /// The numbers of its regions.
    pub(super) fn span(&self) -> Range<u16> {
        let first = self.regions.first().map_or(0, |read| read.region);
        first..self.regions.last().map_or(first, |read| read.region + 1)
    }
}

/// A chunk of a window that cannot be read, and why.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) chunk: u32,
    pub(super) damage: v1::Damage,
}

/// A planned window.
#[derive(Debug)]
pub(super) struct WindowPlan {
    pub(super) layout: v1::Window,
    /// Chunks that cannot be read.
    pub(super) lost: Vec<Lost>,
    pub(super) jobs: Vec<ReadJob>,
}

/// Node and entry of an extent, from the recipe.
pub(super) fn described(
    disk: &OpenDisk,
    index: u64,
) -> Result<(Option<ExtentNode>, ExtentEntry), EngineError> {
    let entry = disk.tree.entry(index)?;
    Ok((disk.tree.extent_of(index, &entry)?, entry))
}

/// Plans the window of `count` extents from `first` on; of its chunks those that have any of the bytes `only` of the disk.
pub(super) fn plan_window(
    disk: &OpenDisk,
    (first, count): (u64, u64),
    only: &Range<u64>,
    recent: &mut RecentDirectories,
    on_damage: OnDamage,
) -> Result<WindowPlan, EngineError> {
    let mut layout = Layout { only: only.clone(), ..Layout::default() };
    for index in first..first + count {
        match described(disk, index) {
            Ok((node, entry)) => layout.add(index, node.as_ref(), &entry.digest)?,
            Err(error) if on_damage.goes_on(&error) => layout.add_lost(&error),
            Err(error) => return Err(error),
        }
    }
    let (window, wanted) = layout.finish(first);
    let mut located = Vec::with_capacity(wanted.len());
    let mut lost = Vec::new();
    let mut looked_at = LookedAt::new();
    for mut wanted in wanted.into_iter().filter_map(|(wanted, is_needed)| is_needed.then_some(wanted)) {
        match locate(disk, &wanted, recent, &mut looked_at) {
            Ok((location, offset)) => {
                wanted.offset = offset;
                located.push((location, wanted));
            }
            Err(error) if on_damage.goes_on(&error) => {
                let domain = disk.tree.source().domain();
                let known = disk.core.store.known_loss(domain, ContainerClass::Data, &wanted.fingerprint)?;
                let damage = match known {
                    Some((container, reason)) => v1::Damage { reason, container: container.to_string() },
                    None => v1::Damage { reason: error.to_string(), container: String::new() },
                };
                lost.push(Lost { chunk: wanted.chunk, damage });
            }
            Err(error) => return Err(error),
        }
    }
    located.sort_unstable_by_key(|(location, _)| *location);
    Ok(WindowPlan { layout: window, lost, jobs: into_jobs(located) })
}

/// Location of a chunk, and its offset in its region's plain bytes.
fn locate(
    disk: &OpenDisk,
    wanted: &Wanted,
    recent: &mut RecentDirectories,
    looked_at: &mut LookedAt,
) -> Result<(Location, u32), EngineError> {
    let Wanted { fingerprint, extent, .. } = wanted;
    let domain = disk.tree.source().domain();
    // (A5) Recipes name fingerprints; where a chunk lies is asked for each time.
    let store = &disk.core.store;
    let mut found = store.find_to_read(domain, ContainerClass::Data, fingerprint, recent)?;
    if found.is_none() {
        found = store.find_salvaged(domain, ContainerClass::Data, fingerprint)?;
    }
    if let Some(first) = &found
        && is_passed_over(disk, first, looked_at)
    {
        // If there is no other, the agent reports the damage.
        found = another(disk, fingerprint, looked_at)?.or(found);
    }
    let found = found.ok_or_else(|| {
        EngineError::Damaged(format!("extent {extent}: chunk {fingerprint} is missing or damaged"))
    })?;
    if found.chunk.bytes != wanted.bytes {
        let (is, said) = (found.chunk.bytes, wanted.bytes);
        return Err(EngineError::Damaged(format!(
            "extent {extent}: chunk {fingerprint} is {is} bytes long, the recipe says {said}"
        )));
    }
    Ok((found.location, found.chunk.offset))
}

/// Regions, and whether the agent passes them over.
type LookedAt = HashMap<(ContainerId, u16), bool>;

/// (N8) Returns true if the region did not open at the agent. A region that cannot be read fails when it is read.
fn is_passed_over(disk: &OpenDisk, found: &Found, looked_at: &mut LookedAt) -> bool {
    let Some(regions) = disk.passed_over.get() else { return false };
    let Location { container, region, .. } = found.location;
    let look = || {
        let stored = found.container.read_region(region).ok().filter(|stored| stored.codec == Codec::Sealed);
        stored.is_some_and(|stored| commitment_of(&stored.payload).is_some_and(|one| regions.contains(one)))
    };
    *looked_at.entry((container, region)).or_insert_with(look)
}

/// A copy of the chunk that the agent has not passed over.
fn another(
    disk: &OpenDisk,
    fingerprint: &Fingerprint,
    looked_at: &mut LookedAt,
) -> Result<Option<Found>, EngineError> {
    let (store, domain) = (&disk.core.store, disk.tree.source().domain());
    let copies = store.copies(domain, fingerprint)?;
    let mut offered = copies.into_iter().filter(|copy| !is_passed_over(disk, copy, looked_at));
    match offered.next() {
        Some(copy) => Ok(Some(copy)),
        None => store.find_salvaged(domain, ContainerClass::Data, fingerprint),
    }
}

/// Groups chunks, ordered by location, into regions, and consecutive regions into jobs.
fn into_jobs(located: Vec<(Location, Wanted)>) -> Vec<ReadJob> {
    let mut jobs: Vec<ReadJob> = Vec::new();
    for (Location { container, region, .. }, wanted) in located {
        if let Some(job) = jobs.last_mut().filter(|job| job.container == container) {
            let full = job.regions.len() >= REGIONS_PER_READ_MAX;
            match job.regions.last_mut() {
                Some(last) if last.region == region => {
                    last.wanted.push(wanted);
                    continue;
                }
                Some(last) if last.region + 1 == region && !full => {
                    job.regions.push(RegionRead { region, wanted: vec![wanted] });
                    continue;
                }
                _ => {}
            }
        }
        jobs.push(ReadJob { container, regions: vec![RegionRead { region, wanted: vec![wanted] }] });
    }
    jobs
}

/// A window's layout, extent by extent.
#[derive(Debug, Default)]
struct Layout {
    window: v1::Window,
    fingerprints: Vec<u8>,
    numbers: HashMap<Fingerprint, u32>,
    /// Bytes of the disk that are asked for.
    only: Range<u64>,
    /// The chunks, and whether any of these bytes is in them.
    wanted: Vec<(Wanted, bool)>,
}

impl Layout {
    /// `None`: all of the extent is zero, which an empty layout says.
    fn add(
        &mut self,
        extent: u64,
        node: Option<&ExtentNode>,
        digest: &Fingerprint,
    ) -> Result<(), EngineError> {
        let mut layout = v1::ExtentLayout::default();
        let mut end = extent * u64::from(EXTENT_BYTES);
        for piece in node.into_iter().flat_map(ExtentNode::pieces) {
            let start = end;
            end += u64::from(piece.bytes);
            if piece.is_zero() {
                layout.refs.push(0);
                layout.zero_lengths.push(piece.bytes);
                continue;
            }
            let next = u32::try_from(self.wanted.len()).map_err(|_| {
                EngineError::Internal(format!("extent {extent}: too many chunks in a window"))
            })?;
            let number = *self.numbers.entry(piece.fingerprint).or_insert(next);
            if number == next {
                let fingerprint = piece.fingerprint;
                let wanted = Wanted { chunk: next, fingerprint, bytes: piece.bytes, offset: 0, extent };
                self.wanted.push((wanted, false));
                self.fingerprints.extend(fingerprint.as_bytes());
                self.window.lengths.push(piece.bytes);
            }
            if start < self.only.end
                && end > self.only.start
                && let Some((_, is_needed)) = self.wanted.get_mut(number as usize)
            {
                *is_needed = true;
            }
            layout.refs.push(number + 1);
        }
        if node.is_some() && *digest != Fingerprint::UNKNOWN {
            layout.digest = digest.as_bytes().to_vec().into();
        }
        self.window.extents.push(layout);
        Ok(())
    }

    /// An extent of which nothing is known.
    fn add_lost(&mut self, why: &EngineError) {
        let damage = Some(v1::Damage { reason: why.to_string(), container: String::new() });
        self.window.extents.push(v1::ExtentLayout { damage, ..v1::ExtentLayout::default() });
    }

    fn finish(mut self, first_extent: u64) -> (v1::Window, Vec<(Wanted, bool)>) {
        self.window.first_extent = first_extent;
        self.window.fingerprints = self.fingerprints.into();
        (self.window, self.wanted)
    }
}
