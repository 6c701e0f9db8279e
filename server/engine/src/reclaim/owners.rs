//! Owners of chunks: 32 bits for each, joined in any order.
//!
//! A [`Share`] says which restore point a chunk is attributed to, and whether it is the only one, its VM the only VM and
//! its job the only job that have it. Of several VMs that share an extent, or several extents that share a chunk, one is
//! drawn by a hash of what is shared and of the VM, so each of *n* VMs is attributed one in *n* of what all of them
//! have; the same one every time, no matter which others come or go. Within a VM the oldest restore point has it. Shares never
//! split a byte, so sums are exact.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};

/// Restore points at most: numbers of 29 bits; 0 means no restore point.
const BACKUPS_MAX: u32 = (1 << 29) - 2;

const MANY_BACKUPS: u32 = 1 << 31;
const MANY_VMS: u32 = 1 << 30;
const MANY_JOBS: u32 = 1 << 29;
const NUMBER: u32 = MANY_JOBS - 1;

/// A restore point that things may be attributed to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) backup: BackupId,
    pub(super) namespace: NamespaceId,
    pub(super) vm: VmId,
    pub(super) job: String,
}

/// All restore points, those of one VM together and oldest first.
#[derive(Debug, Default)]
pub(super) struct Holders {
    all: Vec<Holder>,
    numbers: HashMap<BackupId, u32>,
    /// A number for each job of a namespace, beside each holder.
    jobs: Vec<u32>,
}

