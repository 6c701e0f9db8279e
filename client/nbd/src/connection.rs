//! One connection to an export. One request is under way at a time; replies may come in chunks, in any order.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::address::Address;
use crate::error::{NbdError, printable};
use crate::handshake::{Agreed, negotiate};
use crate::stream::{Stream, Timed};
use crate::wire::{
    CHUNK_MAGIC, DESCRIPTORS_MAX, Request, SEND_FLUSH, SEND_FUA, SIMPLE_REPLY_MAGIC, STATE_ZERO, TEXT_MAX,
    chunk, command, read_u16, read_u32, read_u64,
};

/// A whole request may take this long: storage that hangs for minutes is told from storage that is gone.
pub(crate) const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// Deadlines that a flush has: a server may write gigabytes to slow disks before it answers.
const FLUSH_DEADLINES: u32 = 12;
/// Time to disconnect from the server.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A part of an export that is alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the extent; never 0.
    pub len: u64,
    /// Reads as zeros; otherwise nothing is known of it.
    pub zero: bool,
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    agreed: Agreed,
    cookie: u64,
    timeout: Duration,
}

/// Head of a reply, or of a part of one.
enum Head {
    Simple { error: u32 },
    Chunk { done: bool, kind: u16, len: u32 },
}

impl Connection {
    /// Connects and negotiates within `timeout`.
    pub(crate) fn open(address: &Address, timeout: Duration) -> Result<Self, NbdError> {
        Self::over(Timed::connect(&address.transport, timeout)?, address, timeout)
    }

    pub(crate) fn over(socket: Timed, address: &Address, timeout: Duration) -> Result<Self, NbdError> {
        let mut plain = Stream::Plain(socket);
        plain.allow(timeout);
        let Stream::Plain(plain) = plain else { return Err(NbdError::Lost) };
        let (stream, agreed) = negotiate(plain, address)?;
        Ok(Self { stream, agreed, cookie: 0, timeout: REQUEST_TIMEOUT })
    }

    pub(crate) const fn agreed(&self) -> &Agreed {
        &self.agreed
    }

