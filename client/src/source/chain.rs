//! Files that an image consists of: itself, what it is based on, where its data are.
//!
//! An image may name any file of the host, or an address on the network, and QEMU would open it. So the names are read here
//! first and checked, and QEMU is then told every file by the path that was checked. It is not left to find them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::format::Format;
use super::{RawDisk, Source as _, SourceError};

/// Images that may be based on each other: more than any hypervisor makes, and a circle ends here.
const CHAIN_MAX: usize = 64;
/// Files that a split VMDK may have: 512 GB in pieces of 2 GB.
const EXTENTS_MAX: usize = 256;
/// Largest descriptor of a VMDK, and most that QEMU reads of one.
const DESCRIPTOR_MAX: u64 = 1 << 20;
/// Bytes in which QEMU looks for the parent, however long the descriptor says it is.
const DESCRIPTOR_MIN: u64 = 20 * 512;

/// References of an image to other files.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    /// Backing file, and its format if the image says so.
    backing: Option<(String, Option<String>)>,
    /// File that has its data (qcow2).
    data: Option<Part>,
    /// Where its parts are (VMDK).
    extents: Vec<Part>,
}

/// A file that holds a disk's data, or a part of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Part {
    name: String,
    /// Bytes it must have at least; QEMU reads zeros beyond its end.
    len: u64,
}

/// Why an image is not opened.
#[derive(Debug)]
enum Why {
    /// It cannot be read; the VM's other disks can.
    Damaged(String),
    /// The command line must say what is meant, or it is not to be opened at all.
    Refused(String),
}

fn damaged(why: impl Into<String>) -> Why {
    Why::Damaged(why.into())
}

fn refused(why: &str) -> Why {
    Why::Refused(why.to_owned())
}

/// Files of an image, all open, and how QEMU is told to open them.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) files: Vec<RawDisk>,
    pub(super) node: Value,
}

/// Follows an image's names.
struct Follower<'a> {
    disk: &'a str,
    /// The first image's folder, in which other files may be; `None` for a device: what lies beside it is not its own.
    folder: Option<PathBuf>,
    allow_backing: bool,
    files: Vec<RawDisk>,
}

impl Chain {
    /// Opens all files of the image at `path`, which is open already.
    ///
    /// # Errors
    /// [`SourceError::Image`] for a file that is not to be opened, or a damaged image; any other when one cannot be read.
    pub(super) fn open(
        path: &Path,
        file: RawDisk,
        format: Format,
        allow_backing: bool,
    ) -> Result<Self, SourceError> {
        let path = std::path::absolute(path).map_err(|error| SourceError::open(path, error))?;
        let folder = folder_of(&path).canonicalize().map_err(|error| SourceError::open(&path, error))?;
        let folder = Some(folder).filter(|_| !file.is_device());
        let disk = file.name().to_owned();
        let mut follower = Follower { disk: &disk, folder, allow_backing, files: Vec::new() };
        let node = follower.follow(&path, file, format, 1)?;
        Ok(Self { files: follower.files, node })
    }
}

