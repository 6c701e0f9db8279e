//! One client's requests. What is in memory is answered at once by the thread that reads requests; other requests go to workers,
//! so that several are waited for side by side, and answered in any order.

use std::collections::VecDeque;
use std::io::{self, BufReader, ErrorKind, Read as _, Write as _};
use std::ops::Range;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::connection::Extent;
use crate::error::printable;
use crate::offer::{CONTEXT, Chosen};
use crate::stream::Socket;
use crate::wire::{
    CHUNK_MAGIC, PAYLOAD_MAX, Request, SIMPLE_REPLY_MAGIC, STATE_HOLE, STATE_ZERO, TEXT_MAX, chunk, command,
    errno,
};

/// Threads of one client that wait for data.
pub(crate) const WORKERS_MAX: usize = 8;
/// Requests of a client that wait for a worker; more are not read.
const WAITING_MAX: usize = 64;
/// Bytes of a disk in one chunk of a reply: the buffer of each thread.
const PART_BYTES: u32 = 256 << 10;
/// Time for one write to a client that does not read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Extents in one answer.
const EXTENTS_MAX: usize = 1 << 14;
/// Bytes of a header before the data of a chunk: that of the chunk, and the offset.
const CHUNK_HEAD: usize = 28;
/// Longest extent that one descriptor tells of: whole blocks of every client.
const DESCRIPTOR_MAX: u64 = (u32::MAX as u64 + 1) - (64 << 10);

/// A client that has chosen its disk.
pub(crate) struct Session {
    chosen: Chosen,
    socket: Socket,
    writer: Mutex<Socket>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Request>,
    workers: usize,
    idle: usize,
    ended: bool,
}

/// A failed request: the number that clients know, and a text.
struct Failure {
    number: u32,
    text: String,
}

impl Failure {
    fn new(number: u32, text: &str) -> Self {
        Self { number, text: text.to_owned() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(errno::INPUT_OUTPUT, &error.to_string())
    }
}

impl Session {
    pub(crate) fn new(socket: Socket, chosen: Chosen) -> io::Result<Self> {
        socket.limit(None, Some(WRITE_TIMEOUT))?;
        let writer = Mutex::new(socket.try_clone()?);
        Ok(Self { chosen, socket, writer, queue: Mutex::default(), changed: Condvar::new() })
    }

    /// Answers requests until the client ends the connection or breaks the protocol.
    pub(crate) fn serve(&self) -> io::Result<()> {
        std::thread::scope(|scope| {
            let outcome = self.requests(|| {
                let worker = std::thread::Builder::new().name("nbd-worker".to_owned());
                worker.spawn_scoped(scope, || self.work()).map(drop)
            });
            if outcome.is_err() {
                self.socket.close();
            }
            self.queue.lock().ended = true;
            self.changed.notify_all();
            outcome
        })
    }

    fn requests(&self, hire: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(4 << 10, self.socket.try_clone()?);
        let mut buffer = Vec::new();
        while let Some(request) = Request::read(&mut reader)? {
            if request.command == command::DISCONNECT {
                return Ok(());
            }
            if request.command == command::WRITE {
                // Its data follow. Without them, what comes next would not be a request.
                let sent = if request.len > PAYLOAD_MAX { 0 } else { request.len.into() };
                if io::copy(&mut (&mut reader).take(sent), &mut io::sink())? < u64::from(request.len) {
                    return Err(ErrorKind::InvalidData.into());
                }
            }
            let range = self.range(&request);
            let at_hand = match (&range, request.command) {
                (Ok(range), command::READ) if request.len <= PART_BYTES => {
                    self.chosen.disk.is_at_hand(range.clone())
                }
                (Ok(_), command::READ | command::BLOCK_STATUS) => false,
                _ => true,
            };
            if at_hand {
                self.answer(&request, &mut buffer)?;
            } else {
                self.enqueue(request, &hire)?;
            }
        }
        Ok(())
    }

    /// Hands a request to a worker. Waits while too many are waiting already.
    fn enqueue(&self, request: Request, hire: &impl Fn() -> io::Result<()>) -> io::Result<()> {
        let mut queue = self.queue.lock();
        while queue.waiting.len() >= WAITING_MAX && !queue.ended {
            self.changed.wait(&mut queue);
        }
        if queue.ended {
            return Err(ErrorKind::ConnectionAborted.into());
        }
        queue.waiting.push_back(request);
        let more = queue.idle < queue.waiting.len() && queue.workers < WORKERS_MAX;
        queue.workers += usize::from(more);
        drop(queue);
        self.changed.notify_all();
        if more { hire() } else { Ok(()) }
    }