    #[cfg(test)]
    pub(crate) const fn give(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Fills `buffer` with the bytes from `offset` on, which must be whole blocks, within the export, and no more than
    /// one request may read.
    pub(crate) fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), NbdError> {
        self.request(command::READ, 0, offset, buffer.len() as u64)?;
        if !self.agreed.structured {
            return match self.head()? {
                Head::Simple { error: 0 } => Ok(self.stream.read_exact(buffer)?),
                Head::Simple { error } => Err(answered(error, "")),
                Head::Chunk { .. } => Err(NbdError::violation("a chunk, which was not agreed on")),
            };
        }
        let mut covered = Covered::of(offset, buffer.len() as u64);
        let mut failure = None;
        loop {
            let Head::Chunk { done, kind, len } = self.head()? else {
                return Err(NbdError::violation("a simple reply to a read"));
            };
            match kind {
                chunk::NONE => none(done, len)?,
                chunk::OFFSET_DATA => {
                    let at = self.chunk_offset(len > 8)?;
                    let start = covered.add(at, u64::from(len) - 8)?;
                    let part = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..len as usize - 8));
                    self.stream
                        .read_exact(part.ok_or_else(|| NbdError::violation("data beyond the request"))?)?;
                }
                chunk::OFFSET_HOLE => {
                    let at = self.chunk_offset(len == 12)?;
                    let hole = read_u32(&mut self.stream)?;
                    let start = covered.add(at, u64::from(hole))?;
                    let part = buffer.get_mut(start..).and_then(|rest| rest.get_mut(..hole as usize));
                    part.ok_or_else(|| NbdError::violation("a hole beyond the request"))?.fill(0);
                }
                kind => failure = failure.or(Some(self.error_chunk(kind, len)?)),
            }
            if done {
                return failure.map_or_else(|| covered.complete(), Err);
            }
        }
    }

    /// Returns the allocation status of the `len` bytes from `offset` on, whole blocks within the export: extents that
    /// cover at least the first of them, and reach beyond the last at most to the end of the export. With `one`, a
    /// single extent is enough and does not reach beyond.
    pub(crate) fn block_status(&mut self, offset: u64, len: u32, one: bool) -> Result<Vec<Extent>, NbdError> {
        let context = self.agreed.allocation.ok_or_else(|| NbdError::violation("no status was agreed on"))?;
        self.request(command::BLOCK_STATUS, if one { command::REQ_ONE } else { 0 }, offset, u64::from(len))?;
        let (mut found, mut failure) = (None, None);
        loop {
            let (done, kind, chunk_len) = match self.head()? {
                Head::Chunk { done, kind, len } => (done, kind, len),
                Head::Simple { error: 0 } => return Err(NbdError::violation("a status without any extent")),
                Head::Simple { error } => return Err(answered(error, "")),
            };
            match kind {
                chunk::NONE => none(done, chunk_len)?,
                chunk::BLOCK_STATUS => {
                    let most = if one { 1 } else { DESCRIPTORS_MAX };
                    let extents = self.descriptors(context, chunk_len, most)?;
                    if found.replace(self.checked(extents, offset, len, one)?).is_some() {
                        return Err(NbdError::violation("two statuses in one reply"));
                    }
                }
                kind => failure = failure.or(Some(self.error_chunk(kind, chunk_len)?)),
            }
            if done {
                let missing = || NbdError::violation("a reply without a status");
                return failure.map_or_else(|| found.ok_or_else(missing), Err);
            }
        }
    }

    /// Reads descriptors of extents, joining neighbours that are alike.
    fn descriptors(&mut self, context: u32, len: u32, most: u32) -> Result<Vec<Extent>, NbdError> {
        let count = len.checked_sub(4).filter(|rest| rest % 8 == 0).map(|rest| rest / 8);
        let Some(count) = count.filter(|count| (1..=most).contains(count)) else {
            return Err(NbdError::violation(format!("a status of {len} bytes")));
        };
        let mut bytes = vec![0; len as usize];
        self.stream.read_exact(&mut bytes)?;
        let bytes = &mut bytes.as_slice();
        if read_u32(bytes)? != context {
            return Err(NbdError::violation("the status of another context"));
        }
        let mut extents: Vec<Extent> = Vec::new();
        for _ in 0..count {
            let (len, status) = (u64::from(read_u32(bytes)?), read_u32(bytes)?);
            let zero = status & STATE_ZERO != 0;
            if len == 0 {
                return Err(NbdError::violation("an extent of no bytes"));
            }
            match extents.last_mut().filter(|last| last.zero == zero) {
                Some(last) => last.len += len,
                None => extents.push(Extent { len, zero }),
            }
        }
        Ok(extents)
    }

    /// Cuts what reaches beyond the export. Only the last extent may.
    fn checked(
        &self,
        mut extents: Vec<Extent>,
        offset: u64,
        len: u32,
        one: bool,
    ) -> Result<Vec<Extent>, NbdError> {
        let room = self.agreed.size_bytes - offset;
        let total: u64 = extents.iter().map(|extent| extent.len).sum();
        if let Some(last) = extents.last_mut() {
            let before = total - last.len;
            if before >= u64::from(len) || one && total > u64::from(len) {
                return Err(NbdError::violation(format!(
                    "a status of {total} bytes for a question about {len}"
                )));
            }
            last.len = last.len.min(room - before);
        }
        Ok(extents)
    }

    /// Writes bytes, whole blocks within the export, and no more than one request may carry.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), NbdError> {
        let flags = self.write_flags();
        self.begin(command::WRITE, flags, offset, bytes.len() as u64)?;
        self.stream.write_all(bytes)?;
        self.stream.flush()?;
        self.done()
    }

    /// Makes whole blocks within the export zero; the server may make them a hole. For a server with `SEND_WRITE_ZEROES`.
    pub(crate) fn write_zeroes(&mut self, offset: u64, len: u64) -> Result<(), NbdError> {
        self.request(command::WRITE_ZEROES, self.write_flags(), offset, len)?;
        self.done()
    }

    /// Makes durable what was answered before, on any connection. For a server with `SEND_FLUSH`.
    pub(crate) fn flush(&mut self) -> Result<(), NbdError> {
        self.send(command::FLUSH, 0, 0, 0)?;
        self.stream.flush()?;
        self.stream.allow(self.timeout * FLUSH_DEADLINES);
        self.done()
    }

    /// Where a server knows no flush, each write is to be durable by itself, if it knows that.
    const fn write_flags(&self) -> u16 {
        if self.agreed.flags & (SEND_FLUSH | SEND_FUA) == SEND_FUA { command::FUA } else { 0 }
    }

    /// Reads the reply to a request that is answered without data.
    fn done(&mut self) -> Result<(), NbdError> {
        let mut failure = None;
        loop {
            let (done, kind, len) = match self.head()? {
                Head::Simple { error: 0 } if failure.is_none() => return Ok(()),
                Head::Simple { error } => return Err(answered(error, "")),
                Head::Chunk { .. } if !self.agreed.structured => {
                    return Err(NbdError::violation("a chunk, which was not agreed on"));
                }
                Head::Chunk { done, kind, len } => (done, kind, len),
            };
            match kind {
                chunk::NONE => none(done, len)?,
                kind => failure = failure.or(Some(self.error_chunk(kind, len)?)),
            }
            if done {
                return failure.map_or(Ok(()), Err);
            }
        }
    }

    fn request(&mut self, command: u16, flags: u16, offset: u64, len: u64) -> Result<(), NbdError> {
        self.begin(command, flags, offset, len)?;
        Ok(self.stream.flush()?)
    }

    /// Sends a request about bytes of the export; a payload may follow.
    fn begin(&mut self, command: u16, flags: u16, offset: u64, len: u64) -> Result<(), NbdError> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.agreed.size_bytes);
        let len = u32::try_from(len).ok().filter(|len| inside && *len > 0);
        let len = len.ok_or(NbdError::PastEnd(self.agreed.size_bytes))?;
        self.send(command, flags, offset, len)
    }

    fn send(&mut self, command: u16, flags: u16, offset: u64, len: u32) -> Result<(), NbdError> {
        self.cookie += 1;
        self.stream.allow(self.timeout);
        let request = Request { flags, command, cookie: self.cookie, offset, len };
        Ok(self.stream.write_all(&request.encode())?)
    }

    fn head(&mut self) -> Result<Head, NbdError> {
        let magic = read_u32(&mut self.stream)?;
        let (head, cookie) = match magic {
            SIMPLE_REPLY_MAGIC => {
                let error = read_u32(&mut self.stream)?;
                (Head::Simple { error }, read_u64(&mut self.stream)?)
            }
            CHUNK_MAGIC => {
                let (flags, kind) = (read_u16(&mut self.stream)?, read_u16(&mut self.stream)?);
                let cookie = read_u64(&mut self.stream)?;
                let len = read_u32(&mut self.stream)?;
                (Head::Chunk { done: flags & chunk::DONE != 0, kind, len }, cookie)
            }
            _ => return Err(NbdError::violation(format!("a reply that begins with {magic:#x}"))),
        };
        if cookie != self.cookie {
            return Err(NbdError::violation(format!("a reply to request {cookie}, which is not under way")));
        }
        Ok(head)
    }

    /// Offset that a chunk of data begins with, if its length is right.
    fn chunk_offset(&mut self, right: bool) -> Result<u64, NbdError> {
        if right {
            Ok(read_u64(&mut self.stream)?)
        } else {
            Err(NbdError::violation("a chunk of a wrong length"))
        }
    }

    /// The error that a chunk tells; what is no error may not be there at all.
    fn error_chunk(&mut self, kind: u16, len: u32) -> Result<NbdError, NbdError> {
        if kind & chunk::ERROR == 0 {
            return Err(NbdError::violation(format!("a chunk of kind {kind}")));
        }
        // An offset may follow the text; kinds that are not known yet may add a few fields.
        let wrong = || NbdError::violation(format!("an error of {len} bytes"));
        let rest = (len as usize).checked_sub(6).filter(|rest| *rest <= TEXT_MAX + 64).ok_or_else(wrong)?;
        let error = read_u32(&mut self.stream)?;
        let text_len = usize::from(read_u16(&mut self.stream)?);
        let mut text = vec![0; rest];
        self.stream.read_exact(&mut text)?;
        let text = text.get(..text_len).filter(|_| error != 0).ok_or_else(wrong)?;
        Ok(answered(error, &printable(text)))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stream.allow(CLOSE_TIMEOUT);
        let goodbye = Request { flags: 0, command: command::DISCONNECT, cookie: 0, offset: 0, len: 0 };
        drop(self.stream.write_all(&goodbye.encode()));
        drop(self.stream.flush());
        self.stream.close();
    }
}

