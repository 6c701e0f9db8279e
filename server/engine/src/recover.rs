//! Reading a volume without its catalog: its repository, its contents, and its restore points. For `holdfast-server
//! recover`, and for a start that must not take a repository for an empty folder.

use std::num::NonZeroUsize;

use holdfast_catalog::Catalog;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::{BlobName, Volume, list_all};

use crate::container::{ContainerName, read_header};
use crate::error::EngineError;
use crate::generation;
use crate::identity;
use crate::jobs::Progress;
use crate::points::{self, Between, Comparison};
use crate::snapshot::{self, list_snapshots, read_snapshot_header};

/// Blobs of a kind looked at to see whose the volume is.
const SAMPLE: usize = 64;

/// Describes in words the traces of a repository on `volume`; `None`: there are none, so that a new repository may be
/// created there.
///
/// # Errors
/// When the volume cannot be asked.
#[expect(clippy::expect_used, reason = "constants")]
pub fn traces_of_repository(volume: &dyn Volume) -> Result<Option<String>, EngineError> {
    if let Some(mark) = identity::describe(volume)? {
        return Ok(Some(mark));
    }
    let containers = BlobName::new("containers").expect("a valid name");
    let folders = [
        ("containers", containers),
        ("restore points", points::folder()),
        ("catalog snapshots", snapshot::folder()),
    ];
    for (what, folder) in folders {
        if !volume.list(&folder, None, NonZeroUsize::MIN)?.entries.is_empty() {
            return Ok(Some(format!("{what} of a repository")));
        }
    }
    Ok(None)
}

/// The repository that `volume` holds: by its mark, or else by the first points, snapshots or containers that can be
/// read. `None`: none of them tells.
///
/// # Errors
/// When the volume cannot be asked; a mark that a newer version wrote.
#[expect(clippy::expect_used, reason = "constants")]
pub fn repository_on(volume: &dyn Volume) -> Result<Option<RepositoryId>, EngineError> {
    if let Some(marked) = identity::marked(volume)? {
        return Ok(Some(marked));
    }
    for entry in list_all(volume, &points::folder()).take(SAMPLE) {
        if let Ok(repository) = points::read_header(volume, &entry?.name) {
            return Ok(Some(repository));
        }
    }
    for (_, name) in list_snapshots(volume)? {
        if let Ok(header) = read_snapshot_header(volume, &name) {
            return Ok(Some(header.repository));
        }
    }
    let containers = BlobName::new("containers").expect("a valid name");
    for entry in list_all(volume, &containers).take(SAMPLE) {
        let Some(name) = ContainerName::parse(&entry?.name) else { continue };
        if let Ok(header) = read_header(volume, name) {
            return Ok(Some(header.repository));
        }
    }
    Ok(None)
}

/// Enters every restore point that `volume` knows and `catalog`, made of a snapshot, does not; takes over the locks and
/// names of newer points, and drops restore points that were deleted since. Repeating it does nothing.
///
/// # Errors
/// When the volume or the catalog cannot be asked.
pub fn enter_points(
    volume: &dyn Volume,
    catalog: &Catalog,
    progress: &dyn Progress,
) -> Result<Comparison, EngineError> {
    let repository = catalog.repository()?.id;
    let between = Between { volume, catalog, repository, recovered: true, only: None };
    let found = points::compare(between, &mut |error| Err(error.into()), progress)?;
    // (G10) From here on they agree.
    if let Some(generation) = generation::of_newer_volume(volume, catalog)? {
        catalog.note_generation(generation)?;
    }
    Ok(found)
}
