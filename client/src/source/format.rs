//! Formats of images of disks, told by name and by bytes together: a guest decides how its disk begins, and must not be able
//! to have it opened as an image that names files of the host.

use std::path::Path;

use clap::ValueEnum;

use super::{RawDisk, Source as _, SourceError};

/// How the bytes of a file or device are to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The bytes of the file or device are those of the disk
    Raw,
    /// QEMU, libvirt, Proxmox VE
    Qcow2,
    /// VMware
    Vmdk,
    /// VirtualBox
    Vdi,
    /// Virtual PC, Hyper-V, Xen: files called .vhd
    #[value(alias = "vhd")]
    Vpc,
    /// Hyper-V
    Vhdx,
}

/// Magic bytes at a file's beginning, or in a fixed VHD at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Magic {
    name: &'static str,
    /// `None` for what is recognised and not opened.
    format: Option<Format>,
    at: usize,
    bytes: &'static [u8],
}

/// Bytes that tell all of them, at the beginning and at the end.
const PROBE_BYTES: usize = 512;

const fn magic(name: &'static str, format: Option<Format>, at: usize, bytes: &'static [u8]) -> Magic {
    Magic { name, format, at, bytes }
}

/// From the formats' own specifications, as `qemu-img` reads them. The first that fits counts.
const MAGICS: [Magic; 14] = [
    magic("qcow2", Some(Format::Qcow2), 0, b"QFI\xfb\0\0\0\x02"),
    magic("qcow2", Some(Format::Qcow2), 0, b"QFI\xfb\0\0\0\x03"),
    magic("qcow", None, 0, b"QFI\xfb"),
    magic("QED", None, 0, b"QED\0"),
    magic("VMDK", Some(Format::Vmdk), 0, b"KDMV"),
    // An extent of ESX, which belongs to a descriptor.
    magic("ESX", None, 0, b"COWD"),
    magic("VMDK", Some(Format::Vmdk), 0, b"# Disk DescriptorFile"),
    magic("VDI", Some(Format::Vdi), 64, b"\x7f\x10\xda\xbe"),
    VHD,
    magic("VHDX", Some(Format::Vhdx), 0, b"vhdxfile"),
    magic("Parallels", None, 0, b"WithoutFreeSpace"),
    magic("Parallels", None, 0, b"WithouFreSpacExt"),
    magic("LUKS", None, 0, b"LUKS\xba\xbe"),
    magic("LUKS", None, 0, b"SKUL\xba\xbe"),
];

/// A fixed VHD begins with the disk's own bytes, and ends with these.
const VHD: Magic = magic("VHD", Some(Format::Vpc), 0, b"conectix");

impl Magic {
    pub(super) fn of(disk: &RawDisk) -> Result<Option<Self>, SourceError> {
        let mut probe = [0; PROBE_BYTES];
        let len = usize::try_from(disk.size_bytes()).map_or(PROBE_BYTES, |size| size.min(PROBE_BYTES));
        let probe = probe.get_mut(..len).unwrap_or_default();
        disk.read_at(0, probe)?;
        let head = Self::of_head(probe);
        if head.is_some() {
            return Ok(head);
        }
        disk.read_at(disk.size_bytes() - len as u64, probe)?;
        Ok(Some(VHD).filter(|vhd| probe.starts_with(vhd.bytes)))
    }

    /// The format of what begins with these bytes; `None` for anything else.
    pub(super) fn of_head(head: &[u8]) -> Option<Self> {
        MAGICS
            .into_iter()
            .find(|magic| head.get(magic.at..).is_some_and(|rest| rest.starts_with(magic.bytes)))
    }

    /// Why a disk that begins so is not backed up as it is.
    pub(super) fn refusal(self) -> String {
        let Self { name, format, .. } = self;
        let raw = "--format raw to back up the bytes as they are";
        match format {
            _ if name == "LUKS" => format!(
                "is encrypted by LUKS: its bytes neither compress nor have parts in common with others; back up the device \
                 that cryptsetup opens of it, or add {raw}"
            ),
            None => format!(
                "begins like a {name} image, whose bytes are not those of the disk in it, and which cannot be opened; \
                 convert it with 'qemu-img convert -O qcow2', or add {raw}"
            ),
            Some(format) => format!(
                "begins like a {name} image and is not called {}; add --format {} to back up the disk in it, or {raw}",
                format.endings().iter().map(|ending| format!(".{ending}")).collect::<Vec<_>>().join(" or "),
                format.word(),
            ),
        }
    }

    /// The same of what a server serves.
    pub(super) fn refusal_of_export(self) -> String {
        match self.name {
            "LUKS" => self.refusal(),
            name => format!(
                "serves the bytes of a {name} image, which are not those of the disk in it; let the server open the image \
                 (such as qemu-nbd --format), or add --format raw to back up the bytes as they are"
            ),
        }
    }
}

