//! Where a point lies: `points/NAMESPACE/VM/BACKUP.REVISION`.
//!
//! Namespaces and VMs are called what people like, which may be a secret that names of files do not keep where
//! everything else is encrypted. So each folder is a hash: of the namespace's id, and of that and the VM's name. (Who
//! guesses a name can tell that he is right.) What counts is in the point, and the last part of the name: the folders
//! are only places, and those of earlier versions, which show names, are as good.

use holdfast_catalog::{NamespaceRecord, PointRecord};
use holdfast_types::ids::BackupId;
use holdfast_volume::BlobName;

/// Hex digits of a folder.
const FOLDER_DIGITS: usize = 32;

/// A restore point's revision, as a name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PointName {
    pub(crate) backup: BackupId,
    pub(crate) revision: u32,
}

/// The folder of all points.
#[expect(clippy::expect_used, reason = "a constant")]
pub(crate) fn folder() -> BlobName {
    BlobName::new("points").expect("a valid name")
}

/// Whether all folders below that of all points, which `name` is in or is, are hashes; those of earlier versions show names.
pub(super) fn is_hashed(name: &BlobName) -> bool {
    let is_hash = |part: &str| {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        part.len() == FOLDER_DIGITS && part.bytes().all(is_digit)
    };
    name.as_str().split('/').skip(1).take(2).all(is_hash)
}

impl PointName {
    /// `None` when it is no point's name.
    pub(crate) fn parse(name: &BlobName) -> Option<Self> {
        let mut parts = name.as_str().split('/');
        let (Some("points"), Some(_), Some(_), Some(last), None) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        let (backup, revision) = last.split_once('.')?;
        let backup: BackupId = backup.to_ascii_uppercase().parse().ok()?;
        let revision = revision.parse().ok().filter(|revision| *revision > 0)?;
        // Other ways of writing the same are no names of points.
        let found = Self { backup, revision };
        (found.last() == last).then_some(found)
    }

    fn last(self) -> String {
        format!("{}.{}", self.backup.to_string().to_ascii_lowercase(), self.revision)
    }

    /// The whole name: 7 + 2 × 33 + 26 + 11 bytes at most, well below a blob name's 200.
    #[expect(clippy::expect_used, reason = "made of what a name may have")]
    pub(crate) fn blob(self, point: &PointRecord) -> BlobName {
        let folder = vm_folder(&point.namespace, &point.attempt.vm);
        BlobName::new(format!("{folder}/{}", self.last())).expect("a valid name")
    }
}

/// The folder of a VM's points.
#[expect(clippy::expect_used, reason = "made of what a name may have")]
pub(crate) fn vm_folder(namespace: &NamespaceRecord, vm: &str) -> BlobName {
    let namespace = namespace.id.to_bytes();
    let of_namespace = digits(&[&namespace]);
    let of_vm = digits(&[&namespace, vm.as_bytes()]);
    BlobName::new(format!("points/{of_namespace}/{of_vm}")).expect("a valid name")
}

fn digits(identity: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in identity {
        hasher.update(part);
    }
    hasher.finalize().to_hex().chars().take(FOLDER_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::point;
    use super::*;

    #[test]
    fn every_name_has_a_place_of_its_own_that_reads_back() {
        let mut places = std::collections::HashSet::new();
        let long = "é".repeat(100);
        for vm in
            ["web", "Web", "wEB", "..", ".", "a/b", "a_b", "ä", "ö", &long, &"x".repeat(200), "web-1", "日本"]
        {
            let mut point = point(1, "default");
            vm.clone_into(&mut point.attempt.vm);
            let name = PointName { backup: point.backup, revision: u32::MAX };
            let blob = name.blob(&point);
            assert_eq!(PointName::parse(&blob), Some(name), "{blob}");
            assert!(places.insert(blob.as_str().to_owned()), "{blob}");
        }
    }

    #[test]
    fn the_place_is_stable() {
        let mut point = point(1, "Berlin & Köln");
        "Web-01.example".clone_into(&mut point.attempt.vm);
        let blob = PointName { backup: point.backup, revision: 1 }.blob(&point);
        assert_eq!(
            blob.as_str(),
            "points/fbba95c3072150b37c7f8873a280a82f/f0bced293751cbb05003659cf4fd744e/01hf7yat000000000000000001.1"
        );
    }

    #[test]
    fn folders_that_show_names_are_told_from_hashes() {
        let is = |text: &str| is_hashed(&BlobName::new(text).unwrap());
        let (hash, id) = ("f0bced293751cbb05003659cf4fd744e", "01hf000000000000000000000z");
        assert!(is("points") && is(&format!("points/{hash}")) && is(&format!("points/{hash}/{hash}/{id}.1")));
        for (namespace, vm) in [("default-1c2d", hash), (hash, "web-1-3c4d"), (hash, "f0bc")] {
            assert!(!is(&format!("points/{namespace}/{vm}/{id}.1")), "{namespace}/{vm}");
        }
    }

    #[test]
    fn nothing_else_is_a_point() {
        let id = "01hf000000000000000000000z";
        let is = |text: &str| PointName::parse(&BlobName::new(text).unwrap()).is_some();
        assert!(is(&format!("points/n/v/{id}.1")));
        for other in [
            format!("points/n/{id}.1"),
            format!("points/n/v/w/{id}.1"),
            format!("point/n/v/{id}.1"),
            format!("points/n/v/{id}"),
            format!("points/n/v/{id}.0"),
            format!("points/n/v/{id}.01"),
            format!("points/n/v/{id}.1.1"),
            format!("points/n/v/{id}.4294967296"),
            format!("points/n/v/9{}.1", id.get(1..).unwrap()),
            format!("points/n/v/{}.1", id.get(1..).unwrap()),
        ] {
            assert!(!is(&other), "{other}");
        }
    }
}
