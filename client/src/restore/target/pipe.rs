//! A pipe, such as standard output: bytes can only be written in order.

use std::io::Write;
use std::path::Path;

use holdfast_proto::limits::{EXTENT_BYTES, WINDOW_EXTENTS};
use parking_lot::Mutex;

use super::{Target, failed};
use crate::error::ClientError;

/// A pipe: windows are put together in memory and written one after another.
pub struct PipeTarget<W> {
    state: Mutex<Pipe<W>>,
}

/// The window being put together.
struct Pipe<W> {
    window: Vec<u8>,
    window_start: u64,
    writer: W,
}

impl<W: Write + Send> PipeTarget<W> {
    /// A pipe into `writer`. Takes the memory of one window, 64 MiB.
    pub fn new(writer: W) -> Self {
        let window = vec![0; WINDOW_EXTENTS * EXTENT_BYTES as usize];
        Self { state: Mutex::new(Pipe { window, window_start: 0, writer }) }
    }
}

impl<W> std::fmt::Debug for PipeTarget<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PipeTarget")
    }
}

impl<W> Pipe<W> {
    /// The window's bytes from `offset` on the disk.
    fn part(&mut self, offset: u64, len: u64) -> Option<&mut [u8]> {
        let start = usize::try_from(offset.checked_sub(self.window_start)?).ok()?;
        self.window.get_mut(start..start.checked_add(usize::try_from(len).ok()?)?)
    }
}

const OUTSIDE: ClientError = ClientError::Internal("bytes outside the window being restored");

impl<W: Write + Send> Target for PipeTarget<W> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        self.state.lock().part(offset, bytes.len() as u64).ok_or(OUTSIDE)?.copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.state.lock().part(offset, len).ok_or(OUTSIDE)?.fill(0);
        Ok(())
    }

    fn needs_order(&self) -> bool {
        true
    }

    fn window_done(&self, start: u64, end: u64) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        if start != state.window_start {
            return Err(OUTSIDE);
        }
        let Pipe { window, window_start, writer } = &mut *state;
        let len = end.checked_sub(start).and_then(|len| usize::try_from(len).ok()).ok_or(OUTSIDE)?;
        writer
            .write_all(window.get(..len).ok_or(OUTSIDE)?)
            .map_err(failed("writing", Path::new("standard output")))?;
        *window_start = end;
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        self.state.lock().writer.flush().map_err(failed("writing", Path::new("standard output")))
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "test disks are small")]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_gets_windows_in_order() {
        let extent = u64::from(EXTENT_BYTES);
        let window = WINDOW_EXTENTS as u64 * extent;
        let pipe = PipeTarget::new(Vec::new());
        pipe.write_at(extent, b"two").unwrap();
        pipe.write_at(0, b"one").unwrap();
        pipe.window_done(0, window).unwrap();
        assert!(pipe.write_at(0, b"late").is_err() && pipe.write_at(2 * window, b"early").is_err());
        pipe.zero(window, 10).unwrap();
        pipe.write_at(window + 7, b"end").unwrap();
        pipe.window_done(window, window + 10).unwrap();
        assert!(pipe.window_done(window, window + 10).is_err());
        pipe.finish().unwrap();
        let written = pipe.state.into_inner().writer;
        assert_eq!(written.len() as u64, window + 10);
        assert_eq!((&written[..3], &written[extent as usize..][..3]), (&b"one"[..], &b"two"[..]));
        assert_eq!(&written[window as usize..], b"\0\0\0\0\0\0\0end", "what the window before held is gone");
    }
}