fn none(done: bool, len: u32) -> Result<(), NbdError> {
    if done && len == 0 { Ok(()) } else { Err(NbdError::violation("an end that is none")) }
}

fn answered(error: u32, text: &str) -> NbdError {
    let name = match error {
        1 => "operation not permitted",
        5 => "input/output error",
        12 => "out of memory",
        22 => "invalid argument",
        28 => "no space left",
        75 => "value too large",
        95 => "not supported",
        108 => "it is shutting down",
        _ => "unknown error",
    };
    let text = if text.is_empty() { String::new() } else { format!(": {text}") };
    NbdError::Answered(format!("{name} (error {error}){text}"))
}

/// Parts of a request that a reply has told.
struct Covered {
    offset: u64,
    len: u64,
    /// Start and end, joined with neighbours.
    parts: BTreeMap<u64, u64>,
}

impl Covered {
    const fn of(offset: u64, len: u64) -> Self {
        Self { offset, len, parts: BTreeMap::new() }
    }

    /// Adds a part, and returns where in the request it begins.
    fn add(&mut self, at: u64, len: u64) -> Result<usize, NbdError> {
        let inside = || {
            let start = at.checked_sub(self.offset)?;
            let end = start.checked_add(len).filter(|end| len > 0 && *end <= self.len)?;
            Some((start, end))
        };
        let Some((start, end)) = inside() else {
            return Err(NbdError::violation(format!("a chunk of {len} bytes at {at}, beyond the request")));
        };
        let before = self.parts.range(..end).next_back().map(|(start, end)| (*start, *end));
        if before.is_some_and(|(_, before_end)| before_end > start) {
            return Err(NbdError::violation(format!("a chunk of {len} bytes at {at}, told twice")));
        }
        let joined =
            before.filter(|(_, before_end)| *before_end == start).map_or(start, |(before, _)| before);
        let end = self.parts.remove(&end).unwrap_or(end);
        self.parts.insert(joined, end);
        usize::try_from(start).map_err(|_| NbdError::violation("a chunk beyond memory"))
    }

    fn complete(&self) -> Result<(), NbdError> {
        if self.parts.get(&0) == Some(&self.len) {
            Ok(())
        } else {
            Err(NbdError::violation("a reply that leaves out a part of the request"))
        }
    }
}