impl Follower<'_> {
    /// Opens what an image names, and returns how QEMU is to open it.
    fn follow(
        &mut self,
        path: &Path,
        file: RawDisk,
        format: Format,
        depth: usize,
    ) -> Result<Value, SourceError> {
        let names = names_of(&file, format)?;
        let mut node = json!({ "driver": format.word(), "file": protocol(path, &file)? });
        let refused = |why: String| SourceError::Image { location: path.display().to_string(), why };
        if format == Format::Vpc {
            // Otherwise QEMU takes the size from cylinders and heads for some programs' images, which may be smaller.
            add(&mut node, "force_size_calc", "current_size".into());
        }
        if names.extents.len() > EXTENTS_MAX {
            let count = names.extents.len();
            return Err(refused(format!("has {count} parts; the most that can be read are {EXTENTS_MAX}")));
        }
        for Part { name, len } in &names.extents {
            let opened = RawDisk::open(self.disk, &self.resolve(path, name)?)?;
            if is_descriptor(&read(&opened, 0, 512)?) {
                return Err(refused(format!("has a part, {name}, that has parts again")));
            }
            check_len(path, &opened, name, *len)?;
            self.files.push(opened);
        }
        if let Some(Part { name, len }) = &names.data {
            let data = self.resolve(path, name)?;
            let opened = RawDisk::open(self.disk, &data)?;
            check_len(path, &opened, name, *len)?;
            add(&mut node, "data-file", protocol(&data, &opened)?);
            self.files.push(opened);
        }
        let backing = match &names.backing {
            None => Value::Null,
            Some(_) if depth == CHAIN_MAX => {
                return Err(refused(format!("is the {CHAIN_MAX}th of a chain of images, which goes on")));
            }
            Some((name, told)) => {
                let backing = self.resolve(path, name)?;
                let opened = RawDisk::open(self.disk, &backing)?;
                let format = match told {
                    None => Format::of(&backing, &opened)?,
                    Some(told) => Format::of_word(told.as_bytes()).ok_or_else(|| {
                        refused(format!("is based on {name}, of format {told}, which cannot be opened"))
                    })?,
                };
                self.follow(&backing, opened, format, depth + 1)?
            }
        };
        if matches!(format, Format::Qcow2 | Format::Vmdk) {
            add(&mut node, "backing", backing);
        }
        self.files.push(file);
        Ok(node)
    }

    /// The path that a name means in the image at `from`.
    fn resolve(&self, from: &Path, name: &str) -> Result<PathBuf, SourceError> {
        let refused = |why: &str| {
            let location = from.display().to_string();
            SourceError::Image {
                location,
                why: format!("needs {:?}, {why}", holdfast_proto::details::escape_line(name)),
            }
        };
        let protocol =
            name.find(':').is_some_and(|colon| !name.get(..colon).unwrap_or_default().contains('/'));
        if protocol || name.is_empty() || name.contains('\0') {
            return Err(refused(
                "which is not the path of a file; only files and devices of this machine are opened",
            ));
        }
        let path = folder_of(from).join(name);
        // Links are followed first: one in the folder may lead out of it.
        let real = path.canonicalize().map_err(|error| SourceError::open(&path, error))?;
        let is_beside = self.folder.as_ref().is_some_and(|folder| real.starts_with(folder));
        if !self.allow_backing && !is_beside {
            return Err(refused(
                "which is outside the image's folder; if you know that the image may use it, add --allow-backing",
            ));
        }
        Ok(real)
    }
}

/// A file that is cut off would be read as zeros from there on.
fn check_len(image: &Path, file: &RawDisk, name: &str, len: u64) -> Result<(), SourceError> {
    if file.size_bytes() < len {
        let why = format!("is cut off: its part {name} must have {len} bytes");
        return Err(SourceError::Damaged { location: image.display().to_string(), why });
    }
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn add(node: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = node {
        fields.insert(key.to_owned(), value);
    }
}

/// How QEMU opens the bytes of a file or device.
fn protocol(path: &Path, file: &RawDisk) -> Result<Value, SourceError> {
    let driver = if file.is_device() { "host_device" } else { "file" };
    let text = path.to_str().ok_or_else(|| {
        SourceError::Argument(format!(
            "{}: QEMU takes no path that is not valid UTF-8; rename it",
            path.display()
        ))
    })?;
    Ok(json!({ "driver": driver, "filename": text }))
}

fn names_of(file: &RawDisk, format: Format) -> Result<Names, SourceError> {
    let found = match format {
        Format::Qcow2 => qcow2(file)?,
        Format::Vmdk => vmdk(file)?,
        Format::Vpc => vhd(file)?,
        Format::Vdi => vdi(file)?,
        // QEMU knows no differences in these, and refuses an image of them.
        Format::Raw | Format::Vhdx => Ok(Names::default()),
    };
    let location = file.location().to_owned();
    found.map_err(|why| match why {
        Why::Damaged(why) => SourceError::Damaged { location, why },
        Why::Refused(why) => SourceError::Image { location, why },
    })
}

/// Bytes of a file from `offset` on; fewer where it ends before.
fn read(file: &RawDisk, offset: u64, len: u64) -> Result<Vec<u8>, SourceError> {
    let len = len.min(file.size_bytes().saturating_sub(offset));
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    file.read_at(offset, &mut bytes)?;
    Ok(bytes)
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_be_bytes)
}

