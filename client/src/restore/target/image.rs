//! An image: qcow2, VMDK, VDI, VHD or VHDX, written by QEMU's own drivers.
//!
//! Its file has another name until it is complete, as that of a raw disk. `qemu-nbd`, a child of ours, writes to it; the file
//! gets its name only when the child was told to flush, has closed the image and ended well, `qemu-img check` finds nothing
//! wrong and the file is on disk. Ranges that are not written are holes.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_nbd::{Export, NbdError};
use parking_lot::Mutex;
use serde_json::Value;

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
    /// How QEMU opens it.
    node: Value,
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
        let wrong = |error: io::Error| {
            let missing = || {
                let word = format.word();
                io::Error::other(format!(
                    "writing {word} takes qemu-img and qemu-nbd, which are not installed; {PACKAGE}"
                ))
            };
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            failed("making", path)(if is_missing { missing() } else { error })
        };
        // QEMU decides how long it is.
        let file = FileTarget::create(path, 0, options)?;
        let node = qemu::create(file.partial(), format, size_bytes).map_err(wrong)?;
        let (child, export) = QemuNbd::serve_for_writing(&node).map_err(wrong)?;
        let room = export.size_bytes();
        if room < size_bytes {
            let message =
                format!("the image has {room} bytes, and the disk has {size_bytes}: use another format");
            return Err(wrong(io::Error::other(message)));
        }
        let served = Mutex::new(Some(Served { export, child }));
        Ok(Self { served, file, node, path: path.to_owned(), size_bytes })
    }

    fn failed(&self, what: &'static str, child: &QemuNbd, error: NbdError) -> ClientError {
        failed(what, &self.path)(child.explain(error))
    }
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

    fn finish(&self) -> Result<(), ClientError> {
        let Some(Served { export, child }) = self.served.lock().take() else {
            return Err(ClientError::Internal("an image was to be finished twice"));
        };
        export.flush().map_err(|error| self.failed("flushing", &child, error))?;
        drop(export);
        let closed = child.close().and_then(|()| qemu::check(&self.node));
        closed.map_err(failed("closing", &self.path))?;
        self.file.finish()
    }
}
