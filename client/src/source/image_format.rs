//! Formats of images of disks, told by their first bytes.

/// Bytes that tell all of them.
pub(super) const HEAD_BYTES: usize = 512;

/// Bytes that an image of each format begins with, and their offset: the formats' own specifications, as `qemu-img` reads them.
const FORMATS: [(&str, usize, &[u8]); 10] = [
    ("qcow2", 0, b"QFI\xfb"),
    ("QED", 0, b"QED\0"),
    ("VMDK", 0, b"KDMV"),
    ("VMDK", 0, b"COWD"),
    ("VMDK", 0, b"# Disk DescriptorFile"),
    ("VDI", 64, b"\x7f\x10\xda\xbe"),
    // Of a fixed VHD, which begins with the disk's own bytes, only the last sector tells.
    ("VHD", 0, b"conectix"),
    ("VHDX", 0, b"vhdxfile"),
    ("Parallels", 0, b"WithoutFreeSpace"),
    ("Parallels", 0, b"WithouFreSpacExt"),
];

/// The format of the image that begins with these bytes; `None` for anything else.
pub(super) fn image_format(head: &[u8]) -> Option<&'static str> {
    let begins = |at: usize, magic: &[u8]| head.get(at..).is_some_and(|rest| rest.starts_with(magic));
    FORMATS.iter().find(|(_, at, magic)| begins(*at, magic)).map(|(format, _, _)| *format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_disks() {
        for (format, at, magic) in FORMATS {
            let mut head = vec![0; HEAD_BYTES];
            head[at..at + magic.len()].copy_from_slice(magic);
            assert_eq!(image_format(&head), Some(format));
            assert_eq!(image_format(&head[..at + magic.len() - 1]), None, "cut off");
        }
        let mut boot = vec![0; HEAD_BYTES];
        boot[510..].copy_from_slice(&[0x55, 0xAA]);
        assert_eq!(image_format(&boot), None);
        assert_eq!(image_format(b""), None);
    }
}
