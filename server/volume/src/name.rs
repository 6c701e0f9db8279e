//! Names of blobs.

use std::fmt;

/// A blob's name: `/`-separated segments of `a–z`, `0–9`, `.`, `_` and `-`, none of them beginning with a
/// dot, 200 bytes at most. So no name leaves the volume and none collides with temporary files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobName(String);

impl BlobName {
    /// Returns `None` if the text breaks the rule above.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let segment_is_fine = |segment: &str| {
            !segment.is_empty()
                && !segment.starts_with('.')
                && segment.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-'))
        };
        (text.len() <= 200 && text.split('/').all(segment_is_fine)).then_some(Self(text))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the blob is in `folder`, at any depth.
    pub fn is_inside(&self, folder: &Self) -> bool {
        self.0.strip_prefix(folder.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_stay_inside_the_volume() {
        for good in ["a", "a/b/c.data", "0-9_z.x", &"x".repeat(200)] {
            assert_eq!(BlobName::new(good).unwrap().as_str(), good);
        }
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", ".tmp/x", "A", "a b", "ä", "a\\b", "a\0"]
        {
            assert_eq!(BlobName::new(bad), None, "{bad:?}");
        }
        assert_eq!(BlobName::new("x".repeat(201)), None);
    }

    #[test]
    fn inside_a_folder() {
        let name = |text| BlobName::new(text).unwrap();
        assert!(name("c/x").is_inside(&name("c")) && name("c/d/x").is_inside(&name("c")));
        for outside in ["c", "c-1/x", "c2/x", "b/c/x"] {
            assert!(!name(outside).is_inside(&name("c")), "{outside}");
        }
    }
}