fn text(bytes: Option<&[u8]>) -> Result<String, Why> {
    let bytes = bytes.ok_or_else(|| damaged("is damaged: a name reaches beyond its header"))?;
    String::from_utf8(bytes.to_vec()).map_err(|_| refused("names a file whose name is not valid UTF-8"))
}

type Found = Result<Result<Names, Why>, SourceError>;

/// All names are in the first cluster.
fn qcow2(file: &RawDisk) -> Found {
    let head = read(file, 0, 104)?;
    let cluster_bits = be32(&head, 20).filter(|bits| (9..=21).contains(bits));
    let Some(cluster_bits) = cluster_bits.filter(|_| head.len() == 104 && head.starts_with(b"QFI\xfb"))
    else {
        return Ok(Err(damaged("is damaged: it does not begin like a qcow2 image")));
    };
    Ok(qcow2_names(&read(file, 0, 1 << cluster_bits)?))
}

fn qcow2_names(cluster: &[u8]) -> Result<Names, Why> {
    const CORRUPT: u64 = 1 << 1;
    const EXTERNAL_DATA: u64 = 1 << 2;
    /// Among the features that a program need not know: the file with the data is the whole disk.
    const RAW_DATA: u64 = 1 << 1;
    let cut_off = || damaged("is damaged: its header is cut off");
    let field = |at| be32(cluster, at).ok_or_else(cut_off);
    let field64 = |at| bytes_at(cluster, at).map(u64::from_be_bytes).ok_or_else(cut_off);
    let version = field(4)?;
    if !(2..=3).contains(&version) {
        return Err(refused(&format!("is a qcow image of version {version}, which cannot be opened")));
    }
    if field(32)? != 0 {
        return Err(refused(
            "is encrypted: only a machine that has the key can read the disk in it; back up the disk as that machine sees it, or \
             add --format raw to back up the image as it is",
        ));
    }
    let (backing_at, backing_len) = (field64(8)?, field(16)?);
    let (features, others, mut at) =
        if version == 2 { (0, 0, 72) } else { (field64(72)?, field64(88)?, field(100)? as usize) };
    // Otherwise it ends with the last cluster that was written.
    let data_len = if others & RAW_DATA == 0 { 0 } else { field64(24)? };
    if features & CORRUPT != 0 {
        return Err(damaged("is marked as corrupt: repair a copy of it with 'qemu-img check -r all'"));
    }
    let (mut backing_format, mut data) = (None, None);
    loop {
        let (kind, len) =
            (be32(cluster, at).unwrap_or(0), be32(cluster, at.saturating_add(4)).unwrap_or(0) as usize);
        let body = cluster.get(at.saturating_add(8)..).and_then(|rest| rest.get(..len));
        match kind {
            0 => break,
            0xE279_2ACA => backing_format = Some(text(body)?),
            0x4441_5441 => data = Some(Part { name: text(body)?, len: data_len }),
            _ => {}
        }
        at = at.saturating_add(8).saturating_add(len.saturating_add(7) & !7);
    }
    if features & EXTERNAL_DATA == 0 {
        data = None;
    } else if data.is_none() {
        return Err(refused("keeps its data in another file and does not say in which"));
    }
    let backing = (backing_at != 0)
        .then(|| {
            let start = usize::try_from(backing_at).map_err(|_| cut_off())?;
            text(cluster.get(start..).and_then(|rest| rest.get(..backing_len as usize)))
        })
        .transpose()?
        .map(|name| (name, backing_format));
    Ok(Names { backing, data, extents: Vec::new() })
}

