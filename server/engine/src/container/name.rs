//! Where a container lies: `containers/GROUP/ID.data` or `.recipe`, `ID` in ten and `GROUP` (`ID` without its
//! last 12 bits, so that no folder grows beyond 4,096 containers) in seven hexadecimal digits.

use holdfast_types::ids::{ContainerClass, ContainerId};
use holdfast_volume::{BlobName, Volume, VolumeError, list_all};

const FOLDER: &str = "containers";
const GROUP_BITS: u32 = 12;

/// A container's identity, as its name tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerName {
    pub id: ContainerId,
    pub class: ContainerClass,
}

const fn suffix(class: ContainerClass) -> &'static str {
    match class {
        ContainerClass::Data => "data",
        ContainerClass::Recipe => "recipe",
    }
}

impl ContainerName {
    /// The blob that holds the container.
    #[expect(clippy::expect_used, reason = "letters, hexadecimal digits, dot and slash always make a name")]
    pub fn blob(self) -> BlobName {
        let group = self.id.get() >> GROUP_BITS;
        BlobName::new(format!("{FOLDER}/{group:07x}/{}.{}", self.id, suffix(self.class)))
            .expect("a valid name")
    }

    /// The container that `blob` holds; `None` when it is not exactly the name of one.
    pub fn parse(blob: &BlobName) -> Option<Self> {
        let (_, file) = blob.as_str().rsplit_once('/')?;
        let (number, class) = file.split_once('.')?;
        let class =
            [ContainerClass::Data, ContainerClass::Recipe].into_iter().find(|c| suffix(*c) == class)?;
        let id = ContainerId::new(u64::from_str_radix(number, 16).ok()?)?;
        let name = Self { id, class };
        (name.blob() == *blob).then_some(name)
    }
}

/// What lies in the containers' folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerListing {
    /// With their lengths in bytes, by number.
    pub containers: Vec<(ContainerName, u64)>,
    /// Blobs that are no containers by their name.
    pub strays: Vec<BlobName>,
}

/// Lists every container of a volume.
///
/// # Errors
/// When the volume cannot be listed.
#[expect(clippy::expect_used, reason = "a constant")]
pub fn list_containers(volume: &dyn Volume) -> Result<ContainerListing, VolumeError> {
    let folder = BlobName::new(FOLDER).expect("a valid name");
    let mut listing = ContainerListing::default();
    for entry in list_all(volume, &folder) {
        let entry = entry?;
        match ContainerName::parse(&entry.name) {
            Some(name) => listing.containers.push((name, entry.len)),
            None => listing.strays.push(entry.name),
        }
    }
    listing.containers.sort_unstable();
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::MemoryVolume;
    use holdfast_volume::testing::put;

    fn name(number: u64, class: ContainerClass) -> ContainerName {
        ContainerName { id: ContainerId::new(number).unwrap(), class }
    }

    #[test]
    fn names_round_trip() {
        let text = name(0x12345, ContainerClass::Recipe).blob().to_string();
        assert_eq!(text, "containers/0000012/0000012345.recipe");
        for number in [0, 1, 4095, 4096, (1 << ContainerId::BITS) - 1] {
            for class in [ContainerClass::Data, ContainerClass::Recipe] {
                let name = name(number, class);
                assert_eq!(ContainerName::parse(&name.blob()), Some(name));
            }
        }
    }

    #[test]
    fn what_is_nearly_a_name_is_a_stray() {
        let volume = MemoryVolume::new();
        let strays = [
            "containers/0000000/0000000001.dat",
            "containers/0000000/0000001000.data",
            "containers/0000000/00000000fg.data",
            "containers/0000000/1.data",
            "containers/0000000/x/0000000001.data",
        ];
        for stray in strays {
            put(&volume, stray, b"");
        }
        put(&volume, "containers/0000001/0000001000.recipe", b"12");
        put(&volume, "containers/0000000/0000000fff.data", b"1");
        let listing = list_containers(&volume).unwrap();
        let expected = [(name(0xfff, ContainerClass::Data), 1), (name(0x1000, ContainerClass::Recipe), 2)];
        assert_eq!(listing.containers, expected);
        assert_eq!(listing.strays.len(), strays.len());
    }
}