    /// Answers requests of the queue until there are no more.
    fn work(&self) {
        let mut buffer = Vec::new();
        let mut queue = self.queue.lock();
        loop {
            if let Some(request) = queue.waiting.pop_front() {
                drop(queue);
                self.changed.notify_all();
                let answered = self.answer(&request, &mut buffer);
                queue = self.queue.lock();
                if answered.is_err() {
                    self.socket.close();
                    queue.waiting.clear();
                    queue.ended = true;
                    self.changed.notify_all();
                }
            } else if queue.ended {
                return;
            } else {
                queue.idle += 1;
                self.changed.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }

    /// The bytes that a request is about, if the disk has them.
    fn range(&self, request: &Request) -> Result<Range<u64>, Failure> {
        let end = request.offset.checked_add(request.len.into()).filter(|_| request.len > 0);
        let end = end.filter(|end| *end <= self.chosen.disk.size_bytes());
        end.map(|end| request.offset..end)
            .ok_or_else(|| Failure::new(errno::INVALID, "the range is empty or reaches beyond the export"))
    }

    /// Answers a request. An error ends the connection.
    fn answer(&self, request: &Request, buffer: &mut Vec<u8>) -> io::Result<()> {
        let range = match request.command {
            command::READ if request.len > PAYLOAD_MAX => {
                Err(Failure::new(errno::INVALID, "one read may have 32 MiB at most"))
            }
            command::READ => self.range(request),
            command::BLOCK_STATUS if !self.chosen.allocation => {
                Err(Failure::new(errno::INVALID, "no metadata context was chosen"))
            }
            command::BLOCK_STATUS => self.range(request),
            command::WRITE | command::TRIM | command::WRITE_ZEROES => {
                Err(Failure::new(errno::NOT_PERMITTED, "the export is read-only"))
            }
            _ => Err(Failure::new(errno::INVALID, "there is no such command")),
        };
        match range {
            Err(failure) => self.fail(request, &failure),
            Ok(range) if request.command == command::BLOCK_STATUS => self.status(request, range),
            Ok(range) if self.chosen.structured => self.read(request, range, buffer),
            Ok(range) => self.read_simple(request, range, buffer),
        }
    }

    /// Answers a read in chunks of at most [`PART_BYTES`].
    fn read(&self, request: &Request, range: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from((range.end - at).min(PART_BYTES.into())).map_err(io::Error::other)?;
            let end = at + len as u64;
            let flags = if end == range.end { chunk::DONE } else { 0 };
            buffer.clear();
            buffer.extend(chunk_head(request, flags, chunk::OFFSET_DATA, len + 8)?);
            buffer.extend(at.to_be_bytes());
            if let Err(failure) = self.fill(buffer, CHUNK_HEAD, at, len) {
                return self.fail(request, &failure);
            }
            self.writer.lock().write_all(buffer)?;
            at = end;
        }
        Ok(())
    }

    /// Answers a read whose client knows no chunks. Once a part is sent, what fails can only end the connection; no other reply
    /// may come between the parts.
    fn read_simple(&self, request: &Request, range: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
        let mut writer = None;
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from((range.end - at).min(PART_BYTES.into())).map_err(io::Error::other)?;
            buffer.clear();
            if at == range.start {
                buffer.extend(simple_head(request, 0));
            }
            let head = buffer.len();
            match self.fill(buffer, head, at, len) {
                Ok(()) => writer.get_or_insert_with(|| self.writer.lock()).write_all(buffer)?,
                Err(failure) if at == range.start => return self.fail(request, &failure),
                Err(failure) => return Err(io::Error::other(failure.text)),
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Appends bytes of the disk to the `head` bytes in the buffer.
    fn fill(&self, buffer: &mut Vec<u8>, head: usize, at: u64, len: usize) -> Result<(), Failure> {
        buffer.resize(head + len, 0);
        let part = buffer.get_mut(head..).unwrap_or_default();
        Ok(self.chosen.disk.read_at(at, part)?)
    }

    fn status(&self, request: &Request, range: Range<u64>) -> io::Result<()> {
        let extents = match self.chosen.disk.extents(range.clone()) {
            Ok(extents) => extents,
            Err(error) => return self.fail(request, &error.into()),
        };
        let most = if request.flags & command::REQ_ONE != 0 { 1 } else { EXTENTS_MAX };
        let mut body = CONTEXT.to_be_bytes().to_vec();
        let mut at = range.start;
        for Extent { len, zero } in extents.into_iter().take(most) {
            let len = len.min(range.end - at).min(DESCRIPTOR_MAX);
            if len == 0 {
                break;
            }
            let state = if zero { STATE_ZERO | STATE_HOLE } else { 0 };
            body.extend(
                [u32::try_from(len).map_err(io::Error::other)?, state].map(u32::to_be_bytes).concat(),
            );
            at += len;
            if len == DESCRIPTOR_MAX {
                break;
            }
        }
        if at == range.start {
            return self.fail(request, &Failure::new(errno::INPUT_OUTPUT, "nothing is known of these bytes"));
        }
        let mut reply = chunk_head(request, chunk::DONE, chunk::BLOCK_STATUS, body.len())?;
        reply.extend(body);
        self.writer.lock().write_all(&reply)
    }

    fn fail(&self, request: &Request, failure: &Failure) -> io::Result<()> {
        if !self.chosen.structured {
            return self.writer.lock().write_all(&simple_head(request, failure.number));
        }
        let mut text = printable(failure.text.as_bytes());
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        let len = u16::try_from(text.len()).map_err(io::Error::other)?;
        let mut reply = chunk_head(request, chunk::DONE, chunk::FAILED, text.len() + 6)?;
        reply.extend(failure.number.to_be_bytes());
        reply.extend(len.to_be_bytes());
        reply.extend(text.as_bytes());
        self.writer.lock().write_all(&reply)
    }
}

fn chunk_head(request: &Request, flags: u16, kind: u16, len: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(CHUNK_HEAD);
    head.extend(CHUNK_MAGIC.to_be_bytes());
    head.extend([flags, kind].map(u16::to_be_bytes).concat());
    head.extend(request.cookie.to_be_bytes());
    head.extend(u32::try_from(len).map_err(io::Error::other)?.to_be_bytes());
    Ok(head)
}

fn simple_head(request: &Request, error: u32) -> Vec<u8> {
    let mut head = [SIMPLE_REPLY_MAGIC, error].map(u32::to_be_bytes).concat();
    head.extend(request.cookie.to_be_bytes());
    head
}
