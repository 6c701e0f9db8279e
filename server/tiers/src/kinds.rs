//! Which blobs are copied, and in which order. The index is not: it is rebuilt of the containers. Parity is not: it
//! protects against a local disk.

use holdfast_volume::BlobName;

/// The folder of ends of containers, which are none of these kinds.
pub(crate) const ENDS: &str = "ends";

/// Kinds of blobs, in the order in which they are copied. (T1) Restore points come after what they need: containers, and
/// before these the keys that they are encrypted with, without which the bucket would not be one of a repository. Snapshots
/// of the catalog name restore points, so they come after those.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Whose the volume is: first, so that two repositories never mix in one place.
    Mark,
    Keys,
    Container,
    Point,
    Snapshot,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Mark, Self::Keys, Self::Container, Self::Point, Self::Snapshot];

    /// The folder that its blobs are in, or the name of its only blob.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Mark => "repository",
            Self::Container => "containers",
            Self::Keys => "keys",
            Self::Point => "points",
            Self::Snapshot => "snapshots",
        }
    }

    /// What `name` is; `None`: nothing that is copied.
    pub(crate) fn of(name: &BlobName) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| {
            let rest = name.as_str().strip_prefix(kind.text());
            match kind {
                Self::Mark => rest == Some(""),
                _ => rest.is_some_and(|rest| rest.starts_with('/')),
            }
        })
    }

    /// Its folder, as a name.
    pub(crate) fn folder(self) -> Option<BlobName> {
        BlobName::new(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_stays() {
        let kind = |text: &str| Kind::of(&BlobName::new(text).unwrap());
        assert_eq!(kind("repository"), Some(Kind::Mark));
        assert_eq!(kind("containers/0000000/0000000001.data-"), Some(Kind::Container));
        assert_eq!(kind("points/a/b/c.1-"), Some(Kind::Point));
        assert_eq!(kind("keys/00000000000000000001"), Some(Kind::Keys));
        for stays in ["index/manifest-1", "parity/1", "repository/x", "containers", "containersx/1"] {
            assert_eq!(kind(stays), None, "{stays}");
        }
        assert!(Kind::ALL.is_sorted());
    }
}
