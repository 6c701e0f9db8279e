//! Keys: a keyed hash of the fingerprint, so that namespaces never meet and no one can choose keys that
//! crowd one shard.

use holdfast_proto::fingerprint::Fingerprint;
use holdfast_types::ids::{ContainerClass, Location, NamespaceId};

use crate::format::sorted_run::{Entry, KEY_BYTES, SHARD_BITS, key_prefix, key_suffix};

/// What BLAKE3 derives namespace keys for; changing it makes every index unreadable.
const CONTEXT: &str = "holdfast index key v1";

/// First 96 bits of a keyed hash. 2⁹⁶ / (6 × 10⁹)² leaves one false candidate in 2 × 10⁹ full indexes, and a
/// candidate is verified anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey(pub [u8; KEY_BYTES]);

impl IndexKey {
    /// The first eight bytes as a number.
    pub(super) fn prefix(&self) -> u64 {
        key_prefix(&self.0)
    }

    /// The last four bytes as a number.
    pub(super) fn suffix(&self) -> u32 {
        key_suffix(&self.0)
    }

    /// Which shard holds it: 0 to 63.
    pub(super) fn shard(&self) -> usize {
        shard_of(self.prefix())
    }

    /// With where the chunk lies.
    pub(super) fn entry(self, location: Location) -> Entry {
        Entry { key: self.0, location: location.pack().into() }
    }
}

/// The shard of a key prefix.
pub(super) fn shard_of(prefix: u64) -> usize {
    usize::try_from(prefix >> (u64::BITS - SHARD_BITS)).unwrap_or(0)
}

/// What a namespace's keys are made with. Secret: who has it can tell which chunks a namespace holds.
#[derive(Clone)]
pub struct NamespaceKey([u8; 32]);

impl std::fmt::Debug for NamespaceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NamespaceKey")
    }
}

impl NamespaceKey {
    /// The key of `namespace` in the index with this secret. Each class of containers has one of its own: a disk
    /// that holds a copy of a recipe must not be answered with the recipe.
    pub(super) fn derive(secret: &[u8; 32], namespace: NamespaceId, class: ContainerClass) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        let class = match class {
            ContainerClass::Data => 0,
            ContainerClass::Recipe => 1,
        };
        hasher.update(secret).update(&namespace.to_bytes()).update(&[class]);
        Self(*hasher.finalize().as_bytes())
    }

    /// The index key of a fingerprint.
    pub fn of(&self, fingerprint: &Fingerprint) -> IndexKey {
        let hash = blake3::keyed_hash(&self.0, fingerprint.as_bytes());
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *hash.as_bytes();
        IndexKey([a, b, c, d, e, f, g, h, i, j, k, l])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    #[test]
    fn keys_are_pinned_and_differ_by_namespace_and_secret() {
        let fingerprint = Fingerprint::of(b"chunk");
        let of = |secret: u8, namespace: u128| {
            NamespaceKey::derive(&[secret; 32], NamespaceId(Ulid(namespace)), ContainerClass::Data)
                .of(&fingerprint)
        };
        assert_eq!(of(1, 2), of(1, 2));
        assert_ne!(of(1, 2), of(1, 3), "namespaces must not meet");
        assert_ne!(of(1, 2), of(2, 2));
        let recipes = NamespaceKey::derive(&[1; 32], NamespaceId(Ulid(2)), ContainerClass::Recipe);
        assert_ne!(of(1, 2), recipes.of(&fingerprint), "a chunk must not be answered with a recipe");
        let hex: String = of(1, 2).0.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "03349ea5b73c4a2d31bbe1dd");
    }
}
