//! What keys are called, and whose they are.

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
    /// Names a data key: 128 bits made of the key. They are in the open in every blob, say nothing of the key or its
    /// owner, and tell only which blobs have the same key.
    DataKeyId
    /// Names a repository key: 128 bits made of the key and its repository. May be seen by anyone.
    RepositoryKeyId
}

/// Which of an owner's data keys: from 1 on, each new one the next. For people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyNumber(pub u32);

impl fmt::Display for KeyNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Whose blobs a data key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// What tells of one namespace: unreadable once its keys are gone.
    Namespace(NamespaceId),
    /// What belongs to no single namespace: catalog snapshots and the index.
    Repository,
}

/// Bytes of an owner.
pub(crate) const OWNER_BYTES: usize = 16;

impl Owner {
    /// A namespace's id, or zero, which is no namespace's.
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
