//! An export, read and written by many threads over a few connections.

use std::ops::Range;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::address::Address;
use crate::connection::{Connection, Extent};
use crate::error::NbdError;
use crate::handshake::Agreed;
use crate::wire::{CAN_MULTI_CONN, READ_ONLY, SEND_FLUSH, SEND_WRITE_ZEROES};

/// Connections at most. More make `qemu-nbd`, one thread, no faster.
pub const CONNECTIONS_MAX: usize = 4;
/// Time to connect and negotiate.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time to open a further connection: some servers say that they take several and do not.
const FURTHER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes asked about at a time, when all of the last answer was zeros.
const FAR_BYTES: u64 = 1 << 30;
/// Extents collected over several answers: four times what 64 MiB in blocks of 4 KiB have, 1 MiB of memory.
const EXTENTS_MAX: usize = 1 << 16;

/// Zeros asked for at a time: what a server that has to write them writes within a request's deadline.
const ZEROES_MAX: u64 = 64 << 20;
/// Zeros sent at a time to a server that makes none itself.
const ZEROS_BYTES: u64 = 1 << 20;

/// An export whose bytes can be read, and written if the server allows it.
#[derive(Debug)]
pub struct Export {
    agreed: Agreed,
    /// Held while a part of a block is changed: another part of the same block may be another thread's.
    part: Mutex<()>,
    connections: Mutex<Connections>,
    returned: Condvar,
}

#[derive(Debug)]
struct Connections {
    idle: Vec<Connection>,
    /// Idle and in use.
    open: usize,
}

impl Export {
    /// Connects: several times where the server allows that and the export is the same each time.
    ///
    /// # Errors
    /// Any [`NbdError`] of the first connection.
    pub fn connect(address: &Address) -> Result<Self, NbdError> {
        let first = Connection::open(address, CONNECT_TIMEOUT)?;
        let agreed = *first.agreed();
        let mut idle = vec![first];
        if agreed.flags & CAN_MULTI_CONN != 0 {
            let further =
                || Connection::open(address, FURTHER_TIMEOUT).ok().filter(|c| alike(c.agreed(), &agreed));
            idle.extend(std::iter::from_fn(further).take(CONNECTIONS_MAX - 1));
        }
        Ok(Self::over(agreed, idle))
    }

    pub(crate) fn over(agreed: Agreed, idle: Vec<Connection>) -> Self {
        let open = idle.len();
        let connections = Mutex::new(Connections { idle, open });
        Self { agreed, part: Mutex::new(()), connections, returned: Condvar::new() }
    }

    /// Returns true if the server takes no writes.
    pub const fn is_read_only(&self) -> bool {
        self.agreed.flags & READ_ONLY != 0
    }

    /// Size in bytes.
    pub const fn size_bytes(&self) -> u64 {
        self.agreed.size_bytes
    }

