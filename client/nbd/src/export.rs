//! An export, read by many threads over a few connections.

use std::ops::Range;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::address::Address;
use crate::connection::{Connection, Extent};
use crate::error::NbdError;
use crate::handshake::Agreed;
use crate::wire::CAN_MULTI_CONN;

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

/// An export whose bytes can be read.
#[derive(Debug)]
pub struct Export {
    agreed: Agreed,
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
        Self { agreed, connections: Mutex::new(Connections { idle, open }), returned: Condvar::new() }
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
