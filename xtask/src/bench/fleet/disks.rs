//! Disks of the VMs of a fleet. Generated disks have the same bytes on every machine: a quarter noise, the rest
//! compresses to about half.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::splitmix::SplitMix64;

/// Size of a block, which is entirely noise or text.
const BLOCK_BYTES: usize = 64 << 10;
/// Length of the runs that half-shared disks have in common: 8 MiB, so that tools with larger chunks find them, too.
const SHARED_RUN_BLOCKS: u64 = 128;
/// Seed of the data that all VMs share; those of single VMs follow.
const COMMON_SEED: u64 = 1;
const PATCH_SEED: u64 = 2;
const VM_SEED: u64 = 100;

/// What the VMs of a fleet have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Kind {
    /// Everything
    Clones,
    /// Nothing
    Distinct,
    /// Nothing, until all of them get the same new data, an eighth of their size, each at another place
    Patch,
    /// Every second 8 MiB
    Half,
}

impl Kind {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Clones => "clones",
            Self::Distinct => "distinct VMs",
            Self::Patch => "patch day",
            Self::Half => "half in common",
        }
    }
}

/// A VM of the fleet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vm {
    pub(super) name: String,
    pub(super) disk: PathBuf,
}

/// The VMs of a fleet, and how their disks were made.
#[derive(Debug)]
pub(super) struct Fleet {
    kind: Kind,
    vms: Vec<Vm>,
    /// Size of a generated disk.
    size_bytes: u64,
}

impl Fleet {
    /// Generates disks of `size_bytes` for `count` VMs in `folder`; clones are one file.
    pub(super) fn generate(kind: Kind, count: u32, size_bytes: u64, folder: &Path) -> Result<Self> {
        let disk = |number: u32| match kind {
            Kind::Clones => folder.join("clone.raw"),
            _ => folder.join(format!("vm-{number}.raw")),
        };
        let vms = (0..count).map(|number| Vm { name: format!("vm-{number}"), disk: disk(number) }).collect();
        let fleet = Self { kind, vms, size_bytes };
        fleet.write_before()?;
        Ok(fleet)
    }

    /// Uses the images in `folder`; `None` if they cannot be of that kind.
    pub(super) fn of_corpus(kind: Kind, count: u32, folder: &Path) -> Result<Option<Self>> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut images = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        images.retain(|path| path.extension().is_some_and(|extension| extension == "raw"));
        images.sort();
        ensure!(!images.is_empty(), "{} has no *.raw", folder.display());
        let disks: Vec<PathBuf> = match kind {
            Kind::Clones => images.iter().take(1).cycle().take(count as usize).cloned().collect(),
            Kind::Distinct => images.into_iter().take(count as usize).collect(),
            Kind::Patch | Kind::Half => return Ok(None),
        };
        let vms =
            disks.into_iter().enumerate().map(|(number, disk)| Vm { name: format!("vm-{number}"), disk });
        Ok(Some(Self { kind, vms: vms.collect(), size_bytes: 0 }))
    }

    pub(super) const fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn vms(&self) -> &[Vm] {
        &self.vms
    }

    /// Returns true if the VMs are backed up once before the measurement.
    pub(super) fn has_before(&self) -> bool {
        self.kind == Kind::Patch
    }

    /// Writes the disks in their first state.
    pub(super) fn write_before(&self) -> Result<()> {
        for (number, vm) in (0..).zip(&self.vms) {
            if number > 0 && self.kind == Kind::Clones {
                break;
            }
            let own = VM_SEED + number;
            let seed = |block: u64| match self.kind {
                Kind::Clones => COMMON_SEED,
                Kind::Half if (block / SHARED_RUN_BLOCKS).is_multiple_of(2) => COMMON_SEED,
                Kind::Half | Kind::Distinct | Kind::Patch => own,
            };
            let file =
                File::create(&vm.disk).with_context(|| format!("cannot make {}", vm.disk.display()))?;
            write(&file, 0, self.size_bytes, seed)?;
        }
        Ok(())
    }

    /// Adds the data that all VMs get on patch day.
    pub(super) fn write_patch(&self) -> Result<()> {
        for (number, vm) in (0..).zip(&self.vms) {
            let file = File::options().write(true).open(&vm.disk)?;
            let place = self.size_bytes / 2 * number / self.vms.len() as u64;
            write(&file, place.next_multiple_of(4096), self.size_bytes / 8, |_| PATCH_SEED)?;
        }
        Ok(())
    }
}

