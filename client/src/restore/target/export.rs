//! An export of an NBD server.
//!
//! It is written in place, as a block device is: what is on it is lost with the first write, and an interrupted restore leaves
//! it partly written. It is durable as far as the server offers that: it is asked to flush at the end, and now and then before,
//! as one request's time may not be enough for all of a disk. A flush that failed is told, though later ones succeed.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_nbd::{Address, Export, NbdError};
use parking_lot::Mutex;

use super::{Target, assert_within, failed};
use crate::error::ClientError;

/// Bytes of a disk after which the server is asked to flush.
const FLUSH_BYTES: u64 = 1 << 30;

/// An export of an NBD server, written in place.
#[derive(Debug)]
pub struct ExportTarget {
    export: Export,
    /// The address, for messages.
    path: PathBuf,
    size_bytes: u64,
    flushed: Mutex<Flushed>,
}

#[derive(Debug, Default)]
struct Flushed {
    /// Offset up to which the server was asked to flush.
    reached: u64,
    /// The first flush that failed: what it was about may be lost, whatever later ones say.
    failure: Option<NbdError>,
}

impl ExportTarget {
    /// Returns true if a place to restore to is an address.
    pub fn is_address(path: &Path) -> bool {
        Address::begins(path.as_os_str().as_encoded_bytes())
    }

    /// Connects to an export of at least `size_bytes`.
    ///
    /// # Errors
    /// [`ClientError::Usage`] for an address that cannot be followed; [`ClientError::File`] when it cannot be reached, cannot be
    /// written to or is too small.
    pub fn connect(path: &Path, size_bytes: u64) -> Result<Self, ClientError> {
        let wrong = failed("opening", path);
        let text = path.to_str().ok_or_else(|| ClientError::Usage("the address is not UTF-8".to_owned()))?;
        let address: Address =
            text.parse().map_err(|error: NbdError| ClientError::Usage(error.to_string()))?;
        let export = Export::connect(&address).map_err(|error| wrong(error.into()))?;
        if export.is_read_only() {
            return Err(wrong(io::Error::other("the server serves it read-only")));
        }
        let room = export.size_bytes();
        if room < size_bytes {
            let message =
                format!("it has {room} bytes, and the disk has {size_bytes}; choose a larger export");
            return Err(wrong(io::Error::other(message)));
        }
        Ok(Self { export, path: path.to_owned(), size_bytes, flushed: Mutex::default() })
    }

    /// Fails if a flush has.
    fn check_flushed(&self) -> Result<(), ClientError> {
        let failure = self.flushed.lock().failure.take();
        failure.map_or(Ok(()), |error| Err(failed("flushing", &self.path)(error.into())))
    }
}

impl Target for ExportTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        // Not after all of the rest was written.
        self.check_flushed()?;
        self.export.write_at(offset, bytes).map_err(|error| failed("writing", &self.path)(error.into()))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        self.export.zero_at(offset, len).map_err(|error| failed("zeroing", &self.path)(error.into()))
    }

    fn reached(&self, offset: u64) {
        let mut flushed = self.flushed.lock();
        if offset.saturating_sub(flushed.reached) < FLUSH_BYTES {
            return;
        }
        flushed.reached = offset;
        drop(flushed);
        if let Err(error) = self.export.flush() {
            let mut flushed = self.flushed.lock();
            flushed.failure = flushed.failure.take().or(Some(error));
        }
    }

    fn left_unfinished(&self) -> Option<String> {
        Some(format!("{} is partly written", self.path.display()))
    }

    fn finish(&self) -> Result<(), ClientError> {
        self.check_flushed()?;
        self.export.flush().map_err(|error| failed("flushing", &self.path)(error.into()))
    }
}