    /// Fills `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`NbdError::PastEnd`] when the export does not have them; any other when they cannot be read. What is in the buffer
    /// then is not to be used.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        let block = u64::from(self.agreed.min_block);
        let most = u64::from(self.agreed.payload_max) / block * block;
        let mut rest = buffer;
        let mut at = offset;
        while !rest.is_empty() {
            let start = at - at % block;
            let want = (rest.len() as u64).min(most - (at - start));
            let end = at.checked_add(want).and_then(|end| end.checked_next_multiple_of(block));
            let end =
                end.filter(|end| *end <= self.size_bytes()).ok_or(NbdError::PastEnd(self.size_bytes()))?;
            let (part, after) = rest.split_at_mut(usize::try_from(want).map_err(|_| NbdError::Lost)?);
            if start == at && end == at + want {
                self.with(|connection| connection.read(at, part))?;
            } else {
                let len = usize::try_from(end - start).map_err(|_| NbdError::Lost)?;
                let mut blocks = vec![0; len];
                self.with(|connection| connection.read(start, &mut blocks))?;
                let skipped = usize::try_from(at - start).map_err(|_| NbdError::Lost)?;
                part.iter_mut().zip(blocks.iter().skip(skipped)).for_each(|(to, from)| *to = *from);
            }
            at += want;
            rest = after;
        }
        Ok(())
    }

    /// Returns the extents of `range`, data or zeros, in order and without gaps. The last may reach further, so that a
    /// large stretch of zeros takes one call. All is data where the server cannot tell.
    ///
    /// # Errors
    /// [`NbdError::PastEnd`] when the range is empty or reaches beyond the export; any other when the server cannot be
    /// asked.
    pub fn extents(&self, range: Range<u64>) -> Result<Vec<Extent>, NbdError> {
        if range.is_empty() || range.end > self.size_bytes() {
            return Err(NbdError::PastEnd(self.size_bytes()));
        }
        if self.agreed.allocation.is_none() {
            return Ok(vec![Extent { len: self.size_bytes() - range.start, zero: false }]);
        }
        let block = u64::from(self.agreed.min_block);
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = range.start;
        while at < self.size_bytes() {
            let in_zeros = extents.last().is_some_and(|last| last.zero);
            let far = at >= range.end;
            if far && !in_zeros {
                break;
            }
            let start = at - at % block;
            let wanted = if far { FAR_BYTES } else { (range.end - start).min(FAR_BYTES) };
            let len = wanted.next_multiple_of(block).min(self.size_bytes() - start);
            let len = u32::try_from(len).map_err(|_| NbdError::Lost)?;
            let found = self.with(|connection| connection.block_status(start, len, far))?;
            let end = append(&mut extents, found, start, at);
            if end == at {
                return Err(NbdError::violation("a status of less than a block"));
            }
            at = end;
            if extents.len() >= EXTENTS_MAX && at < range.end {
                // True of any bytes.
                extents.push(Extent { len: range.end - at, zero: false });
                break;
            }
        }
        Ok(extents)
    }

    /// Writes bytes at `offset`, of any alignment: of a block that is not written as a whole the rest is read first. Ranges
    /// that several threads write at once must not overlap.
    ///
    /// # Errors
    /// [`NbdError::PastEnd`] when the export has no room for them; any other when they cannot be written, and then some of
    /// them may be.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), NbdError> {
        self.end(offset, bytes.len() as u64)?;
        let block = u64::from(self.agreed.min_block);
        let most = u64::from(self.agreed.payload_max) / block * block;
        let (mut rest, mut at) = (bytes, offset);
        while !rest.is_empty() {
            let in_block = at % block;
            let len = rest.len() as u64;
            let (part, after) = if in_block == 0 && len >= block {
                split(rest, (len / block * block).min(most))
            } else {
                split(rest, len.min(block - in_block))
            };
            if in_block == 0 && part.len() as u64 >= block {
                self.with(|connection| connection.write(at, part))?;
            } else {
                self.write_part(at - in_block, in_block, part)?;
            }
            at += part.len() as u64;
            rest = after;
        }
        Ok(())
    }

    /// The end of a range, which must be within the export.
    fn end(&self, offset: u64, len: u64) -> Result<u64, NbdError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.size_bytes());
        end.ok_or(NbdError::PastEnd(self.size_bytes()))
    }

    /// Writes bytes of the block at `start`, `skipped` bytes after its beginning.
    fn write_part(&self, start: u64, skipped: u64, bytes: &[u8]) -> Result<(), NbdError> {
        let _held = self.part.lock();
        let mut whole = vec![0; self.agreed.min_block as usize];
        self.read_at(start, &mut whole)?;
        let skipped = usize::try_from(skipped).map_err(|_| NbdError::Lost)?;
        whole.iter_mut().skip(skipped).zip(bytes).for_each(|(to, from)| *to = *from);
        self.with(|connection| connection.write(start, &whole))
    }

    /// Makes `len` bytes at `offset` zero, of any alignment, as holes where the server can.
    ///
    /// # Errors
    /// The errors of [`Export::write_at`].
    pub fn zero_at(&self, offset: u64, len: u64) -> Result<(), NbdError> {
        let end = self.end(offset, len)?;
        let block = u64::from(self.agreed.min_block);
        let whole = offset.next_multiple_of(block)..end - end % block;
        if whole.is_empty() || self.agreed.flags & SEND_WRITE_ZEROES == 0 {
            return self.write_zeros(offset, end);
        }
        self.write_zeros(offset, whole.start)?;
        let mut at = whole.start;
        while at < whole.end {
            let step = (whole.end - at).min(ZEROES_MAX);
            self.with(|connection| connection.write_zeroes(at, step))?;
            at += step;
        }
        self.write_zeros(whole.end, end)
    }

    fn write_zeros(&self, mut at: u64, end: u64) -> Result<(), NbdError> {
        let longest = usize::try_from((end - at).min(ZEROS_BYTES)).map_err(|_| NbdError::Lost)?;
        let zeros = vec![0; longest];
        while at < end {
            let (part, _) = split(&zeros, end - at);
            self.write_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Makes all that was written durable, as far as the server offers that.
    ///
    /// # Errors
    /// When the server cannot, or is gone: then nothing is known of what was written.
    pub fn flush(&self) -> Result<(), NbdError> {
        if self.agreed.flags & SEND_FLUSH == 0 {
            return Ok(());
        }
        self.with(Connection::flush)
    }

    /// Works with a connection that is not in use.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, NbdError>) -> Result<T, NbdError> {
        let mut connections = self.connections.lock();
        let mut connection = loop {
            match connections.idle.pop() {
                Some(connection) => break connection,
                None if connections.open == 0 => return Err(NbdError::Lost),
                None => self.returned.wait(&mut connections),
            }
        };
        drop(connections);
        let outcome = work(&mut connection);
        let keep = outcome.as_ref().err().is_none_or(NbdError::leaves_connection);
        let broken = {
            let mut connections = self.connections.lock();
            if keep {
                connections.idle.push(connection);
                None
            } else {
                connections.open -= 1;
                Some(connection)
            }
        };
        self.returned.notify_all();
        drop(broken);
        outcome
    }
}

/// Splits after `len` bytes, or at the end.
fn split(bytes: &[u8], len: u64) -> (&[u8], &[u8]) {
    bytes.split_at(usize::try_from(len).unwrap_or(usize::MAX).min(bytes.len()))
}

/// Adds what begins at `start` to what ends at `at`, which is not before it. Returns where it ends now.
fn append(extents: &mut Vec<Extent>, found: Vec<Extent>, start: u64, at: u64) -> u64 {
    let (mut position, mut end) = (start, at);
    for Extent { len, zero } in found {
        position += len;
        let new = position.saturating_sub(end);
        if new > 0 {
            match extents.last_mut().filter(|last| last.zero == zero) {
                Some(last) => last.len += new,
                None => extents.push(Extent { len: new, zero }),
            }
            end = position;
        }
    }
    end
}

/// Contexts have ids of their own on each connection.
fn alike(one: &Agreed, other: &Agreed) -> bool {
    Agreed { allocation: None, ..*one } == Agreed { allocation: None, ..*other }
        && one.allocation.is_some() == other.allocation.is_some()
}

#[cfg(test)]
mod tests;