/// Writes `len` bytes from `offset` on; `seed` returns the seed of a block by its number.
fn write(file: &File, offset: u64, len: u64, seed: impl Fn(u64) -> u64) -> Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    for number in 0..len.div_ceil(BLOCK_BYTES as u64) {
        let start = number * BLOCK_BYTES as u64;
        fill(seed(number), number, &mut block);
        let bytes = usize::try_from(len - start).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        file.write_all_at(block.get(..bytes).unwrap_or_default(), offset + start)?;
    }
    Ok(())
}

/// Fills a block from its seed and number.
fn fill(seed: u64, number: u64, block: &mut [u8]) {
    let mut numbers = SplitMix64(seed.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(number << 32));
    let noise = numbers.next().is_multiple_of(4);
    for word in block.chunks_mut(8) {
        let bytes = numbers.next().to_le_bytes().map(|byte| if noise { byte } else { b'a' + (byte & 15) });
        word.copy_from_slice(bytes.get(..word.len()).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const SIZE_BYTES: u64 = 16 << 20;

    /// Distinct blocks of all disks, and all their blocks.
    fn blocks(fleet: &Fleet) -> (usize, usize) {
        let disks = fleet.vms().iter().map(|vm| std::fs::read(&vm.disk).unwrap()).collect::<Vec<_>>();
        assert!(disks.iter().all(|disk| disk.len() as u64 == SIZE_BYTES));
        let blocks = || disks.iter().flat_map(|disk| disk.chunks(4096));
        (blocks().collect::<HashSet<_>>().len(), blocks().count())
    }

    #[test]
    fn fleets_share_what_their_kind_says() {
        let folder = tempfile::tempdir().unwrap();
        let disk = 4096;
        for (kind, different) in
            [(Kind::Clones, disk), (Kind::Distinct, 4 * disk), (Kind::Half, disk / 2 + 2 * disk)]
        {
            let fleet = Fleet::generate(kind, 4, SIZE_BYTES, folder.path()).unwrap();
            assert_eq!(blocks(&fleet), (different, 4 * disk), "{kind:?}");
            assert!(!fleet.has_before());
        }
        let fleet = Fleet::generate(Kind::Patch, 4, SIZE_BYTES, folder.path()).unwrap();
        assert!(fleet.has_before());
        assert_eq!(blocks(&fleet).0, 4 * disk);
        fleet.write_patch().unwrap();
        assert_eq!(blocks(&fleet).0, 4 * disk - 3 * disk / 8, "an eighth is the same on all four");
    }

    #[test]
    fn images_of_a_corpus_are_clones_or_distinct() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Fleet::of_corpus(Kind::Clones, 2, folder.path()).is_err());
        for name in ["b.raw", "a.raw", "c.qcow2"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        let disks = |kind, count| {
            let fleet = Fleet::of_corpus(kind, count, folder.path()).unwrap()?;
            let names = fleet.vms().iter().map(|vm| vm.disk.file_name().unwrap().to_owned());
            Some(names.collect::<Vec<_>>())
        };
        assert_eq!(disks(Kind::Clones, 3).unwrap(), ["a.raw", "a.raw", "a.raw"]);
        assert_eq!(disks(Kind::Distinct, 5).unwrap(), ["a.raw", "b.raw"]);
        assert_eq!(disks(Kind::Patch, 2), None);
    }
}