/// A VMDK without a capacity is a descriptor of parts, though it begins like one of them.
fn is_descriptor(head: &[u8]) -> bool {
    head.starts_with(b"KDMV") && bytes_at(head, 12) == Some([0; 8])
}

/// The descriptor is the file, or lies in the first of its parts.
fn vmdk(file: &RawDisk) -> Found {
    let head = read(file, 0, 512)?;
    let field = |at| bytes_at(&head, at).map_or(0, u64::from_le_bytes);
    let (start, len, has_extents) = if head.starts_with(b"KDMV") {
        // With a capacity, what the descriptor names is this very file, as it was called once.
        (field(28).saturating_mul(512), field(36).saturating_mul(512), is_descriptor(&head))
    } else if head.starts_with(b"# Disk DescriptorFile") {
        (0, file.size_bytes(), true)
    } else {
        return Ok(Err(damaged("is damaged: it does not begin like a VMDK image")));
    };
    if len > DESCRIPTOR_MAX {
        return Ok(Err(damaged(format!("is damaged: its descriptor is {len} bytes long"))));
    }
    // Of a descriptor of parts QEMU reads as much as there is, whatever its header says.
    let most = if has_extents { DESCRIPTOR_MAX } else { len.max(DESCRIPTOR_MIN) };
    let mut descriptor = read(file, start, most)?;
    descriptor.truncate(descriptor.iter().position(|byte| *byte == 0).unwrap_or(descriptor.len()));
    let text = String::from_utf8_lossy(&descriptor);
    if has_extents && matches!(text, std::borrow::Cow::Owned(_)) {
        return Ok(Err(refused("has a descriptor that is not valid UTF-8")));
    }
    Ok(vmdk_names(&text, has_extents))
}

/// Kinds of parts that QEMU reads.
const PART_KINDS: [&[u8]; 5] = [b"FLAT", b"VMFS", b"SPARSE", b"VMFSSPARSE", b"SESPARSE"];

/// Finds what QEMU finds, as it finds it: it reads the text from each line's beginning by `scanf`, to which a line's end is a
/// space like any other.
fn vmdk_names(descriptor: &str, has_extents: bool) -> Result<Names, Why> {
    const PARENT: &str = "parentFileNameHint=\"";
    let mut names = Names::default();
    let mut line = descriptor.as_bytes();
    while has_extents && !line.is_empty() {
        names.extents.extend(scan_part(line)?);
        let end = line.iter().position(|byte| *byte == b'\n').map_or(line.len(), |at| at + 1);
        line = line.get(end..).unwrap_or_default();
    }
    names.backing = descriptor.find(PARENT).and_then(|at| {
        let hint = descriptor.get(at + PARENT.len()..)?.split(['"', '\n', '\r']).next()?;
        Some((hint.to_owned(), None))
    });
    let parent = descriptor.find("parentCID=").and_then(|at| descriptor.get(at + 10..at + 18));
    if names.backing.is_none() && parent.is_some_and(|parent| !parent.eq_ignore_ascii_case("ffffffff")) {
        return Err(refused("has only the differences to another image and does not say to which"));
    }
    Ok(names)
}

