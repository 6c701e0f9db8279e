//! Identifiers. ULIDs for rows of the catalog, so that several writers never collide; numbers for containers, because
//! the index stores one a chunk.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;

macro_rules! ulid_ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Ulid);

        impl $name {
            /// Creates it from its 16 bytes, most significant first.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Ulid::from_bytes(bytes))
            }

            /// Its 16 bytes, most significant first.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = ulid::DecodeError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ulid::from_string(text).map(Self)
            }
        }
    )*};
}

ulid_ids! {
    /// A repository; in every container's header, so that files of two repositories are never mixed.
    RepositoryId
    /// A tenant boundary and dedupe domain.
    NamespaceId
    /// A virtual machine within a namespace.
    VmId
    /// A named policy within a namespace.
    JobId
    /// One execution of a job.
    RunId
    /// A restore point of one VM.
    BackupId
    /// A backup in progress.
    SessionId
    /// An access token (its public part).
    TokenId
    /// A retention policy.
    PolicyId
    /// Long work that people or schedules start.
    TaskId
}

/// A container's number: reserved from the catalog, never used twice, below 2⁴⁰.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(u64);

impl ContainerId {
    /// Bits a container number has in the index: 10¹² containers of 32 MiB are 3 × 10¹⁹ bytes.
    pub const BITS: u32 = 40;

    /// Returns `None` if the number does not fit.
    pub const fn new(number: u64) -> Option<Self> {
        if number >> Self::BITS == 0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:010x}", self.0)
    }
}

impl fmt::Debug for ContainerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ContainerId({self})")
    }
}

/// The contents of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerClass {
    /// Chunks of disks.
    Data,
    /// Recipe nodes; always on the fastest tier.
    Recipe,
}

impl ContainerClass {
    /// Name in blob names, the catalog and metrics.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Recipe => "recipe",
        }
    }
}

/// Location of a chunk: container, region within it, slot within that. Packs into 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    pub container: ContainerId,
    /// Below 2¹²: a container of 32 MiB has at most 4,096 regions.
    pub region: u16,
    /// Below 2¹²: a region has at most 4,096 chunks.
    pub slot: u16,
}

impl Location {
    /// Bits of the region and slot numbers each.
    pub const PART_BITS: u32 = 12;

    /// Packs it into one number: container, region, slot from the most significant bits down.
    pub const fn pack(self) -> u64 {
        (self.container.get() << (2 * Self::PART_BITS))
            | ((self.region as u64) << Self::PART_BITS)
            | self.slot as u64
    }

    /// Inverse of [`Location::pack`]; every number is a location.
    pub const fn unpack(packed: u64) -> Self {
        const MASK: u64 = (1 << Location::PART_BITS) - 1;
        Self {
            container: ContainerId(packed >> (2 * Self::PART_BITS)),
            region: ((packed >> Self::PART_BITS) & MASK) as u16,
            slot: (packed & MASK) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_pack_without_loss() {
        let container = ContainerId::new((1 << ContainerId::BITS) - 1).unwrap();
        for location in [
            Location { container, region: 4095, slot: 0 },
            Location { container, region: 0, slot: 4095 },
            Location { container: ContainerId::new(7).unwrap(), region: 12, slot: 34 },
        ] {
            assert_eq!(Location::unpack(location.pack()), location);
        }
        assert_eq!(ContainerId::new(1 << ContainerId::BITS), None);
    }
}