impl Format {
    /// Endings of the names of files of this format.
    const fn endings(self) -> &'static [&'static str] {
        match self {
            Self::Raw => &[],
            Self::Qcow2 => &["qcow2"],
            Self::Vmdk => &["vmdk"],
            Self::Vdi => &["vdi"],
            Self::Vpc => &["vhd", "vpc"],
            Self::Vhdx => &["vhdx"],
        }
    }

    /// QEMU's word for it, and that of the command line.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::Vdi => "vdi",
            Self::Vpc => "vpc",
            Self::Vhdx => "vhdx",
        }
    }

    pub(super) fn of_word(word: &[u8]) -> Option<Self> {
        Self::value_variants().iter().copied().find(|format| format.word().as_bytes() == word)
    }

    fn of_name(path: &Path) -> Option<Self> {
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        Self::value_variants().iter().copied().find(|format| format.endings().contains(&ending.as_str()))
    }

    /// The format of an open file or device: an image's only where its name and its bytes agree.
    ///
    /// # Errors
    /// [`SourceError::Image`] where only its bytes say that it is an image, [`SourceError::Damaged`] where only its name does.
    pub(super) fn of(path: &Path, disk: &RawDisk) -> Result<Self, SourceError> {
        let location = disk.location().to_owned();
        let (name, magic) = (Self::of_name(path), Magic::of(disk)?);
        match (name, magic) {
            (None, None) => Ok(Self::Raw),
            (Some(name), Some(Magic { format: Some(format), .. })) if name == format => Ok(format),
            (_, Some(magic)) => Err(SourceError::Image { location, why: magic.refusal() }),
            (Some(name), None) => {
                let why = format!(
                    "is called an image and does not begin like one of format {}: it may be damaged or cut off; add --format raw if \
                     its bytes are those of a disk",
                    name.word()
                );
                Err(SourceError::Damaged { location, why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_disks() {
        for magic in MAGICS {
            let Magic { at, bytes, .. } = magic;
            let mut head = vec![0; PROBE_BYTES];
            head[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(Magic::of_head(&head), Some(magic));
            let cut = Magic::of_head(&head[..at + bytes.len() - 1]);
            assert_eq!(cut.filter(|cut| cut.name == magic.name), None, "cut off");
        }
        let mut boot = vec![0; PROBE_BYTES];
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(Magic::of_head(&boot), None);
        assert_eq!(Magic::of_head(b""), None);
    }

    /// Returns the format of a file of this name that holds these bytes.
    fn of(name: &str, bytes: &[u8]) -> Result<Format, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let disk = RawDisk::open("d", &path).unwrap();
        Format::of(&path, &disk).map_err(|error| error.to_string())
    }

    #[test]
    fn an_image_is_opened_only_where_name_and_bytes_agree() {
        let mut fixed = vec![7; 2048];
        fixed[1536..1544].copy_from_slice(b"conectix");
        let mut vdi = vec![0; 512];
        vdi[64..68].copy_from_slice(b"\x7f\x10\xda\xbe");
        let images: [(&str, Format, &[u8]); 7] = [
            ("qcow2", Format::Qcow2, b"QFI\xfb\0\0\0\x03..."),
            ("vmdk", Format::Vmdk, b"KDMV..."),
            ("vmdk", Format::Vmdk, b"# Disk DescriptorFile\n"),
            ("vdi", Format::Vdi, &vdi),
            ("vhd", Format::Vpc, b"conectix..."),
            ("VHD", Format::Vpc, &fixed),
            ("vhdx", Format::Vhdx, b"vhdxfile..."),
        ];
        for (ending, format, bytes) in images {
            assert_eq!(of(&format!("disk.{ending}"), bytes), Ok(format));
            for name in ["disk.img", "disk", "disk.raw", "disk.qcow2.bak"] {
                let refused = of(name, bytes).unwrap_err();
                let hint = format!("--format {}", format.word());
                assert!(refused.contains(&hint) && refused.contains("--format raw"), "{name}: {refused}");
            }
            let other = if format == Format::Vdi { "disk.vhdx" } else { "disk.vdi" };
            assert!(of(other, bytes).unwrap_err().contains("is not called"));
            let raw = of(&format!("disk.{ending}"), &[7; 4096]).unwrap_err();
            assert!(raw.contains("does not begin like one"), "{raw}");
        }
        assert_eq!(of("disk.img", &[7; 4096]), Ok(Format::Raw));
        assert_eq!(of("disk", b""), Ok(Format::Raw));
        assert!(of("disk.qcow2", b"QFI\xfb\0\0\0\x01...").unwrap_err().contains("qemu-img convert"));
        assert!(of("disk.img", b"LUKS\xba\xbe\0\x02").unwrap_err().contains("encrypted by LUKS"));
    }
}
