//! An image: qcow2, VMDK, VDI, VHD or VHDX, written by QEMU's own drivers.
//!
//! Its file has another name until it is complete, as that of a raw disk. `qemu-nbd`, a child of ours, writes to it; the file
//! gets its name only when the child was told to flush, has closed the image and ended well, `qemu-img check` finds nothing
//! wrong and the file is on disk. Ranges that are not written are holes.
//!
//! QEMU's programs open the file by our descriptor of it, not by its name: who may write to its folder could put another file,
//! or a link to one, in its place.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_nbd::{Export, NbdError};
use parking_lot::Mutex;
use serde_json::Value;

use super::lock::leave_to_another;
use super::{FileOptions, FileTarget, Target, assert_within, failed};
use crate::error::ClientError;
use crate::source::Format;
use crate::source::qemu::{self, PACKAGE, QemuNbd};

/// An image, and the `qemu-nbd` that writes it.
#[derive(Debug)]
pub struct ImageTarget {
    /// `None` once the image is closed. Before `file`: the child ends before the file is removed.
    served: Mutex<Option<Served>>,
    file: FileTarget,
    /// How QEMU opens it, and what it calls it.
    node: Value,
    name: String,
    path: PathBuf,
    size_bytes: u64,
}

#[derive(Debug)]
struct Served {
    /// Before the child, which ends by itself when its client is gone.
    export: Export,
    child: QemuNbd,
}

impl ImageTarget {
    /// Makes an empty image of a disk of `size_bytes`, under its temporary name.
    ///
    /// # Errors
    /// [`ClientError::File`]; also where QEMU's programs are not installed.
    pub fn create(
        path: &Path,
        format: Format,
        size_bytes: u64,
        options: FileOptions,
    ) -> Result<Self, ClientError> {
        check_possible(path, format, size_bytes)?;
        // QEMU decides how long it is.
        let file = FileTarget::create(path, 0, options)?;
        let name = qemu::name_of(file.file());
        let wrong = |error: io::Error| {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let error = if is_missing { missing(format) } else { renamed(error, &name, file.partial()) };
            failed("making", path)(error)
        };
        leave_to_another(file.file());
        let node = qemu::create(&name, format, size_bytes).map_err(wrong)?;
        let (child, export) = QemuNbd::serve_for_writing(&node).map_err(wrong)?;
        let room = export.size_bytes();
        if room < size_bytes {
            let message =
                format!("the image has {room} bytes, and the disk has {size_bytes}: use another format");
            return Err(wrong(io::Error::other(message)));
        }
        let served = Mutex::new(Some(Served { export, child }));
        Ok(Self { served, file, node, name, path: path.to_owned(), size_bytes })
    }

    fn failed(&self, what: &'static str, child: &QemuNbd, error: NbdError) -> ClientError {
        self.failed_in_qemu(what, child.explain(error))
    }

    fn failed_in_qemu(&self, what: &'static str, error: io::Error) -> ClientError {
        failed(what, &self.path)(renamed(error, &self.name, self.file.partial()))
    }
}

/// Bytes of the largest disk that QEMU makes a VHD of.
const VHD_MAX_BYTES: u64 = 0xFF00_0000 * 512;
/// The same of VHDX.
const VHDX_MAX_BYTES: u64 = 64 << 40;

/// Checks what can be known before an image is made: its format takes a disk of this size, and QEMU's programs are there.
///
/// # Errors
/// [`ClientError::File`] with the reason.
pub fn check_possible(path: &Path, format: Format, size_bytes: u64) -> Result<(), ClientError> {
    let most_bytes = match format {
        Format::Vpc => VHD_MAX_BYTES,
        Format::Vhdx => VHDX_MAX_BYTES,
        Format::Raw | Format::Qcow2 | Format::Vmdk | Format::Vdi => u64::MAX,
    };
    let why = if size_bytes > most_bytes {
        format!(
            "the disk has {size_bytes} bytes, and a .{} {most_bytes} at most: use another format",
            format.ending()
        )
    } else if size_bytes == 0 && format == Format::Vmdk {
        "the disk has no bytes, and QEMU opens no VMDK of such a one: use another format".to_owned()
    } else if format != Format::Raw && qemu::missing().is_some() {
        return Err(failed("making", path)(missing(format)));
    } else {
        return Ok(());
    };
    Err(failed("making", path)(io::Error::other(why)))
}

/// Says that QEMU's programs are not there.
fn missing(format: Format) -> io::Error {
    let which = qemu::missing().unwrap_or("qemu-img or qemu-nbd");
    let word = format.word();
    io::Error::other(format!(
        "writing {word} takes qemu-img and qemu-nbd, and {which} is not installed; {PACKAGE}"
    ))
}

/// Calls the file by its path in what QEMU says of it.
fn renamed(error: io::Error, name: &str, path: &Path) -> io::Error {
    let said = error.to_string();
    if !said.contains(name) {
        return error;
    }
    io::Error::new(error.kind(), said.replace(name, &path.display().to_string()))
}

impl Target for ImageTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        let served = self.served.lock();
        let Some(Served { export, child }) = &*served else {
            return Err(ClientError::Internal("a write to an image that is closed"));
        };
        export.write_at(offset, bytes).map_err(|error| self.failed("writing", child, error))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        // A new image is one hole.
        Ok(())
    }

    fn left_unfinished(&self) -> Option<String> {
        self.file.left_unfinished()
    }

    fn is_untouched(&self) -> bool {
        self.file.is_untouched()
    }

    fn finish(&self) -> Result<(), ClientError> {
        let Some(Served { export, child }) = self.served.lock().take() else {
            return Err(ClientError::Internal("an image was to be finished twice"));
        };
        export.flush().map_err(|error| self.failed("flushing", &child, error))?;
        drop(export);
        let closed = child.close().and_then(|()| qemu::check(&self.node));
        closed.map_err(|error| self.failed_in_qemu("closing", error))?;
        self.file.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_no_file_of_the_format_takes_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        for (format, size_bytes, word) in [
            (Format::Vpc, VHD_MAX_BYTES + 1, "a .vhd 2190433320960 at most"),
            (Format::Vhdx, VHDX_MAX_BYTES + 1, "a .vhdx 70368744177664 at most"),
            (Format::Vmdk, 0, "no bytes"),
        ] {
            let error = ImageTarget::create(&path, format, size_bytes, FileOptions::default()).unwrap_err();
            assert!(error.to_string().contains(word), "{error}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        check_possible(&path, Format::Raw, u64::MAX).unwrap();
    }

    #[test]
    fn what_qemu_says_names_the_file_by_its_path() {
        let said =
            |text: &str| renamed(io::Error::other(text), "/proc/7/fd/9", Path::new("/x/y")).to_string();
        assert_eq!(said("qemu-img: /proc/7/fd/9: no space left"), "qemu-img: /x/y: no space left");
        assert_eq!(said("no luck"), "no luck");
    }
}