impl Holders {
    /// `None`: there are too many.
    pub(super) fn new(all: Vec<Holder>) -> Option<Self> {
        if all.len() > BACKUPS_MAX as usize {
            return None;
        }
        let mut names: HashMap<(NamespaceId, &str), u32> = HashMap::new();
        let mut jobs = Vec::with_capacity(all.len());
        for holder in &all {
            let next = u32::try_from(names.len()).ok()?;
            jobs.push(*names.entry((holder.namespace, &holder.job)).or_insert(next));
        }
        let numbers = (1u32..).zip(&all).map(|(number, holder)| (holder.backup, number)).collect();
        Some(Self { all, numbers, jobs })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The share of what only this restore point has.
    pub(super) fn share_of(&self, backup: BackupId) -> Option<Share> {
        self.numbers.get(&backup).map(|number| Share(*number))
    }

    /// Place among all of the restore point that a share names.
    pub(super) const fn place(share: Share) -> Option<usize> {
        match share.0 & NUMBER {
            0 => None,
            number => Some(number as usize - 1),
        }
    }

    pub(super) fn get(&self, place: usize) -> Option<&Holder> {
        self.all.get(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Holder> {
        self.all.iter()
    }

    /// Joins two shares of what is called `name`. Joining is commutative and associative, and joining the same again
    /// changes nothing, so neither threads nor the order of the walk show in the result.
    pub(super) fn join(&self, name: &Fingerprint, one: Share, other: Share) -> Share {
        let (Some(a), Some(b)) = (Self::place(one), Self::place(other)) else {
            return if Self::place(one).is_none() { other } else { one };
        };
        let mut flags = (one.0 | other.0) & !NUMBER;
        let (Some(of_a), Some(of_b)) = (self.all.get(a), self.all.get(b)) else { return one };
        if a != b {
            flags |= MANY_BACKUPS;
        }
        if of_a.vm != of_b.vm {
            flags |= MANY_VMS;
        }
        if self.jobs.get(a) != self.jobs.get(b) {
            flags |= MANY_JOBS;
        }
        let order = |holder: &Holder, place: usize| (lot(name, holder.vm), place);
        let first = if order(of_a, a) <= order(of_b, b) { one } else { other };
        Share(first.0 & NUMBER | flags)
    }
}

/// Number drawn by a VM for `name`; the lowest wins.
fn lot(name: &Fingerprint, vm: VmId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *name.as_bytes();
    let bytes = vm.to_bytes();
    let (high, low) = bytes.split_at(8);
    let word = |half: &[u8]| half.iter().fold(0u64, |word, byte| word << 8 | u64::from(*byte));
    mix(u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ mix(word(low) ^ mix(word(high))))
}

/// The finalizer of SplitMix64: every bit of the input turns half of the output's.
pub(crate) const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Owner of a chunk or node, and whether it has others, in 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Share(u32);

impl Share {
    pub(super) const fn has_one_backup(self) -> bool {
        self.0 & MANY_BACKUPS == 0
    }

    pub(super) const fn has_one_vm(self) -> bool {
        self.0 & MANY_VMS == 0
    }

    pub(super) const fn has_one_job(self) -> bool {
        self.0 & MANY_JOBS == 0
    }
}

/// Shares of all chunks of a container.
#[derive(Debug)]
pub(super) struct ShareList(Box<[AtomicU32]>);

impl ShareList {
    pub(super) fn new(chunks: u32) -> Self {
        Self((0..chunks).map(|_| AtomicU32::new(0)).collect())
    }

    pub(super) fn get(&self, number: u32) -> Share {
        Share(self.0.get(number as usize).map_or(0, |share| share.load(Ordering::Relaxed)))
    }

    /// Joins `share` into that of a chunk called `name`.
    pub(super) fn join(&self, holders: &Holders, number: u32, name: &Fingerprint, share: Share) {
        let Some(slot) = self.0.get(number as usize) else { return };
        let mut known = slot.load(Ordering::Relaxed);
        loop {
            let joined = holders.join(name, Share(known), share);
            if joined == Share(known) {
                return;
            }
            match slot.compare_exchange_weak(known, joined.0, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => known = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ulid::Ulid;

    use super::*;

    /// `vms` VMs with `each` restore points, alternating between two jobs.
    fn holders(vms: u128, each: u128) -> Holders {
        let holder = |vm: u128, number: u128| Holder {
            backup: BackupId(Ulid(vm * 1000 + number)),
            namespace: NamespaceId(Ulid(1)),
            vm: VmId(Ulid(vm)),
            job: format!("job-{}", number % 2),
        };
        let all = (0..vms).flat_map(|vm| (0..each).map(move |number| holder(vm, number)));
        Holders::new(all.collect()).unwrap()
    }

    fn share(number: u32) -> Share {
        Share(number + 1)
    }

    proptest! {
        #[test]
        fn joining_is_the_same_in_any_order(
            backups in proptest::collection::vec(0u32..12, 1..8),
            cut in 0usize..8,
            name in any::<u64>(),
        ) {
            let holders = holders(4, 3);
            let name = Fingerprint::of(&name.to_le_bytes());
            let joined = |numbers: &[u32]| numbers.iter()
                .fold(Share::default(), |all, number| holders.join(&name, all, share(*number)));
            let whole = joined(&backups);
            let mut backwards = backups.clone();
            backwards.reverse();
            prop_assert_eq!(joined(&backwards), whole);
            let (one, other) = backups.split_at(cut.min(backups.len()));
            prop_assert_eq!(holders.join(&name, joined(one), joined(other)), whole);
            prop_assert_eq!(holders.join(&name, whole, whole), whole);
            let distinct = |of: &dyn Fn(&u32) -> u32| {
                backups.iter().map(of).collect::<std::collections::HashSet<_>>().len() == 1
            };
            prop_assert_eq!(whole.has_one_backup(), distinct(&|number| *number));
            prop_assert_eq!(whole.has_one_vm(), distinct(&|number| number / 3));
            prop_assert_eq!(whole.has_one_job(), distinct(&|number| number % 3 % 2));
            // The oldest restore point among those of the owner's VM.
            let owner = u32::try_from(Holders::place(whole).unwrap()).unwrap();
            let of_vm = backups.iter().filter(|number| **number / 3 == owner / 3).min();
            prop_assert_eq!(of_vm, Some(&owner));
        }
    }

    #[test]
    fn what_three_vms_share_is_divided_evenly() {
        let holders = holders(3, 1);
        let mut won = [0u32; 3];
        for number in 0..30_000u32 {
            let name = Fingerprint::of(&number.to_le_bytes());
            let all = (0..3).fold(Share::default(), |all, vm| holders.join(&name, all, share(vm)));
            won[Holders::place(all).unwrap()] += 1;
        }
        // Three standard deviations of 82.
        assert!(won.iter().all(|count| count.abs_diff(10_000) < 250), "{won:?}");
    }
}
