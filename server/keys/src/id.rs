//! Ids and owners of keys.

use std::fmt;

use holdfast_types::ids::NamespaceId;

use crate::crypto::ID_BYTES;

macro_rules! key_ids {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; ID_BYTES]);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    )*};
}

key_ids! {
    /// Id of a data key: 128 bits derived from the key. It is plain in every blob, reveals nothing about the key or
    /// its owner, and tells only which blobs have the same key.
    DataKeyId
    /// Id of a repository key: 128 bits derived from the key and its repository. Not secret.
    RepositoryKeyId
}

/// Number of a data key among its owner's: counted from 1. For display.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyNumber(pub u32);

impl fmt::Display for KeyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Owner of a data key, whose blobs it seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// Data of one namespace: unreadable once its keys are gone.
    Namespace(NamespaceId),
    /// Data of no single namespace: catalog snapshots and the index.
    Repository,
}

/// Bytes of an owner.
pub(crate) const OWNER_BYTES: usize = 16;

impl Owner {
    /// The namespace's id, or zero, which is no namespace's.
    pub const fn to_bytes(self) -> [u8; OWNER_BYTES] {
        match self {
            Self::Namespace(namespace) => namespace.to_bytes(),
            Self::Repository => [0; OWNER_BYTES],
        }
    }

    pub fn from_bytes(bytes: [u8; OWNER_BYTES]) -> Self {
        if bytes == [0; OWNER_BYTES] {
            return Self::Repository;
        }
        Self::Namespace(NamespaceId::from_bytes(bytes))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
            Self::Repository => f.write_str("the repository"),
        }
    }
}