/// Reads `ACCESS SECTORS KIND "NAME" OFFSET` as `scanf("%10s %lld %10s \"%511[^\n\r\"]\" %lld")` does.
///
/// # Errors
/// For a part that QEMU leaves out, so that what follows takes its place, or reads twice.
fn scan_part(text: &[u8]) -> Result<Option<Part>, Why> {
    /// QEMU cuts off what is longer.
    const NAME_MAX: usize = 511;
    let lead = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0B);
    let is_after_blank = lead.clone().any(|byte| *byte == b'\n');
    let Some((access, rest)) = scan_word(text) else { return Ok(None) };
    let Some((sectors, rest)) = scan_number(rest) else { return Ok(None) };
    if !matches!(access, b"RW" | b"RDONLY" | b"NOACCESS") {
        return Ok(None);
    }
    if is_after_blank {
        return Err(refused("has an empty line before a part, which QEMU would take for two"));
    }
    let (kind, rest) = scan_word(rest).unwrap_or_default();
    let quoted = skip_spaces(rest).strip_prefix(b"\"").unwrap_or_default();
    let len = quoted.iter().position(|byte| matches!(byte, b'\n' | b'\r' | b'"')).unwrap_or(quoted.len());
    let (name, after) = quoted.split_at_checked(len).unwrap_or_default();
    if access != b"RW" || sectors <= 0 || name.is_empty() || !PART_KINDS.contains(&kind) {
        let (access, kind) = (String::from_utf8_lossy(access), String::from_utf8_lossy(kind));
        return Err(refused(&format!("has a part {access} {kind}, which cannot be read")));
    }
    if name.len() > NAME_MAX {
        return Err(refused("has a part whose name is too long"));
    }
    let is_flat = matches!(kind, b"FLAT" | b"VMFS");
    let offset = after.strip_prefix(b"\"").and_then(scan_number).map_or(0, |(offset, _)| offset);
    let end = u64::try_from(offset.saturating_add(sectors)).unwrap_or(0);
    let name = String::from_utf8_lossy(name).into_owned();
    Ok(Some(Part { name, len: if is_flat { end.saturating_mul(512) } else { 0 } }))
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    let len = text.iter().take_while(|byte| byte.is_ascii_whitespace() || **byte == 0x0B).count();
    text.get(len..).unwrap_or_default()
}

/// `%10s`
fn scan_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = skip_spaces(text);
    let len = text.iter().take(10).take_while(|byte| !(byte.is_ascii_whitespace() || **byte == 0x0B)).count();
    (len > 0).then(|| text.split_at_checked(len)).flatten()
}

/// `%lld`, which cannot be larger than it can be.
fn scan_number(text: &[u8]) -> Option<(i64, &[u8])> {
    let text = skip_spaces(text);
    let (is_negative, digits) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, text),
    };
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = digits.split_at_checked(len).filter(|_| len > 0)?;
    let value = digits.iter().fold(0_i64, |sum, digit| {
        sum.saturating_mul(10).saturating_add(i64::from(digit.saturating_sub(b'0')))
    });
    Some((if is_negative { -value } else { value }, rest))
}

/// QEMU reads zeros beyond the end of a VDI.
fn vdi(file: &RawDisk) -> Found {
    let head = read(file, 0, 512)?;
    let field = |at| bytes_at(&head, at).map_or(0, |bytes| u64::from(u32::from_le_bytes(bytes)));
    let (data_at, block_bytes, blocks) = (field(344), field(376), field(388));
    let len = block_bytes.saturating_mul(blocks).saturating_add(data_at);
    if file.size_bytes() < len {
        return Ok(Err(damaged(format!("is cut off: it must have {len} bytes"))));
    }
    Ok(Ok(Names::default()))
}

/// QEMU would read a VHD of differences as if what it lacks were zeros.
fn vhd(file: &RawDisk) -> Found {
    const FIXED: u32 = 2;
    const DIFFERENCES: u32 = 4;
    for at in [0, file.size_bytes().saturating_sub(512)] {
        let footer = read(file, at, 512)?;
        if footer.starts_with(b"conectix") && be32(&footer, 60) == Some(DIFFERENCES) {
            return Ok(Err(refused(
                "has only the differences to another image, which cannot be read; merge the two",
            )));
        }
    }
    let footer = read(file, file.size_bytes().saturating_sub(512), 512)?;
    let disk = bytes_at(&footer, 48).map_or(0, u64::from_be_bytes);
    let is_fixed = footer.starts_with(b"conectix") && be32(&footer, 60) == Some(FIXED);
    if is_fixed && file.size_bytes() < disk.saturating_add(512) {
        return Ok(Err(damaged(format!("is cut off: its disk has {disk} bytes"))));
    }
    Ok(Ok(Names::default()))
}

#[cfg(test)]
mod tests;
